-- Deployment state on PostgreSQL: the blobs of include/belay/blob.h, in the same schema as the locks, so that a
-- save and the check of its lock are one transaction. @schema@ stands for the schema's name.
--
-- A content is stored in pieces, which neither the client nor the server has to hold in memory all at once:
--
--     blob_upload(tag, 1, ...), blob_upload(tag, 2, ...), ...      the later pieces of a large content, if any
--     blob_put(name, tag, ...)                                     the first piece; the content is there or it is not
--     blob_put(name, ..., NULL, ...)                               no content: the blob is removed
--
-- A tag names one content. Its writer makes it up, so a call that is repeated after a lost answer is recognised.
--
-- This also runs on a schema that has an earlier version of it.

CREATE TABLE IF NOT EXISTS @schema@.blobs (
    name text COLLATE "C" PRIMARY KEY,
    tag text COLLATE "C" NOT NULL UNIQUE,
    size bigint NOT NULL,
    modified_ms bigint NOT NULL
);

CREATE TABLE IF NOT EXISTS @schema@.blob_pieces (
    tag text COLLATE "C",
    n integer,
    data bytea NOT NULL,
    PRIMARY KEY (tag, n)
);

-- A state shrinks to a fifth or less, several times as fast as with the default. Not every server has it.
DO $$
BEGIN
    ALTER TABLE @schema@.blob_pieces ALTER COLUMN data SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END $$;

-- Contents that no blob has yet. A writer that died leaves its upload behind.
CREATE TABLE IF NOT EXISTS @schema@.blob_uploads (
    tag text COLLATE "C" PRIMARY KEY,
    at_ms bigint NOT NULL
);

-- code: 0 done, 1 the blob has another content, 4 too late, 6 pieces are missing, 7 the lock is not held; then what
-- the lock is instead.
DO $$
BEGIN
    CREATE TYPE @schema@.blob_answer AS (
        code integer,
        now_ms bigint,
        owner text,
        owner_name text,
        token bigint,
        is_held boolean
    );
EXCEPTION WHEN duplicate_object THEN
    NULL;
END $$;

CREATE OR REPLACE FUNCTION @schema@.state_version() RETURNS integer
LANGUAGE sql IMMUTABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT 2 $$;

-- ---- writing ----

-- Keeps an upload for an hour after its last piece.
CREATE OR REPLACE FUNCTION @schema@.blob_upload(new_tag text, piece integer, bytes bytea) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now bigint := @schema@.clock_ms();
BEGIN
    IF piece < 1 OR EXISTS (SELECT FROM @schema@.blobs b WHERE b.tag = new_tag) THEN
        RETURN; -- it comes late, a second time
    END IF;
    IF piece = 1 THEN
        WITH old AS (
            DELETE FROM @schema@.blob_uploads u WHERE u.tag IN (
                SELECT o.tag FROM @schema@.blob_uploads o WHERE o.at_ms < now - 3600000 FOR UPDATE SKIP LOCKED)
            RETURNING u.tag)
        DELETE FROM @schema@.blob_pieces p USING old
        WHERE p.tag = old.tag AND NOT EXISTS (SELECT FROM @schema@.blobs b WHERE b.tag = old.tag);
    END IF;
    INSERT INTO @schema@.blob_uploads AS u VALUES (new_tag, now) ON CONFLICT (tag) DO UPDATE SET at_ms = now;
    INSERT INTO @schema@.blob_pieces VALUES (new_tag, piece, bytes) ON CONFLICT DO NOTHING;
    PERFORM set_config('synchronous_commit', 'off', true); -- the blob_put() that follows flushes this too
END $$;

-- Whether the id holds the key with this token, by the server's clock. The lock stays as it is until the transaction
-- ends: no client takes it between this and the write.
CREATE OR REPLACE FUNCTION @schema@.check_lock(of_key text, id text, of_token bigint) RETURNS @schema@.blob_answer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    m @schema@.meta;
    r @schema@.locks;
    h jsonb;
    now bigint;
BEGIN
    SELECT * INTO m FROM @schema@.meta;
    IF m.server_start <> pg_postmaster_start_time() OR m.timeline <> @schema@.timeline() THEN
        PERFORM @schema@.new_server();
    END IF;
    SELECT * INTO r FROM @schema@.locks l WHERE l.key = of_key FOR SHARE;
    now := @schema@.clock_ms();
    h := @schema@.holder(r.holders, id);
    IF (h IS NOT NULL AND (h->>'t')::bigint = of_token AND now < (h->>'e')::bigint)
       OR (r.held AND r.mode = 0 AND r.lock_id = id AND r.token = of_token AND now < r.expires_ms) THEN
        RETURN (0, now, NULL, NULL, 0, true)::@schema@.blob_answer;
    END IF;
    RETURN (7, now, r.owner, r.owner_name, coalesce(r.token, 0),
            coalesce(r.held AND now < r.expires_ms, false))::@schema@.blob_answer;
END $$;

-- Give the blob a new content, of which `bytes` is the first piece, if its tag is `expected`; NULL: if it does not
-- exist. NULL bytes: remove the blob, whatever its tag. If the lock is in this schema (`lock_store`; NULL: no lock),
-- only while it is held. Nothing happens after the deadline.
CREATE OR REPLACE FUNCTION @schema@.blob_put(of_name text, new_tag text, expected text, of_size bigint, bytes bytea,
    deadline bigint, lock_store text, lock_key text, lock_id text, lock_token bigint)
RETURNS @schema@.blob_answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now bigint := @schema@.clock_ms();
    done CONSTANT integer := 0;
    refused CONSTANT integer := 1;
    late CONSTANT integer := 4;
    incomplete CONSTANT integer := 6;
    is_large boolean := of_size > length(bytes);
    have text;
    a @schema@.blob_answer;
BEGIN
    IF deadline < 9223372036854775807 THEN
        PERFORM set_config('lock_timeout', least(greatest(deadline - now, 1), 2147483647)::text, true);
    END IF;
    SELECT b.tag INTO have FROM @schema@.blobs b WHERE b.name = of_name FOR UPDATE;
    IF have = new_tag THEN
        RETURN (done, now, NULL, NULL, 0, NULL)::@schema@.blob_answer; -- repeated
    ELSIF bytes IS NOT NULL AND have IS DISTINCT FROM expected THEN
        RETURN (refused, now, NULL, NULL, 0, NULL)::@schema@.blob_answer;
    END IF;
    IF is_large THEN
        PERFORM FROM @schema@.blob_uploads u WHERE u.tag = new_tag FOR UPDATE;
        IF NOT FOUND OR of_size <> length(bytes)
           + (SELECT sum(length(p.data)) FROM @schema@.blob_pieces p WHERE p.tag = new_tag) THEN
            RETURN (incomplete, now, NULL, NULL, 0, NULL)::@schema@.blob_answer;
        END IF;
    END IF;
    IF lock_store = (SELECT 'postgresql:' || m.store_id FROM @schema@.meta m) THEN
        a := @schema@.check_lock(lock_key, lock_id, lock_token);
        IF a.code <> done THEN
            RETURN a;
        END IF;
    END IF;
    now := @schema@.clock_ms();
    IF now > deadline THEN
        RETURN (late, now, NULL, NULL, 0, NULL)::@schema@.blob_answer;
    END IF;
    IF bytes IS NULL THEN
        WITH gone AS (DELETE FROM @schema@.blobs b WHERE b.name = of_name RETURNING b.tag)
        DELETE FROM @schema@.blob_pieces p USING gone WHERE p.tag = gone.tag;
        RETURN (done, now, NULL, NULL, 0, NULL)::@schema@.blob_answer;
    END IF;
    IF have IS NULL THEN
        INSERT INTO @schema@.blobs VALUES (of_name, new_tag, of_size, now) ON CONFLICT (name) DO NOTHING;
        IF NOT FOUND THEN
            SELECT b.tag INTO have FROM @schema@.blobs b WHERE b.name = of_name;
            RETURN (CASE WHEN have = new_tag THEN done ELSE refused END, now, NULL, NULL, 0, NULL)::@schema@.blob_answer;
        END IF;
    ELSE
        UPDATE @schema@.blobs b SET tag = new_tag, size = of_size, modified_ms = now WHERE b.name = of_name;
        DELETE FROM @schema@.blob_pieces p WHERE p.tag = have;
    END IF;
    INSERT INTO @schema@.blob_pieces VALUES (new_tag, 0, bytes);
    IF is_large THEN
        DELETE FROM @schema@.blob_uploads u WHERE u.tag = new_tag;
    END IF;
    IF @schema@.clock_ms() > deadline THEN -- the INSERT has waited for another one of this name, which was rolled back
        RAISE EXCEPTION 'the deadline has passed' USING ERRCODE = 'lock_not_available'; -- as after a longer wait
    END IF;
    RETURN (done, now, NULL, NULL, 0, NULL)::@schema@.blob_answer;
END $$;

-- ---- reading ----

-- The first piece; none if the tag is `known`.
CREATE OR REPLACE FUNCTION @schema@.blob_get(of_name text, known text) RETURNS TABLE (tag text, size text, data bytea)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT b.tag, b.size::text, p.data
    FROM @schema@.blobs b
    LEFT JOIN @schema@.blob_pieces p ON p.tag = b.tag AND p.n = 0 AND b.tag IS DISTINCT FROM known
    WHERE b.name = of_name
$$;

-- NULL: the content was replaced.
CREATE OR REPLACE FUNCTION @schema@.blob_piece(of_tag text, piece integer) RETURNS bytea
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT p.data FROM @schema@.blob_pieces p WHERE p.tag = of_tag AND p.n = piece $$;

-- Names after `after`, which is the last entry of the page before. With `shallow` all names of a folder are one entry
-- that ends in '/', and the next one is looked up past all of them: '0' is the character after '/'.
CREATE OR REPLACE FUNCTION @schema@.blob_list(prefix text, after text, shallow boolean, page integer)
RETURNS TABLE (name text, size bigint, modified_ms bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at text COLLATE "C" := prefix;
    left_over integer := page;
    slash integer;
    b @schema@.blobs;
BEGIN
    IF after <> '' THEN
        at := CASE WHEN right(after, 1) = '/' THEN left(after, -1) || '0' ELSE after || chr(1) END;
    END IF;
    <<folders>> LOOP
        FOR b IN SELECT * FROM @schema@.blobs x WHERE x.name >= at ORDER BY x.name LIMIT left_over LOOP
            IF NOT starts_with(b.name, prefix) THEN
                RETURN;
            END IF;
            slash := CASE WHEN shallow THEN strpos(substr(b.name, length(prefix) + 1), '/') ELSE 0 END;
            left_over := left_over - 1;
            IF slash > 0 THEN
                name := left(b.name, length(prefix) + slash);
                size := 0;
                modified_ms := 0;
                at := left(name, -1) || '0';
                RETURN NEXT;
                CONTINUE folders;
            END IF;
            name := b.name;
            size := b.size;
            modified_ms := b.modified_ms;
            RETURN NEXT;
        END LOOP;
        RETURN;
    END LOOP;
END $$;
