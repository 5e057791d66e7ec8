DROP TRIGGER users_are_named;
DROP TABLE help;
PRAGMA user_version = 0;
