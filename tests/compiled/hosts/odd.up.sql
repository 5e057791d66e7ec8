-- What no parser but the database's own knows.
PRAGMA user_version = 7;
CREATE VIRTUAL TABLE help USING fts5 (title, body, tokenize = 'porter unicode61');
CREATE TRIGGER users_are_named AFTER INSERT ON users WHEN new.name = '' BEGIN
    UPDATE users SET name = 'user;' || new.id WHERE id = new.id;
END;
