//! Whose conversations are, under a new owner.

use super::*;

#[test]
fn a_backfill_is_evaluated_on_the_old_columns_also_where_the_name_is_the_same() {
    let by_uuid = tables("sagents_", Some(("user_id", Kind::Uuid, Some("people"))));
    let transition = change(&user(), &by_uuid, backfill("unhex(printf('%032x', user_id))"));
    assert_eq!(columns(&transition.schema().tables[1]).last(), Some(&"old_user_id"));
    insta::assert_snapshot!(steps(&transition.up(Database::Sqlite), "sagents_new_owner"), @r#"
    -- Every conversation gets its user_id.
    ALTER TABLE "sagents_conversations" ADD COLUMN "sagents_new_owner" BLOB;
    UPDATE "sagents_conversations" AS conversation SET "sagents_new_owner" = (unhex(printf('%032x', user_id)));

    -- Stops, with nothing changed, if a conversation is without a user_id.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "the backfill leaves conversations without a user_id; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_conversations" WHERE "sagents_new_owner" IS NULL
    );
    DROP TABLE "sagents_guard";

    -- Stops, with nothing changed, if two conversations would have the same key.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "there are conversations of one id that would have the same user_id; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_conversations" GROUP BY "sagents_new_owner", "id" HAVING count(*) > 1
    );
    DROP TABLE "sagents_guard";

    -- Stops, with nothing changed, if a user_id is not in people.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "there are conversations whose user_id is not in people; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_conversations" AS conversation WHERE NOT EXISTS (
            SELECT 1 FROM "people" AS owner WHERE owner."id" = conversation."sagents_new_owner"
        )
    );
    DROP TABLE "sagents_guard";

    -- Every row is copied, parents first.
    INSERT INTO "sagents_conversations_new"
        ("user_id", "id", "title", "scope", "metadata", "interrupted", "next_sequence", "inserted_at", "updated_at", "last_change", "last_removal", "archived_at", "old_user_id")
        SELECT "sagents_new_owner", "id", "title", "scope", "metadata", "interrupted", "next_sequence", "inserted_at", "updated_at", "last_change", "last_removal", "archived_at", "user_id"
        FROM "sagents_conversations";
    INSERT INTO "sagents_agent_states_new"
        ("user_id", "conversation_id", "version", "revision", "write_id", "data", "inserted_at", "updated_at", "epoch", "old_user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."version", child."revision", child."write_id", child."data", child."inserted_at", child."updated_at", child."epoch", child."user_id"
        FROM "sagents_agent_states" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    INSERT INTO "sagents_display_messages_new"
        ("user_id", "conversation_id", "sequence", "message_id", "item", "role", "content_type", "content", "metadata", "tool_call_id", "status", "inserted_at", "changed", "delivery", "old_user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."sequence", child."message_id", child."item", child."role", child."content_type", child."content", child."metadata", child."tool_call_id", child."status", child."inserted_at", child."changed", child."delivery", child."user_id"
        FROM "sagents_display_messages" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    INSERT INTO "sagents_agent_messages_new"
        ("user_id", "conversation_id", "epoch", "position", "message_id", "data", "old_user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."epoch", child."position", child."message_id", child."data", child."user_id"
        FROM "sagents_agent_messages" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    INSERT INTO "sagents_unreadable_states_new"
        ("user_id", "conversation_id", "epoch", "data", "set_aside_at", "old_user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."epoch", child."data", child."set_aside_at", child."user_id"
        FROM "sagents_unreadable_states" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    INSERT INTO "sagents_runs_new"
        ("user_id", "conversation_id", "run_id", "holder", "status", "waiting_for", "cancel_requested", "started_at", "seen_at", "resumed", "old_user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."run_id", child."holder", child."status", child."waiting_for", child."cancel_requested", child."started_at", child."seen_at", child."resumed", child."user_id"
        FROM "sagents_runs" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    INSERT INTO "sagents_usage_new"
        ("user_id", "conversation_id", "message_id", "model", "input_tokens", "output_tokens", "cached_tokens", "inserted_at", "old_user_id")
        SELECT conversation."sagents_new_owner", child."conversation_id", child."message_id", child."model", child."input_tokens", child."output_tokens", child."cached_tokens", child."inserted_at", child."user_id"
        FROM "sagents_usage" AS child
        LEFT JOIN "sagents_conversations" AS conversation
        ON conversation."user_id" = child."user_id" AND conversation."id" = child."conversation_id";
    "#);
    let up = transition.up(Database::Postgres);
    insta::assert_snapshot!(steps(&up, "RENAME"), @r#"
    -- Columns by their new names.
    ALTER TABLE "sagents_conversations" RENAME COLUMN "user_id" TO "old_user_id";
    ALTER TABLE "sagents_conversations" RENAME COLUMN "sagents_new_owner" TO "user_id";
    ALTER TABLE "sagents_agent_states" RENAME COLUMN "user_id" TO "old_user_id";
    ALTER TABLE "sagents_agent_states" RENAME COLUMN "sagents_new_owner" TO "user_id";
    ALTER TABLE "sagents_display_messages" RENAME COLUMN "user_id" TO "old_user_id";
    ALTER TABLE "sagents_display_messages" RENAME COLUMN "sagents_new_owner" TO "user_id";
    ALTER TABLE "sagents_agent_messages" RENAME COLUMN "user_id" TO "old_user_id";
    ALTER TABLE "sagents_agent_messages" RENAME COLUMN "sagents_new_owner" TO "user_id";
    ALTER TABLE "sagents_unreadable_states" RENAME COLUMN "user_id" TO "old_user_id";
    ALTER TABLE "sagents_unreadable_states" RENAME COLUMN "sagents_new_owner" TO "user_id";
    ALTER TABLE "sagents_runs" RENAME COLUMN "user_id" TO "old_user_id";
    ALTER TABLE "sagents_runs" RENAME COLUMN "sagents_new_owner" TO "user_id";
    ALTER TABLE "sagents_usage" RENAME COLUMN "user_id" TO "old_user_id";
    ALTER TABLE "sagents_usage" RENAME COLUMN "sagents_new_owner" TO "user_id";
    "#);
    insta::assert_snapshot!(steps(&transition.down(Database::Postgres), "RENAME"), @r#"
    -- Columns by their new names.
    ALTER TABLE "sagents_conversations" RENAME COLUMN "old_user_id" TO "user_id";
    ALTER TABLE "sagents_agent_states" RENAME COLUMN "old_user_id" TO "user_id";
    ALTER TABLE "sagents_display_messages" RENAME COLUMN "old_user_id" TO "user_id";
    ALTER TABLE "sagents_agent_messages" RENAME COLUMN "old_user_id" TO "user_id";
    ALTER TABLE "sagents_unreadable_states" RENAME COLUMN "old_user_id" TO "user_id";
    ALTER TABLE "sagents_runs" RENAME COLUMN "old_user_id" TO "user_id";
    ALTER TABLE "sagents_usage" RENAME COLUMN "old_user_id" TO "user_id";
    "#);
}

#[test]
fn without_a_backfill_only_empty_tables_can_change() {
    let transition = change(&user(), &team(), Wish::default());
    assert!(transition.lacks_backfill());
    for database in BOTH {
        let up = transition.up(database);
        assert!(!up.contains("UPDATE \"sagents_conversations\""), "{up}");
    }
    insta::assert_snapshot!(steps(&transition.up(Database::Sqlite), "--backfill"), @r#"
    -- Stops, with nothing changed, if a conversation is without a team_id.
    CREATE TABLE "sagents_guard" (stop INTEGER CONSTRAINT "there are conversations already: say with --backfill what their team_id is; nothing was changed" CHECK (NOT stop));
    INSERT INTO "sagents_guard" SELECT EXISTS (
        SELECT 1 FROM "sagents_conversations" WHERE "sagents_new_owner" IS NULL
    );
    DROP TABLE "sagents_guard";
    "#);
    insta::assert_snapshot!(steps(&transition.up(Database::Postgres), "--backfill"), @r#"
    -- Stops, with nothing changed, if a conversation is without a team_id.
    DO $$
    BEGIN
        IF EXISTS (SELECT 1 FROM "sagents_conversations" WHERE "sagents_new_owner" IS NULL) THEN
            RAISE EXCEPTION 'there are conversations already: say with --backfill what their team_id is; nothing was changed';
        END IF;
    END
    $$;
    "#);
}

#[test]
fn there_and_back_needs_no_backfill() {
    let there = changed(&user(), &team(), backfill(BACKFILL));
    let back = change(&there, &user(), other_owner("team", "user"));
    assert!(!back.lacks_backfill());
    insta::assert_snapshot!(steps(&back.up(Database::Postgres), "former"), @r#"
    -- Stops, with nothing changed, if a conversation is without a user_id.
    DO $$
    BEGIN
        IF EXISTS (SELECT 1 FROM "sagents_conversations" WHERE "sagents_new_owner" IS NULL) THEN
            RAISE EXCEPTION 'there are conversations without a former user_id: say with --backfill what their user_id is; nothing was changed';
        END IF;
    END
    $$;
    "#);
    insta::assert_snapshot!(columns(&back.schema().tables[1]).join(" "), @"user_id conversation_id version revision write_id data inserted_at updated_at epoch team_id old_user_id");
    // Another type would need a conversion.
    let by_uuid = tables("sagents_", Some(("user_id", Kind::Uuid, None)));
    assert!(change(&there, &by_uuid, other_owner("team", "user")).lacks_backfill());
}

#[test]
fn a_former_column_fills_only_that_of_the_same_owner() {
    let of = |name: &'static str, table| tables("sagents_", Some((name, Kind::BigInteger, table)));
    let there = changed(&user(), &team(), backfill(BACKFILL));
    let filled =
        |owner_type: &'static str, new: &Schema| !change(&there, new, other_owner("team", owner_type)).lacks_backfill();
    assert!(filled("user", &of("user_id", Some("users"))));
    assert!(filled("user", &of("member", Some("users"))));
    for (owner_type, name, table) in [
        ("account", "user_id", Some("users")),
        ("account", "user_id", Some("accounts")),
        ("user", "user_id", Some("people")),
        ("user", "user_id", None),
    ] {
        assert!(!filled(owner_type, &of(name, table)), "{owner_type} {name} {table:?}");
    }
    // Conversations that were created without an owner aren't in the former column, so it never fills a new one.
    let nobodys = changed(&user(), &none(), other_owner("user", "none"));
    assert!(change(&nobodys, &user(), other_owner("none", "user")).lacks_backfill());
}

#[test]
fn of_two_former_columns_of_an_owner_the_last_one_counts() {
    let mut schema = user();
    for (now, new, text) in [("team", team(), BACKFILL), ("user", user(), "7"), ("team", team(), BACKFILL)] {
        let before = if now == "team" { "user" } else { "team" };
        schema = changed(&schema, &new, Wish { backfill: Some(text), ..other_owner(before, now) });
    }
    let former: Vec<_> = schema.former_owners().map(|(column, ids)| (column.name.as_str(), &*ids.owner_type)).collect();
    assert_eq!(former, [("user_id", "user"), ("old_team_id", "team"), ("old_user_id", "user")]);
    let back = change(&schema, &user(), other_owner("team", "user"));
    assert_eq!(back.owner, OwnerChange::Comes(Filling::Former("user_id".to_owned())));
    // In between they were in another table, or had another type.
    for last in [("user_id", Kind::BigInteger, None), ("user_id", Kind::Uuid, Some("users"))] {
        let mut schema =
            changed(&user(), &tables("sagents_", Some(last)), Wish { backfill: Some("7"), ..same_owner() });
        schema = changed(&schema, &team(), backfill(BACKFILL));
        assert!(change(&schema, &user(), other_owner("team", "user")).lacks_backfill(), "{last:?}");
    }
}

#[test]
fn a_table_that_no_foreign_key_names_any_more_is_remembered() {
    let loose = tables("sagents_", Some(("user_id", Kind::BigInteger, None)));
    let people = tables("sagents_", Some(("user_id", Kind::BigInteger, Some("people"))));
    let there = changed(&user(), &loose, same_owner());
    assert_eq!(change(&there, &user(), same_owner()).schema(), &user());
    assert!(change(&there, &people, same_owner()).lacks_backfill());
    assert!(!change(&loose, &people, same_owner()).lacks_backfill());
}

#[test]
fn another_kind_of_owner_is_another_owner() {
    let loose = tables("sagents_", Some(("owner_id", Kind::BigInteger, None)));
    for schema in [loose, user()] {
        assert!(is_unchanged(&schema, &schema, &same_owner()));
        assert!(change(&schema, &schema, other_owner("user", "team")).lacks_backfill());
        assert!(changed(&schema, &schema, backfill("7")).tables[1].columns.last().unwrap().name.starts_with("old_"));
    }
}
