//! The columns that former owners leave.

use super::*;

#[test]
fn former_owners_have_names_of_their_own() {
    let mut schema = user();
    for kind in [Kind::Text, Kind::Uuid, Kind::Text] {
        schema = changed(&schema, &tables("sagents_", Some(("user_id", kind, None))), Wish::default());
    }
    assert_eq!(columns(&schema.tables[0])[12..], ["old_user_id_3", "old_user_id_2", "old_user_id"]);
    let long = "u".repeat(63);
    let before = tables("sagents_", Some((&long, Kind::Text, None)));
    let after = changed(&before, &tables("sagents_", Some((&long, Kind::Uuid, None))), Wish::default());
    assert_eq!(columns(&after.tables[0])[12], format!("old_{}", &long[4..]));
}

#[test]
fn the_old_owner_goes_by_a_run_of_its_own() {
    let there = changed(&user(), &team(), backfill(BACKFILL));
    let transition = change(&there, &team(), Wish { drop_old_owner: true, ..same_owner() });
    assert_eq!(transition.schema(), &team());
    insta::assert_snapshot!(transition.up(Database::Sqlite), @r#"
    -- Columns that are no more.
    ALTER TABLE "sagents_conversations" DROP COLUMN "user_id";
    ALTER TABLE "sagents_agent_states" DROP COLUMN "user_id";
    ALTER TABLE "sagents_display_messages" DROP COLUMN "user_id";
    ALTER TABLE "sagents_agent_messages" DROP COLUMN "user_id";
    ALTER TABLE "sagents_unreadable_states" DROP COLUMN "user_id";
    ALTER TABLE "sagents_runs" DROP COLUMN "user_id";
    ALTER TABLE "sagents_usage" DROP COLUMN "user_id";
    "#);
    insta::assert_snapshot!(transition.down(Database::Sqlite), @r#"
    -- The columns that were not used come back, without their values.

    -- New columns.
    ALTER TABLE "sagents_conversations" ADD COLUMN "user_id" INTEGER;
    ALTER TABLE "sagents_agent_states" ADD COLUMN "user_id" INTEGER;
    ALTER TABLE "sagents_display_messages" ADD COLUMN "user_id" INTEGER;
    ALTER TABLE "sagents_agent_messages" ADD COLUMN "user_id" INTEGER;
    ALTER TABLE "sagents_unreadable_states" ADD COLUMN "user_id" INTEGER;
    ALTER TABLE "sagents_runs" ADD COLUMN "user_id" INTEGER;
    ALTER TABLE "sagents_usage" ADD COLUMN "user_id" INTEGER;
    "#);
    insta::assert_snapshot!(transition.up(Database::Postgres), @r#"
    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- Columns that are no more.
    ALTER TABLE "sagents_conversations" DROP COLUMN "user_id";
    ALTER TABLE "sagents_agent_states" DROP COLUMN "user_id";
    ALTER TABLE "sagents_display_messages" DROP COLUMN "user_id";
    ALTER TABLE "sagents_agent_messages" DROP COLUMN "user_id";
    ALTER TABLE "sagents_unreadable_states" DROP COLUMN "user_id";
    ALTER TABLE "sagents_runs" DROP COLUMN "user_id";
    ALTER TABLE "sagents_usage" DROP COLUMN "user_id";
    "#);
    insta::assert_snapshot!(transition.down(Database::Postgres), @r#"
    -- The columns that were not used come back, without their values.

    -- Nobody writes while the tables change.
    LOCK TABLE "sagents_conversations", "sagents_agent_states", "sagents_display_messages", "sagents_agent_messages", "sagents_unreadable_states", "sagents_runs", "sagents_usage" IN ACCESS EXCLUSIVE MODE;

    -- Columns as they are from now on.
    ALTER TABLE "sagents_conversations" ADD COLUMN "user_id" BIGINT;
    ALTER TABLE "sagents_agent_states" ADD COLUMN "user_id" BIGINT;
    ALTER TABLE "sagents_display_messages" ADD COLUMN "user_id" BIGINT;
    ALTER TABLE "sagents_agent_messages" ADD COLUMN "user_id" BIGINT;
    ALTER TABLE "sagents_unreadable_states" ADD COLUMN "user_id" BIGINT;
    ALTER TABLE "sagents_runs" ADD COLUMN "user_id" BIGINT;
    ALTER TABLE "sagents_usage" ADD COLUMN "user_id" BIGINT;
    "#);
}

#[test]
fn an_owner_that_leaves_now_is_not_dropped_now() {
    let there = changed(&user(), &team(), backfill(BACKFILL));
    let org = tables("sagents_", Some(("org_id", Kind::Text, Some("orgs"))));
    let transition = change(&there, &org, Wish { drop_old_owner: true, ..backfill("'one'") });
    assert_eq!(columns(&transition.schema().tables[1])[9..], ["team_id"]);
}

#[test]
fn a_recorded_schema_keeps_its_former_owners() {
    let there = changed(&user(), &team(), backfill(BACKFILL));
    let json = serde_json::to_string(&there).unwrap();
    assert_eq!(json.matches("\"retired\":true").count(), there.tables.len());
    assert!(!json.contains("\"retired\":false"));
    assert_eq!(serde_json::from_str::<Schema>(&json).unwrap(), there);
}
