DROP RULE nobody_leaves ON companies;
DROP TRIGGER users_are_named ON users;
DROP FUNCTION users_are_named;
