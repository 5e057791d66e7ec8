CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE accounts (id TEXT NOT NULL PRIMARY KEY, name TEXT);
CREATE TABLE teams (id BLOB NOT NULL PRIMARY KEY) STRICT;
CREATE TABLE companies (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT);
CREATE TABLE "user" (user_id UUID NOT NULL PRIMARY KEY, email TEXT, organization_id INTEGER);
CREATE INDEX user_organization ON "user" (organization_id);
CREATE TABLE devices (id VARCHAR(36) NOT NULL PRIMARY KEY);
CREATE TABLE club_devices (club TEXT NOT NULL, device VARCHAR(36) NOT NULL REFERENCES devices (id));
CREATE INDEX club_devices_by_club ON club_devices (club, device);
