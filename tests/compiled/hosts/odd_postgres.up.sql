-- What no parser but the database's own knows.
DO $$ BEGIN PERFORM 1; END $$;
CREATE FUNCTION users_are_named() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    NEW.name := coalesce(nullif(NEW.name, ''), 'user;' || NEW.id);
    RETURN NEW;
END
$body$;
CREATE TRIGGER users_are_named BEFORE INSERT ON users FOR EACH ROW EXECUTE FUNCTION users_are_named();
CREATE RULE nobody_leaves AS ON DELETE TO companies DO INSTEAD NOTHING;
