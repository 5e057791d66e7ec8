//! Several contexts at once, contexts that were moved or deleted, names that mean two things, and one JSON document
//! whatever happens.

use std::fs;

use insta::{allow_duplicates, assert_snapshot};
use serde_json::Value;

use crate::rerun::{edit, older};
use crate::support::{Host, manifest};
use crate::transcript::everything;

const ONE: &str = "gen persistence conversations -s accounts::Scope";
const TWO: &str = "gen persistence notes --owner-type none --table-prefix notes_";

/// A host with two contexts, for both of which there is something new.
fn two_contexts() -> Host {
    let host = Host::library().file("migrations/0001_first.sql", "");
    host.generate(ONE);
    host.generate(TWO);
    let options = host.read("sagents.toml");
    let options = options.replace("[contexts.notes]\n", "[contexts.notes]\nno-tests = true\n");
    host.write(
        "sagents.toml",
        &options.replace("scope = \"accounts::Scope\"\n\n", "scope = \"accounts::Scope\"\nno-tests = true\n\n"),
    );
    host
}

#[test]
fn an_update_writes_all_contexts_or_none() {
    let host = two_contexts();
    let options = host.read("sagents.toml");
    host.write("sagents.toml", &options.replace("notes_", "not a prefix"));
    let before = everything(&host);
    for line in ["update", "update --json"] {
        let run = host.sagents(line);
        assert_eq!(run.code, 2, "{}", run.stdout);
        assert_eq!(everything(&host), before, "{line}");
    }
    host.write("sagents.toml", &options);
    let run = host.generate("update");
    assert!(run.stdout.contains("Generated crate::conversations") && run.stdout.contains("Generated crate::notes"));
    assert!(!host.exists("src/conversations/tests.rs") && !host.exists("src/notes/tests.rs"));
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn contexts_that_change_together_get_migrations_of_their_own() {
    let host = two_contexts();
    let options = host
        .read("sagents.toml")
        .replace("notes_", "memo_")
        .replace("[contexts.conversations]\n", "[contexts.conversations]\ntable-prefix = \"chat_\"\n");
    host.write("sagents.toml", &options);
    // What is pending for one is no obstacle for the other.
    let check: Value = serde_json::from_str(&host.sagents("check --json").stdout).unwrap();
    assert_eq!((check["exit"].as_u64(), check["contexts"][1]["error"].is_null()), (Some(3), true), "{check}");
    host.generate("update");
    assert!(host.exists("migrations/0004_rename_sagents_to_chat.sql"));
    assert!(host.exists("migrations/0005_rename_notes_to_memo.sql"));
    assert_eq!((host.sagents("check").code, host.sagents("diff").code), (0, 0));
}

#[test]
fn a_module_called_like_the_package_is_found_again() {
    for context in ["crate::chat::conversations", "crate::chat"] {
        let host = Host::empty().file("Cargo.toml", &manifest("chat", "2024", "")).file("src/lib.rs", "");
        host.generate(&format!("gen persistence {context} -s crate::accounts::Scope"));
        let key = context.trim_start_matches("crate::");
        for line in ["check", "diff", "list", "update", &format!("check {key}"), &format!("update {context}")] {
            let run = host.sagents(line);
            assert_eq!(run.code, 0, "{context}, {line}: {}{}", run.stdout, run.stderr);
        }
        assert!(host.generate(&format!("gen persistence {context}")).stdout.starts_with("Up to date: "));
    }
}

#[test]
fn options_in_an_inline_table_are_options() {
    let host = Host::library();
    host.write("sagents.toml", "contexts = { conversations = { scope = \"accounts::Scope\" } }\n");
    host.generate("gen persistence conversations --owner-type team");
    assert_snapshot!(host.read("sagents.toml"), @r#"contexts = { conversations = { scope = "accounts::Scope", owner-type = "team" } }"#);
    host.generate("gen persistence notes --owner-type none --table-prefix notes_");
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn a_context_that_was_moved_or_deleted_is_not_declared_again() {
    for declared in [false, true] {
        let host = Host::library();
        host.generate(ONE);
        fs::remove_dir_all(host.root().join("src/conversations")).unwrap();
        fs::remove_file(host.root().join("src/conversations.rs")).unwrap();
        if !declared {
            host.write("src/lib.rs", &host.read("src/lib.rs").replace("pub mod conversations;\n", ""));
        }
        let before = everything(&host);
        for line in ["update", "diff"] {
            let run = host.sagents(line);
            assert_eq!(everything(&host), before, "{line}");
            allow_duplicates! { assert_snapshot!(format!("{}exit {}", run.stderr, run.code), @"
            error: `conversations` was generated, and src/conversations.rs is gone: it was moved or deleted
            help: restore src/conversations.rs from version control, generate it again with `sagents gen persistence crate::conversations`, or, if it is yours now, remove `[contexts.conversations]` from sagents.toml and the directory .sagents/conversations
            exit 5
            ") };
        }
        assert_eq!(host.sagents("check").code, 5);
        // One of the ways out.
        let run = host.generate("gen persistence crate::conversations");
        assert!(run.stdout.contains("created   src/conversations/agent_state.rs"), "{}", run.stdout);
        assert!(host.read("src/lib.rs").contains("pub mod conversations;\n"));
        assert_eq!(host.sagents("check").code, 0);
    }
}

#[test]
fn a_module_around_a_context_that_was_deleted_is_not_declared_again() {
    let host = Host::library();
    host.generate("gen persistence chat::conversations -s accounts::Scope");
    fs::remove_file(host.root().join("src/chat.rs")).unwrap();
    host.write("src/lib.rs", &host.read("src/lib.rs").replace("pub mod chat;\n", ""));
    let before = everything(&host);
    let run = host.sagents("update");
    assert_snapshot!(format!("{}exit {}", run.stderr, run.code), @"
    error: src/chat.rs was generated for `chat::conversations` and is gone: it was moved or deleted
    help: restore src/chat.rs from version control
    exit 5
    ");
    assert_eq!(everything(&host), before);
    // With all that is below it, it can be generated again.
    fs::remove_dir_all(host.root().join("src/chat")).unwrap();
    assert_eq!(host.sagents("update").code, 5);
    host.generate("gen persistence chat::conversations");
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn a_scope_that_was_moved_renamed_or_deleted_is_not_written_again() {
    let own = || {
        Host::library()
            .file("src/lib.rs", "pub mod accounts;\n")
            .file("src/accounts.rs", "pub struct Scope {\n    pub user_id: i64,\n}\n")
    };
    let gone = |host: Host, change: &dyn Fn(&Host)| {
        host.generate(ONE);
        change(&host);
        let before = everything(&host);
        for line in ["update", "diff", "gen persistence conversations"] {
            let run = host.sagents(line);
            assert_eq!(everything(&host), before, "{line}");
            allow_duplicates! { assert_snapshot!(format!("{}exit {}", run.stderr, run.code), @"
            error: `crate::accounts::Scope` is gone: it was moved, renamed or deleted
            help: restore it, or say which type it is now with `sagents gen persistence crate::conversations --scope <TYPE>`; `sagents gen persistence crate::conversations --scope crate::accounts::Scope` writes it again
            exit 5
            ") };
        }
        assert_eq!(host.sagents("check").code, 5);
        host
    };
    let lib =
        |host: &Host, to: &str| host.write("src/lib.rs", &host.read("src/lib.rs").replace("pub mod accounts;\n", to));

    let moved = gone(own(), &|host| {
        fs::rename(host.root().join("src/accounts.rs"), host.root().join("src/auth.rs")).unwrap();
        lib(host, "pub mod auth;\n");
    });
    moved.generate("gen persistence conversations --scope auth::Scope");
    assert_eq!(moved.sagents("check").code, 0);

    gone(own(), &|host| edit(host, "src/accounts.rs", "Scope", "Session"));

    // One that was generated, with its file.
    let deleted = gone(Host::library(), &|host| {
        fs::remove_file(host.root().join("src/accounts.rs")).unwrap();
        lib(host, "");
    });
    deleted.generate("gen persistence conversations --scope accounts::Scope");
    assert!(deleted.read("src/accounts.rs").contains("pub struct Scope"));
    assert_eq!(deleted.sagents("check").code, 0);
}

/// The documents on standard output.
fn documents(text: &str) -> Vec<Value> {
    serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().unwrap()
}

#[test]
fn there_is_one_json_document_whatever_happens() {
    let state = "src/conversations/agent_state.rs";
    let fresh = Host::library();
    let conflict = || {
        let host = older(state, "//! The header of a stored agent state.", "//! What was saved.");
        edit(&host, state, "//! What was saved.", "//! My own words.");
        host
    };
    let with_options = |options: &str| {
        let host = Host::library();
        host.generate(ONE);
        host.write("sagents.toml", options);
        host
    };
    let lost = Host::library();
    lost.generate(ONE);
    fs::remove_dir_all(lost.root().join(".sagents")).unwrap();
    lost.write(state, "// Mine.\n");
    let cases = [
        (Host::library(), format!("{ONE} --json"), 0),
        (Host::library(), "gen persistence conversations -s accounts::Scope --owner-id no --json".to_owned(), 2),
        (Host::library(), "gen persistence --json".to_owned(), 2),
        (Host::library(), format!("{ONE} --colour --json"), 2),
        (conflict(), format!("{ONE} --dry-run --json"), 4),
        (conflict(), format!("{ONE} --json"), 4),
        (conflict(), "update --json".to_owned(), 4),
        (conflict(), "diff --json".to_owned(), 3),
        (with_options("[contexts"), "check --json".to_owned(), 2),
        (with_options("[contexts"), "update --json".to_owned(), 2),
        (with_options("[contexts"), "diff --json".to_owned(), 2),
        (with_options("[contexts"), "list --json".to_owned(), 2),
        (fresh, "check --json".to_owned(), 2),
    ];
    for (host, line, code) in &cases {
        let run = host.sagents(line);
        assert_eq!(run.code, *code, "{line}: {}{}", run.stdout, run.stderr);
        let documents = documents(&run.stdout);
        assert_eq!(documents.len(), 1, "{line}: {}", run.stdout);
        let document = if documents[0].is_array() { &documents[0][0] } else { &documents[0] };
        if [2, 4].contains(code) {
            assert_eq!(document["exit"], *code, "{line}: {}", run.stdout);
        }
    }
    for line in
        [format!("{ONE} --json"), "diff --json".to_owned(), "update --json".to_owned(), "check --json".to_owned()]
    {
        let run = lost.sagents(&line);
        assert_eq!((run.code, documents(&run.stdout).len()), (5, 1), "{line}: {}{}", run.stdout, run.stderr);
    }
}

#[test]
fn what_was_kept_once_is_not_overwritten() {
    let host = Host::library();
    host.generate(ONE);
    let state = "src/conversations/agent_state.rs";
    for text in ["// First.\n", "// Second.\n", "// Third.\n"] {
        host.write(state, text);
        host.generate(&format!("{ONE} --force"));
    }
    for (kept, text) in [("orig", "// First.\n"), ("orig.1", "// Second.\n"), ("orig.2", "// Third.\n")] {
        assert_eq!(host.read(&format!("{state}.{kept}")), text);
    }
}

#[test]
fn a_memory_that_is_gone_after_a_change_of_owner_is_named() {
    let host = Host::library().file("migrations/0001_first.sql", "");
    host.generate(ONE);
    let change =
        |backfill| host.sagents_in(".", &["gen", "persistence", "conversations", "-t", "team", "--backfill", backfill]);
    assert_eq!(change("7").code, 0);
    fs::remove_dir_all(host.root().join(".sagents")).unwrap();
    // What is recorded was used; what is given now cannot be.
    for (run, exit) in [(host.sagents("update"), 5), (change("8"), 2)] {
        assert_eq!(run.code, exit, "{}", run.stderr);
        assert!(run.stderr.contains("restore .sagents/ from version control"), "{}", run.stderr);
    }
}

#[test]
fn a_path_of_an_ejected_file_may_be_written_in_other_ways_and_a_wrong_one_is_noted() {
    let host = Host::library();
    host.generate(ONE);
    let state = "src/conversations/agent_state.rs";
    let options = host.read("sagents.toml");
    host.write("sagents.toml", &format!("{options}ejected = [\"./{state}\", \"src/agent_state.rs\"]\n"));
    host.write(state, "// Mine.\n");
    let run = host.generate(&format!("{ONE} --force"));
    assert_eq!(host.read(state), "// Mine.\n");
    assert!(
        run.stdout.contains("Note: `ejected` in sagents.toml names src/agent_state.rs, which is not a generated file."),
        "{}",
        run.stdout
    );
}

#[test]
fn members_that_share_migrations_get_one_version_each() {
    let host = Host::empty().file("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"one\", \"two\"]\n");
    host.write("migrations/0001_first.sql", "");
    for member in ["one", "two"] {
        host.write(&format!("{member}/Cargo.toml"), &manifest(member, "2024", ""));
        host.write(&format!("{member}/src/lib.rs"), "");
    }
    let run = |member: &str| {
        let mut command = crate::support::sagents();
        let line = format!("{ONE} --migrations ../migrations --table-prefix {member}_");
        command.args(line.split_whitespace()).current_dir(host.root().join(member)).spawn().unwrap()
    };
    for mut child in [run("one"), run("two")] {
        assert!(child.wait().unwrap().success());
    }
    let mut versions: Vec<_> = fs::read_dir(host.root().join("migrations"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap()[..4].to_owned())
        .collect();
    versions.sort();
    assert_eq!(versions, ["0001", "0002", "0003"]);
    // Each has its own chain, although the contexts have one name.
    for member in ["one", "two"] {
        for line in ["check", "update", "gen persistence conversations -f owner", "check"] {
            let run = host.sagents_in(member, &line.split_whitespace().collect::<Vec<_>>());
            assert_eq!(run.code, 0, "{member}, {line}: {}{}", run.stdout, run.stderr);
        }
    }
}
