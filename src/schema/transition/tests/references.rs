//! Another table of owners.

use super::*;

#[test]
fn a_foreign_key_comes() {
    let loose = tables("sagents_", Some(("user_id", Kind::BigInteger, None)));
    let people = tables("sagents_", Some(("user_id", Kind::BigInteger, Some("people"))));
    let transition = change(&loose, &people, same_owner());
    assert_eq!(transition.schema(), &people);
    insta::assert_snapshot!(transition.up(Database::Postgres), @r#"
    -- Says what is missing before anything is changed.
    DO $$
    BEGIN
        IF to_regclass('"people"') IS NULL THEN
            RAISE EXCEPTION 'the table "people" of the owners is missing: make it in an earlier migration, or name another with --owner-table';
        END IF;
        IF NOT has_table_privilege('"people"', 'REFERENCES') THEN
            RAISE EXCEPTION 'the role % may not refer to "people": let its owner GRANT REFERENCES ON "people" TO %',
                current_user, current_user;
        END IF;
    END
    $$;

    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- New tables, keys, checks and indexes.
    ALTER TABLE "sagents_conversations" ADD CONSTRAINT "sagents_conversations_fkey" FOREIGN KEY ("user_id") REFERENCES "people" ("id") ON DELETE CASCADE;
    "#);
    let down = transition.down(Database::Postgres);
    assert!(down.contains("DROP CONSTRAINT \"sagents_conversations_fkey\""), "{down}");
    insta::assert_snapshot!(steps(&transition.up(Database::Sqlite), "is not in"), @r#"
    -- Stops, with nothing changed, if a user_id is not in people.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "there are conversations whose user_id is not in people; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_conversations" AS conversation WHERE NOT EXISTS (
            SELECT 1 FROM "people" AS owner WHERE owner."id" = conversation."user_id"
        )
    );
    DROP TABLE "sagents_guard";
    "#);
}

#[test]
fn the_default_schema_may_be_named_or_not() {
    let mut named = user();
    named.tables[0].foreign_keys[0].schema = Some("public".to_owned());
    let mut elsewhere = user();
    elsewhere.tables[0].foreign_keys[0].schema = Some("audit".to_owned());
    assert!(is_unchanged(&user(), &named, &same_owner()));
    assert!(is_unchanged(&named, &user(), &same_owner()));
    assert!(change(&user(), &elsewhere, same_owner()).lacks_backfill());
    let chat = tables("chat_", Some(("user_id", Kind::BigInteger, Some("users"))));
    let renamed = change(&named, &chat, same_owner()).up(Database::Postgres);
    assert!(!renamed.contains("DROP CONSTRAINT"), "{renamed}");
}
