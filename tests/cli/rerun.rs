//! Running again over code that its owner has edited: edits stay, what is new arrives, and where both changed the same
//! lines a person decides.

use insta::assert_snapshot;

use crate::support::Host;
use crate::transcript::{anonymous, refusal};

const LINE: &str = "gen persistence conversations -s accounts::Scope";
const STATE: &str = "src/conversations/agent_state.rs";

/// A line of that file, and the same line as an older generator wrote it.
const NEW: &str = "//! The header of a stored agent state.";
const OLD: &str = "//! What was saved.";

/// A host as an older generator left it: `old` stands in the rendering of that time where `new` stands now. Files that
/// nobody edited are what was rendered then.
pub fn older(path: &str, new: &str, old: &str) -> Host {
    let host = Host::library();
    host.generate(LINE);
    age(&host, path, new, old);
    host
}

/// Makes a file of a generated host older, together with what is remembered of it.
pub fn age(host: &Host, path: &str, new: &str, old: &str) {
    let base = format!(".sagents/conversations/base/{path}");
    let before = sha(host, &base);
    let text = host.read(&base);
    assert!(text.contains(new), "{path} has no {new:?}");
    host.write(&base, &text.replace(new, old));
    host.write(path, &host.read(path).replace(new, old));
    let files = ".sagents/conversations/files.toml";
    host.write(files, &host.read(files).replace(&before, &sha(host, &base)));
}

/// The digest of a file as the generator remembers it.
fn sha(host: &Host, path: &str) -> String {
    let output = std::process::Command::new("sha256sum").arg(host.root().join(path)).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..32].to_owned()
}

pub fn edit(host: &Host, path: &str, old: &str, new: &str) {
    let text = host.read(path);
    assert!(text.contains(old), "{path} has no {old:?}");
    host.write(path, &text.replace(old, new));
}

#[test]
fn a_file_that_nobody_edited_is_brought_up_to_date() {
    let host = older(STATE, NEW, OLD);
    let run = host.generate(LINE);
    assert_snapshot!(anonymous(&host, &run.stdout), @"
    Generated crate::conversations: sqlite, owner user (user_id, i64), tables sagents_*

      updated   src/conversations/agent_state.rs

    Note: Conversations have no foreign key to their owner, because migrations has no table `users` or `user`. `--owner-table` names another one, or `none`.
    ");
    assert!(host.read(STATE).contains(NEW));
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn edits_and_what_is_new_go_together() {
    let host = older(STATE, NEW, OLD);
    edit(&host, STATE, "/// When it was last saved.", "/// My own words.");
    let run = host.generate(LINE);
    assert_snapshot!(anonymous(&host, &run.stdout), @"
    Generated crate::conversations: sqlite, owner user (user_id, i64), tables sagents_*

      merged    src/conversations/agent_state.rs

    Note: Conversations have no foreign key to their owner, because migrations has no table `users` or `user`. `--owner-table` names another one, or `none`.
    ");
    let text = host.read(STATE);
    assert!(text.contains(NEW) && text.contains("/// My own words."), "{text}");
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn where_both_changed_the_same_line_a_person_decides_and_the_next_run_goes_on() {
    let host = older(STATE, NEW, OLD);
    edit(&host, STATE, OLD, "//! My own words.");
    let before = host.read(STATE);
    let run = host.sagents(LINE);
    assert_snapshot!(format!("{}{}exit {}", anonymous(&host, &run.stdout), run.stderr, run.code), @"
    Generated crate::conversations: sqlite, owner user (user_id, i64), tables sagents_*

      conflict  src/conversations/agent_state.rs (look for `<<<<<<<`)

    Note: Conversations have no foreign key to their owner, because migrations has no table `users` or `user`. `--owner-table` names another one, or `none`.
    error: your edits and what is generated now change the same lines of: src/conversations/agent_state.rs
    help: conflicts are marked with `<<<<<<<` and `>>>>>>>`, for you to edit; everything else is written
    exit 4
    ");
    let conflict =
        "<<<<<<< yours\n//! My own words.\n=======\n//! The header of a stored agent state.\n>>>>>>> generated\n";
    assert!(host.read(STATE).contains(conflict), "{}", host.read(STATE));

    // Markers are noticed, not merged into.
    let marked = host.files();
    for line in [LINE, "update", "check"] {
        assert_eq!(host.sagents(line).code, 4, "{line}");
        assert!(host.files() == marked, "{line}");
    }

    // Undoing the merge brings it back; finishing it does not.
    host.write(STATE, &before);
    assert_eq!(host.sagents("update").code, 4);
    edit(&host, STATE, conflict, "//! Both words.\n");
    let run = host.generate(LINE);
    assert!(host.read(STATE).contains("//! Both words."), "{}", run.stdout);
    assert_eq!(host.sagents("check").code, 0);
    assert!(host.generate("update").stdout.starts_with("Up to date: "));
}

#[test]
fn what_is_not_generated_any_more_goes_unless_it_was_edited() {
    let host = Host::library();
    host.generate(LINE);
    host.generate(&format!("{LINE} --no-tests"));
    assert!(!host.exists("src/conversations/tests.rs"));

    let host = Host::library();
    host.generate(LINE);
    edit(&host, "src/conversations/tests.rs", "async fn lists_have_pages", "async fn my_lists_have_pages");
    let run = host.generate(&format!("{LINE} --no-tests"));
    assert!(run.stdout.contains("orphaned  src/conversations/tests.rs"), "{}", run.stdout);
    assert!(host.read("src/conversations/tests.rs").contains("my_lists_have_pages"));
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn an_ejected_file_is_the_hosts() {
    let host = older(STATE, NEW, OLD);
    let options = host.read("sagents.toml");
    host.write("sagents.toml", &format!("{options}ejected = [\"{STATE}\"]\n"));
    let run = host.generate(LINE);
    assert!(run.stdout.contains(&format!("ejected   {STATE} (it would have changed)")), "{}", run.stdout);
    assert!(host.read(STATE).contains(OLD));
    let check = host.sagents("check");
    assert_eq!(check.code, 0);
    assert!(check.stdout.contains(&format!("ejected   {STATE} (the generator would change it)")), "{}", check.stdout);
    // Taken back, it gets what it missed.
    host.write("sagents.toml", &options);
    host.generate(LINE);
    assert!(host.read(STATE).contains(NEW));
}

#[test]
fn a_module_that_moved_to_mod_rs_keeps_its_edits() {
    let host = older("src/conversations.rs", "/// Returns a conversation.", "/// Reads one.");
    let moved = host.read("src/conversations.rs").replace("/// Returns a page of conversations.", "/// Mine.");
    host.write("src/conversations/mod.rs", &moved);
    std::fs::remove_file(host.root().join("src/conversations.rs")).unwrap();
    host.generate(LINE);
    let text = host.read("src/conversations/mod.rs");
    assert!(text.contains("/// Returns a conversation.") && text.contains("/// Mine."), "{text}");
    assert!(!host.exists("src/conversations.rs"));
}

#[test]
fn a_project_that_lost_its_memory_is_adopted_if_nothing_was_edited() {
    let host = Host::library();
    host.generate(LINE);
    let whole = host.files();
    std::fs::remove_dir_all(host.root().join(".sagents")).unwrap();
    assert_eq!(host.sagents("check").code, 3);
    host.generate(LINE);
    assert_eq!(host.sagents("check").code, 0);
    // What was created once is the host's now, though nobody touched it.
    let but_once = |mut files: std::collections::BTreeMap<String, Vec<u8>>| {
        files.remove(".sagents/conversations/files.toml");
        files
    };
    assert!(but_once(host.files()) == but_once(whole));

    edit(&host, STATE, NEW, "//! Mine.");
    std::fs::remove_dir_all(host.root().join(".sagents")).unwrap();
    let run = host.sagents(LINE);
    assert_snapshot!(format!("{}exit {}", run.stderr, run.code), @"
    error: edited, and what they were generated from is missing or altered in .sagents/: src/conversations/agent_state.rs
    help: restore .sagents/ from version control, list the files under `ejected` in sagents.toml, or replace them with --force (the old ones are kept as .orig)
    exit 5
    ");
}

#[test]
fn a_base_that_is_missing_or_altered_is_not_merged_with() {
    let base = format!(".sagents/conversations/base/{STATE}");
    let host = older(STATE, NEW, OLD);
    edit(&host, STATE, "/// When it was last saved.", "/// My own words.");
    let whole = host.read(&base);
    host.write(&base, &whole.replace(OLD, "//! Something else."));
    assert_eq!(host.sagents(LINE).code, 5);
    std::fs::remove_file(host.root().join(&base)).unwrap();
    let run = host.sagents(LINE);
    assert_snapshot!(format!("{}exit {}", run.stderr, run.code), @"
    error: edited, and what they were generated from is missing or altered in .sagents/: src/conversations/agent_state.rs
    help: restore .sagents/ from version control, list the files under `ejected` in sagents.toml, or replace them with --force (the old ones are kept as .orig)
    exit 5
    ");
    host.write(&base, &whole);
    host.generate(LINE);
}

#[test]
fn a_scope_that_was_created_follows_while_nobody_touched_it() {
    let host = Host::library();
    host.generate(LINE);
    assert!(host.read("src/accounts.rs").contains("pub user_id: i64"));
    let scope = host.read("src/accounts.rs").replace("pub user_id: i64", "pub user_id: i64,\n    pub name: String");
    host.generate(&format!("{LINE} -f owner"));
    assert!(host.read("src/accounts.rs").contains("pub user_id: i64"), "what a column is called does not matter to it");
    host.generate(&format!("{LINE} -t team --backfill none"));
    assert!(host.read("src/accounts.rs").contains("pub team_id: i64"), "{}", host.read("src/accounts.rs"));

    host.write("src/accounts.rs", &scope);
    let run = host.sagents(&format!("{LINE} -t org --backfill none"));
    assert_eq!(run.code, 5, "{}", run.stderr);
}

#[test]
fn an_altered_migration_is_told_and_never_touched() {
    let host = Host::library();
    host.generate(LINE);
    let migration = host.find("persistence.up.sql");
    let altered = host.read(&migration) + "-- mine\n";
    host.write(&migration, &altered);
    host.generate(LINE);
    assert_eq!(host.read(&migration), altered);
    let check = host.sagents("check");
    assert_snapshot!(format!("{}exit {}", anonymous(&host, &check.stdout), check.code), @"
    conversations: 1 problem
      altered   migrations/[version]_create_sagents_persistence.up.sql
      help: git checkout -- migrations/[version]_create_sagents_persistence.up.sql
    Note: Cargo.toml has sagents from [library], which other clones of this repository don't have. Remove `path` there once version 0.1.0 is published.
    exit 5
    ");
}

#[test]
fn another_owner_is_one_more_migration_and_the_old_one_leaves_later() {
    let users =
        "CREATE TABLE users (id INTEGER PRIMARY KEY, team_id BLOB);\nCREATE TABLE teams (id BLOB PRIMARY KEY);\n";
    let host = Host::library().file("migrations/0001_first.sql", users);
    host.generate(LINE);
    let args = [
        "gen",
        "persistence",
        "conversations",
        "-t",
        "team",
        "--backfill",
        "(SELECT team_id FROM users u WHERE u.id = conversation.user_id)",
    ];
    let run = host.sagents_in(".", &args);
    assert_snapshot!(anonymous(&host, &run.stdout), @"
    Generated crate::conversations: sqlite, owner team (team_id, uuid), tables sagents_*

      created   migrations/0003_change_sagents_owner_to_team_id.sql
      updated   sagents.toml
      updated   src/accounts.rs
                + pub struct Scope
      updated   src/conversations/agent_state.rs
      updated   src/conversations/conversation.rs
      updated   src/conversations/display_message.rs
      updated   src/conversations/scope.rs
      updated   src/conversations/tests.rs
      updated   src/conversations.rs

    Next:
      sqlx migrate run --source migrations           # changes the tables in DATABASE_URL
      sagents update conversations --drop-old-owner  # later, when user_id is not needed any more
    ");
    assert!(host.sagents_in(".", &args).stdout.starts_with("Up to date: "));
    assert_eq!(host.sagents("check").code, 0);
    let keeps_users = || host.read("src/conversations.rs").contains("\n    .former_owner_columns(&[\"user_id\"]);\n");
    assert!(keeps_users(), "the library accepts the column");
    assert_snapshot!(host.read("sagents.toml"), @r#"
    # What `sagents gen persistence` was asked for, per context. Options that are not here have their default.
    # Commit this file; a rerun starts from it.

    [contexts.conversations]
    scope = "accounts::Scope"
    owner-type = "team"
    backfill = "(SELECT team_id FROM users u WHERE u.id = conversation.user_id)"
    "#);

    let run = host.generate("update --drop-old-owner");
    assert_snapshot!(anonymous(&host, &run.stdout), @"
    Generated crate::conversations: sqlite, owner team (team_id, uuid), tables sagents_*

      created   migrations/0004_drop_sagents_old_owner.sql
      updated   src/conversations.rs

    Next:
      sqlx migrate run --source migrations  # changes the tables in DATABASE_URL
    ");
    assert!(host.generate("update --drop-old-owner").stdout.starts_with("Up to date: "));
    assert!(!keeps_users());
    // The expression was for that change of owner and no other.
    let to_org = "gen persistence conversations -t org --owner-id text";
    assert_snapshot!(refusal(&host, to_org), @"
    $ gen persistence conversations -t org --owner-id text
    error: the owner changes from team to org, and the org_id of the conversations that are there is not known
    help: give it as an SQL expression with --backfill, for example `--backfill '(SELECT org_id FROM teams WHERE teams.id = conversation.team_id)'`; or, if there are none yet, `--backfill none`: where there are some, the migration then stops with nothing changed
    exit 5
    ");
    host.generate(&format!("{to_org} --backfill none"));
    assert!(host.read("sagents.toml").contains("backfill = \"none\""));
    assert!(host.generate(to_org).stdout.starts_with("Up to date: "));
    // That was for that change, too.
    host.generate("gen persistence conversations -t none");
    assert_eq!(host.sagents("gen persistence conversations -t agent --owner-id i64").code, 5);
}

#[test]
fn options_may_be_edited_in_the_file_and_then_updated() {
    let host = Host::library().file("migrations/0001_first.sql", "");
    host.generate(LINE);
    let options = host.read("sagents.toml");
    host.write("sagents.toml", &format!("{options}table-prefix = \"chat_\" # shorter\n"));
    let check = host.sagents("check");
    assert_snapshot!(format!("{}exit {}", anonymous(&host, &check.stdout), check.code), @"
    conversations: 5 problems
      pending   migrations/0003_rename_sagents_to_chat.sql
      outdated  src/conversations/agent_state.rs
      outdated  src/conversations/conversation.rs
      outdated  src/conversations/display_message.rs
      outdated  src/conversations.rs
      help: sagents update conversations
    Note: Cargo.toml has sagents from [library], which other clones of this repository don't have. Remove `path` there once version 0.1.0 is published.
    exit 3
    ");
    assert_eq!(host.sagents("diff").code, 3);
    host.generate("update");
    assert_eq!((host.sagents("check").code, host.sagents("diff").code), (0, 0));
    assert!(host.read("sagents.toml").contains("# shorter"));
}

#[test]
fn uncommitted_changes_are_told_and_no_obstacle() {
    let host = older(STATE, NEW, OLD);
    let git = |args: &str| {
        let mut command = std::process::Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args.split_whitespace());
        assert!(command.current_dir(host.root()).output().unwrap().status.success(), "git {args}");
    };
    git("init");
    git("add .");
    git("commit -m all");
    edit(&host, STATE, "/// When it was last saved.", "/// My own words.");
    let run = host.generate(LINE);
    assert!(
        run.stdout.contains("Note: Merged into changes that were not committed: src/conversations/agent_state.rs."),
        "{}",
        run.stdout
    );
}

#[test]
fn a_report_for_programs_tells_the_state_of_every_file() {
    let host = older(STATE, NEW, OLD);
    edit(
        &host,
        "src/conversations/scope.rs",
        "/// The user that owns the conversations.",
        "/// The user whose conversations they are.",
    );
    let check = host.sagents("check --json");
    let json: serde_json::Value = serde_json::from_str(&check.stdout).unwrap();
    assert_eq!((json["ok"].as_bool(), json["exit"].as_u64(), check.code), (Some(false), Some(3), 3));
    let states: std::collections::BTreeMap<_, _> = json["contexts"][0]["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (file["path"].as_str().unwrap(), file["state"].as_str().unwrap()))
        .collect();
    assert_eq!(states[STATE], "outdated");
    assert_eq!(states["src/conversations/scope.rs"], "edited");
    assert_eq!(states["src/conversations.rs"], "pristine");
    let updated: serde_json::Value = serde_json::from_str(&host.generate("update --json").stdout).unwrap();
    assert_eq!(updated[0]["changed"], true);
}

#[test]
fn an_owner_may_leave_and_what_was_said_of_it_goes_too() {
    let host = Host::library().file("migrations/0001_first.sql", "");
    host.generate(&format!("{LINE} -t team --owner-id uuid -f team"));
    host.generate("gen persistence conversations -t none");
    assert_snapshot!(host.read("sagents.toml"), @r#"
    # What `sagents gen persistence` was asked for, per context. Options that are not here have their default.
    # Commit this file; a rerun starts from it.

    [contexts.conversations]
    scope = "accounts::Scope"
    owner-type = "none"
    "#);
    // Without owners the way back is for empty tables.
    let to_users = "gen persistence conversations -t user";
    assert_snapshot!(refusal(&host, to_users), @"
    $ gen persistence conversations -t user
    error: the owner changes from none to user, and the user_id of the conversations that are there is not known
    help: give it as an SQL expression with --backfill; or, if there are none yet, `--backfill none`: where there are some, the migration then stops with nothing changed
    exit 5
    ");
    let run = host.generate(&format!("{to_users} --backfill none"));
    assert_snapshot!(anonymous(&host, run.stdout.lines().find(|line| line.starts_with("Note: With `")).unwrap()), @"Note: With `--backfill none` the migration is for empty tables; where there are conversations it stops, with nothing changed.");
    assert_eq!(host.sagents("check").code, 0);
    assert!(host.generate(&format!("{to_users} --backfill none")).stdout.starts_with("Up to date: "));
    assert_snapshot!(refusal(&host, &format!("{to_users} --backfill 1")), @"
    $ gen persistence conversations -t user --backfill 1
    error: --backfill: the owner does not change in this run; when it did, `--backfill none` was given
    help: take back what that run changed, with version control, and run it again with this expression
    exit 2
    ");
}
