//! Drops the guards of the database, so that a planted bug takes effect and the checks have to find it.
//!
//! The tables of calls, decisions and sent texts lose their triggers, CHECKs and unique indexes. On Postgres
//! they keep their primary keys. The guards of threads, runs and messages stay.

/// The statement for Postgres.
pub(crate) const DROP_ON_POSTGRES: &str = "
DO $$
DECLARE
    guard RECORD;
BEGIN
    FOR guard IN
        SELECT tgname AS name, tgrelid::regclass AS of_table FROM pg_trigger WHERE NOT tgisinternal
            AND tgrelid IN ('tool_calls'::regclass, 'decisions'::regclass, 'sent_answers'::regclass)
    LOOP EXECUTE format('DROP TRIGGER %I ON %s', guard.name, guard.of_table); END LOOP;
    FOR guard IN
        SELECT conname AS name, conrelid::regclass AS of_table FROM pg_constraint WHERE contype IN ('c', 'u')
            AND conrelid IN ('tool_calls'::regclass, 'decisions'::regclass, 'sent_answers'::regclass)
    LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', guard.of_table, guard.name); END LOOP;
    FOR guard IN
        SELECT indexrelid::regclass AS name FROM pg_index WHERE indisunique AND NOT indisprimary
            AND indrelid IN ('tool_calls'::regclass, 'decisions'::regclass, 'sent_answers'::regclass)
    LOOP EXECUTE format('DROP INDEX %s', guard.name); END LOOP;
END $$";

/// The query for SQLite, where a constraint cannot be dropped without its table. The query returns statements
/// that run in order on one connection with `PRAGMA foreign_keys = OFF`. The statements create each table
/// anew with its columns only.
pub(crate) const DROPS_ON_SQLITE: &str = "
WITH guarded (name) AS (VALUES ('tool_calls'), ('decisions'), ('sent_answers')),
bare AS (
    SELECT guarded.name AS name, group_concat(c.name || ' ' || c.type, ', ') AS columns, group_concat(c.name, ', ') AS names
    FROM guarded, pragma_table_info(guarded.name) AS c GROUP BY guarded.name)
SELECT 'CREATE TABLE bare_' || name || ' (' || columns || ')' AS statement, name, 1 AS step FROM bare
UNION ALL SELECT 'INSERT INTO bare_' || name || ' SELECT ' || names || ' FROM ' || name, name, 2 FROM bare
UNION ALL SELECT 'DROP TABLE ' || name, name, 3 FROM bare
UNION ALL SELECT 'ALTER TABLE bare_' || name || ' RENAME TO ' || name, name, 4 FROM bare
ORDER BY name, step";
