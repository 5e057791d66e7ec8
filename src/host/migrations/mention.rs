//! Where a host's code names its migrations: `migrate!("dir")`, `Migrator::new(Path::new("dir"))` and
//! `embed_migrations!("dir")`. Tokens are enough for that, also inside of other macros.

use camino::{Utf8Path, Utf8PathBuf};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::failure::Result;
use crate::host::modules;
use crate::tree::Tree;

/// One of these calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    pub file: Utf8PathBuf,
    pub call: Call,
    /// As it is written; nothing if the call leaves it out.
    pub directory: Option<String>,
    /// It is compiled for tests only.
    pub is_test: bool,
    /// The file also runs migrations.
    pub runs: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Of sqlx, at compile time.
    Migrate,
    /// Of sqlx, when the program runs.
    Migrator,
    /// Of sqlx, for a test.
    Test,
    /// Of diesel or refinery.
    EmbedMigrations,
}

impl Call {
    pub fn shown(self) -> &'static str {
        match self {
            Self::Migrate => "migrate!",
            Self::Migrator => "Migrator::new",
            Self::Test => "#[sqlx::test]",
            Self::EmbedMigrations => "embed_migrations!",
        }
    }
}

/// Every mention in a package, those in code that is not for tests first. What cannot be read mentions nothing.
pub fn mentions(tree: &Tree, sources: &Utf8Path) -> Result<Vec<Mention>> {
    let mut files = vec![("build.rs".into(), false)];
    for (directory, is_test) in
        [(sources, false), (Utf8Path::new("examples"), true), (Utf8Path::new("tests"), true), ("benches".into(), true)]
    {
        files.extend(tree.sources(directory)?.into_iter().map(|file| (file, is_test)));
    }
    let (mut mentions, mut for_tests) = (Vec::new(), Vec::new());
    for (file, is_test) in files.into_iter().filter(|(file, _)| file.extension() == Some("rs")) {
        let Ok(Some(text)) = tree.read(&file) else { continue };
        for_tests.extend(modules::test_modules(&text));
        if !["migrate!", "migrations!", "Migrator::new", "sqlx::test("].iter().any(|call| text.contains(call)) {
            continue;
        }
        let Ok(tokens) = text.parse::<TokenStream>() else { continue };
        let runs = [".run(", ".run_pending_migrations(", ".run_async("].iter().any(|call| text.contains(call));
        let mut found = Vec::new();
        scan(tokens, is_test, &mut found);
        let found = found.into_iter();
        mentions.extend(found.map(|(call, directory, is_test)| Mention {
            file: file.clone(),
            call,
            directory,
            is_test,
            runs,
        }));
    }
    for mention in &mut mentions {
        mention.is_test |= modules::is_in_any(&mention.file, &for_tests);
    }
    mentions.sort_by_key(|mention| mention.is_test);
    Ok(mentions)
}

type Found = (Call, Option<String>, bool);

fn scan(tokens: TokenStream, is_test: bool, found: &mut Vec<Found>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    // An attribute was just read that keeps the next item for tests.
    let mut for_tests = false;
    for (at, token) in tokens.iter().enumerate() {
        let before = |back: usize| at.checked_sub(back).map(|at| &tokens[at]);
        let TokenTree::Group(group) = token else {
            for_tests &= !is_punct(Some(token), ';');
            continue;
        };
        let is_macro = is_punct(before(1), '!');
        let name = if is_macro { ident(before(2)) } else { ident(before(1)) };
        let is_new = name.as_deref() == Some("new") && ident(before(4)).as_deref() == Some("Migrator");
        let is_attribute = group.delimiter() == Delimiter::Bracket && is_punct(before(1), '#');
        match name.as_deref() {
            Some("migrate") if is_macro => found.push((Call::Migrate, literal(group.stream()), is_test || for_tests)),
            Some("embed_migrations") if is_macro => {
                found.push((Call::EmbedMigrations, literal(group.stream()), is_test || for_tests));
            }
            _ if is_new => {
                if let Some(directory) = literal(group.stream()) {
                    found.push((Call::Migrator, Some(directory), is_test || for_tests));
                }
            }
            _ if is_attribute => {
                let text = group.stream().to_string().replace(' ', "");
                for_tests |= text == "cfg(test)" || text.ends_with("test") || text.contains("::test(");
                if let Some((_, directory)) = text.split_once("sqlx::test(migrations=\"") {
                    found.extend(directory.split_once('"').map(|(name, _)| (Call::Test, Some(name.to_owned()), true)));
                }
            }
            _ => scan(group.stream(), is_test || for_tests, found),
        }
        for_tests &= is_attribute || group.delimiter() != Delimiter::Brace;
    }
}

/// The last string in some tokens: `Path::new("dir")`, `concat!(env!("CARGO_MANIFEST_DIR"), "/dir")`.
fn literal(tokens: TokenStream) -> Option<String> {
    let mut last = None;
    for token in tokens {
        last = match token {
            TokenTree::Group(group) => literal(group.stream()).or(last),
            TokenTree::Literal(literal) => match syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                Ok(text) => Some(text.value()).filter(|text| text != "CARGO_MANIFEST_DIR").or(last),
                Err(_) => last,
            },
            TokenTree::Ident(_) | TokenTree::Punct(_) => last,
        };
    }
    last
}

fn ident(token: Option<&TokenTree>) -> Option<String> {
    if let Some(TokenTree::Ident(ident)) = token { Some(ident.to_string()) } else { None }
}

fn is_punct(token: Option<&TokenTree>, c: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        scan(text.parse().unwrap(), false, &mut found);
        let shown = |(call, directory, is_test): Found| {
            format!("{} {}{}", call.shown(), directory.unwrap_or_default(), if is_test { " test" } else { "" })
        };
        found.into_iter().map(shown).collect()
    }

    #[test]
    fn calls_are_found_wherever_they_are() {
        for (text, expected) in [
            ("static M: Migrator = sqlx::migrate!();", "migrate! "),
            ("async fn f() { sqlx::migrate!(\"../db\").run(&pool).await?; }", "migrate! ../db"),
            ("lazy! { static ref M: X = migrate!(\"db\"); }", "migrate! db"),
            ("fn f() { Migrator::new(std::path::Path::new(\"./db\")) }", "Migrator::new ./db"),
            (
                "fn f() { sqlx::migrate::Migrator::new(Path::new(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/db\"))) }",
                "Migrator::new /db",
            ),
            ("fn f() { Migrator::new(path) }", ""),
            ("const M: EmbeddedMigrations = embed_migrations!(\"db/\");", "embed_migrations! db/"),
            ("mod embedded { refinery::embed_migrations!(\"db\"); }", "embed_migrations! db"),
            (
                "#[cfg(test)] mod tests { fn f() { migrate!(\"db\") } } fn g() { migrate!() }",
                "migrate! db test, migrate! ",
            ),
            ("#[cfg(test)] use a::b; fn g() { migrate!() }", "migrate! "),
            ("#[sqlx::test(migrations = \"db\")] async fn t(pool: Pool) { }", "#[sqlx::test] db test"),
            ("#[tokio::test] async fn t() { migrate!(\"db\") }", "migrate! db test"),
            ("fn f() { other!(\"db\"); self.migrate(\"db\"); }", ""),
        ] {
            assert_eq!(found(text).join(", "), expected, "{text}");
        }
    }
}
