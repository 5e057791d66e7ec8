DROP TABLE club_devices;
DROP TABLE devices;
DROP TABLE "user";
DROP TABLE companies;
DROP TABLE teams;
DROP TABLE accounts;
DROP TABLE users;
