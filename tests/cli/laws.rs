//! Laws that hold for whatever options somebody thinks of. What is accepted is Rust that parses and is formatted, and
//! generating it twice changes nothing; what is refused is refused with a reason and a remedy, and leaves no trace.

mod damage;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, FileFailurePersistence};

use crate::support::{Host, Run, manifest};
use crate::transcript::everything;

proptest! {
    // Each case runs the program three times, and rustfmt.
    #![proptest_config(Config {
        cases: 32,
        max_shrink_iters: 64,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..Config::default()
    })]

    #[test]
    fn what_is_accepted_is_good_and_what_is_refused_leaves_no_trace(case in case()) {
        let host = case.host();
        let before = everything(&host);
        let args: Vec<_> = case.args.iter().map(String::as_str).collect();
        let run = host.sagents_in(".", &args);
        if run.code != 0 {
            prop_assert!([2, 5].contains(&run.code), "{run:?}");
            prop_assert!(run.stderr.starts_with("error: ") && run.stderr.contains("\nhelp: "), "{}", run.stderr);
            prop_assert_eq!(everything(&host), before);
            return Ok(());
        }
        for (path, bytes) in sources(&host).into_iter().filter(|(path, _)| is_rust(path)) {
            // Most texts are those of another case.
            static PARSED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
            let text = String::from_utf8(bytes).unwrap();
            if !PARSED.lock().unwrap().contains(&text) {
                let parsed = syn::parse_file(&text);
                prop_assert!(parsed.is_ok(), "{path}: {}", parsed.unwrap_err());
                PARSED.lock().unwrap().insert(text);
            }
        }
        prop_assert_eq!(case.rustfmt(&host), "");
        let generated = everything(&host);
        let again = host.sagents_in(".", &args);
        prop_assert!(again.stdout.starts_with("Up to date: "), "{again:?}");
        prop_assert_eq!(everything(&host), generated);
    }
}

proptest! {
    // Each case runs the program up to six times; what rustfmt does is not the question here.
    #![proptest_config(Config {
        cases: 24,
        max_shrink_iters: 32,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..Config::default()
    })]

    /// An edit is there after every rerun: in its place, or between the markers of a conflict that names it.
    #[test]
    fn an_edit_survives_every_rerun(
        (first, second) in (rerun(), rerun()),
        edits in proptest::collection::vec((any::<Index>(), any::<Index>()), 1..5),
    ) {
        let host = Host::library();
        prop_assert_eq!(unformatted(&host, &first).code, 0);
        let paths: Vec<_> = sources(&host).into_iter().map(|(path, _)| path).filter(|path| is_generated(path)).collect();
        let mut placed = Vec::new();
        for (number, (file, line)) in edits.iter().enumerate() {
            let path = file.get(&paths);
            let edit = format!("// edit {number}");
            host.write(path, &with_line(&host.read(path), *line, &edit));
            placed.push(edit);
        }
        let there = |host: &Host| {
            let texts: Vec<_> = sources(host).into_iter().map(|(_, bytes)| String::from_utf8(bytes).unwrap()).collect();
            placed.iter().all(|edit| texts.iter().any(|text| text.lines().any(|line| line == edit)))
        };
        let run = unformatted(&host, &second);
        prop_assert!([0, 4].contains(&run.code), "{run:?}");
        prop_assert!(there(&host), "{run:?}");
        if run.code == 4 {
            for (path, bytes) in sources(&host) {
                let text = String::from_utf8(bytes).unwrap();
                let resolved = text.lines().filter(|line| !is_marker(line)).map(|line| format!("{line}\n"));
                host.write(&path, &resolved.collect::<String>());
            }
            let run = unformatted(&host, &second);
            prop_assert_eq!(run.code, 0, "{:?}", run);
        }
        prop_assert!(there(&host));
        let check = unformatted(&host, "check");
        prop_assert_eq!(check.code, 0, "{:?}", check);
    }

    #[test]
    fn a_rerun_there_and_back_gives_the_first_text_again((first, second) in (rerun(), rerun())) {
        let host = Host::library();
        prop_assert_eq!(unformatted(&host, &first).code, 0);
        prop_assert_eq!(unformatted(&host, "check").code, 0);
        let before = sources(&host);
        for line in [&second, &first] {
            let run = unformatted(&host, line);
            prop_assert_eq!(run.code, 0, "{:?}", run);
            prop_assert_eq!(unformatted(&host, "check").code, 0);
        }
        prop_assert_eq!(without_former_owners(sources(&host)), without_former_owners(before));
    }
}

proptest! {
    // Each case runs the program up to six times.
    #![proptest_config(Config {
        cases: 32,
        max_shrink_iters: 32,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..Config::default()
    })]

    /// However a project came to its options, it is what these options make: nothing of earlier ones stays, except the
    /// columns of former owners, which keep their rows.
    #[test]
    fn reruns_lead_to_what_a_fresh_generation_with_their_options_makes(
        steps in proptest::collection::vec(step(), 2..5),
    ) {
        let host = accounts_host();
        let first = unformatted(&host, "gen persistence conversations --scope=accounts::Scope");
        prop_assert_eq!(first.code, 0, "{:?}", first);
        let mut model = BTreeMap::from([("--scope".to_owned(), Some("accounts::Scope".to_owned()))]);
        for options in &steps {
            let before = everything(&host);
            let run = unformatted(&host, &format!("gen persistence conversations {options}"));
            if run.code == 0 {
                model = given_over(options, model);
            } else {
                prop_assert!([2, 5].contains(&run.code), "{run:?}");
                prop_assert_eq!(everything(&host), before);
            }
        }
        let model: Vec<_> = model.into_iter().map(|(name, value)| match value {
            Some(value) => format!("{name}={value}"),
            None => name,
        }).collect();
        prop_assert_eq!(recorded(&host), model.join(" "));
        let check = unformatted(&host, "check");
        prop_assert_eq!(check.code, 0, "{:?}", check);
        let fresh = accounts_host();
        let run = unformatted(&fresh, &format!("gen persistence conversations {}", recorded(&host)));
        prop_assert_eq!(run.code, 0, "{:?}", run);
        prop_assert_eq!(recorded(&host), recorded(&fresh));
        prop_assert_eq!(tables(&host), tables(&fresh));
        prop_assert_eq!(without_former_owners(sources(&host)), without_former_owners(sources(&fresh)));
    }
}

/// The sources without the line that names the columns of former owners, which stay until they are dropped.
fn without_former_owners(sources: Vec<(String, Vec<u8>)>) -> Vec<(String, String)> {
    let without = |text: String| match text.split_once("\n    .former_owner_columns(") {
        Some((above, rest)) => format!("{above}{}", rest.split_once(')').unwrap().1),
        None => text,
    };
    sources.into_iter().map(|(path, bytes)| (path, without(String::from_utf8(bytes).unwrap()))).collect()
}

/// A scope, and another one, that know a user, a team and an organisation.
fn accounts_host() -> Host {
    Host::library()
        .file("src/lib.rs", "pub mod accounts;\n")
        .file(
            "src/accounts.rs",
            "pub struct User {\n    pub id: i64,\n}\n\npub struct Team {\n    pub id: i64,\n}\n\n\
             pub struct Scope {\n    pub user: User,\n    pub team: Team,\n    pub org_id: String,\n}\n\n\
             pub struct Session {\n    pub user_id: i64,\n    pub team_id: i64,\n    pub org_id: String,\n}\n",
        )
        .file(
            "migrations/0001_accounts.sql",
            "CREATE TABLE users (id INTEGER PRIMARY KEY);\nCREATE TABLE teams (id INTEGER PRIMARY KEY);\n\
             CREATE TABLE members (user_id INTEGER, team_id INTEGER, club_id INTEGER);\n",
        )
}

/// What a run does once, and no later run again.
const FOR_ONE_CHANGE: [&str; 2] = ["--backfill", "--drop-old-owner"];

/// Options of a rerun; most of them are left out.
fn step() -> impl Strategy<Value = String> {
    (
        flag("--owner-type", select(&["user", "team", "org", "none"][..])),
        flag("--owner-field", select(&["owner", "user_id", "team_id"][..])),
        flag("--owner-table", select(&["none", "users", "teams"][..])),
        flag("--owner-id", select(&["i64", "text"][..])),
        flag("--owner-module", select(&["accounts::User", "accounts::Team"][..])),
        flag("--scope", select(&["accounts::Scope", "MyApp.Accounts.Session"][..])),
        flag("--scope-owner", select(&["user.id", "team.id", "org_id", "user_id"][..])),
        flag("--table-prefix", select(&["chat_", "sagents_"][..])),
        proptest::option::weighted(0.1, Just("--no-tests".to_owned())),
        (
            flag("--backfill", select(&["7", "conversation.user_id", "none", "none"][..])),
            proptest::option::weighted(0.1, Just("--drop-old-owner".to_owned())),
            flag("--group-type", select(&["club", "team", "none"][..])),
            flag("--group-field", select(&["club_id", "team_id"][..])),
            flag("--group-table", select(&["members", "clubs"][..])),
            flag("--scope-group", select(&["team.id", "team_id"][..])),
            flag("--web", select(&["axum", "none"][..])),
        ),
    )
        .prop_map(|(a, b, c, d, e, f, g, h, i, (j, k, l, m, n, o, p))| {
            [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p].into_iter().flatten().collect::<Vec<_>>().join(" ")
        })
}

/// The options that hold after a run: what is given, over what was given before and still describes the same owner and
/// the same scope.
fn given_over(options: &str, mut before: BTreeMap<String, Option<String>>) -> BTreeMap<String, Option<String>> {
    let value = |options: &BTreeMap<String, Option<String>>, name: &str| options.get(name).cloned().flatten();
    let given: BTreeMap<_, _> = options
        .split_whitespace()
        .map(|flag| match flag.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (flag.to_owned(), None),
        })
        .collect();
    let owner = value(&before, "--owner-type").unwrap_or_else(|| "user".to_owned());
    let group = value(&before, "--group-type").unwrap_or_else(|| "none".to_owned());
    let mut group_now = value(&given, "--group-type").unwrap_or_else(|| group.clone());
    if let Some(now) = value(&given, "--owner-type").filter(|now| *now != owner) {
        before.retain(|name, _| !name.starts_with("--owner-") && name != "--scope-owner");
        before.retain(|name, _| name != "--group-field" && name != "--group-table");
        // Nobody has no group, and a group is not in itself.
        if !given.contains_key("--group-type") && group != "none" && [group.as_str(), "none"].contains(&now.as_str()) {
            before.remove("--group-type");
            "none".clone_into(&mut group_now);
        }
    }
    if group_now != group {
        before.retain(|name, _| !["--group-field", "--group-table", "--scope-group"].contains(&name.as_str()));
    }
    if value(&given, "--scope").is_some_and(|now| Some(now) != value(&before, "--scope")) {
        before.retain(|name, _| name != "--scope-owner" && name != "--scope-group");
    }
    before.extend(given.into_iter().filter(|(name, _)| !FOR_ONE_CHANGE.contains(&name.as_str())));
    before
}

/// The recorded options as a command line. A backfill is for one change and no other.
fn recorded(host: &Host) -> String {
    let options: toml::Table = host.read("sagents.toml").parse().unwrap();
    let options = options["contexts"]["conversations"].as_table().unwrap();
    let flags = options.iter().filter(|(name, _)| *name != "backfill").map(|(name, value)| match value {
        toml::Value::String(value) => format!("--{name}={value}"),
        _ => format!("--{name}"),
    });
    flags.collect::<Vec<_>>().join(" ")
}

/// The recorded tables, without the columns of former owners and without what the owner's column remembers of them.
fn tables(host: &Host) -> serde_json::Value {
    let mut schema: serde_json::Value = serde_json::from_str(&host.read(".sagents/conversations/schema.json")).unwrap();
    for table in schema["tables"].as_array_mut().unwrap() {
        let columns = table["columns"].as_array_mut().unwrap();
        columns.retain(|column| column["retired"] != true);
        for column in columns {
            column.as_object_mut().unwrap().remove("holds");
        }
    }
    schema
}

/// A command line that says everything, so that a rerun may change all of it.
fn rerun() -> impl Strategy<Value = String> {
    let owner = select(
        &[
            "-t user -f user_id --owner-id i64",
            "-t user -f user_id --owner-id uuid",
            "-t user -f owner --owner-id i64",
            "-t team -f team_id --owner-id uuid",
            "-t org -f org --owner-id text",
        ][..],
    );
    let prefix = select(&["sagents_", "chat_", ""][..]);
    let web = select(&["axum", "none"][..]);
    (owner, prefix, web).prop_map(|(owner, prefix, web)| {
        format!(
            "gen persistence conversations -s accounts::Scope {owner} --table-prefix={prefix} --web {web} --backfill none"
        )
    })
}

/// Runs the program with a formatter that formats nothing.
fn unformatted(host: &Host, line: &str) -> Run {
    host.unformatted(&line.split_whitespace().collect::<Vec<_>>())
}

fn is_generated(path: &str) -> bool {
    path.starts_with("src/conversations") || path.starts_with("src/sagents")
}

fn with_line(text: &str, at: Index, line: &str) -> String {
    let mut lines: Vec<_> = text.lines().collect();
    lines.insert(at.index(lines.len() + 1), line);
    lines.join("\n") + "\n"
}

fn is_marker(line: &str) -> bool {
    line.starts_with("<<<<<<<") || line == "=======" || line.starts_with(">>>>>>>")
}

/// A host, and a command line for it.
#[derive(Debug)]
struct Case {
    edition: &'static str,
    binary: bool,
    mod_rs: bool,
    crlf: bool,
    migration: &'static str,
    accounts: Option<&'static str>,
    args: Vec<String>,
}

impl Case {
    fn host(&self) -> Host {
        let mut host = if self.binary { Host::binary() } else { Host::library() };
        host = host
            .file("Cargo.toml", &manifest("my_app", self.edition, ""))
            .file("migrations/0001_first.sql", self.migration);
        let mut modules = String::new();
        if let Some(accounts) = self.accounts {
            host = host.file("src/accounts.rs", accounts);
            modules += "mod accounts;\n";
        }
        if self.mod_rs {
            host = host.file("src/util/mod.rs", "//! Odds and ends.\n");
            modules += "mod util;\n";
        }
        let root = format!("//! The host.\n\n{modules}\n{}", host.read(self.root()));
        let root = format!("{}\n", root.trim_end().replace("\n\n\n", "\n\n"));
        let root = if self.crlf { root.replace('\n', "\r\n") } else { root };
        host.file(self.root(), &root)
    }

    fn root(&self) -> &'static str {
        if self.binary { "src/main.rs" } else { "src/lib.rs" }
    }

    /// What rustfmt would change in the host.
    fn rustfmt(&self, host: &Host) -> String {
        let sources = sources(host).into_iter().map(|(path, _)| path).filter(|path| is_rust(path));
        let mut command = Command::new("rustfmt");
        Run::of(command.args(["--edition", self.edition, "--check"]).args(sources).current_dir(host.root())).stdout
    }
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension() == Some("rs".as_ref())
}

fn sources(host: &Host) -> Vec<(String, Vec<u8>)> {
    host.files().into_iter().filter(|(path, _)| path.starts_with("src/")).collect()
}

fn case() -> impl Strategy<Value = Case> {
    let host = (select(&["2021", "2024"][..]), any::<bool>(), any::<bool>(), any::<bool>(), migration(), accounts());
    (host, args()).prop_map(|((edition, binary, mod_rs, crlf, migration, accounts), args)| Case {
        edition,
        binary,
        mod_rs,
        crlf,
        migration,
        accounts,
        args,
    })
}

fn migration() -> impl Strategy<Value = &'static str> {
    select(
        &[
            "",
            "CREATE TABLE users (id INTEGER PRIMARY KEY);\n",
            "CREATE TABLE \"user\" (user_id UUID PRIMARY KEY);\n",
            "CREATE TABLE teams (id TEXT PRIMARY KEY);\nCREATE TABLE orgs (a INT, b INT, PRIMARY KEY (a, b));\n",
            "CREATE TABLE companies (id DECIMAL PRIMARY KEY);\nCREATE TABLE conversations (id INTEGER PRIMARY KEY);\n",
        ][..],
    )
}

fn accounts() -> impl Strategy<Value = Option<&'static str>> {
    select(
        &[
            None,
            None,
            Some("//! Accounts.\n"),
            Some("//! Accounts.\n"),
            Some("pub struct Scope {\n    pub user_id: i64,\n    pub team_id: Option<String>,\n}\n"),
            Some(
                "pub struct User {\n    pub id: uuid::Uuid,\n}\n\npub struct Scope {\n    pub user: Option<User>,\n}\n",
            ),
            Some("pub enum Scope {\n    Nobody,\n}\n"),
        ][..],
    )
}

fn args() -> impl Strategy<Value = Vec<String>> {
    let scope = select(&["accounts::Scope", "MyApp.Accounts.Scope", "crate::Scope", "crate::chat::Session"][..]);
    let flags = (
        flag("--owner-type", select(&["user", "team", "org", "none", "company", "agent_run"][..])),
        flag("--owner-field", name(2)),
        flag("--owner-id", select(&["i64", "uuid", "text"][..])),
        flag("--owner-table", select(&["none", "users", "People", "odd name", "auth.users"][..])),
        flag("--table-prefix", prefix()),
        proptest::option::weighted(0.2, Just("--no-tests".to_owned())),
        proptest::option::weighted(0.2, Just("--no-wire".to_owned())),
        proptest::option::weighted(0.5, Just("--database=postgres".to_owned())),
        proptest::option::weighted(0.3, Just("--web=axum".to_owned())),
    );
    let group = (
        select(&["organization", "club"][..]),
        select(&["members", "People", "odd name", "auth.members"][..]),
        flag("--group-field", name(2)),
    );
    let group = proptest::option::weighted(0.4, group);
    (context(), scope, flags, group).prop_map(|(context, scope, (a, b, c, d, e, f, g, h, i), group)| {
        let mut args = ["gen", "persistence", &context, "--scope", scope].map(str::to_owned).to_vec();
        args.extend([a, b, c, d, e, f, g, h, i].into_iter().flatten());
        if let Some((noun, table, field)) = group {
            args.extend([format!("--group-type={noun}"), format!("--group-table={table}")]);
            args.extend(field);
        }
        args
    })
}

fn flag(
    name: &'static str,
    value: impl Strategy<Value = impl ToString + std::fmt::Debug> + 'static,
) -> BoxedStrategy<Option<String>> {
    proptest::option::weighted(0.3, value.prop_map(move |value| format!("{name}={}", value.to_string()))).boxed()
}

/// Mostly a plain name; now and then one that means something else.
fn name(parts: usize) -> impl Strategy<Value = String> {
    let odd = select(&["id", "type", "self", "title", "scope", "x", "conversation", "r2d2", "a__b", "user_"][..]);
    let part = proptest::string::string_regex("[a-z][a-z0-9]{0,7}").unwrap();
    let plain = proptest::collection::vec(part, 1..=parts).prop_map(|parts| parts.join("_"));
    prop_oneof![12 => plain, 1 => odd.prop_map(str::to_owned)]
}

fn context() -> impl Strategy<Value = String> {
    let segments = proptest::collection::vec(name(2), 1..=3);
    (segments, select(&["", "crate::", "my_app::", "MyApp.", "MyApp.", "MyApp.", "Other."][..])).prop_map(
        |(segments, root)| {
            if root.ends_with('.') {
                let camel = |name: &String| name.split('_').map(capitalised).collect::<String>();
                format!("{root}{}", segments.iter().map(camel).collect::<Vec<_>>().join("."))
            } else {
                format!("{root}{}", segments.join("::"))
            }
        },
    )
}

fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

fn prefix() -> impl Strategy<Value = String> {
    let regex = |regex| proptest::string::string_regex(regex).unwrap();
    prop_oneof![6 => regex("[a-z_]{0,6}_?"), 1 => regex("[A-Z-]{1,3}|[a-z]{34,40}")]
}
