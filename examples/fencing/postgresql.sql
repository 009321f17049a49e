-- Install once. A transaction that begins with fence() is refused if a higher token was there before.
CREATE TABLE IF NOT EXISTS fence (resource text PRIMARY KEY, token bigint NOT NULL);
CREATE OR REPLACE FUNCTION fence(text, bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO fence AS f VALUES ($1, $2)
        ON CONFLICT (resource) DO UPDATE SET token = $2 WHERE f.token <= $2;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'token % of % is too old', $2, $1;
    END IF;
END $$;
