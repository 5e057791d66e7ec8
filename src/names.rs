//! Names: what a person writes (`MyApp.Accounts.Scope`, `crate::chat::conversations`, `user_id`) becomes a validated
//! value here, once. Everything that prints a name later prints one of these types; templates never change case.

use std::fmt;

use heck::{ToSnakeCase as _, ToUpperCamelCase as _};

use crate::failure::{Failure, Result};

/// The longest name, and the longest path of them, in bytes: both become names of files, with something behind them.
const LONGEST_NAME: usize = 100;
const LONGEST_PATH: usize = 200;

/// What messages call the module that is generated.
const CONTEXT: &str = "CONTEXT";

/// A lower-case identifier: a module, a field, a column. It may be a Rust keyword; [`Name::rust`] then writes it raw.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// `what` names the flag for the message: `--owner-field`.
    pub fn parse(what: &str, text: &str) -> Result<Self> {
        let bare = text.strip_prefix("r#").unwrap_or(text);
        check_characters(what, text, bare)?;
        let snake = bare.to_snake_case();
        if bare.chars().any(|c| c.is_ascii_uppercase()) {
            return Err(Failure::usage(format!("{what}: `{text}` is not in snake case")).help(format!("use `{snake}`")));
        }
        Ok(Self(bare.to_owned()))
    }

    /// As [`Name::parse`], and it must be usable without `r#`.
    pub fn parse_plain(what: &str, text: &str) -> Result<Self> {
        let name = Self::parse(what, text)?;
        if name.0.starts_with('_') {
            return Err(Failure::usage(format!("{what}: `{text}` does not start with a letter")).help(CHARACTERS));
        }
        if name.is_keyword() || text.starts_with("r#") {
            return Err(keyword_failure(what, &name.0));
        }
        // The compiler warns of two underscores in a row.
        if name.0.trim_matches('_').contains("__") {
            let snake = name.0.to_snake_case();
            return Err(Failure::usage(format!("{what}: `{text}` is not in snake case")).help(format!("use `{snake}`")));
        }
        Ok(name)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As Rust source: `r#type` for a keyword.
    pub fn rust(&self) -> String {
        if self.is_keyword() { format!("r#{}", self.0) } else { self.0.clone() }
    }

    pub fn is_keyword(&self) -> bool {
        KEYWORDS.contains(&self.0.as_str())
    }

    /// What its id is called: `user_id`.
    #[must_use]
    pub fn id(&self) -> Self {
        Self(format!("{}_id", self.0))
    }

    /// `agent_notes` as a type: `AgentNotes`.
    pub fn camel(&self) -> String {
        self.0.to_upper_camel_case()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A module of the host's crate, without the leading `crate`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModulePath(Vec<Name>);

impl ModulePath {
    /// Reads the CONTEXT argument in either notation.
    pub fn parse_context(text: &str, package: &str) -> Result<Self> {
        let path = Path::split(CONTEXT, text)?;
        let segments = path.inside_crate(CONTEXT, package)?;
        let mut names = Vec::new();
        for segment in segments {
            names.push(Name::parse_plain(CONTEXT, &path.notation.module(segment))?);
        }
        if names.is_empty() {
            let example = format!("{}.Conversations", package.to_upper_camel_case());
            return Err(Failure::usage(format!("{CONTEXT}: `{text}` names the package itself, not a module in it"))
                .help(format!("add the module's name, for example `{example}`")));
        }
        let path = Self(names);
        check_length(CONTEXT, &path.key(), LONGEST_PATH)?;
        Ok(path)
    }

    /// Reads a key of `sagents.toml`. It starts below the crate's root, also where the first module is called like the
    /// package.
    pub fn parse_key(key: &str) -> Result<Self> {
        let names = key.split("::").map(|segment| Name::parse_plain(CONTEXT, segment));
        names.collect::<Result<_>>().map(Self)
    }

    pub fn of(names: impl IntoIterator<Item = Name>) -> Self {
        Self(names.into_iter().collect())
    }

    pub fn names(&self) -> &[Name] {
        &self.0
    }

    /// The last segment. A context's path is never empty.
    pub fn last(&self) -> &Name {
        self.0.last().expect("a module path has at least one segment")
    }

    /// As Rust source: `crate::chat::conversations`.
    pub fn rust(&self) -> String {
        self.0.iter().fold("crate".to_owned(), |path, name| path + "::" + &name.rust())
    }

    /// As a key in `sagents.toml`: `chat::conversations`.
    pub fn key(&self) -> String {
        self.0.iter().map(Name::as_str).collect::<Vec<_>>().join("::")
    }
}

/// A type: in the host's crate, or in a crate that the host depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypePath {
    /// The crate, if it is not the host's own.
    pub krate: Option<Name>,
    pub modules: Vec<Name>,
    pub name: String,
}

impl TypePath {
    /// Reads `--scope` or `--owner-module` in either notation. `dependencies` are the crates that the host can name.
    pub fn parse(what: &str, text: &str, package: &str, dependencies: &[String]) -> Result<Self> {
        let path = Path::split(what, text)?;
        let external = path.notation == Notation::Rust
            && path.segments.len() > 1
            && path.segments[0] != crate_name(package)
            && dependencies.iter().any(|krate| *krate == path.segments[0]);
        let (krate, segments) = if external {
            (Some(Name::parse(what, path.segments[0])?), &path.segments[1..])
        } else {
            (None, path.inside_crate(what, package)?)
        };
        let Some((name, modules)) = segments.split_last() else {
            return Err(Failure::usage(format!("{what}: `{text}` names no type")).help(
                "give the type with its module, for example `MyApp.Accounts.Scope` or `crate::accounts::Scope`",
            ));
        };
        let bare = name.strip_prefix("r#").unwrap_or(name);
        check_characters(what, name, bare)?;
        if !bare.starts_with(|c: char| c.is_ascii_uppercase()) {
            return Err(Failure::usage(format!("{what}: `{name}` is not the name of a type"))
                .help(format!("types are in camel case: did you mean `{}`?", bare.to_upper_camel_case())));
        }
        if KEYWORDS.contains(&bare) {
            return Err(keyword_failure(what, bare));
        }
        let mut names = Vec::new();
        for module in modules {
            names.push(Name::parse(what, &path.notation.module(module))?);
        }
        Ok(Self { krate, modules: names, name: bare.to_owned() })
    }

    /// As Rust source: `crate::accounts::Scope`.
    pub fn rust(&self) -> String {
        let root = self.krate.as_ref().map_or_else(|| "crate".to_owned(), Name::rust);
        let module = self.modules.iter().fold(root, |path, name| path + "::" + &name.rust());
        format!("{module}::{}", self.name)
    }
}

/// The prefix of the tables' names. It may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablePrefix(String);

impl TablePrefix {
    /// `longest` is the longest identifier that is made by putting something behind a prefix, `limit` the database's
    /// limit in bytes.
    pub fn parse(text: &str, longest: &str, limit: usize) -> Result<Self> {
        if let Some(odd) = text.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '_')) {
            return Err(Failure::usage(format!("--table-prefix: `{text}` contains {}", show(odd)))
                .help("use lower-case letters, digits and `_` only, for example `sagents_`"));
        }
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(Failure::usage(format!("--table-prefix: `{text}` starts with a digit"))
                .help(format!("start with a letter, for example `t{text}`")));
        }
        if ["sqlite_", "pg_"].iter().any(|reserved| text.starts_with(reserved)) {
            return Err(Failure::usage(format!(
                "--table-prefix: names that start like `{text}` belong to the database"
            ))
            .help(format!("use another prefix, for example `app_{text}`")));
        }
        let length = text.len() + longest.len();
        if length > limit {
            return Err(Failure::usage(format!(
                "--table-prefix: `{text}` is too long: `{text}{longest}` has {length} bytes, the limit is {limit}"
            ))
            .help(format!("use at most {} characters", limit - longest.len())));
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name that `--init` gives a new package: the first segment of a dotted CONTEXT or of `my_app::…`.
pub fn package_of(context: &str) -> Option<String> {
    let (first, _) = context.split_once('.').or_else(|| context.split_once("::"))?;
    let name = first.to_snake_case();
    (first != "crate" && check_characters(CONTEXT, first, first).is_ok()).then_some(name)
}

/// How a package is written in Rust source.
pub fn crate_name(package: &str) -> String {
    package.replace('-', "_")
}

/// The usual English plurals, good enough to *look* for a table; nothing depends on a guess that found none.
pub fn plural(noun: &str) -> String {
    let ends = |suffixes: &[&str]| suffixes.iter().any(|suffix| noun.ends_with(suffix));
    match noun.strip_suffix('y') {
        Some(stem) if !ends(&["ay", "ey", "iy", "oy", "uy"]) => format!("{stem}ies"),
        _ if ends(&["s", "x", "z", "ch", "sh"]) => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notation {
    Dotted,
    Rust,
}

impl Notation {
    /// A module's name as the notation means it: `Accounts` is `accounts` in the dotted one.
    fn module(self, segment: &str) -> String {
        match self {
            Self::Dotted => segment.to_snake_case(),
            Self::Rust => segment.to_owned(),
        }
    }
}

struct Path<'a> {
    text: &'a str,
    notation: Notation,
    segments: Vec<&'a str>,
}

impl<'a> Path<'a> {
    fn split(what: &str, text: &'a str) -> Result<Self> {
        let help = match what {
            CONTEXT => "write `MyApp.Chat.Conversations` or `crate::chat::conversations`",
            _ => "write `MyApp.Accounts.Scope` or `crate::accounts::Scope`",
        };
        if text.trim().is_empty() {
            return Err(Failure::usage(format!("{what}: it is empty")).help(help));
        }
        let notation = if text.contains('.') { Notation::Dotted } else { Notation::Rust };
        let segments: Vec<_> = match notation {
            Notation::Dotted => text.split('.').collect(),
            Notation::Rust => text.split("::").collect(),
        };
        // A lone `Conversations` is the dotted notation with nothing to separate.
        let lone_type = segments.len() == 1 && text.starts_with(|c: char| c.is_ascii_uppercase());
        let notation = if lone_type { Notation::Dotted } else { notation };
        if notation == Notation::Dotted && text.contains(':') {
            return Err(Failure::usage(format!("{what}: `{text}` mixes two notations")).help(help));
        }
        if segments.iter().any(|segment| segment.is_empty()) {
            return Err(Failure::usage(format!("{what}: `{text}` has an empty segment")).help(help));
        }
        for segment in &segments {
            check_characters(what, segment, segment.strip_prefix("r#").unwrap_or(segment))?;
        }
        Ok(Self { text, notation, segments })
    }

    /// The segments below the crate's root.
    fn inside_crate(&self, what: &str, package: &str) -> Result<&[&'a str]> {
        let krate = crate_name(package);
        let (first, rest) = (self.segments[0], &self.segments[1..]);
        let text = self.text;
        if let Some(outside) = self.segments.iter().find(|segment| matches!(**segment, "super" | "self" | "Self")) {
            return Err(Failure::usage(format!("{what}: what `{outside}` means depends on where it is read"))
                .help(format!("start at the crate's root: `crate::…` or `{}.…`", krate.to_upper_camel_case())));
        }
        match self.notation {
            Notation::Rust if first == "crate" || first == krate => Ok(rest),
            Notation::Rust => Ok(&self.segments),
            Notation::Dotted if rest.is_empty() && first.to_snake_case() != krate => Ok(&self.segments),
            Notation::Dotted if first.to_snake_case() == krate.to_snake_case() => Ok(rest),
            Notation::Dotted => Err(Failure::usage(format!(
                "{what}: `{first}` in `{text}` is not this package, which is called `{package}`"
            ))
            .help(format!("write `{}.{}`", krate.to_upper_camel_case(), rest.join(".")))),
        }
    }
}

const CHARACTERS: &str = "use ASCII letters, digits and `_`, and start with a letter";

fn check_characters(what: &str, shown: &str, bare: &str) -> Result<()> {
    if bare.is_empty() {
        return Err(Failure::usage(format!("{what}: it is empty")).help(CHARACTERS));
    }
    if let Some(odd) = bare.chars().find(|c| !(c.is_ascii_alphanumeric() || *c == '_')) {
        return Err(Failure::usage(format!("{what}: `{}` contains {}", printable(shown), show(odd))).help(CHARACTERS));
    }
    // Hosts have names such as `_entities`.
    if !bare.trim_start_matches('_').starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(Failure::usage(format!("{what}: `{shown}` does not start with a letter")).help(CHARACTERS));
    }
    check_length(what, bare, LONGEST_NAME)
}

fn check_length(what: &str, text: &str, limit: usize) -> Result<()> {
    if text.len() <= limit {
        return Ok(());
    }
    Err(Failure::usage(format!("{what}: `{text}` has {} bytes, the limit is {limit}", text.len()))
        .help("use a shorter name"))
}

/// A text that a terminal shows as it is.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() }).collect()
}

/// Names a character so that a lookalike cannot hide.
pub fn show(odd: char) -> String {
    if odd.is_ascii_graphic() {
        format!("`{odd}`")
    } else if odd == ' ' {
        "a space".to_owned()
    } else {
        format!("U+{:04X}", odd as u32)
    }
}

fn keyword_failure(what: &str, keyword: &str) -> Failure {
    let noun = match keyword {
        "self" | "Self" | "super" | "crate" => {
            return Failure::usage(format!("{what}: `{keyword}` is a place, not a name"))
                .help("give a name of your own");
        }
        other => plural(other),
    };
    Failure::usage(format!("{what}: `{keyword}` is a Rust keyword"))
        .help(format!("use another name, for example `{noun}` or `{keyword}_item`"))
}

/// Strict and reserved keywords of every edition, as the language reference lists them.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "Self", "static", "struct", "super", "trait",
    "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn context(text: &str) -> Result<String, String> {
        ModulePath::parse_context(text, "my-app").map(|path| path.rust()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn every_notation_names_the_same_module() {
        for text in
            ["MyApp.Conversations", "my_app::conversations", "crate::conversations", "conversations", "Conversations"]
        {
            assert_eq!(context(text).as_deref(), Ok("crate::conversations"), "{text}");
        }
        assert_eq!(context("MyApp.Chat.AgentNotes").as_deref(), Ok("crate::chat::agent_notes"));
        assert_eq!(context("chat::conversations").as_deref(), Ok("crate::chat::conversations"));
    }

    #[test]
    fn what_is_generated_starts_with_a_letter() {
        for text in ["_conversations", "crate::_chat::conversations"] {
            assert!(context(text).unwrap_err().contains("does not start with a letter"), "{text}");
        }
    }

    #[test]
    fn another_package_in_the_dotted_form_is_refused_with_the_right_name() {
        let message = context("Other.Conversations").unwrap_err();
        assert_eq!(
            message,
            "CONTEXT: `Other` in `Other.Conversations` is not this package, which is called `my-app`\nhelp: write `MyApp.Conversations`"
        );
    }

    #[test]
    fn types_are_read_in_both_notations_and_from_dependencies() {
        let parse =
            |text| TypePath::parse("--scope", text, "my_app", &["core_types".to_owned()]).map(|path| path.rust());
        assert_eq!(parse("MyApp.Accounts.Scope").unwrap(), "crate::accounts::Scope");
        assert_eq!(parse("accounts::Scope").unwrap(), "crate::accounts::Scope");
        assert_eq!(parse("core_types::auth::Scope").unwrap(), "core_types::auth::Scope");
        assert_eq!(parse("crate::r#type::Scope").unwrap(), "crate::r#type::Scope");
        assert_eq!(parse("crate::models::_entities::Scope").unwrap(), "crate::models::_entities::Scope");
        for odd in ["crate::_::Scope", "crate::_1::Scope", "crate::accounts::_Scope"] {
            assert!(parse(odd).is_err(), "{odd}");
        }
        assert!(parse("accounts::scope").unwrap_err().to_string().contains("did you mean `Scope`"));
    }

    #[test]
    fn plurals_cover_the_usual_owners() {
        for (one, many) in
            [("user", "users"), ("company", "companies"), ("branch", "branches"), ("key", "keys"), ("boss", "bosses")]
        {
            assert_eq!(plural(one), many);
        }
    }
}
