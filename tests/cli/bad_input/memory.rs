//! What earlier runs recorded.

use insta::assert_snapshot;

use super::PLAIN;
use crate::support::Host;
use crate::transcript::refusal;

#[test]
fn options_that_were_recorded_have_to_be_readable() {
    let hosts = [
        "[contexts.conversations]\nscope = \"MyApp.Accounts.Scope\"\nowner_type = \"team\"\n",
        "[contexts.conversations]\nscope = 1\n",
        "[context.conversations]\n",
        "contexts = 1\n",
        "[contexts.conversations\n",
        "[contexts.conversations]\nscope = \"MyApp.Accounts.Scope\"\ncolour = \"red\"\n",
    ]
    .map(|text| Host::library().file("sagents.toml", text));
    assert_snapshot!(hosts.each_ref().map(|host| refusal(host, PLAIN)).join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: sagents.toml:3: unknown field `owner_type`, expected one of `scope`, `owner-type`, `owner-field`, `owner-module`, `owner-table`, `owner-id`, `scope-owner`, `group-type`, `group-field`, `group-table`, `scope-group`, `table-prefix`, `database`, `migrations`, `backfill`, `web`, `library`, `no-wire`, `no-tests`, `ejected`
    help: did you mean `owner-type`?
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: sagents.toml:2: invalid type: integer `1`, expected a string
    help: fix sagents.toml, then run this again
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: sagents.toml:1: unknown field `context`, expected `contexts`
    help: did you mean `contexts`?
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: sagents.toml:1: invalid type: integer `1`, expected a map
    help: fix sagents.toml, then run this again
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: sagents.toml:1: unclosed table, expected `]`
    help: fix sagents.toml, then run this again
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: sagents.toml:3: unknown field `colour`, expected one of `scope`, `owner-type`, `owner-field`, `owner-module`, `owner-table`, `owner-id`, `scope-owner`, `group-type`, `group-field`, `group-table`, `scope-group`, `table-prefix`, `database`, `migrations`, `backfill`, `web`, `library`, `no-wire`, `no-tests`, `ejected`
    help: fix sagents.toml, then run this again
    exit 2
    ");
}

#[test]
fn a_recorded_context_has_to_be_one() {
    let host = Host::library().file("sagents.toml", "[contexts.\"chat.log\"]\nscope = \"accounts::Scope\"\n");
    assert_snapshot!(refusal(&host, "list"), @"
    $ list
    error: sagents.toml: CONTEXT: `chat.log` contains `.`
    help: use ASCII letters, digits and `_`, and start with a letter
    exit 2
    ");
}

#[test]
fn a_damaged_memory_is_restored_by_version_control() {
    let host = Host::library();
    host.generate(PLAIN);
    host.write(".sagents/conversations/schema.json", "{");
    let first = refusal(&host, PLAIN);
    host.write(".sagents/conversations/schema.json", "{\"tables\":[]}");
    host.write(".sagents/conversations/files.toml", "generated = 1\n");
    assert_snapshot!([first, refusal(&host, PLAIN)].join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: .sagents/conversations/schema.json cannot be read: EOF while parsing an object at line 1 column 1
    help: restore .sagents/conversations/schema.json from version control; after a merge of two branches that both ran sagents, take sagents.toml, .sagents/ and the migrations of sagents from one of them (`git checkout <branch> -- <paths>`), remove the other's migrations, and run the other's command again
    exit 2

    $ gen persistence conversations -s accounts::Scope
    error: .sagents/conversations/files.toml cannot be read: invalid type: integer `1`, expected a map
    help: restore .sagents/conversations/files.toml from version control; after a merge of two branches that both ran sagents, take sagents.toml, .sagents/ and the migrations of sagents from one of them (`git checkout <branch> -- <paths>`), remove the other's migrations, and run the other's command again
    exit 2
    ");
}
