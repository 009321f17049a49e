#!/bin/sh
# postgresql-write.sh VALUE: one transaction, fenced. psql finds the database in PGHOST, PGPORT, PGUSER, PGDATABASE.
exec psql -q -1 -v ON_ERROR_STOP=1 -v key="$BELAY_KEY" -v token="$BELAY_TOKEN" -v value="$1" <<'SQL'
SELECT fence(:'key', :token);
UPDATE settings SET value = :'value' WHERE name = 'release';
SQL
