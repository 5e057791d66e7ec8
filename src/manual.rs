//! The command line as clap describes it, as texts to read elsewhere: man pages, docs/options.md and docs/configuration.md.

use std::fmt::Write as _;

use clap::builder::Resettable;
use clap::{Arg, Args as _, Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli::Cli;
use crate::given::Given;

/// A man page and the name of its file.
pub struct Page {
    pub file: String,
    pub text: String,
}

/// The man pages: that of the program first, then one for each command.
pub fn man_pages() -> Vec<Page> {
    commands().into_iter().map(man_page).collect()
}

/// The text of docs/options.md: every command, every option and the exit codes.
pub fn options() -> String {
    let mut page = String::from(
        "# Options\n\n\
         Every command and option, as `--help` shows them. This page is generated from the command line, so \
         don't edit it.\n",
    );
    let commands = commands();
    for command in commands.iter().filter(|command| !command.has_subcommands()) {
        page += &section(command);
    }
    page += "\n## Exit codes\n\n| code | meaning |\n| --- | --- |\n";
    for (_, codes) in commands.iter().take(1).flat_map(epilogue).filter(|(heading, _)| heading == "Exit codes") {
        for (code, meaning) in codes.lines().filter_map(|line| line.split_once("  ")) {
            let _ = writeln!(page, "| {code} | {meaning} |");
        }
    }
    page + AFTER_A_FAILURE
}

const AFTER_A_FAILURE: &str = "
Unless the code is 0 or 4, nothing was written. With `--json`, standard output is always exactly one document.
";

/// The program and its commands, in the order of `--help`, each with the name that a person types.
fn commands() -> Vec<Command> {
    fn collect(command: &Command, all: &mut Vec<Command>) {
        all.push(command.clone());
        command.get_subcommands().for_each(|command| collect(command, all));
    }
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let mut all = Vec::new();
    collect(&program, &mut all);
    all
}

/// As `clap_mangen` renders it, but what follows the options has sections with their usual names and keeps its lines.
fn man_page(command: Command) -> Page {
    let mut roff = Roff::new();
    for (heading, body) in epilogue(&command) {
        let heading = if heading == "Exit codes" { "EXIT STATUS".to_owned() } else { heading.to_uppercase() };
        roff.control("SH", [heading.as_str()]).control("nf", []);
        for line in body.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    let without = command.after_help(Resettable::Reset).after_long_help(Resettable::Reset);
    let man = Man::new(without).manual("sagents");
    let mut text = Vec::new();
    man.render(&mut text).expect("a vector takes all bytes");
    let text = String::from_utf8(text).expect("what is written here is text") + &roff.render();
    Page { file: man.get_filename(), text }
}

/// The sections after the options, which `--help` shows as `Heading:` with indented lines.
fn epilogue(command: &Command) -> Vec<(String, String)> {
    let Some(text) = command.get_after_long_help().or(command.get_after_help()) else { return Vec::new() };
    let mut sections: Vec<(String, String)> = Vec::new();
    for line in text.to_string().lines() {
        match line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
            Some(heading) => sections.push((heading.to_owned(), String::new())),
            None => {
                if let Some((_, body)) = sections.last_mut() {
                    body.extend([line.strip_prefix("  ").unwrap_or(line), "\n"]);
                }
            }
        }
    }
    for (_, body) in &mut sections {
        body.truncate(body.trim_end().len());
    }
    sections
}

/// A command with its arguments, its options by heading, and its examples.
fn section(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut text = format!("\n## `{name}`\n\n{about}.\n\n`{usage}`\n");
    let aliases: Vec<_> = command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        let _ = write!(text, "\nAlias: {}.\n", aliases.join(", "));
    }
    let mut headings: Vec<Option<&str>> = Vec::new();
    for argument in shown(command) {
        if !headings.contains(&argument.get_help_heading()) {
            headings.push(argument.get_help_heading());
        }
    }
    for heading in headings {
        if let Some(heading) = heading {
            let _ = write!(text, "\n**{heading}**\n");
        }
        text += "\n| option | meaning | default |\n| --- | --- | --- |\n";
        for argument in shown(command).filter(|argument| argument.get_help_heading() == heading) {
            let (meaning, default) = meaning(argument);
            let _ = writeln!(text, "| `{}` | {meaning} | {default} |", written(argument));
        }
    }
    for (heading, body) in epilogue(command).iter().filter(|(heading, _)| heading.starts_with("Example")) {
        let _ = write!(text, "\n{heading}:\n\n```sh\n{body}\n```\n");
    }
    text
}

fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_common = |argument: &&Arg| matches!(argument.get_id().as_str(), "help" | "version");
    command.get_arguments().filter(move |argument| !argument.is_hide_set() && !is_common(argument))
}

/// An argument as it is typed.
fn written(argument: &Arg) -> String {
    let value = argument.get_value_names().and_then(<[_]>::first).map_or("", |name| name.as_str());
    let takes_value = argument.get_num_args().is_some_and(|number| number.takes_values());
    let names =
        [argument.get_short().map(|name| format!("-{name}")), argument.get_long().map(|name| format!("--{name}"))];
    let names: Vec<_> = names.into_iter().flatten().collect();
    match (names.is_empty(), takes_value) {
        (true, _) => argument.to_string(),
        (false, true) => format!("{} <{value}>", names.join(", ")),
        (false, false) => names.join(", "),
    }
}

/// What an argument means, and its default, both as cells of a table.
fn meaning(argument: &Arg) -> (String, String) {
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let (help, named) = match help.rsplit_once(" [default: ") {
        Some((help, default)) => (help.to_owned(), default.strip_suffix(']').map(str::to_owned)),
        None => (help, None),
    };
    let values: Vec<_> = argument.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    let is_flag = argument.get_num_args().is_some_and(|number| !number.takes_values());
    let help = if values.is_empty() || is_flag { help } else { format!("{help}: {}", values.join(", ")) };
    let value = argument.get_default_values().first().filter(|_| !is_flag);
    let default = named.or_else(|| value.map(|value| value.to_string_lossy().into_owned())).unwrap_or_default();
    // A value, or how one is found.
    let is_value =
        !default.is_empty() && !argument.is_positional() && (!default.contains(' ') || default.contains('<'));
    (cell(&help), if is_value { format!("`{default}`") } else { cell(&default) })
}

/// The text of docs/configuration.md: the keys of sagents.toml, which are the options of a context with the names of their
/// flags.
pub fn configuration() -> String {
    let mut text = String::from(BEFORE_THE_KEYS);
    let command = Given::augment_args(Command::new("sagents"));
    for argument in command.get_arguments() {
        let key = argument.get_long().unwrap_or_default();
        let is_flag = argument.get_num_args().is_some_and(|number| !number.takes_values());
        let (meaning, default) = meaning(argument);
        let (kind, default) = if is_flag { ("boolean", "`false`".to_owned()) } else { ("string", default) };
        let _ = writeln!(text, "| `{key}` | {kind} | {meaning} | {default} |");
    }
    text + AFTER_THE_KEYS
}

const BEFORE_THE_KEYS: &str = r#"# sagents.toml

`sagents.toml` has the options of each context, as you gave them. Reruns start from them. You may edit the file; `sagents update`
applies the change. Commit it. This page is generated from the command line, so don't edit it.

A context is a table under `contexts`, with its module's path as the key:

```toml
[contexts.conversations]
scope = "MyApp.Accounts.Scope"
owner-type = "team"
ejected = ["src/conversations/tests.rs"]

[contexts."support::tickets"]
scope = "MyApp.Accounts.Scope"
table-prefix = "tickets_"
```

| key | type | meaning | default |
| --- | --- | --- | --- |
"#;

const AFTER_THE_KEYS: &str = "\
| `ejected` | list of strings | Generated files that are yours now: reruns leave them alone, and `check` still reports what \
you miss | `[]` |

sagents doesn't record what it reads from your project, so it reads that again when an owner or a scope changes. `sagents list`
shows it. A key that isn't in the table is an error.

## `.sagents/`

Reruns compare with these files. Commit them, and don't edit them. `.gitattributes` marks them as generated, so that reviews fold
them.

| file | what it has |
| --- | --- |
| `<context>/base/` | the last rendering of each Rust file, before formatting |
| `<context>/files.toml` | digests of each file: as rendered, and as a run left it |
| `<context>/resolved.toml` | what the options resolved to |
| `<context>/schema.json` | the tables that the emitted migrations lead to |
| `<context>/merging/` | the new rendering of files that still have conflict markers |
| `journal.toml` | only during a run: how to finish or undo it if it's killed |

If two branches reran and git merged them, `sagents check` reports whether the result is consistent, and what fixes it.
";

/// A text as a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_options_file_is_on_the_page() {
        let error = toml::from_str::<Given>("no-such-key = 1").unwrap_err();
        let (_, known) = error.message().split_once("expected one of ").unwrap();
        let page = configuration();
        let (_, rows) = page.split_once("| --- | --- | --- | --- |\n").unwrap();
        let listed: Vec<_> =
            rows.lines().take_while(|line| line.starts_with("| `")).map(|row| row.split(' ').nth(1)).collect();
        assert_eq!(listed, known.split(", ").map(Some).collect::<Vec<_>>());
    }

    #[test]
    fn the_example_of_the_options_file_is_one() {
        let (_, rest) = BEFORE_THE_KEYS.split_once("```toml\n").unwrap();
        let (example, _) = rest.split_once("```").unwrap();
        toml::from_str::<crate::memory::Recorded>(example).unwrap();
    }
}
