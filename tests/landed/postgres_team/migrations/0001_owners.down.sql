DROP TABLE users;
DROP TABLE teams;
