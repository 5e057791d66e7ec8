//! The owner, its table and its key.

use insta::assert_snapshot;

use super::{PLAIN, with_migration};
use crate::support::Host;
use crate::transcript::{refusal, refusals};

#[test]
fn an_owner_type_is_an_identifier() {
    let lines = [
        "gen persistence conversations -s accounts::Scope -t ''",
        "gen persistence conversations -s accounts::Scope -t 9th",
        "gen persistence conversations -s accounts::Scope -t 'team member'",
        "gen persistence conversations -s accounts::Scope -t user;",
        "gen persistence conversations -s accounts::Scope -t us\"er",
        "gen persistence conversations -s accounts::Scope -t usеr",
        "gen persistence conversations -s accounts::Scope -t TeamMember",
        "gen persistence conversations -s accounts::Scope -t type",
        "gen persistence conversations -s accounts::Scope -t crate",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @r#"
    $ gen persistence conversations -s accounts::Scope -t ''
    error: --owner-type: it is empty
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -t 9th
    error: --owner-type: `9th` does not start with a letter
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -t 'team member'
    error: --owner-type: `team member` contains a space
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -t user;
    error: --owner-type: `user;` contains `;`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -t us"er
    error: --owner-type: `us"er` contains `"`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -t usеr
    error: --owner-type: `usеr` contains U+0435
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -t TeamMember
    error: --owner-type: `TeamMember` is not in snake case
    help: use `team_member`
    exit 2

    $ gen persistence conversations -s accounts::Scope -t type
    error: --owner-type: `type` is a Rust keyword
    help: use another name, for example `types` or `type_item`
    exit 2

    $ gen persistence conversations -s accounts::Scope -t crate
    error: --owner-type: `crate` is a place, not a name
    help: give a name of your own
    exit 2
    "#);
}

#[test]
fn an_owner_field_is_an_identifier() {
    let lines = [
        "gen persistence conversations -s accounts::Scope -f ''",
        "gen persistence conversations -s accounts::Scope -f 1st",
        "gen persistence conversations -s accounts::Scope -f 'user id'",
        "gen persistence conversations -s accounts::Scope -f user_id;",
        "gen persistence conversations -s accounts::Scope -f user\"id",
        "gen persistence conversations -s accounts::Scope -f uѕer_id",
        "gen persistence conversations -s accounts::Scope -f userId",
        "gen persistence conversations -s accounts::Scope -f user__id",
        "gen persistence conversations -s accounts::Scope -f type",
        "gen persistence conversations -s accounts::Scope -f self",
        "gen persistence conversations -s accounts::Scope -f a_name_that_is_much_too_long_for_a_column_of_any_table_in_postgresql",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @r#"
    $ gen persistence conversations -s accounts::Scope -f ''
    error: --owner-field: it is empty
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -f 1st
    error: --owner-field: `1st` does not start with a letter
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -f 'user id'
    error: --owner-field: `user id` contains a space
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -f user_id;
    error: --owner-field: `user_id;` contains `;`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -f user"id
    error: --owner-field: `user"id` contains `"`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -f uѕer_id
    error: --owner-field: `uѕer_id` contains U+0455
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations -s accounts::Scope -f userId
    error: --owner-field: `userId` is not in snake case
    help: use `user_id`
    exit 2

    $ gen persistence conversations -s accounts::Scope -f user__id
    error: --owner-field: `user__id` is not in snake case
    help: use `user_id`
    exit 2

    $ gen persistence conversations -s accounts::Scope -f type
    error: --owner-field: `type` is a Rust keyword
    help: use another name, for example `types` or `type_item`
    exit 2

    $ gen persistence conversations -s accounts::Scope -f self
    error: --owner-field: `self` is a place, not a name
    help: give a name of your own
    exit 2

    $ gen persistence conversations -s accounts::Scope -f a_name_that_is_much_too_long_for_a_column_of_any_table_in_postgresql
    error: --owner-field: `a_name_that_is_much_too_long_for_a_column_of_any_table_in_postgresql` has 68 bytes, the limit is 63
    help: use a shorter name
    exit 2
    "#);
}

#[test]
fn an_owner_field_is_no_column_of_ours() {
    let lines = [
        "gen persistence conversations -s accounts::Scope -f id",
        "gen persistence conversations -s accounts::Scope -f title",
        "gen persistence conversations -s accounts::Scope -t conversation",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence conversations -s accounts::Scope -f id
    error: --owner-field: `id` is a column that the tables have already
    help: use another name, for example `user_id`
    exit 2

    $ gen persistence conversations -s accounts::Scope -f title
    error: --owner-field: `title` is a column that the tables have already
    help: use another name, for example `user_id`
    exit 2

    $ gen persistence conversations -s accounts::Scope -t conversation
    error: --owner-field: `conversation_id` is a column that the tables have already
    help: use another name, for example `user_id`
    exit 2
    ");
}

#[test]
fn an_owner_id_is_one_of_three_types() {
    let line = "gen persistence conversations -s accounts::Scope --owner-id i32";
    assert_snapshot!(refusal(&Host::library(), line), @"
    $ gen persistence conversations -s accounts::Scope --owner-id i32
    error: --owner-id: `i32` is not a type of key
    help: use `i64`, `uuid` or `text`
    exit 2
    ");
}

#[test]
fn an_owner_table_is_a_plain_name() {
    let lines = [
        "gen persistence conversations -s accounts::Scope --owner-table ''",
        "gen persistence conversations -s accounts::Scope --owner-table users;",
        "gen persistence conversations -s accounts::Scope --owner-table us\"ers",
        "gen persistence conversations -s accounts::Scope --owner-table sagents_conversations",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @r#"
    $ gen persistence conversations -s accounts::Scope --owner-table ''
    error: --owner-table: it is empty
    help: name a table, or `none` for no foreign key
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-table users;
    error: --owner-table: `users;` contains `;`
    help: give the table's plain name, without quotes
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-table us"ers
    error: --owner-table: `us"ers` contains `"`
    help: give the table's plain name, without quotes
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-table sagents_conversations
    error: --owner-table: `sagents_conversations` is a table of the context itself
    help: name the table of the owner, or `none` for no foreign key
    exit 2
    "#);
}

#[test]
fn without_an_owner_no_option_is_about_one() {
    let lines = [
        "gen persistence conversations -s accounts::Scope -t none -f user_id",
        "gen persistence conversations -s accounts::Scope -t none --owner-module accounts::User",
        "gen persistence conversations -s accounts::Scope -t none --owner-table users",
        "gen persistence conversations -s accounts::Scope -t none --owner-id i64",
        "gen persistence conversations -s accounts::Scope -t none --scope-owner user.id",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence conversations -s accounts::Scope -t none -f user_id
    error: --owner-field contradicts --owner-type none
    help: leave --owner-field out, or name an owner type
    exit 2

    $ gen persistence conversations -s accounts::Scope -t none --owner-module accounts::User
    error: --owner-module contradicts --owner-type none
    help: leave --owner-module out, or name an owner type
    exit 2

    $ gen persistence conversations -s accounts::Scope -t none --owner-table users
    error: --owner-table contradicts --owner-type none
    help: leave --owner-table out, or name an owner type
    exit 2

    $ gen persistence conversations -s accounts::Scope -t none --owner-id i64
    error: --owner-id contradicts --owner-type none
    help: leave --owner-id out, or name an owner type
    exit 2

    $ gen persistence conversations -s accounts::Scope -t none --scope-owner user.id
    error: --scope-owner contradicts --owner-type none
    help: leave --scope-owner out, or name an owner type
    exit 2
    ");
}

#[test]
fn a_key_has_to_be_of_the_type_that_the_scope_holds() {
    let sql = "CREATE TABLE users (id BLOB PRIMARY KEY);";
    let other = Host::with_accounts("pub struct Scope { pub user_id: i64 }\n").file("migrations/0001_first.sql", sql);
    let wrapped = Host::with_accounts("pub struct UserId(pub i64);\npub struct Scope { pub user_id: UserId }\n");
    let hidden = Host::with_accounts("pub struct UserId(u128);\npub struct Scope { pub user_id: UserId }\n");
    let foreign = Host::with_accounts("pub struct Scope { pub user_id: ulid::Ulid }\n");
    let text = "gen persistence conversations -s accounts::Scope --owner-id text";
    let all = [
        refusal(&other, PLAIN),
        refusal(&wrapped, "gen persistence conversations -s accounts::Scope --scope-owner user_id"),
        refusal(&hidden, PLAIN),
        refusal(&foreign, text),
        refusal(&wrapped, "gen persistence conversations -s accounts::Scope --owner-id uuid --scope-owner user_id.0"),
    ];
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: `user_id` in crate::accounts::Scope is `i64`, but the key `id` of table `users` is `Uuid`
    help: name a way to the `Uuid` with --scope-owner, another table with --owner-table, or `--owner-table none`
    exit 5

    $ gen persistence conversations -s accounts::Scope --scope-owner user_id
    error: `user_id` in crate::accounts::Scope is `UserId`, but the owner's key is taken to be `i64`
    `UserId` in src/accounts.rs: it has
      0: i64
    help: name a way to the `i64` with --scope-owner, for example `user_id.0`
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: `user_id` in crate::accounts::Scope is `UserId`, but the owner's key is taken to be `i64`
    `UserId` in src/accounts.rs: it has
      0: u128 (private)
    help: name a way to the `i64` with --scope-owner, or let `UserId` have one: a method `pub fn get(&self) -> i64`, or `impl From<UserId> for i64`
    exit 5

    $ gen persistence conversations -s accounts::Scope --owner-id text
    error: `user_id` in crate::accounts::Scope is `ulid::Ulid`, but `--owner-id text` needs `String`
    help: name a way to the `String` with --scope-owner, for example `user_id.to_string()`, `user_id.0` or a method
    exit 5

    $ gen persistence conversations -s accounts::Scope --owner-id uuid --scope-owner user_id.0
    error: `user_id.0` in crate::accounts::Scope is `i64`, but `--owner-id uuid` needs `Uuid`
    help: leave --owner-id out, or name a way to the `Uuid` with --scope-owner
    exit 5
    ");
}

#[test]
fn an_owner_table_has_a_key_of_one_column() {
    let host = with_migration("CREATE TABLE users (tenant INTEGER, number INTEGER, PRIMARY KEY (tenant, number));");
    let keyless = with_migration("CREATE TABLE users (name TEXT);");
    assert_snapshot!([refusal(&host, PLAIN), refusal(&keyless, PLAIN)].join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: the table `users` has no key of a single column that a foreign key could name; its columns are `tenant`, `number`
    help: name another table with --owner-table, or `--owner-table none` for no foreign key
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: the table `users` has no key of a single column that a foreign key could name; its columns are `name`
    help: name another table with --owner-table, or `--owner-table none` for no foreign key
    exit 5
    ");
}

#[test]
fn a_key_of_an_unknown_type_needs_a_flag() {
    let unknown = with_migration("CREATE TABLE users (id DECIMAL(10) PRIMARY KEY);");
    let untyped = with_migration("CREATE TABLE users (id PRIMARY KEY);");
    assert_snapshot!([refusal(&unknown, PLAIN), refusal(&untyped, PLAIN)].join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: the key `id` of table `users` is declared `DECIMAL(10)`, so its type is not known
    help: name it with `--owner-id i64`, `--owner-id uuid` or `--owner-id text`
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: the key `id` of table `users` is declared without a type, so its type is not known
    help: name it with `--owner-id i64`, `--owner-id uuid` or `--owner-id text`
    exit 5
    ");
}

#[test]
fn an_owner_id_does_not_contradict_the_owner_table() {
    let line = "gen persistence conversations -s accounts::Scope --owner-id";
    let all = [
        refusal(&with_migration("CREATE TABLE users (id INTEGER PRIMARY KEY);"), &format!("{line} uuid")),
        refusal(&with_migration("CREATE TABLE users (id TEXT PRIMARY KEY);"), &format!("{line} i64")),
        refusal(&with_migration("CREATE TABLE users (id BLOB PRIMARY KEY);"), &format!("{line} text")),
    ];
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope --owner-id uuid
    error: --owner-id: the key `id` of table `users` is declared `INTEGER`, so it is i64
    help: leave --owner-id out, or name another table with --owner-table
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-id i64
    error: --owner-id: the key `id` of table `users` is declared `TEXT`, so it is text, or uuid as text
    help: leave --owner-id out, or name another table with --owner-table
    exit 2

    $ gen persistence conversations -s accounts::Scope --owner-id text
    error: --owner-id: the key `id` of table `users` is declared `BLOB`, so it is uuid
    help: leave --owner-id out, or name another table with --owner-table
    exit 2
    ");
}

#[test]
fn an_owner_table_that_appears_later_needs_a_decision() {
    let host = Host::library();
    host.generate(PLAIN);
    host.write("migrations/20990101000000_users.up.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    assert_snapshot!(refusal(&host, PLAIN), @"
    $ gen persistence conversations -s accounts::Scope
    error: --owner-table: it was not given and was read from the project as `none`; now the project has `users`
    help: give it: `--owner-table none` keeps it, `--owner-table users` changes it
    exit 5
    ");
}

#[test]
fn postgres_refers_only_to_keys_that_compare() {
    let host = |key: &str| {
        Host::library().file("migrations/0001_users.sql", &format!("CREATE TABLE users (id {key} PRIMARY KEY);\n"))
    };
    let line = format!("{PLAIN} --database postgres");
    let refusals = [
        refusal(&host("CITEXT"), &line),
        refusal(&host("NUMERIC(20, 0)"), &format!("{line} --owner-id i64")),
        refusal(&host("UUID"), &format!("{line} --owner-id i64")),
        refusal(&host("CHARACTER VARYING(36)"), &format!("{line} --owner-id i64")),
    ];
    assert_snapshot!(refusals.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope --database postgres
    error: the key `id` of table `users` is declared `CITEXT`, which no integer, uuid or text can refer to
    help: name another table with --owner-table, or `--owner-table none` for no foreign key
    exit 5

    $ gen persistence conversations -s accounts::Scope --database postgres --owner-id i64
    error: the key `id` of table `users` is declared `NUMERIC(20,0)`, which no integer, uuid or text can refer to
    help: name another table with --owner-table, or `--owner-table none` for no foreign key
    exit 5

    $ gen persistence conversations -s accounts::Scope --database postgres --owner-id i64
    error: --owner-id: the key `id` of table `users` is declared `UUID`, so it is uuid
    help: leave --owner-id out, or name another table with --owner-table
    exit 2

    $ gen persistence conversations -s accounts::Scope --database postgres --owner-id i64
    error: --owner-id: the key `id` of table `users` is declared `CHARACTER VARYING(36)`, so it is text, or uuid as text
    help: leave --owner-id out, or name another table with --owner-table
    exit 2
    ");
}

#[test]
fn a_backfill_is_one_expression_and_for_a_change_of_owner() {
    let host = Host::library();
    host.generate(PLAIN);
    let team = ["gen", "persistence", "conversations", "-t", "team", "--backfill"];
    let texts = ["", "1; DROP TABLE users", "user_id, 2", "user_id -- mine", "SELECT 1", "$1", "(user_id", "'open"];
    let refused = texts.map(|text| {
        let run = host.sagents_in(".", &[&team[..], &[text]].concat());
        format!("$ --backfill '{text}'\n{}exit {}\n", run.stderr, run.code)
    });
    let unneeded = refusal(&host, &format!("{PLAIN} --backfill 1"));
    assert_snapshot!(format!("{}\n{unneeded}", refused.join("\n")), @"
    $ --backfill ''
    error: --backfill: `` is not one SQL expression: it is empty
    help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`
    exit 2

    $ --backfill '1; DROP TABLE users'
    error: --backfill: `1; DROP TABLE users` is not one SQL expression: it contains a `;`
    help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`
    exit 2

    $ --backfill 'user_id, 2'
    error: --backfill: `user_id, 2` is not one SQL expression: `,` is too much
    help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`
    exit 2

    $ --backfill 'user_id -- mine'
    error: --backfill: `user_id -- mine` is not one SQL expression: it contains a comment
    help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`
    exit 2

    $ --backfill 'SELECT 1'
    error: --backfill: `SELECT 1` is not one SQL expression: `1` is too much
    help: put the query in parentheses: `(SELECT …)`
    exit 2

    $ --backfill '$1'
    error: --backfill: `$1` is not one SQL expression: it contains a parameter
    help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`
    exit 2

    $ --backfill '(user_id'
    error: --backfill: `(user_id` is not one SQL expression: Expected: ), found: EOF
    help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`
    exit 2

    $ --backfill ''open'
    error: --backfill: `'open` is not one SQL expression: Unterminated string literal at Line: 1, Column: 1
    help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`
    exit 2

    $ gen persistence conversations -s accounts::Scope --backfill 1
    error: --backfill: the owner does not change in this run
    help: give it together with the option that changes the owner, for example `--owner-type team`
    exit 2
    ");
}

#[test]
fn without_an_owner_only_its_table_and_its_group_can_be_none() {
    let lines = [
        "gen persistence conversations -t none --owner-field none",
        "gen persistence conversations -t none --owner-module none",
        "gen persistence conversations -t none --scope-owner none",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence conversations -t none --owner-field none
    error: --owner-field contradicts --owner-type none
    help: leave --owner-field out, or name an owner type
    exit 2

    $ gen persistence conversations -t none --owner-module none
    error: --owner-module contradicts --owner-type none
    help: leave --owner-module out, or name an owner type
    exit 2

    $ gen persistence conversations -t none --scope-owner none
    error: --scope-owner contradicts --owner-type none
    help: leave --scope-owner out, or name an owner type
    exit 2
    ");
    let host = Host::library();
    host.generate("gen persistence conversations -t none --owner-table none --group-type none");
}
