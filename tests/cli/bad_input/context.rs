//! `CONTEXT`.

use insta::assert_snapshot;

use super::{PLAIN, depending};
use crate::support::Host;
use crate::transcript::{refusal, refusals};

#[test]
fn a_context_has_no_empty_segment() {
    let lines = [
        "gen persistence '' -s accounts::Scope",
        "gen persistence ' ' -s accounts::Scope",
        "gen persistence . -s accounts::Scope",
        "gen persistence MyApp..Conversations -s accounts::Scope",
        "gen persistence chat:::conversations -s accounts::Scope",
        "gen persistence conversations:: -s accounts::Scope",
        "gen persistence ::conversations -s accounts::Scope",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence '' -s accounts::Scope
    error: CONTEXT: it is empty
    help: write `MyApp.Chat.Conversations` or `crate::chat::conversations`
    exit 2

    $ gen persistence ' ' -s accounts::Scope
    error: CONTEXT: it is empty
    help: write `MyApp.Chat.Conversations` or `crate::chat::conversations`
    exit 2

    $ gen persistence . -s accounts::Scope
    error: CONTEXT: `.` has an empty segment
    help: write `MyApp.Chat.Conversations` or `crate::chat::conversations`
    exit 2

    $ gen persistence MyApp..Conversations -s accounts::Scope
    error: CONTEXT: `MyApp..Conversations` has an empty segment
    help: write `MyApp.Chat.Conversations` or `crate::chat::conversations`
    exit 2

    $ gen persistence chat:::conversations -s accounts::Scope
    error: CONTEXT: `:conversations` contains `:`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversations:: -s accounts::Scope
    error: CONTEXT: `conversations::` has an empty segment
    help: write `MyApp.Chat.Conversations` or `crate::chat::conversations`
    exit 2

    $ gen persistence ::conversations -s accounts::Scope
    error: CONTEXT: `::conversations` has an empty segment
    help: write `MyApp.Chat.Conversations` or `crate::chat::conversations`
    exit 2
    ");
}

#[test]
fn a_context_is_made_of_identifiers() {
    let lines = [
        "gen persistence 9lives -s accounts::Scope",
        "gen persistence MyApp.9Lives -s accounts::Scope",
        "gen persistence _chat -s accounts::Scope",
        "gen persistence 'my chats' -s accounts::Scope",
        "gen persistence chat-log -s accounts::Scope",
        "gen persistence conversаtions -s accounts::Scope",
        "gen persistence chat/conversations -s accounts::Scope",
        "gen persistence crate::Chat::conversations -s accounts::Scope",
        "gen persistence MyApp.chat::conversations -s accounts::Scope",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence 9lives -s accounts::Scope
    error: CONTEXT: `9lives` does not start with a letter
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence MyApp.9Lives -s accounts::Scope
    error: CONTEXT: `9Lives` does not start with a letter
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence _chat -s accounts::Scope
    error: CONTEXT: `_chat` does not start with a letter
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence 'my chats' -s accounts::Scope
    error: CONTEXT: `my chats` contains a space
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence chat-log -s accounts::Scope
    error: CONTEXT: `chat-log` contains `-`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence conversаtions -s accounts::Scope
    error: CONTEXT: `conversаtions` contains U+0430
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence chat/conversations -s accounts::Scope
    error: CONTEXT: `chat/conversations` contains `/`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2

    $ gen persistence crate::Chat::conversations -s accounts::Scope
    error: CONTEXT: `Chat` is not in snake case
    help: use `chat`
    exit 2

    $ gen persistence MyApp.chat::conversations -s accounts::Scope
    error: CONTEXT: `MyApp.chat::conversations` mixes two notations
    help: write `MyApp.Chat.Conversations` or `crate::chat::conversations`
    exit 2
    ");
}

#[test]
fn a_context_is_no_keyword_and_contains_none() {
    let lines = [
        "gen persistence self -s accounts::Scope",
        "gen persistence crate -s accounts::Scope",
        "gen persistence async -s accounts::Scope",
        "gen persistence MyApp.Async -s accounts::Scope",
        "gen persistence MyApp.Type.Conversations -s accounts::Scope",
        "gen persistence chat::crate::conversations -s accounts::Scope",
        "gen persistence r#async -s accounts::Scope",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence self -s accounts::Scope
    error: CONTEXT: what `self` means depends on where it is read
    help: start at the crate's root: `crate::…` or `MyApp.…`
    exit 2

    $ gen persistence crate -s accounts::Scope
    error: CONTEXT: `crate` names the package itself, not a module in it
    help: add the module's name, for example `MyApp.Conversations`
    exit 2

    $ gen persistence async -s accounts::Scope
    error: CONTEXT: `async` is a Rust keyword
    help: use another name, for example `asyncs` or `async_item`
    exit 2

    $ gen persistence MyApp.Async -s accounts::Scope
    error: CONTEXT: `async` is a Rust keyword
    help: use another name, for example `asyncs` or `async_item`
    exit 2

    $ gen persistence MyApp.Type.Conversations -s accounts::Scope
    error: CONTEXT: `type` is a Rust keyword
    help: use another name, for example `types` or `type_item`
    exit 2

    $ gen persistence chat::crate::conversations -s accounts::Scope
    error: CONTEXT: `crate` is a place, not a name
    help: give a name of your own
    exit 2

    $ gen persistence r#async -s accounts::Scope
    error: CONTEXT: `async` is a Rust keyword
    help: use another name, for example `asyncs` or `async_item`
    exit 2
    ");
}

#[test]
fn a_context_stays_inside_the_crate() {
    let lines = [
        "gen persistence super::conversations -s accounts::Scope",
        "gen persistence self::conversations -s accounts::Scope",
        "gen persistence Other.Conversations -s accounts::Scope",
        "gen persistence ../conversations -s accounts::Scope",
        "gen persistence MyApp -s accounts::Scope",
        "gen persistence my_app -s accounts::Scope",
        "gen persistence auth::conversations -s accounts::Scope",
    ];
    assert_snapshot!(refusals(&depending("auth = \"1\""), &lines), @"
    $ gen persistence super::conversations -s accounts::Scope
    error: CONTEXT: what `super` means depends on where it is read
    help: start at the crate's root: `crate::…` or `MyApp.…`
    exit 2

    $ gen persistence self::conversations -s accounts::Scope
    error: CONTEXT: what `self` means depends on where it is read
    help: start at the crate's root: `crate::…` or `MyApp.…`
    exit 2

    $ gen persistence Other.Conversations -s accounts::Scope
    error: CONTEXT: `Other` in `Other.Conversations` is not this package, which is called `my_app`
    help: write `MyApp.Conversations`
    exit 2

    $ gen persistence ../conversations -s accounts::Scope
    error: CONTEXT: `../conversations` has an empty segment
    help: write `MyApp.Chat.Conversations` or `crate::chat::conversations`
    exit 2

    $ gen persistence MyApp -s accounts::Scope
    error: CONTEXT: `MyApp` names the package itself, not a module in it
    help: add the module's name, for example `MyApp.Conversations`
    exit 2

    $ gen persistence my_app -s accounts::Scope
    error: CONTEXT: `my_app` names the package itself, not a module in it
    help: add the module's name, for example `MyApp.Conversations`
    exit 2

    $ gen persistence auth::conversations -s accounts::Scope
    error: `crate::auth::conversations` is outside of this crate: `auth` is a dependency, and a module of that name would hide it
    help: choose another path, for example `crate::conversations`
    exit 2
    ");
}

#[test]
fn a_context_takes_no_name_that_means_something_else() {
    let lines = [
        "gen persistence main -s accounts::Scope",
        "gen persistence lib -s accounts::Scope",
        "gen persistence bin -s accounts::Scope",
        "gen persistence bin::conversations -s accounts::Scope",
        "gen persistence sagents -s accounts::Scope",
        "gen persistence chat::uuid -s accounts::Scope",
        "gen persistence MyApp.Conversation -s accounts::Scope",
        "gen persistence chat::r#mod -s accounts::Scope",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence main -s accounts::Scope
    error: CONTEXT: src/main has a meaning for cargo
    help: use another name, for example `conversations`
    exit 2

    $ gen persistence lib -s accounts::Scope
    error: CONTEXT: src/lib has a meaning for cargo
    help: use another name, for example `conversations`
    exit 2

    $ gen persistence bin -s accounts::Scope
    error: CONTEXT: src/bin has a meaning for cargo
    help: use another name, for example `conversations`
    exit 2

    $ gen persistence bin::conversations -s accounts::Scope
    error: CONTEXT: src/bin has a meaning for cargo
    help: use another name, for example `conversations`
    exit 2

    $ gen persistence sagents -s accounts::Scope
    error: CONTEXT: a module called `sagents` would hide the crate of that name
    help: use another name, for example `conversations`
    exit 2

    $ gen persistence chat::uuid -s accounts::Scope
    error: CONTEXT: a module called `uuid` would hide the crate of that name
    help: use another name, for example `conversations`
    exit 2

    $ gen persistence MyApp.Conversation -s accounts::Scope
    error: CONTEXT: the context's type would be called `Conversation`, which the generated code uses already
    help: use another name, for example `conversations`
    exit 2

    $ gen persistence chat::r#mod -s accounts::Scope
    error: CONTEXT: `mod` is a Rust keyword
    help: use another name, for example `mods` or `mod_item`
    exit 2
    ");
}

#[test]
fn the_context_and_the_scope_are_different_modules() {
    let lines = [
        "gen persistence MyApp.Accounts -s MyApp.Accounts.Scope",
        "gen persistence accounts -s crate::accounts::session::Scope",
    ];
    assert_snapshot!(refusals(&Host::library(), &lines), @"
    $ gen persistence MyApp.Accounts -s MyApp.Accounts.Scope
    error: --scope: `crate::accounts::Scope` would be in the module that is generated
    help: generate another module, for example `conversations`, or keep the scope in another one
    exit 2

    $ gen persistence accounts -s crate::accounts::session::Scope
    error: --scope: `crate::accounts::session::Scope` would be below the module that is generated
    help: generate another module, for example `conversations`, or keep the scope in another one
    exit 2
    ");
}

#[test]
fn a_context_is_not_inside_another() {
    let host = Host::library();
    host.generate("gen persistence chat::conversations -s accounts::Scope");
    let lines = [
        "gen persistence chat::conversations::archive -s accounts::Scope --table-prefix archive_",
        "gen persistence chat -s accounts::Scope --table-prefix chat_",
    ];
    assert_snapshot!(refusals(&host, &lines), @"
    $ gen persistence chat::conversations::archive -s accounts::Scope --table-prefix archive_
    error: CONTEXT: `chat::conversations::archive` and `chat::conversations` would be inside each other
    help: put the contexts beside each other
    exit 2

    $ gen persistence chat -s accounts::Scope --table-prefix chat_
    error: CONTEXT: `chat` and `chat::conversations` would be inside each other
    help: put the contexts beside each other
    exit 2
    ");
}

#[test]
fn contexts_to_update_check_or_compare_are_known() {
    let host = Host::library();
    assert_snapshot!(refusal(&host, "update conversations"), @"
    $ update conversations
    error: no context has been generated in .
    help: generate one with `sagents gen persistence`, or name the package with --path
    exit 2
    ");
    host.generate(PLAIN);
    let lines = ["update chats", "check MyApp.Chats", "diff chats", "check Other.Chats"];
    assert_snapshot!(refusals(&host, &lines), @"
    $ update chats
    error: CONTEXT: `chats` has not been generated here
    help: sagents.toml knows conversations
    exit 2

    $ check MyApp.Chats
    error: CONTEXT: `chats` has not been generated here
    help: sagents.toml knows conversations
    exit 2

    $ diff chats
    error: CONTEXT: `chats` has not been generated here
    help: sagents.toml knows conversations
    exit 2

    $ check Other.Chats
    error: CONTEXT: `Other` in `Other.Chats` is not this package, which is called `my_app`
    help: write `MyApp.Chats`
    exit 2
    ");
}

#[test]
fn a_context_that_stands_in_the_options_alone_is_unknown() {
    let host = Host::library().file("sagents.toml", "[contexts.chats]\nscope = \"accounts::Scope\"\n");
    assert_snapshot!(refusals(&host, &["update", "check", "diff chats"]), @"
    $ update
    error: sagents.toml: `chats` has not been generated
    help: generate it with `sagents gen persistence crate::chats`, or remove it from sagents.toml
    exit 2

    $ check
    error: sagents.toml: `chats` has not been generated
    help: generate it with `sagents gen persistence crate::chats`, or remove it from sagents.toml
    exit 2

    $ diff chats
    error: sagents.toml: `chats` has not been generated
    help: generate it with `sagents gen persistence crate::chats`, or remove it from sagents.toml
    exit 2
    ");
}
