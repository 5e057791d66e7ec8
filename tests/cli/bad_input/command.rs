//! The command line, and the tools that it starts.

use insta::assert_snapshot;

use super::PLAIN;
use crate::support::{Host, Run, sagents};
use crate::transcript::refusal_by;

#[test]
fn a_missing_tool_is_named_with_what_installs_it() {
    let host = Host::library();
    let without = |tool: &str, words: &[&str]| {
        Run::of(sagents().args(words).env(tool, "/nonexistent/tool").current_dir(host.root()))
    };
    let all = ["RUSTFMT", "CARGO"].map(|tool| refusal_by(&host, PLAIN, |words| without(tool, words)));
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: cannot format the generated code: /nonexistent/tool does not run: No such file or directory (os error 2)
    help: `rustup component add rustfmt` installs rustfmt; the variable RUSTFMT may name another one
    exit 1

    $ gen persistence conversations -s accounts::Scope
    error: cargo does not run: No such file or directory (os error 2)
    help: install Rust with rustup, or put cargo on the PATH
    exit 1
    ");
}

#[test]
fn a_command_line_that_is_none_is_refused() {
    let lines = [
        "generate",
        "gen",
        "gen persistance conversations",
        "gen persistence",
        "gen persistence conversations --scop accounts::Scope",
        "gen persistence conversations chats",
        "completions tcsh",
    ];
    // The real program: help is as wide as a terminal.
    let host = Host::library();
    let all = lines.map(|line| refusal_by(&host, line, |_| host.program(line)));
    assert_snapshot!(all.join("\n"), @"
    $ generate
    error: unrecognized subcommand 'generate'

      tip: a similar subcommand exists: 'gen'

    Usage: sagents <COMMAND>

    For more information, try '--help'.
    exit 2

    $ gen
    Generate code, or rerun over what was generated

    Usage: sagents gen <COMMAND>

    Commands:
      persistence  Conversations, agent states and display messages: context, models, migration and
                   tests [alias: p]
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help
      -V, --version  Print version
    exit 2

    $ gen persistance conversations
    error: unrecognized subcommand 'persistance'

      tip: a similar subcommand exists: 'persistence'

    Usage: sagents gen <COMMAND>

    For more information, try '--help'.
    exit 2

    $ gen persistence
    error: the following required arguments were not provided:
      <CONTEXT>

    Usage: sagents gen persistence <CONTEXT>

    For more information, try '--help'.
    exit 2

    $ gen persistence conversations --scop accounts::Scope
    error: unexpected argument '--scop' found

      tip: a similar argument exists: '--scope'

    Usage: sagents gen persistence --scope <TYPE> <CONTEXT>

    For more information, try '--help'.
    exit 2

    $ gen persistence conversations chats
    error: unexpected argument 'chats' found

    Usage: sagents gen persistence [OPTIONS] <CONTEXT>

    For more information, try '--help'.
    exit 2

    $ completions tcsh
    error: invalid value 'tcsh' for '<SHELL>'
      [possible values: bash, elvish, fish, powershell, zsh]

      tip: a similar value exists: 'zsh'

    For more information, try '--help'.
    exit 2
    ");
}
