CREATE TABLE teams (id INTEGER PRIMARY KEY);
CREATE TABLE users (id INTEGER PRIMARY KEY);
CREATE TABLE memberships (
    user_id INTEGER NOT NULL REFERENCES users (id),
    team_id INTEGER NOT NULL REFERENCES teams (id),
    joined_at TEXT NOT NULL,
    PRIMARY KEY (user_id, team_id)
);
