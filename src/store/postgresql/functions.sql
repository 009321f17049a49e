-- The functions of belay's schema on PostgreSQL, which schema.sql describes. A migration runs all of this
-- again. What is no longer here, or returns something else, postgresql_schema.c drops before.

-- Of this file. A change that earlier and later belays can both work with raises it, and PG_FUNCTIONS_VERSION: then the
-- next `belay table create` replaces the functions, and until then all goes on as before.
CREATE OR REPLACE FUNCTION @schema@.functions_version() RETURNS integer
LANGUAGE sql IMMUTABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT 5 $$;

-- ---- time ----

CREATE OR REPLACE FUNCTION @schema@.clock_ms() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT floor(date_part('epoch', clock_timestamp()) * 1000)::bigint $$; -- extract() makes a numeric, which is slow

-- a + b, at most the largest bigint
CREATE OR REPLACE FUNCTION @schema@.later(a bigint, b bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN b > 9223372036854775807 - a THEN 9223372036854775807 ELSE a + b END $$;

CREATE OR REPLACE FUNCTION @schema@.timeline() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint $$;

-- The end of a lease, ticket or intent by the clock as it is now, which may differ by any amount from the one that
-- `expires` was counted by. It gets its whole ttl again, unless the other clock has shown seen_ms, and it had certainly
-- ended by then: such a one stays as it is, but that it must have ended by this clock, too. Certainly is after a
-- takeover would have been possible (a ttl is longer than twice max_clock_step), and a minute or more. Any role may have
-- written any ttl: no sum may leave its range, or no lease of any key could begin again.
CREATE OR REPLACE FUNCTION @schema@.expires_again(expires bigint, ttl bigint, now bigint, seen_ms bigint)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN @schema@.later(greatest(expires, 0), greatest(ttl / 2, 60000)) <= seen_ms
        THEN least(expires, now - greatest(ttl / 2, 60000)) ELSE @schema@.later(now, ttl) END
$$;

-- A holder, ticket or intent likewise.
CREATE OR REPLACE FUNCTION @schema@.counted_again(part jsonb, now bigint, seen_ms bigint) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT part || jsonb_build_object('e', @schema@.expires_again((part->>'e')::bigint, (part->>'l')::bigint, now, seen_ms))
$$;

-- The last heartbeat of a lease whose end is another one now: it was renewed now, or both move together.
CREATE OR REPLACE FUNCTION @schema@.heartbeat_again(heartbeat bigint, expires bigint, new_expires bigint, now bigint)
RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN new_expires > now THEN now ELSE heartbeat - (expires - new_expires) END $$;

-- The clock may differ by any amount from the one that all leases were counted by, and holders may not
-- have reached the server for a while. Every lease gets its whole ttl again, every ticket and intent
-- the longest ttl that it can have had, but for those that had ended when that clock showed seen_ms (NULL: it is not
-- known to have shown any time). Events up to now have readings of that clock, and tell nothing of the one from now on.
--
-- The time is read for each row: calls that renew or acquire go on while a jump is reported, and what the report comes to
-- last must not end before the holder was told. PostgreSQL evaluates it again if the row has changed while this waited.
CREATE OR REPLACE FUNCTION @schema@.begin_leases_again(number bigint, seen_ms bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r @schema@.locks;
BEGIN
    -- In the order in which commit() locks rows: else each could wait for the other.
    PERFORM FROM @schema@.locks WHERE held OR tickets IS NOT NULL OR intents IS NOT NULL ORDER BY key DESC FOR UPDATE;
    UPDATE @schema@.locks l SET (revision, expires_ms, last_heartbeat_ms, holders, tickets, intents) = (
        SELECT number,
            CASE WHEN l.held THEN @schema@.expires_again(l.expires_ms, l.ttl_ms, c.now, seen_ms) ELSE l.expires_ms END,
            CASE WHEN l.held
                THEN @schema@.heartbeat_again(l.last_heartbeat_ms, l.expires_ms,
                                              @schema@.expires_again(l.expires_ms, l.ttl_ms, c.now, seen_ms), c.now)
                ELSE l.last_heartbeat_ms END,
            (SELECT jsonb_agg(h.again || jsonb_build_object('b', @schema@.heartbeat_again((h.was->>'b')::bigint,
                                  (h.was->>'e')::bigint, (h.again->>'e')::bigint, c.now)) ORDER BY h.n)
             FROM (SELECT x.h AS was, @schema@.counted_again(x.h, c.now, seen_ms) AS again, x.n
                   FROM jsonb_array_elements(l.holders) WITH ORDINALITY x(h, n)) h),
            (SELECT jsonb_agg(@schema@.counted_again(t, c.now, seen_ms) ORDER BY n)
             FROM jsonb_array_elements(l.tickets) WITH ORDINALITY x(t, n)),
            (SELECT jsonb_agg(@schema@.counted_again(i, c.now, seen_ms) ORDER BY n)
             FROM jsonb_array_elements(l.intents) WITH ORDINALITY x(i, n))
        FROM (SELECT @schema@.clock_ms() AS now) c)
    WHERE held OR tickets IS NOT NULL OR intents IS NOT NULL;
    -- FOR UPDATE: a lock that has several holders since then is not locked yet, and may change meanwhile.
    FOR r IN SELECT * FROM @schema@.locks WHERE holders IS NOT NULL FOR UPDATE LOOP
        PERFORM @schema@.save(@schema@.repeating(r, @schema@.last_to_end(r.holders)));
    END LOOP;
    UPDATE @schema@.waiting
    SET expires_ms = @schema@.expires_again(expires_ms, (ticket->>'l')::bigint, @schema@.clock_ms(), seen_ms);
    UPDATE @schema@.meta SET clock_event = coalesce((SELECT max(e.id) FROM @schema@.events e), 0);
END $$;

-- The server was started again, or another one took over. After pg_upgrade the timelines begin again at 1: the
-- epoch makes up for it, so that tokens do not fall. The ids of events continue above all that there are, which is
-- not so by itself in a restored copy, and above those that a standby has lost, up to a million transactions.
--
-- The last event has the latest reading of the old clock that is known here. A lease that had ended by then was not
-- renewed afterwards, although the standby may lack what came after the event: a renewal needs a lease that has not
-- ended. It is the last by id, not the one with the latest time, because the clock may have been set back, and each
-- renewal has an event. The order of ids differs from that of time only for transactions that ran side by side. That
-- the events of refusals may be lost in a crash does no harm: then an earlier reading counts, and more leases begin again.
--
-- While no standby answers, the first call that does this waits for one, and the others for that call.
CREATE OR REPLACE FUNCTION @schema@.new_server() RETURNS void
LANGUAGE plpgsql VOLATILE SET lock_timeout = 10000 AS $$
DECLARE
    m @schema@.meta;
BEGIN
    SELECT * INTO m FROM @schema@.meta FOR UPDATE;
    IF m.server_start = pg_postmaster_start_time() AND m.timeline = @schema@.timeline() THEN
        RETURN; -- another session was faster
    END IF;
    m.epoch := m.epoch + greatest(m.timeline - @schema@.timeline(), 0);
    IF m.timeline <> @schema@.timeline() THEN
        m.event_base := m.event_base + 1048576;
    END IF;
    m.event_base := greatest(m.event_base,
                             (((SELECT max(e.id) FROM @schema@.events e) - @schema@.first_event(0)) >> 14) + 1);
    PERFORM @schema@.begin_leases_again(@schema@.next_number(m.epoch), (
        SELECT e.at_ms FROM @schema@.events e WHERE e.id > m.clock_event ORDER BY e.id DESC LIMIT 1));
    UPDATE @schema@.meta SET server_start = pg_postmaster_start_time(), timeline = @schema@.timeline(), epoch = m.epoch,
        event_base = m.event_base;
END $$;

-- A client saw the clock jump forward, to seen_ms: it has a clock of its own to compare with, which a
-- server cannot ask for. False: the clock is elsewhere by now, and nothing was done.
CREATE OR REPLACE FUNCTION @schema@.clock_jumped(seen_ms bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = 10000 AS $$
DECLARE
    m @schema@.meta;
BEGIN
    SELECT * INTO m FROM @schema@.meta FOR UPDATE; -- one at a time
    IF abs(@schema@.clock_ms() - seen_ms) >= 30000 THEN
        RETURN false;
    END IF;
    PERFORM @schema@.begin_leases_again(@schema@.next_number(m.epoch), NULL); -- which readings to trust is not known
    DELETE FROM @schema@.clocks; -- this step is dealt with: no other machine need report it
    RETURN true;
END $$;

-- A process that begins after a step of the clock has not seen it, but its machine's boot clock has: processes
-- note what they know of both clocks, about once a minute for each machine, and the next one compares.
CREATE OR REPLACE FUNCTION @schema@.known_clock(of_machine text) RETURNS TABLE (server_ms bigint, boot_ms bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.server_ms, c.boot_ms FROM @schema@.clocks c
    WHERE c.machine = of_machine AND c.server_start = pg_postmaster_start_time()
$$;

-- Nobody waits for it to be on disk: after a crash all leases begin again anyway. What is of no use is deleted.
CREATE OR REPLACE FUNCTION @schema@.keep_clock(of_machine text, at_server_ms bigint, at_boot_ms bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO @schema@.clocks AS c VALUES (of_machine, pg_postmaster_start_time(), at_server_ms, at_boot_ms)
    ON CONFLICT (machine) DO UPDATE SET server_start = excluded.server_start, server_ms = excluded.server_ms,
        boot_ms = excluded.boot_ms;
    DELETE FROM @schema@.clocks WHERE machine IN (
        SELECT c.machine FROM @schema@.clocks c
        WHERE c.server_start <> pg_postmaster_start_time() OR c.server_ms < at_server_ms - 604800000
        LIMIT 100 FOR UPDATE SKIP LOCKED);
END $$;

-- Tokens, revisions and places in the queue. The timeline is in the upper bits: a standby that took
-- over without the last grants continues above them. Below 2^53 up to timeline 8192. The sequence has no
-- cache: sessions that keep numbers would hand them out late, after greater ones.
CREATE OR REPLACE FUNCTION @schema@.next_number(epoch bigint) RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT ((epoch + @schema@.timeline() - 1) << 40) | nextval('@schema@.numbers') $$;

-- The id of the first event of this transaction. The others follow, in 14 bits: a batch that takes 16 keys over from
-- 1000 expired holders each, with an event for each of them, has 16,032. So ids are below 2^53, which JavaScript can
-- tell apart, in the first 2^39 transactions of the server: that is 17 years with 1000 in a second.
CREATE OR REPLACE FUNCTION @schema@.first_event(event_base bigint) RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT (pg_current_xact_id()::text::bigint + event_base) << 14 $$;

-- A role that may execute functions may call them with anything. More events than a transaction has ids for would take
-- those of later ones.
CREATE OR REPLACE FUNCTION @schema@.check_events(n integer) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF n > 16384 THEN
        RAISE EXCEPTION 'a transaction has at most 16384 events, not %', n USING ERRCODE = '22023';
    END IF;
END $$;

-- ---- a record, and what a write does to it ----

CREATE OR REPLACE FUNCTION @schema@.absent(key text) RETURNS @schema@.locks LANGUAGE sql IMMUTABLE AS $$
    SELECT ROW(key, 0, false, '', NULL, '', 0, '', '', 0, false, false, 0, 0, 0, 0, 0, 0, 0, 0, 0,
               NULL, NULL, NULL, NULL, 0)::@schema@.locks
$$;

-- This one and others are not in SQL, because their queries would be planned anew in every transaction.
CREATE OR REPLACE FUNCTION @schema@.holder(holders jsonb, id text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (SELECT h FROM jsonb_array_elements(holders) h WHERE h->>'i' = id LIMIT 1);
END $$;

-- Whether the condition of write w holds for r.
CREATE OR REPLACE FUNCTION @schema@.holds(w jsonb, r @schema@.locks, now bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    condition integer := (w->>'c')::integer;
    h jsonb;
BEGIN
    IF w ? 'co' THEN
        h := @schema@.holder(r.holders, w->>'i');
        IF h IS NULL AND (w->>'s')::integer & 1 = 0 THEN -- one of several holders is changed only if it is there
            RETURN false;
        END IF;
    END IF;
    IF w ? 'h' AND @schema@.waits_elsewhere(r, w->'dt'->>0, w->>'h', now) THEN
        RETURN false;
    END IF;
    IF condition = 0 THEN
        RETURN true;
    ELSIF condition = 1 THEN
        RETURN r.revision = 0;
    ELSIF condition = 2 THEN
        RETURN r.revision = 0 OR (NOT r.held AND r.tickets IS NULL AND r.intents IS NULL
                                  AND NOT ((w->>'s')::integer & 2 <> 0 AND r.lock_id = w->'v'->>'i'));
    ELSIF condition = 3 THEN
        RETURN r.revision = 0 OR (NOT r.held AND r.tickets IS NULL);
    ELSIF condition = 4 THEN
        RETURN r.revision = (w->>'r')::bigint;
    ELSIF condition = 7 THEN
        RETURN r.revision <> 0 AND (r.held OR r.tickets IS NOT NULL OR r.intents IS NOT NULL)
            AND coalesce(@schema@.ticket_of(r, w->'pt'->>'i')->>'a' = w->'pt'->>'a', true);
    ELSIF condition = 8 THEN
        RETURN r.revision <> 0 AND NOT r.held AND r.intents IS NULL AND r.lock_id <> w->>'i'
            AND @schema@.is_next(r, w->>'i', now);
    ELSIF w ? 'co' THEN
        RETURN h IS NOT NULL AND (condition = 5 OR now < (h->>'e')::bigint);
    END IF;
    RETURN coalesce(r.revision <> 0 AND r.mode = 0 AND r.held AND r.lock_id = w->>'i'
                    AND (condition = 5 OR now < r.expires_ms), false);
END $$;

-- Whether write w changes nothing: it is only a condition, or would make an empty record.
CREATE OR REPLACE FUNCTION @schema@.leaves_alone(w jsonb, r @schema@.locks) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT NOT w ?| array['pt', 'pi'] AND CASE
        WHEN r.revision = 0 THEN (w->>'s')::integer & 1 = 0
        ELSE (w->>'s')::integer = 0 AND NOT w ?| array['dt', 'di', 'dh'] END
$$;

CREATE OR REPLACE FUNCTION @schema@.with_fields(r @schema@.locks, s integer, v jsonb, id text, now bigint, number bigint)
RETURNS @schema@.locks LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF s & 1 <> 0 THEN
        r.mode := 0;
        r.slots := 0;
        r.held := true;
        r.outcome := 0;
        r.released_ids := NULL;
        r.locked_at_ms := now;
    END IF;
    IF s & 2 <> 0 THEN
        r.lock_id := v->>'i';
        r.acquired_by := v->>'a';
        r.token := number;
    END IF;
    IF s & 4 <> 0 THEN
        r.owner := v->>'o';
        r.owner_name := v->>'n';
    END IF;
    IF s & 8 <> 0 THEN
        r.metadata := v->>'m';
    END IF;
    IF s & 16 <> 0 THEN
        r.durable := (v->>'d')::boolean;
        r.heartbeat_ms := (v->>'h')::bigint;
        r.stale_after_ms := (v->>'f')::bigint;
    END IF;
    IF s & 32 <> 0 THEN
        r.ttl_ms := coalesce(nullif((v->>'l')::bigint, 0), r.ttl_ms);
        r.expires_ms := @schema@.later(now, r.ttl_ms);
        r.last_heartbeat_ms := now;
        r.stale_reported := false;
    END IF;
    IF s & 64 <> 0 THEN
        r.held := false;
        r.outcome := (v->>'x')::smallint;
        r.released_ids := CASE WHEN r.outcome = 3 THEN r.released_ids ELSE ARRAY[id] END;
    END IF;
    IF s & 192 <> 0 THEN
        r.freed_ms := now;
    END IF;
    IF s & 256 <> 0 THEN
        r.stale_reported := true;
    END IF;
    RETURN r;
END $$;

-- ---- several holders ----

CREATE OR REPLACE FUNCTION @schema@.without(list jsonb, ids jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF list IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT jsonb_agg(x.e ORDER BY x.n) FROM jsonb_array_elements(list) WITH ORDINALITY x(e, n)
            WHERE NOT ids ? (x.e->>'i'));
END $$;

-- The record's own fields repeat holder h.
CREATE OR REPLACE FUNCTION @schema@.repeating(r @schema@.locks, h jsonb) RETURNS @schema@.locks LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    r.held := true;
    r.outcome := 0;
    r.lock_id := h->>'i';
    r.acquired_by := h->>'a';
    r.token := (h->>'t')::bigint;
    r.owner := h->>'o';
    r.owner_name := h->>'n';
    r.metadata := h->>'m';
    r.durable := (h->>'d')::boolean;
    r.stale_reported := (h->>'s')::boolean;
    r.ttl_ms := (h->>'l')::bigint;
    r.heartbeat_ms := (h->>'h')::bigint;
    r.stale_after_ms := (h->>'f')::bigint;
    r.expires_ms := (h->>'e')::bigint;
    r.last_heartbeat_ms := (h->>'b')::bigint;
    r.locked_at_ms := (h->>'k')::bigint;
    RETURN r;
END $$;

-- The one whose lease ends last; of two, the one with the lower token.
CREATE OR REPLACE FUNCTION @schema@.last_to_end(holders jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (SELECT h FROM jsonb_array_elements(holders) h
            ORDER BY (h->>'e')::bigint DESC, (h->>'t')::bigint LIMIT 1);
END $$;

CREATE OR REPLACE FUNCTION @schema@.as_holder(r @schema@.locks) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('i', r.lock_id, 'a', r.acquired_by, 't', r.token, 'o', r.owner, 'n', r.owner_name,
        'm', r.metadata, 'd', r.durable, 's', r.stale_reported, 'l', r.ttl_ms, 'h', r.heartbeat_ms,
        'f', r.stale_after_ms, 'e', r.expires_ms, 'b', r.last_heartbeat_ms, 'k', r.locked_at_ms)
$$;

-- A write about one of several holders.
CREATE OR REPLACE FUNCTION @schema@.with_holder(r @schema@.locks, w jsonb, now bigint, number bigint) RETURNS @schema@.locks
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    s integer := (w->>'s')::integer;
    adds boolean := s & 1 <> 0;
    id text := CASE WHEN adds THEN w->'v'->>'i' ELSE w->>'i' END;
    h jsonb := @schema@.holder(r.holders, id);
    one @schema@.locks;
BEGIN
    IF s & 128 <> 0 THEN
        r.freed_ms := now;
    END IF;
    IF h IS NULL AND NOT adds THEN
        RETURN r;
    END IF;
    one := @schema@.absent(r.key);
    IF h IS NOT NULL THEN
        one := @schema@.repeating(one, h);
    END IF;
    one := @schema@.with_fields(one, s, w->'v', w->>'i', now, number);
    IF num_nulls(one.lock_id, one.acquired_by, one.owner, one.owner_name, one.durable, one.heartbeat_ms,
                 one.stale_after_ms) > 0 THEN -- the record could not repeat it, so no other holder could release
        RAISE EXCEPTION 'a field of a holder is missing' USING ERRCODE = '22004';
    END IF;
    IF adds THEN
        r.mode := (w->'v'->>'q')::smallint;
        r.slots := (w->'v'->>'c')::integer;
    END IF;
    IF s & 64 <> 0 THEN
        IF jsonb_array_length(r.holders) = 1 THEN -- after the last release the record keeps that holder
            r := @schema@.repeating(r, @schema@.as_holder(one));
            r.held := false;
            r.outcome := one.outcome;
        END IF;
        r.holders := @schema@.without(r.holders, jsonb_build_array(id));
        r.freed_ms := now;
        r.released_ids := (one.released_ids || r.released_ids)[1:8];
        RETURN r;
    END IF;
    IF h IS NULL OR s & 2 <> 0 THEN -- its token is the newest
        r.holders := coalesce(@schema@.without(r.holders, jsonb_build_array(id)), '[]')
                     || jsonb_build_array(@schema@.as_holder(one));
    ELSE
        r.holders := (SELECT jsonb_agg(CASE WHEN x.e->>'i' = id THEN @schema@.as_holder(one) ELSE x.e END ORDER BY x.n)
                      FROM jsonb_array_elements(r.holders) WITH ORDINALITY x(e, n));
    END IF;
    RETURN r;
END $$;

-- The sets of a write, for a record that has several holders or a write that is about them.
CREATE OR REPLACE FUNCTION @schema@.with_holders(r @schema@.locks, w jsonb, now bigint, number bigint) RETURNS @schema@.locks
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    s integer := (w->>'s')::integer;
    n integer := jsonb_array_length(r.holders);
BEGIN
    IF w ? 'dh' AND n > 0 THEN
        r.holders := @schema@.without(r.holders, w->'dh');
        r.held := CASE WHEN coalesce(jsonb_array_length(r.holders), 0) < n THEN r.holders IS NOT NULL ELSE r.held END;
    END IF;
    IF w ? 'co' THEN
        r := @schema@.with_holder(r, w, now, number);
    ELSIF s & 1 <> 0 THEN
        r.holders := NULL;
        r := @schema@.with_fields(r, s, w->'v', w->>'i', now, number);
    ELSE -- no other set is about a lock that has several holders
        r := @schema@.with_fields(r, CASE WHEN r.holders IS NULL THEN s ELSE s & 128 END, w->'v', w->>'i', now, number);
    END IF;
    IF r.holders IS NOT NULL THEN
        r := @schema@.repeating(r, @schema@.last_to_end(r.holders));
    END IF;
    RETURN r;
END $$;

-- ---- the queue and the intents ----

-- locks.tickets has the first of the queue, and `waiting` the rest of a long one. That is only so if all tickets
-- are plain: then to know the first is enough to hand the lock over. The order is that of seq throughout.

CREATE OR REPLACE FUNCTION @schema@.is_plain(ticket jsonb, key text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN ticket->>'m' = '0' AND ticket->>'j' = 'false' AND ticket->>'k' = key;
END $$;

CREATE OR REPLACE FUNCTION @schema@.all_plain(tickets jsonb, key text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM jsonb_array_elements(tickets) t
                       WHERE NOT t @> jsonb_build_object('m', 0, 'j', false, 'k', key));
END $$;

CREATE OR REPLACE FUNCTION @schema@.place_of(tickets jsonb, id text) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (SELECT x.n - 1 FROM jsonb_array_elements(tickets) WITH ORDINALITY x(t, n) WHERE x.t->>'i' = id);
END $$;

-- The record with its whole queue. STABLE: it sees what the query sees that calls it.
CREATE OR REPLACE FUNCTION @schema@.whole(r @schema@.locks) RETURNS @schema@.locks LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF r.behind > 0 THEN
        r.tickets := r.tickets || (SELECT jsonb_agg(w.ticket || jsonb_build_object('e', w.expires_ms) ORDER BY w.seq)
                                   FROM @schema@.waiting w WHERE w.key = r.key);
        r.behind := 0;
    END IF;
    RETURN r;
END $$;

CREATE OR REPLACE FUNCTION @schema@.ticket_of(r @schema@.locks, of_id text) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    at integer := @schema@.place_of(r.tickets, of_id);
BEGIN
    IF at IS NOT NULL OR r.behind = 0 THEN
        RETURN r.tickets->at;
    END IF;
    RETURN (SELECT w.ticket FROM @schema@.waiting w WHERE w.key = r.key AND w.id = of_id);
END $$;

-- Whether the id has a ticket, and those ahead of it have expired.
CREATE OR REPLACE FUNCTION @schema@.is_next(r @schema@.locks, of_id text, now bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    at integer := @schema@.place_of(r.tickets, of_id);
    own bigint;
BEGIN
    IF at IS NULL AND r.behind > 0 THEN
        SELECT w.seq INTO own FROM @schema@.waiting w WHERE w.key = r.key AND w.id = of_id;
    END IF;
    IF at IS NULL AND own IS NULL THEN
        RETURN false;
    END IF;
    RETURN NOT EXISTS (SELECT FROM jsonb_array_elements(r.tickets) WITH ORDINALITY x(t, n)
                       WHERE (at IS NULL OR x.n - 1 < at) AND (x.t->>'e')::bigint > now)
        AND (own IS NULL OR NOT EXISTS (SELECT FROM @schema@.waiting w
                                        WHERE w.key = r.key AND w.seq < own AND w.expires_ms > now));
END $$;

-- Whether the id has a ticket that is valid and was put last by another process than this one.
CREATE OR REPLACE FUNCTION @schema@.waits_elsewhere(r @schema@.locks, of_id text, here text, now bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ticket jsonb := r.tickets->@schema@.place_of(r.tickets, of_id);
BEGIN
    IF ticket IS NULL AND r.behind > 0 THEN
        SELECT w.ticket || jsonb_build_object('e', w.expires_ms) INTO ticket FROM @schema@.waiting w
        WHERE w.key = r.key AND w.id = of_id;
    END IF;
    RETURN coalesce(ticket->>'p' <> here AND (ticket->>'e')::bigint > now, false);
END $$;

-- Some more of the queue, if the first of it are gone. Those that have expired are gone, too.
CREATE OR REPLACE FUNCTION @schema@.with_next(r @schema@.locks, now bigint) RETURNS @schema@.locks
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n integer;
BEGIN
    IF r.behind = 0 OR jsonb_array_length(r.tickets) > 0 THEN
        RETURN r;
    END IF;
    WITH gone AS (
        DELETE FROM @schema@.waiting w WHERE w.key = r.key AND w.seq <= coalesce(
            (SELECT max(x.seq) FROM (SELECT y.seq FROM @schema@.waiting y
                                     WHERE y.key = r.key AND y.expires_ms > now ORDER BY y.seq LIMIT 8) x),
            9223372036854775807)
        RETURNING w.seq, w.expires_ms, w.ticket)
    SELECT count(*), jsonb_agg(g.ticket || jsonb_build_object('e', g.expires_ms) ORDER BY g.seq)
        FILTER (WHERE g.expires_ms > now) INTO n, r.tickets FROM gone g;
    r.behind := r.behind - n;
    RETURN r;
END $$;

-- Without the tickets of these ids.
CREATE OR REPLACE FUNCTION @schema@.without_tickets(r @schema@.locks, ids jsonb, now bigint) RETURNS @schema@.locks
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    n integer := 0;
BEGIN
    IF r.behind > 0 THEN
        DELETE FROM @schema@.waiting w
        WHERE w.key = r.key AND w.id = ANY (ARRAY(SELECT jsonb_array_elements_text(ids)));
        GET DIAGNOSTICS n = ROW_COUNT;
        r.behind := r.behind - n;
    END IF;
    r.tickets := @schema@.without(r.tickets, ids);
    IF r.tickets IS NULL AND r.behind > 0 THEN
        r.tickets := '[]';
        r := @schema@.with_next(r, now);
    END IF;
    RETURN r;
END $$;

-- Without the tickets ahead of that of the id.
CREATE OR REPLACE FUNCTION @schema@.without_ahead(r @schema@.locks, of_id text, now bigint) RETURNS @schema@.locks
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    at integer := @schema@.place_of(r.tickets, of_id);
    ids jsonb;
BEGIN
    IF at IS NOT NULL THEN
        ids := (SELECT jsonb_agg(x.t->'i') FROM jsonb_array_elements(r.tickets) WITH ORDINALITY x(t, n) WHERE x.n <= at);
    ELSE
        ids := (SELECT jsonb_agg(x.t->'i') FROM jsonb_array_elements(r.tickets) x(t))
            || coalesce((SELECT jsonb_agg(w.id) FROM @schema@.waiting w
                         WHERE w.key = r.key AND w.seq < (SELECT o.seq FROM @schema@.waiting o
                                                          WHERE o.key = r.key AND o.id = of_id)), '[]');
    END IF;
    RETURN CASE WHEN ids IS NULL THEN r ELSE @schema@.without_tickets(r, ids, now) END;
END $$;

-- A ticket and an intent, with the fields that clients read and no others. A number that no client can read would make
-- the record unreadable: then no client could list locks, nor end this one.
CREATE OR REPLACE FUNCTION @schema@.plain_ticket(put jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN jsonb_strip_nulls(jsonb_build_object('i', put->>'i', 'k', put->>'k', 'o', put->>'o', 'n', put->>'n',
        'a', put->>'a', 's', (put->>'s')::bigint, 'l', (put->>'l')::bigint, 'm', (put->>'m')::smallint,
        'c', (put->>'c')::integer, 'j', (put->>'j')::boolean, 'p', put->>'p'));
END $$;

CREATE OR REPLACE FUNCTION @schema@.plain_intent(put jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN jsonb_build_object('i', put->>'i', 'k', put->>'k', 'l', (put->>'l')::bigint, 's', (put->>'s')::boolean);
END $$;

-- A ticket that is put again, perhaps by another process, has waited since the first time.
CREATE OR REPLACE FUNCTION @schema@.again(was jsonb, put jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE
AS $$ SELECT put || jsonb_build_object('s', least((was->>'s')::bigint, (put->>'s')::bigint)) $$;

-- Only the caller's transaction changes the queue: it has locked the row.
CREATE OR REPLACE FUNCTION @schema@.with_ticket(r @schema@.locks, put jsonb, now bigint, number bigint) RETURNS @schema@.locks
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    expires bigint := @schema@.later(now, (put->>'l')::bigint);
    at integer := @schema@.place_of(r.tickets, put->>'i');
BEGIN
    IF coalesce(octet_length(put->>'i'), 0) NOT BETWEEN 1 AND 64 OR strpos(put->>'i', ' ') > 0
       OR octet_length(put->>'p') > 40 THEN -- no other could be sent to a waiter, nor the lock be released
        RAISE EXCEPTION 'a lock id has at most 64 bytes and no space, a process at most 40' USING ERRCODE = '22023';
    END IF;
    put := @schema@.plain_ticket(put);
    IF r.behind > 0 AND NOT @schema@.is_plain(put, r.key) THEN
        r := @schema@.whole(r);
        DELETE FROM @schema@.waiting w WHERE w.key = r.key;
        at := @schema@.place_of(r.tickets, put->>'i');
    END IF;
    IF at IS NOT NULL THEN -- it keeps its place
        r.tickets := jsonb_set(r.tickets, array[at::text],
                               @schema@.again(r.tickets->at, put)
                               || jsonb_build_object('q', r.tickets->at->'q', 'e', expires));
        RETURN r;
    END IF;
    IF r.behind > 0 THEN
        UPDATE @schema@.waiting w
        SET expires_ms = expires, ticket = @schema@.again(w.ticket, put) || jsonb_build_object('q', w.seq)
        WHERE w.key = r.key AND w.id = put->>'i';
        IF FOUND THEN
            RETURN r;
        END IF;
    END IF;
    IF r.behind > 0 OR (jsonb_array_length(r.tickets) >= 8 AND @schema@.is_plain(put, r.key)
                        AND @schema@.all_plain(r.tickets, r.key)) THEN
        INSERT INTO @schema@.waiting VALUES (r.key, number, put->>'i', expires, put || jsonb_build_object('q', number));
        r.behind := r.behind + 1;
    ELSE
        r.tickets := coalesce(r.tickets, '[]')
            || jsonb_build_array(put || jsonb_build_object('q', number, 'e', expires));
    END IF;
    RETURN r;
END $$;

CREATE OR REPLACE FUNCTION @schema@.applied(r @schema@.locks, w jsonb, now bigint, number bigint) RETURNS @schema@.locks
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    put jsonb;
BEGIN
    IF r.holders IS NOT NULL OR w ? 'co' THEN
        r := @schema@.with_holders(r, w, now, number);
    ELSE
        r := @schema@.with_fields(r, (w->>'s')::integer, w->'v', w->>'i', now, number);
    END IF;
    IF (w->>'c')::integer = 8 THEN
        r := @schema@.without_ahead(r, w->>'i', now);
    END IF;
    IF w ? 'dt' THEN
        r := @schema@.without_tickets(r, w->'dt', now);
    END IF;
    IF w ? 'di' THEN
        r.intents := @schema@.without(r.intents, w->'di');
    END IF;
    IF w ? 'pt' AND NOT (w->'pt' ? 'h' AND @schema@.waits_elsewhere(r, w->'pt'->>'i', w->'pt'->>'p', now)) THEN
        r := @schema@.with_ticket(r, w->'pt', now, number);
    END IF;
    IF w ? 'pi' THEN
        FOR put IN SELECT @schema@.plain_intent(x) FROM jsonb_array_elements(w->'pi') x LOOP
            r.intents := coalesce(@schema@.without(r.intents, jsonb_build_array(put->'i')), '[]')
                || jsonb_build_array(put || jsonb_build_object('e', @schema@.later(now, (put->>'l')::bigint)));
        END LOOP;
    END IF;
    r.revision := number;
    RETURN r;
END $$;

-- ---- a batch ----

-- NULL: it is no number. A client that writes such a list must not make every acquisition fail with a failed cast.
CREATE OR REPLACE FUNCTION @schema@.time_in(value jsonb) RETURNS numeric LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN jsonb_typeof(value) = 'number' THEN value::numeric END $$;

-- The freezes, if one of them is in force for one of the keys; as freeze_in_force() in src/freeze.
CREATE OR REPLACE FUNCTION @schema@.frozen(b jsonb, now bigint) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    list text := (SELECT value FROM @schema@.items WHERE space = 'freeze' AND name = 'list');
    grace bigint := (b->>'g')::bigint;
BEGIN
    IF list IS NULL OR list = '[]' THEN
        RETURN NULL;
    ELSIF jsonb_typeof(list::jsonb) = 'array' AND NOT EXISTS (
        SELECT FROM jsonb_array_elements(list::jsonb) f, jsonb_array_elements(b->'w') w
        WHERE (w->>'s')::integer & 1 <> 0 AND (
            (jsonb_typeof(f->'id') = 'string' AND jsonb_typeof(f->'pattern') = 'string'
             AND jsonb_typeof(f->'reason') = 'string' AND jsonb_typeof(f->'by') = 'string') IS NOT TRUE -- unreadable
            OR (w->>'k' LIKE replace(replace(replace(replace(f->>'pattern', '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')
                AND now >= coalesce(@schema@.time_in(f->'from'), 0)
                AND CASE WHEN @schema@.time_in(f->'ended') IS NOT NULL
                         THEN grace > 0 AND now < @schema@.time_in(f->'ended') + grace
                         ELSE coalesce(now < @schema@.time_in(f->'until') + grace, true) END))) THEN
        RETURN NULL;
    END IF;
    RETURN list; -- the caller says what it means, or that it cannot be read
END $$;

-- A batch need not look for freezes while there are none.
CREATE OR REPLACE FUNCTION @schema@.note_freezes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.space = 'freeze' OR TG_OP <> 'DELETE' AND NEW.space = 'freeze' THEN
        UPDATE @schema@.meta SET has_freezes = EXISTS (
            SELECT FROM @schema@.items WHERE space = 'freeze' AND name = 'list' AND value <> '[]');
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER note_freezes AFTER INSERT OR UPDATE OR DELETE ON @schema@.items
    FOR EACH ROW EXECUTE FUNCTION @schema@.note_freezes();

-- Whether the id ever acquired the key, as far back as there are events. The plan is kept, so it must not be one that
-- reads all events, which is the fastest one while there are few.
CREATE OR REPLACE FUNCTION @schema@.has_acquired(of_key text, of_id text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $$
BEGIN -- not SQL, whose plan is not kept
    RETURN EXISTS (SELECT FROM @schema@.events e WHERE e.used_id = of_id AND e.key = of_key);
END $$;

CREATE OR REPLACE FUNCTION @schema@.id_used(r @schema@.locks, used text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (r.revision <> 0 AND (r.lock_id = used OR @schema@.holder(r.holders, used) IS NOT NULL))
        OR @schema@.has_acquired(r.key, used);
END $$;

CREATE OR REPLACE FUNCTION @schema@.save(r @schema@.locks) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE @schema@.locks l SET revision = r.revision, held = r.held, lock_id = r.lock_id, released_ids = r.released_ids,
        acquired_by = r.acquired_by, token = r.token, owner = r.owner, owner_name = r.owner_name, outcome = r.outcome,
        durable = r.durable, stale_reported = r.stale_reported, ttl_ms = r.ttl_ms, heartbeat_ms = r.heartbeat_ms,
        stale_after_ms = r.stale_after_ms, expires_ms = r.expires_ms, last_heartbeat_ms = r.last_heartbeat_ms,
        locked_at_ms = r.locked_at_ms, freed_ms = r.freed_ms, mode = r.mode, slots = r.slots, metadata = r.metadata,
        tickets = r.tickets, intents = r.intents, holders = r.holders, behind = r.behind
    WHERE l.key = r.key;
END $$;

-- r is the record before the batch of the write that the event is about.
CREATE OR REPLACE FUNCTION @schema@.add_event(e jsonb, id bigint, w jsonb, r @schema@.locks, now bigint, number bigint)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    h jsonb;
    token bigint := (e->>'n')::bigint;
    is_of_record boolean;
    s integer := coalesce((w->>'s')::integer, 0);
BEGIN
    IF w ? 'co' THEN
        h := CASE WHEN w->>'i' IS NOT NULL THEN @schema@.holder(r.holders, w->>'i') END;
        r := CASE WHEN h IS NULL THEN NULL ELSE @schema@.repeating(r, h) END;
    ELSIF r.revision = 0 THEN
        r := NULL;
    END IF;
    is_of_record := coalesce(e->>'i' = r.lock_id, false);
    INSERT INTO @schema@.events VALUES (
        id, now, (e->>'l')::smallint, e->>'t', e->>'k', e->>'i',
        CASE WHEN token = -1 THEN number WHEN token = 0 AND is_of_record THEN r.token ELSE token END,
        CASE WHEN e ? 'o' THEN e->>'o' ELSE r.owner END,
        CASE WHEN e ? 'o' THEN e->>'on' ELSE r.owner_name END,
        e->>'b', e->>'r',
        CASE WHEN (e->>'d')::bigint = -2 THEN coalesce(now - r.locked_at_ms, -1) ELSE (e->>'d')::bigint END,
        CASE WHEN e ? 'm' THEN nullif(e->>'m', '[]')
             WHEN s & 8 = 0 AND (is_of_record OR (s & 2 <> 0 AND e->>'i' = w->'v'->>'i')) THEN r.metadata END,
        CASE WHEN e->>'t' IN ('lock.acquired', 'lock.adopted') THEN e->>'i' END);
END $$;

-- It is long, and one function: what its parts share are arrays of records, which every call would copy.
CREATE OR REPLACE FUNCTION @schema@.commit(b jsonb) RETURNS SETOF @schema@.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    began bigint := @schema@.clock_ms();
    now bigint := began;
    deadline bigint := (b->>'d')::bigint;
    n integer := jsonb_array_length(b->'w');
    n_events integer := coalesce(jsonb_array_length(b->'e'), 0);
    m @schema@.meta;
    w jsonb;
    r @schema@.locks;
    before @schema@.locks[];
    after @schema@.locks[];
    list text;
    number bigint;
    first_event bigint;
    event jsonb;
    of_write integer;
    alone boolean := n_events = 0;
    i integer;
BEGIN
    IF n_events > 1 THEN
        PERFORM @schema@.check_events(n_events);
    END IF;
    SELECT * INTO m FROM @schema@.meta;
    IF m.server_start <> pg_postmaster_start_time() OR m.timeline <> @schema@.timeline() THEN
        PERFORM @schema@.new_server();
        SELECT * INTO m FROM @schema@.meta;
    END IF;
    IF now > deadline THEN
        RETURN NEXT (4, now, 0, 0, 0, NULL, NULL)::@schema@.answer;
        RETURN;
    END IF;
    IF b ? 'g' THEN
        list := @schema@.frozen(b, now);
        IF list IS NOT NULL THEN
            RETURN NEXT (2, now, 0, 0, 0, list, NULL)::@schema@.answer;
            RETURN;
        END IF;
    END IF;

    -- Without locks: a refusal ends here.
    FOR i IN 0 .. n - 1 LOOP
        w := b->'w'->i;
        SELECT * INTO r FROM @schema@.locks WHERE key = w->>'k';
        IF NOT FOUND OR r.revision = 0 THEN
            r := @schema@.absent(w->>'k');
        END IF;
        IF NOT @schema@.holds(w, r, now) THEN
            RETURN NEXT (1, now, i, 0, 0, NULL, @schema@.whole(r))::@schema@.answer;
            RETURN;
        END IF;
        alone := alone AND @schema@.leaves_alone(w, r);
        before[i] := r;
    END LOOP;

    IF alone THEN
        FOR i IN 0 .. greatest(n, 1) - 1 LOOP
            RETURN NEXT (0, now, 0, 0, 0, NULL, before[i])::@schema@.answer;
        END LOOP;
        RETURN;
    END IF;

    -- With the rows locked, and those that do not exist made for the time being.
    IF n > 0 AND deadline < 9223372036854775807 THEN
        PERFORM set_config('lock_timeout', least(greatest(deadline - now, 1), 10000)::text, true);
    END IF;
    FOR i IN SELECT x.n - 1 FROM jsonb_array_elements(b->'w') WITH ORDINALITY x(e, n)
             ORDER BY (x.e->>'k') COLLATE "C" DESC LOOP
        LOOP
            SELECT * INTO r FROM @schema@.locks WHERE key = b->'w'->i->>'k' FOR UPDATE;
            EXIT WHEN FOUND;
            INSERT INTO @schema@.locks SELECT a.* FROM @schema@.absent(b->'w'->i->>'k') a ON CONFLICT DO NOTHING;
        END LOOP;
        before[i] := r;
    END LOOP;

    now := @schema@.clock_ms();
    IF now > deadline THEN
        DELETE FROM @schema@.locks WHERE key IN (SELECT e->>'k' FROM jsonb_array_elements(b->'w') e) AND revision = 0;
        RETURN NEXT (4, now, 0, 0, 0, NULL, NULL)::@schema@.answer;
        RETURN;
    END IF;
    IF b ? 'g' AND now - began > 5 THEN -- it has waited for a row: a freeze may have come meanwhile
        list := @schema@.frozen(b, now);
        IF list IS NOT NULL THEN
            DELETE FROM @schema@.locks
            WHERE key IN (SELECT e->>'k' FROM jsonb_array_elements(b->'w') e) AND revision = 0;
            RETURN NEXT (2, now, 0, 0, 0, list, NULL)::@schema@.answer;
            RETURN;
        END IF;
    END IF;
    FOR i IN 0 .. n - 1 LOOP
        w := b->'w'->i;
        IF NOT @schema@.holds(w, before[i], now) THEN
            DELETE FROM @schema@.locks
            WHERE key IN (SELECT e->>'k' FROM jsonb_array_elements(b->'w') e) AND revision = 0;
            RETURN NEXT (1, now, i, 0, 0, NULL, @schema@.whole(before[i]))::@schema@.answer;
            RETURN;
        END IF;
    END LOOP;
    IF b ? 'u' THEN
        FOR i IN 0 .. n - 1 LOOP
            IF (i = 0 OR (b->'w'->i->>'s')::integer & 1 <> 0)
               AND @schema@.id_used(before[i], b->>'u') THEN
                DELETE FROM @schema@.locks
                WHERE key IN (SELECT e->>'k' FROM jsonb_array_elements(b->'w') e) AND revision = 0;
                RETURN NEXT (3, now, i, 0, 0, NULL, NULL)::@schema@.answer;
                RETURN;
            END IF;
        END LOOP;
    END IF;

    number := @schema@.next_number(m.epoch);
    FOR i IN 0 .. n - 1 LOOP
        w := b->'w'->i;
        r := before[i];
        IF NOT @schema@.leaves_alone(w, r) THEN
            r := @schema@.applied(r, w, now, number);
            PERFORM @schema@.save(r);
        ELSIF r.revision = 0 THEN
            DELETE FROM @schema@.locks WHERE key = r.key;
        END IF;
        after[i] := r;
    END LOOP;
    IF n_events > 0 THEN
        first_event := @schema@.first_event(m.event_base);
        FOR event, i IN SELECT x.e, x.n - 1 FROM jsonb_array_elements(b->'e') WITH ORDINALITY x(e, n) LOOP
            IF of_write IS DISTINCT FROM (event->>'w')::integer THEN -- they are large if many holders have expired
                of_write := (event->>'w')::integer;
                w := b->'w'->of_write;
                r := before[of_write];
            END IF;
            PERFORM @schema@.add_event(event, first_event + i, w, r, now, number);
        END LOOP;
        IF n = 0 AND NOT b ? 'y' THEN -- a refusal and the like: no client waits for it to be on disk
            PERFORM set_config('synchronous_commit', 'off', true);
        END IF;
    END IF;
    IF n = 0 THEN
        RETURN NEXT (0, now, 0, number, coalesce(first_event, 0), NULL, NULL)::@schema@.answer;
    END IF;
    FOR i IN 0 .. n - 1 LOOP
        RETURN NEXT (0, now, 0, number, coalesce(first_event, 0), NULL,
            CASE WHEN b->'w'->i ? 'pt' THEN @schema@.whole(after[i]) ELSE after[i] END)::@schema@.answer;
    END LOOP;
END $$;

-- ---- the batches that are sent most ----
--
-- One write that acquires an exclusive lock if it is free, releases it or renews it, and its event.
-- The row is changed first; only if that finds none to change, it is read: a refusal takes no transaction id.
-- If another session had the row locked, its conditions are looked at again, and numbers drawn again, only if that
-- session has changed it. So afterwards the deadline is looked at once more: what comes to nothing can take long.
-- No call waits for a row for longer than a client waits for its answer (PG_TIMEOUT_MS): the backends of clients that
-- have given up would fill max_connections.
-- The start of the server is enough to know it by: one that took over was started at another time, so meta has its
-- timeline.
--
-- Each answers with one text, since a record as the result costs more than the change does
-- (postgresql_answer.c reads it):
--
--     A now event revision token freed     acquired; the caller knows the other fields of the record
--     C now event (record)                 released or renewed
--     W now event id (record)              released, and handed on to the waiter with this id: see change()
--     R now (record)                       refused: this is the record
--     N now event (record)                 the same, and the refusal is an event
--     U now                                undecided: call commit()

-- The fields of a record in the order of `locks`, but that released_ids are lines.
CREATE OR REPLACE FUNCTION @schema@.as_text(l @schema@.locks) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN ROW(l.key, l.revision, l.held, l.lock_id, array_to_string(l.released_ids, chr(10)), l.acquired_by, l.token,
        l.owner, l.owner_name, l.outcome, l.durable, l.stale_reported, l.ttl_ms, l.heartbeat_ms, l.stale_after_ms,
        l.expires_ms, l.last_heartbeat_ms, l.locked_at_ms, l.freed_ms, l.mode, l.slots, l.metadata, l.tickets,
        l.intents, l.holders, l.behind)::text;
END $$;

-- The answer of a call that changed nothing: refused, or commit() has to decide, because the record
-- has changed since, or it is too late.
CREATE OR REPLACE FUNCTION @schema@.unchanged(of_key text, condition bigint, id text, deadline bigint)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint;
    l @schema@.locks;
BEGIN
    SELECT * INTO l FROM @schema@.locks WHERE key = of_key;
    now := @schema@.clock_ms();
    IF l.key IS NULL THEN
        l := @schema@.absent(of_key);
    END IF;
    IF now > deadline OR (l.revision = 0 AND condition = 2)
       OR (condition = 2 AND NOT l.held AND l.tickets IS NULL AND l.intents IS NULL AND l.lock_id <> id)
       OR (condition > 2 AND l.held AND l.mode = 0 AND l.lock_id = id AND (condition = 5 OR now < l.expires_ms)) THEN
        RETURN 'U ' || now;
    END IF;
    RETURN concat_ws(' ', 'R', now, @schema@.as_text(l));
END $$;

-- As clock_format_span() in src/base.
CREATE OR REPLACE FUNCTION @schema@.span(ms bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE
        WHEN ms >= 86400000 THEN concat(ms / 86400000, 'd', ' ' || nullif(ms % 86400000 / 3600000, 0) || 'h')
        WHEN ms >= 3600000 THEN concat(ms / 3600000, 'h', ' ' || nullif(ms % 3600000 / 60000, 0) || 'm')
        WHEN ms >= 60000 THEN concat(ms / 60000, 'm', ' ' || nullif(ms % 60000 / 1000, 0) || 's')
        WHEN ms >= 1000 THEN concat(ms / 1000, 's')
        ELSE concat(ms, 'ms') END;
END $$;

-- The answer to an acquisition that found the lock held, whose event is event `place` of the transaction. No client
-- waits for that to be on disk: it protects nothing.
CREATE OR REPLACE FUNCTION @schema@.noted(of_key text, of_id text, deadline bigint, place bigint, e_owner text,
    e_name text, e_metadata text) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint;
    event_id bigint;
    l @schema@.locks;
BEGIN
    SELECT * INTO l FROM @schema@.locks WHERE key = of_key;
    now := @schema@.clock_ms();
    IF l.held AND l.mode = 0 AND l.lock_id <> of_id AND now < l.expires_ms AND now <= deadline
       AND @schema@.ticket_of(l, of_id) IS NULL AND l.expires_ms < 253402300800000 THEN -- later years have no text
        event_id := @schema@.first_event((SELECT m.event_base FROM @schema@.meta m)) + place;
        INSERT INTO @schema@.events VALUES (event_id, now, 0, 'lock.refused', of_key, of_id, 0, e_owner, e_name,
            NULL, format('lock ''%s'' held by %s until %s (%s left)', of_key, l.owner,
                         to_char(to_timestamp(l.expires_ms / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                         @schema@.span(l.expires_ms - now)),
            -1, e_metadata);
        RETURN concat_ws(' ', 'N', now, event_id, @schema@.as_text(l));
    END IF;
    RETURN @schema@.unchanged(of_key, 2, of_id, deadline);
END $$;

-- For a grant that has waited for its row: a freeze may have come meanwhile, and its client may have been told that it
-- counts.
CREATE OR REPLACE FUNCTION @schema@.refuse_frozen() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF (SELECT m.has_freezes FROM @schema@.meta m) THEN
        RAISE EXCEPTION 'a freeze came meanwhile' USING ERRCODE = 'BL001'; -- commit() says it properly
    END IF;
END $$;

-- After the rows are locked: no client can have used an id since and remain unseen. The events of this
-- transaction do not count. The plan is made with the first call, perhaps when there are hardly any events, and kept.
CREATE OR REPLACE FUNCTION @schema@.refuse_used(changes @schema@.one_change[], event_base bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $$
BEGIN
    IF EXISTS (SELECT FROM unnest(changes) i JOIN @schema@.events e ON e.used_id = i.id AND e.key = i.key
               WHERE i.must_be_new AND (e.id >> 14) - event_base <> pg_current_xact_id_if_assigned()::text::bigint) THEN
        RAISE EXCEPTION 'a lock id was used before' USING ERRCODE = 'BL001'; -- commit() says it properly
    END IF;
END $$;

-- For an UPDATE that has waited for its row past the deadline. PostgreSQL looks at the condition again only if the row
-- was changed meanwhile, not if another session has only locked it, or was rolled back.
CREATE OR REPLACE FUNCTION @schema@.refuse_late() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION 'the deadline has passed' USING ERRCODE = 'BL001'; -- commit() says it properly
END $$;

CREATE OR REPLACE FUNCTION @schema@.acquire(of_key text, deadline bigint, id text, by_credential text,
    new_owner text, new_name text, new_metadata text, is_durable boolean, heartbeat bigint, stale_after bigint,
    ttl bigint, check_freezes boolean, must_be_new boolean, notes_refusal boolean, e_reason text)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = 10000 AS $$
DECLARE
    now bigint := @schema@.clock_ms();
    base bigint;
    event_base bigint;
    new_revision bigint;
    new_token bigint;
    freed bigint;
    event_id bigint;
    done_ms bigint;
BEGIN
    SELECT (m.epoch + m.timeline - 1) << 40, m.event_base INTO base, event_base FROM @schema@.meta m
    WHERE m.server_start = pg_postmaster_start_time() AND NOT (check_freezes AND m.has_freezes);
    IF base IS NULL OR now > deadline THEN
        RETURN 'U ' || now;
    END IF;
    UPDATE @schema@.locks l SET revision = base | nextval('@schema@.numbers'), held = true, lock_id = id,
        released_ids = NULL, acquired_by = by_credential, token = base | nextval('@schema@.numbers'),
        owner = new_owner, owner_name = new_name, outcome = 0, durable = is_durable, stale_reported = false,
        ttl_ms = ttl, heartbeat_ms = heartbeat, stale_after_ms = stale_after,
        expires_ms = @schema@.later(now, ttl), last_heartbeat_ms = now, locked_at_ms = now, mode = 0, slots = 0,
        metadata = new_metadata, holders = NULL
    WHERE l.key = of_key AND NOT l.held AND l.tickets IS NULL AND l.intents IS NULL AND l.lock_id <> id
      AND l.revision > 0 AND @schema@.clock_ms() <= deadline
    RETURNING l.revision, l.token, l.freed_ms INTO new_revision, new_token, freed;
    IF new_token IS NULL THEN
        IF EXISTS (SELECT FROM @schema@.locks l WHERE l.key = of_key) THEN
            IF notes_refusal THEN
                PERFORM set_config('synchronous_commit', 'off', true);
                RETURN @schema@.noted(of_key, id, deadline, 0, new_owner, new_name, new_metadata);
            END IF;
            RETURN @schema@.unchanged(of_key, 2, id, deadline);
        END IF;
        INSERT INTO @schema@.locks AS l VALUES (of_key, base | nextval('@schema@.numbers'), true, id, NULL,
            by_credential, base | nextval('@schema@.numbers'), new_owner, new_name, 0, is_durable, false, ttl,
            heartbeat, stale_after, @schema@.later(now, ttl), now, now, 0, 0, 0, new_metadata, NULL, NULL, NULL)
        ON CONFLICT DO NOTHING
        RETURNING l.revision, l.token, l.freed_ms INTO new_revision, new_token, freed;
        IF new_token IS NULL THEN
            RETURN 'U ' || now;
        END IF;
    END IF;
    done_ms := @schema@.clock_ms();
    IF done_ms > deadline THEN
        PERFORM @schema@.refuse_late();
    ELSIF check_freezes AND done_ms - now > 5 THEN
        PERFORM @schema@.refuse_frozen();
    END IF;
    IF must_be_new THEN -- now that the row is locked, no client can have used the id since and remain unseen
        IF @schema@.has_acquired(of_key, id) THEN
            RAISE EXCEPTION 'a lock id was used before' USING ERRCODE = 'BL001'; -- commit() says it properly
        END IF;
    END IF;
    event_id := @schema@.first_event(event_base);
    INSERT INTO @schema@.events VALUES (event_id, now, 0, 'lock.acquired', of_key, id, new_token, new_owner, new_name,
        NULL, e_reason, -1, new_metadata, id);
    RETURN concat_ws(' ', 'A', now, event_id, new_revision, new_token, freed);
END $$;

-- A release (condition 5: value is the outcome) or a renewal (6: value is the ttl, 0: as before). Its event
-- has the holder of the record.
--
-- A lease can expire while its renewal waits for the row, and PostgreSQL looks at the expiry before that only. So this
-- renews no lease that ends within 100 ms, and none if it took longer than that: commit() decides then.
--
-- A release that has a waiter is handed on: it is not flushed to disk here, and the first waiter is woken at once,
-- with this transaction if it waits elsewhere (its ticket names another process than `here`). The commit of the
-- waiter that takes the lock flushes both, since the log is in order. The caller answers no client before it has
-- flushed the log, too. A NOTIFY holds a lock of the whole database until its commit has ended, so it must not be
-- in a transaction that waits for the disk. If the queue of notifications is full, the commit fails, which no block
-- can catch: so before that there is no NOTIFY, and the waiter polls.
CREATE OR REPLACE FUNCTION @schema@.change(of_key text, deadline bigint, id text, condition integer, value bigint,
    e_level smallint, e_type text, e_by text, e_reason text, e_duration bigint, channel text, here text)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = 10000 AS $$
DECLARE
    now bigint := @schema@.clock_ms();
    base bigint;
    event_base bigint;
    row_text text;
    waiter jsonb;
    its_token bigint;
    its_owner text;
    its_name text;
    its_metadata text;
    since bigint;
    event_id bigint;
BEGIN
    SELECT (m.epoch + m.timeline - 1) << 40, m.event_base INTO base, event_base FROM @schema@.meta m
    WHERE m.server_start = pg_postmaster_start_time();
    IF base IS NULL OR now > deadline THEN
        RETURN 'U ' || now;
    END IF;
    IF condition = 5 THEN
        UPDATE @schema@.locks l SET revision = base | nextval('@schema@.numbers'), held = false, outcome = value,
            freed_ms = now, released_ids = CASE WHEN value = 3 THEN l.released_ids ELSE ARRAY[id] END
        WHERE l.key = of_key AND l.held AND l.mode = 0 AND l.lock_id = id AND @schema@.clock_ms() <= deadline
        RETURNING l::text, l.token, l.owner, l.owner_name, l.metadata, l.locked_at_ms, l.tickets->0
        INTO row_text, its_token, its_owner, its_name, its_metadata, since, waiter;
    ELSE
        UPDATE @schema@.locks l SET revision = base | nextval('@schema@.numbers'),
            ttl_ms = coalesce(nullif(value, 0), l.ttl_ms),
            expires_ms = @schema@.later(now, coalesce(nullif(value, 0), l.ttl_ms)), last_heartbeat_ms = now,
            stale_reported = false
        WHERE l.key = of_key AND l.held AND l.mode = 0 AND l.lock_id = id AND @schema@.clock_ms() + 100 < l.expires_ms
          AND @schema@.clock_ms() <= deadline
        RETURNING l::text, l.token, l.owner, l.owner_name, l.metadata, l.locked_at_ms
        INTO row_text, its_token, its_owner, its_name, its_metadata, since;
    END IF;
    IF row_text IS NULL THEN
        RETURN @schema@.unchanged(of_key, condition, id, deadline);
    ELSIF @schema@.clock_ms() > deadline OR (condition = 6 AND @schema@.clock_ms() - now > 100) THEN
        PERFORM @schema@.refuse_late();
    END IF;
    event_id := @schema@.first_event(event_base);
    INSERT INTO @schema@.events VALUES (event_id, now, e_level, e_type, of_key, id, its_token, its_owner, its_name,
        e_by, e_reason, CASE WHEN e_duration = -2 THEN now - since ELSE e_duration END, its_metadata);
    IF waiter IS NULL OR (waiter->>'e')::bigint <= now THEN -- of those that have expired the caller knows the next
        RETURN concat_ws(' ', 'C', now, event_id, row_text);
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    IF waiter->>'p' IS DISTINCT FROM here AND pg_notification_queue_usage() < 0.9 THEN
        -- A name that begins with w is of a process with a channel of its own: no other one is woken.
        PERFORM pg_notify(CASE WHEN starts_with(waiter->>'p', 'w') THEN 'belay_wake_' || left(waiter->>'p', 40)
                               ELSE channel END, waiter->>'i');
    END IF;
    RETURN concat_ws(' ', 'W', now, event_id, waiter->>'i', row_text);
END $$;

-- After a release that was handed on: waits until all that this server has is on disk and on a synchronous
-- standby. False: it was lost, because the server crashed or another one has taken over since. An id that has
-- released a lock never has it again, so "not held by this id" proves it.
CREATE OR REPLACE FUNCTION @schema@.settle_release(of_key text, id text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM @schema@.locks l WHERE l.key = of_key AND l.held AND l.lock_id = id) THEN
        RETURN false;
    END IF;
    IF pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()
       OR current_setting('synchronous_standby_names') <> '' THEN
        PERFORM pg_logical_emit_message(true, 'belay', '');
    END IF;
    RETURN true;
END $$;

-- Several of these, of different keys, in one transaction. Event i is event i of the transaction. A change
-- without an answer here is sent alone: its record does not exist. One statement for all kinds, and one array
-- of rows instead of an array for each column: to start a statement costs more than to change a row, and
-- each array and each CASE adds to that. The join goes along the array, so that rows are locked in that order;
-- the plan is kept, however short the array is. A row that another session keeps locked must not hold up the
-- others. What is exclusive has no list of holders.
CREATE OR REPLACE FUNCTION @schema@.change_many(deadline bigint, check_freezes boolean, any_new boolean,
    changes @schema@.one_change[])
RETURNS TABLE (place bigint, answer text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = 200
SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    now bigint := @schema@.clock_ms();
    base bigint;
    event_base bigint;
    n_done bigint;
    done_ms bigint;
BEGIN
    PERFORM @schema@.check_events(cardinality(changes));
    SELECT (m.epoch + m.timeline - 1) << 40, m.event_base INTO base, event_base FROM @schema@.meta m
    WHERE m.server_start = pg_postmaster_start_time() AND NOT (check_freezes AND m.has_freezes);
    IF base IS NULL OR now > deadline THEN
        RETURN; -- all are sent alone
    END IF;
    RETURN QUERY WITH u AS (
        UPDATE @schema@.locks l SET revision = base | nextval('@schema@.numbers'), held = i.holds, lock_id = i.id,
            released_ids = CASE WHEN NOT i.holds AND i.outcome <> 3 THEN ARRAY[i.id]
                                WHEN NOT i.acquires THEN l.released_ids END,
            acquired_by = coalesce(i.credential, l.acquired_by),
            token = CASE WHEN i.acquires THEN base | nextval('@schema@.numbers') ELSE l.token END,
            owner = coalesce(i.owner, l.owner), owner_name = coalesce(i.name, l.owner_name),
            outcome = coalesce(i.outcome, l.outcome), durable = coalesce(i.durable, l.durable),
            stale_reported = NOT i.holds AND l.stale_reported, ttl_ms = coalesce(i.ttl, l.ttl_ms),
            heartbeat_ms = coalesce(i.heartbeat, l.heartbeat_ms),
            stale_after_ms = coalesce(i.stale_after, l.stale_after_ms),
            expires_ms = CASE WHEN i.holds THEN @schema@.later(now, coalesce(i.ttl, l.ttl_ms)) ELSE l.expires_ms END,
            last_heartbeat_ms = CASE WHEN i.holds THEN now ELSE l.last_heartbeat_ms END,
            locked_at_ms = CASE WHEN i.acquires THEN now ELSE l.locked_at_ms END,
            freed_ms = CASE WHEN i.holds THEN l.freed_ms ELSE now END, mode = 0, slots = 0,
            metadata = CASE WHEN i.acquires THEN i.metadata ELSE l.metadata END, holders = NULL
        FROM unnest(changes) WITH ORDINALITY i(key, id, acquires, holds, credential, owner, name, metadata, outcome,
            durable, ttl, heartbeat, stale_after, must_be_new, notes_refusal, type, level, by, reason, duration, n)
        WHERE l.key = i.key AND @schema@.clock_ms() <= deadline AND CASE WHEN i.acquires
            THEN NOT l.held AND l.tickets IS NULL AND l.intents IS NULL AND l.lock_id <> i.id AND l.revision > 0
            ELSE l.held AND l.mode = 0 AND l.lock_id = i.id AND (NOT i.holds OR @schema@.clock_ms() + 250 < l.expires_ms) END
        RETURNING i.n, i.acquires, i.type, i.level, i.by, i.reason, i.duration, l.key, l.lock_id, l.token, l.owner,
            l.owner_name, l.metadata, l.locked_at_ms, @schema@.first_event(event_base) + i.n - 1 AS event_id,
            CASE WHEN i.acquires THEN concat_ws(' ', l.revision, l.token, l.freed_ms) ELSE l::text END AS record
    ), e AS (
        INSERT INTO @schema@.events SELECT u.event_id, now, u.level, u.type, u.key, u.lock_id, u.token, u.owner,
            u.owner_name, u.by, u.reason, CASE WHEN u.duration = -2 THEN now - u.locked_at_ms ELSE u.duration END,
            u.metadata, CASE WHEN u.acquires THEN u.lock_id END FROM u
    ) SELECT u.n, concat_ws(' ', CASE WHEN u.acquires THEN 'A' ELSE 'C' END, now, u.event_id, u.record) FROM u;
    GET DIAGNOSTICS n_done = ROW_COUNT;
    done_ms := @schema@.clock_ms();
    IF n_done > 0 AND (done_ms > deadline OR (done_ms - now > 250 AND EXISTS (
           SELECT FROM unnest(changes) c WHERE c.holds AND NOT c.acquires))) THEN -- as in change()
        PERFORM @schema@.refuse_late();
    ELSIF n_done > 0 AND check_freezes AND done_ms - now > 5 THEN -- as in acquire()
        PERFORM @schema@.refuse_frozen();
    END IF;
    IF any_new THEN
        PERFORM @schema@.refuse_used(changes, event_base);
    END IF;
    IF n_done < cardinality(changes) THEN
        IF n_done = 0 THEN
            PERFORM set_config('synchronous_commit', 'off', true); -- refusals are all there is
        END IF;
        RETURN QUERY SELECT i.n, CASE WHEN i.notes_refusal
                THEN @schema@.noted(i.key, i.id, deadline, i.n - 1, i.owner, i.name, i.metadata)
                ELSE @schema@.unchanged(i.key, CASE WHEN i.acquires THEN 2 WHEN i.holds THEN 6 ELSE 5 END, i.id, deadline) END
            FROM (SELECT x.key, x.id, x.acquires, x.holds, x.owner, x.name, x.metadata, x.notes_refusal, x.n
                  FROM unnest(changes) WITH ORDINALITY x(key, id, acquires, holds, credential, owner, name, metadata,
                      outcome, durable, ttl, heartbeat, stale_after, must_be_new, notes_refusal, type, level, by, reason,
                      duration, n)) i
            JOIN @schema@.locks l ON l.key = i.key
            WHERE l.lock_id <> i.id;
    END IF;
END $$;

-- ---- the queue of an exclusive lock without ancestors ----
--
-- A waiter puts or renews its ticket with queue(), and takes its turn with claim(): the batches of a hand-over.
-- They decide by what concerns the waiter, whatever else has changed meanwhile, and answer as above, but that what
-- was done is
--
--     T now event token (record)           queued, the token is 0; or acquired

-- The record for one waiter: the first of the queue, and its own ticket with the number of those between.
CREATE OR REPLACE FUNCTION @schema@.placed(r @schema@.locks, of_id text, now bigint) RETURNS @schema@.locks
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    own @schema@.waiting;
    n integer;
    n_alive integer;
BEGIN
    IF r.behind > 0 THEN
        SELECT * INTO own FROM @schema@.waiting w WHERE w.key = r.key AND w.id = of_id;
        IF FOUND THEN
            SELECT count(*), count(*) FILTER (WHERE w.expires_ms > now) INTO n, n_alive
            FROM @schema@.waiting w WHERE w.key = r.key AND w.seq < own.seq;
            r.tickets := r.tickets
                || jsonb_build_array(own.ticket || jsonb_build_object('e', own.expires_ms, 'b', n_alive));
            r.behind := greatest(r.behind - n - 1, 0);
        END IF;
    END IF;
    RETURN r;
END $$;

-- What a queue needs is no more durable than the process that waits: a crash of the server may lose a place
-- that was taken a moment before, and the waiter takes another. So no session waits for the disk with a row locked.
CREATE OR REPLACE FUNCTION @schema@.queue(of_key text, deadline bigint, put jsonb, must_be_new boolean,
    e_level smallint, e_type text, e_reason text, e_metadata text)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = 10000 AS $$
DECLARE
    now bigint := @schema@.clock_ms();
    of_id text := put->>'i';
    base bigint;
    event_base bigint;
    is_again boolean := put ? 'h';
    is_renewed boolean := false;
    event_id bigint := 0;
    l @schema@.locks;
BEGIN
    put := put - 'h';
    SELECT (m.epoch + m.timeline - 1) << 40, m.event_base INTO base, event_base FROM @schema@.meta m
    WHERE m.server_start = pg_postmaster_start_time() AND now <= deadline;
    IF base IS NULL OR (must_be_new AND @schema@.has_acquired(of_key, of_id)) THEN
        RETURN 'U ' || now;
    END IF;
    IF e_type IS NULL THEN -- far back, a renewal changes no more than this
        UPDATE @schema@.waiting w SET expires_ms = @schema@.later(now, (put->>'l')::bigint)
        WHERE w.key = of_key AND w.id = of_id AND w.ticket->>'a' = put->>'a' AND w.expires_ms > now
          AND w.ticket->>'p' IS NOT DISTINCT FROM put->>'p'; -- else it waits elsewhere now: put it anew
        is_renewed := FOUND;
        IF is_renewed AND @schema@.clock_ms() > deadline THEN
            PERFORM @schema@.refuse_late();
        END IF;
    END IF;
    IF is_renewed THEN
        SELECT * INTO l FROM @schema@.locks x WHERE x.key = of_key;
    ELSE
        SELECT * INTO l FROM @schema@.locks x WHERE x.key = of_key FOR UPDATE;
        now := @schema@.clock_ms();
        IF l.key IS NULL OR now > deadline OR l.lock_id = of_id OR l.holders IS NOT NULL
           OR (NOT l.held AND l.tickets IS NULL AND l.intents IS NULL)
           OR (l.tickets IS NOT NULL AND @schema@.ticket_of(l, of_id)->>'a' <> put->>'a') THEN
            RETURN 'U ' || now;
        END IF;
        IF e_type IS NOT NULL AND @schema@.ticket_of(l, of_id) IS NOT NULL THEN
            e_type := NULL; -- the wait has begun already, through another server
        END IF;
        IF NOT (is_again AND @schema@.waits_elsewhere(l, of_id, put->>'p', now)) THEN
            l.revision := base | nextval('@schema@.numbers');
            l := @schema@.with_ticket(l, put, now, l.revision);
            UPDATE @schema@.locks x SET revision = l.revision, tickets = l.tickets, behind = l.behind WHERE x.key = of_key;
        END IF;
    END IF;
    IF e_type IS NOT NULL THEN
        event_id := @schema@.first_event(event_base);
        INSERT INTO @schema@.events VALUES (event_id, now, e_level, e_type, of_key, of_id, 0, put->>'o', put->>'n',
                                            NULL, e_reason, -1, e_metadata);
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN concat_ws(' ', 'T', now, event_id, 0, @schema@.as_text(@schema@.placed(l, of_id, now)));
END $$;

-- Not the turn of the id; or undecided if it may be, but the first of the queue have expired, or it is too late.
CREATE OR REPLACE FUNCTION @schema@.not_next(of_key text, of_id text, deadline bigint) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint;
    l @schema@.locks;
BEGIN
    SELECT * INTO l FROM @schema@.locks x WHERE x.key = of_key;
    now := @schema@.clock_ms();
    IF l.key IS NULL THEN
        l := @schema@.absent(of_key);
    END IF;
    IF now > deadline OR (l.revision > 0 AND NOT l.held AND l.intents IS NULL AND l.lock_id <> of_id
                          AND @schema@.is_next(l, of_id, now)) THEN
        RETURN 'U ' || now;
    END IF;
    RETURN concat_ws(' ', 'R', now, @schema@.as_text(@schema@.placed(l, of_id, now)));
END $$;

CREATE OR REPLACE FUNCTION @schema@.claim(of_key text, deadline bigint, id text, by_credential text,
    new_owner text, new_name text, new_metadata text, is_durable boolean, heartbeat bigint, stale_after bigint,
    ttl bigint, check_freezes boolean, must_be_new boolean, e_level smallint, waited bigint, e_reason text)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = 10000 AS $$
DECLARE
    now bigint := @schema@.clock_ms();
    base bigint;
    event_base bigint;
    event_id bigint;
    done_ms bigint;
    l @schema@.locks;
BEGIN
    SELECT (m.epoch + m.timeline - 1) << 40, m.event_base INTO base, event_base FROM @schema@.meta m
    WHERE m.server_start = pg_postmaster_start_time() AND now <= deadline AND NOT (check_freezes AND m.has_freezes);
    -- Once is enough: whoever uses the id meanwhile drops its ticket.
    IF base IS NULL OR (must_be_new AND @schema@.has_acquired(of_key, id)) THEN
        RETURN 'U ' || now;
    END IF;
    UPDATE @schema@.locks x SET revision = base | nextval('@schema@.numbers'), held = true, lock_id = id,
        released_ids = NULL, acquired_by = by_credential, token = base | nextval('@schema@.numbers'),
        owner = new_owner, owner_name = new_name, outcome = 0, durable = is_durable, stale_reported = false,
        ttl_ms = ttl, heartbeat_ms = heartbeat, stale_after_ms = stale_after,
        expires_ms = @schema@.later(now, ttl), last_heartbeat_ms = now, locked_at_ms = now, mode = 0, slots = 0,
        metadata = new_metadata, holders = NULL,
        tickets = CASE WHEN jsonb_array_length(x.tickets) > 1 OR x.behind > 0 THEN x.tickets - 0 END
    WHERE x.key = of_key AND NOT x.held AND x.tickets->0->>'i' = id AND x.intents IS NULL AND x.lock_id <> id
      AND @schema@.clock_ms() <= deadline
    RETURNING x.* INTO l;
    IF l.key IS NULL THEN
        RETURN @schema@.not_next(of_key, id, deadline);
    END IF;
    done_ms := @schema@.clock_ms();
    IF done_ms > deadline THEN
        PERFORM @schema@.refuse_late();
    ELSIF check_freezes AND done_ms - now > 5 THEN
        PERFORM @schema@.refuse_frozen();
    END IF;
    IF l.behind > 0 AND l.tickets = '[]' THEN
        l := @schema@.with_next(l, now);
        UPDATE @schema@.locks x SET tickets = l.tickets, behind = l.behind WHERE x.key = of_key;
    END IF;
    event_id := @schema@.first_event(event_base);
    INSERT INTO @schema@.events VALUES
        (event_id, now, e_level, 'wait.ended', of_key, id, 0, new_owner, new_name, NULL, 'acquired', waited,
         new_metadata, NULL),
        (event_id + 1, now, e_level, 'lock.acquired', of_key, id, l.token, new_owner, new_name, NULL, e_reason, -1,
         new_metadata, id);
    IF jsonb_array_length(l.tickets) > 1 AND @schema@.is_plain(l.tickets->0, of_key) THEN -- the others wait for this one
        l.behind := l.behind + jsonb_array_length(l.tickets) - 1;
        l.tickets := jsonb_build_array(l.tickets->0);
    END IF;
    RETURN concat_ws(' ', 'T', now, event_id, l.token, l::text); -- as as_text(l): there are no released_ids
END $$;

-- ---- reading ----

CREATE OR REPLACE FUNCTION @schema@.get(keys text[]) RETURNS TABLE (now_ms bigint, record @schema@.locks)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now bigint := @schema@.clock_ms(); -- before reading, so that a lock that is renewed now does not seem expired
BEGIN
    RETURN QUERY SELECT now, CASE WHEN l.behind > 0 THEN @schema@.whole(l) WHEN l.revision > 0 THEN l
                                  ELSE @schema@.absent(k.key) END
        FROM unnest(keys) WITH ORDINALITY k(key, n) LEFT JOIN @schema@.locks l ON l.key = k.key ORDER BY k.n;
END $$;

-- All texts that begin with prefix are between prefix and this.
CREATE OR REPLACE FUNCTION @schema@.end_of(prefix text) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT prefix || repeat(chr(1114111), 256) $$;

CREATE OR REPLACE FUNCTION @schema@.scan(prefix text, after text, held_only boolean, page integer)
RETURNS TABLE (now_ms bigint, record @schema@.locks)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now bigint := @schema@.clock_ms();
BEGIN
    RETURN QUERY SELECT now, CASE WHEN l.behind > 0 THEN @schema@.whole(l) ELSE l END FROM @schema@.locks l
        WHERE l.key >= prefix AND l.key > after AND l.key <= @schema@.end_of(prefix)
          AND (l.held OR NOT held_only) AND l.revision > 0
        ORDER BY l.key LIMIT page;
END $$;

-- Events with an id below this are all there: no transaction that is older is still open.
CREATE OR REPLACE FUNCTION @schema@.settled(event_base bigint) RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + event_base) << 14 $$;

CREATE OR REPLACE FUNCTION @schema@.list_events(of_key text, prefix text, after bigint, page integer)
RETURNS SETOF @schema@.events
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF of_key IS NOT NULL THEN
        RETURN QUERY SELECT * FROM @schema@.events e
            WHERE e.key = of_key AND e.id > after ORDER BY e.id LIMIT page; -- a history, which no client tails
    ELSE
        RETURN QUERY SELECT * FROM @schema@.events e
            WHERE e.id > after AND e.id < (SELECT CASE
                  WHEN m.server_start = pg_postmaster_start_time() THEN @schema@.settled(m.event_base)
                  ELSE 9223372036854775807 END FROM @schema@.meta m)
              AND (prefix = '' OR starts_with(e.key, prefix))
            ORDER BY e.id LIMIT page;
        -- After a crash the ids of transactions that were not on disk are used again, and a client that has
        -- seen them would skip what comes.
        IF FOUND AND (pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()
                      OR current_setting('synchronous_standby_names') <> '') THEN
            PERFORM pg_logical_emit_message(true, 'belay', ''); -- so that the commit waits for the disk
        END IF;
    END IF;
END $$;

-- The id after which the last n events begin.
CREATE OR REPLACE FUNCTION @schema@.before_last(of_key text, prefix text, after bigint, n bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF of_key IS NOT NULL THEN
        RETURN (SELECT e.id - 1 FROM @schema@.events e
            WHERE e.key = of_key AND e.id > after ORDER BY e.id DESC OFFSET n - 1 LIMIT 1);
    END IF;
    RETURN (SELECT e.id - 1 FROM @schema@.events e
        WHERE e.id > after AND e.id < (SELECT CASE
                  WHEN m.server_start = pg_postmaster_start_time() THEN @schema@.settled(m.event_base)
                  ELSE 9223372036854775807 END FROM @schema@.meta m)
          AND (prefix = '' OR starts_with(e.key, prefix))
        ORDER BY e.id DESC OFFSET n - 1 LIMIT 1);
END $$;

-- ---- items ----

CREATE OR REPLACE FUNCTION @schema@.item_get(of_space text, of_name text) RETURNS TABLE (value text, version bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT i.value, i.version FROM @schema@.items i WHERE i.space = of_space AND i.name = of_name $$;

CREATE OR REPLACE FUNCTION @schema@.item_list(of_space text, after text, page integer)
RETURNS TABLE (name text, value text, version bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT i.name, i.value, i.version FROM @schema@.items i
    WHERE i.space = of_space AND i.name > after ORDER BY i.name LIMIT page
$$;

-- NULL: the version differs. 0: it was removed. expected -1: any version; 0: it must not exist.
CREATE OR REPLACE FUNCTION @schema@.item_put(of_space text, of_name text, new_value text, expected bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = 5000 AS $$
DECLARE
    number bigint := @schema@.next_number((SELECT epoch FROM @schema@.meta));
    have bigint;
BEGIN
    LOOP
        SELECT i.version INTO have FROM @schema@.items i WHERE i.space = of_space AND i.name = of_name FOR UPDATE;
        IF expected <> -1 AND expected <> coalesce(have, 0) THEN
            RETURN NULL;
        ELSIF new_value IS NULL THEN
            DELETE FROM @schema@.items i WHERE i.space = of_space AND i.name = of_name;
            RETURN 0;
        ELSIF have IS NOT NULL THEN
            UPDATE @schema@.items i SET value = new_value, version = number WHERE i.space = of_space AND i.name = of_name;
            RETURN number;
        END IF;
        INSERT INTO @schema@.items VALUES (of_space, of_name, new_value, number) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN number;
        END IF;
    END LOOP;
END $$;

-- ---- the rest ----

CREATE OR REPLACE FUNCTION @schema@.hello() RETURNS TABLE (version integer, now_ms bigint, store_id text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT m.version, @schema@.clock_ms(), m.store_id FROM @schema@.meta m $$;

-- Old events, and records without a holder, a waiter or a holder below for long. A few at a time.
CREATE OR REPLACE FUNCTION @schema@.forget(events_before bigint, records_before bigint, most integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n_events bigint;
    n_records bigint;
BEGIN
    -- A role that may execute this may call it with anything.
    events_before := least(events_before, @schema@.clock_ms() - 3600000);
    records_before := least(records_before, @schema@.clock_ms() - 3600000);
    most := coalesce(least(most, 10000), 10000);
    DELETE FROM @schema@.events WHERE id IN (
        SELECT e.id FROM (SELECT id, at_ms FROM @schema@.events ORDER BY id LIMIT most) e WHERE e.at_ms < events_before);
    GET DIAGNOSTICS n_events = ROW_COUNT;
    DELETE FROM @schema@.locks WHERE key IN (
        SELECT l.key FROM @schema@.locks l
        WHERE NOT l.held AND l.tickets IS NULL AND l.intents IS NULL AND l.revision > 0
          AND greatest(l.freed_ms, l.last_heartbeat_ms) < records_before
        LIMIT most FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS n_records = ROW_COUNT;
    RETURN n_events + n_records;
END $$;
