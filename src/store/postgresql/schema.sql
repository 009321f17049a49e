-- The schema of belay on PostgreSQL: its tables, made once; functions.sql has the functions. @schema@
-- stands for the schema's name. A change here needs a step in postgresql_schema.c, for schemas that exist.
--
-- Clients call functions and touch no table: the functions run with the rights of the owner
-- of the schema, and keep the rules of include/belay/store.h. All times are milliseconds of
-- the server's clock, clock_ms(), which is a wall clock.
--
-- A commit that is refused takes no transaction id, so it writes and flushes nothing. Keys are
-- locked from the last to the first of their order, so two batches cannot wait for each other.

CREATE TABLE @schema@.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL,               -- of this schema
    store_id text NOT NULL,
    epoch bigint NOT NULL,                  -- raised after a restore of a copy; part of every token
    timeline bigint NOT NULL,               -- under which, and since which start of the server,
    server_start timestamptz NOT NULL,      -- all leases count: see new_server()
    has_freezes boolean NOT NULL DEFAULT false, -- whether the list of freezes is not empty: see note_freezes()
    event_base bigint NOT NULL DEFAULT 0,   -- what the ids of events add to those of transactions: see new_server()
    clock_event bigint NOT NULL DEFAULT 0   -- the last one before all leases began again; its time is of another clock
);

-- Nothing that changes is in an index, and pages have room: updates stay in their page.
CREATE TABLE @schema@.locks (
    key text COLLATE "C" PRIMARY KEY,
    revision bigint NOT NULL,               -- 0: only locked for the batch that makes it
    held boolean NOT NULL,
    lock_id text NOT NULL,
    released_ids text[],                    -- of the last releases that were not forced, the newest first
    acquired_by text NOT NULL,
    token bigint NOT NULL,
    owner text NOT NULL,
    owner_name text NOT NULL,
    outcome smallint NOT NULL,
    durable boolean NOT NULL,
    stale_reported boolean NOT NULL,
    ttl_ms bigint NOT NULL,
    heartbeat_ms bigint NOT NULL,
    stale_after_ms bigint NOT NULL,
    expires_ms bigint NOT NULL,
    last_heartbeat_ms bigint NOT NULL,
    locked_at_ms bigint NOT NULL,
    freed_ms bigint NOT NULL,
    mode smallint NOT NULL,
    slots integer NOT NULL,
    metadata text,                          -- JSON: [[name, value], ...]; NULL: none
    tickets jsonb,                          -- NULL: none, as for the next two; by seq. The first of the queue
    intents jsonb,
    holders jsonb,                          -- by token
    behind integer NOT NULL DEFAULT 0       -- how many of the queue are in `waiting`
) WITH (fillfactor = 50, toast_tuple_target = 4000); -- a queue in the row is not worth compressing at each change

-- The rest of a long queue, so that a change of one place does not write all of them. Only if every ticket of
-- the queue is exclusive, for this key and not joint: else locks.tickets has them all.
CREATE TABLE @schema@.waiting (
    key text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    id text NOT NULL,
    expires_ms bigint NOT NULL,
    ticket jsonb NOT NULL,                  -- as in locks.tickets; expires_ms is newer
    PRIMARY KEY (key, seq)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX waiting_of_id ON @schema@.waiting (key, id);

CREATE SEQUENCE @schema@.numbers;

CREATE TABLE @schema@.events (
    id bigint PRIMARY KEY,                  -- (the transaction's id + event_base) * 16384, plus the place in the batch
    at_ms bigint NOT NULL,
    level smallint NOT NULL,
    type text NOT NULL,
    key text COLLATE "C" NOT NULL,
    lock_id text,
    token bigint NOT NULL,
    locked_by text,
    locked_by_name text,
    done_by text,
    reason text,
    duration_ms bigint NOT NULL,
    metadata text,
    used_id text                            -- lock_id, if the event says that it acquired the key
);
CREATE INDEX events_of_key ON @schema@.events (key, id);
CREATE INDEX events_of_used_id ON @schema@.events USING hash (used_id); -- NULL is not in it, which spares a condition

-- What a machine last knew of the server's clock, so that the next process on it notices a step: see
-- known_clock(). postgresql_schema.c has a copy, for schemas without it.
CREATE TABLE @schema@.clocks (
    machine text COLLATE "C" PRIMARY KEY,   -- its boot, and the time namespace
    server_start timestamptz NOT NULL,      -- of the server whose clock this is
    server_ms bigint NOT NULL,              -- that clock, in an answer that was asked for
    boot_ms bigint NOT NULL                 -- at this time of the machine's boot clock
);

CREATE TABLE @schema@.items (
    space text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value text NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (space, name)
);

-- code: 0 done, 1 refused, 2 frozen, 3 the id was used, 4 too late, 5 (not from commit()) call commit()
CREATE TYPE @schema@.answer AS (
    code integer,
    now_ms bigint,
    refused integer,
    token bigint,
    event_id bigint,
    detail text,
    record @schema@.locks
);

-- A change for change_many(), and its event: an acquisition, a release (it does not hold) or a renewal.
-- A field that is NULL stays as it is in the record. postgresql_schema.c has a copy, postgresql_change_many.c the order.
CREATE TYPE @schema@.one_change AS (
    key text,
    id text,
    acquires boolean,
    holds boolean,
    credential text,
    owner text,
    name text,
    metadata text,
    outcome smallint,
    durable boolean,
    ttl bigint,
    heartbeat bigint,
    stale_after bigint,
    must_be_new boolean,
    notes_refusal boolean,
    type text,
    level smallint,
    by text,
    reason text,
    duration bigint
);
