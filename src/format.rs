//! rustfmt, as a function from texts to texts, with the host's own configuration. Starting it is what costs, so one
//! process formats everything.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, bail, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use syn::Item;
use syn::ext::IdentExt as _;

use crate::failure::{Failure, Result};

#[derive(Debug, Clone)]
pub struct Formatter {
    pub program: OsString,
    /// The host's directory: rustfmt looks for its configuration there and above.
    pub directory: Utf8PathBuf,
    pub edition: String,
}

/// Texts with what rustfmt makes of them.
#[derive(Debug, Default)]
pub struct Formatted(Texts);

type Texts = BTreeMap<String, Option<String>>;

impl Formatted {
    /// Nothing if the text is not Rust.
    ///
    /// # Panics
    /// If the text was not given to [`Formatter::format`].
    pub fn get(&self, text: &str) -> Option<&str> {
        self.0.get(text).expect("every text that is compared was formatted before").as_deref()
    }
}

impl Formatter {
    /// Formats texts in one process, those aside that were formatted before.
    pub fn format(&self, texts: impl IntoIterator<Item = String>) -> Result<Formatted> {
        let settings = self.settings();
        let (mut formatted, new) = known(&settings, texts);
        let new = self.format_new(&new)?;
        remember(settings, &new);
        formatted.extend(new);
        Ok(Formatted(formatted))
    }

    fn format_new(&self, texts: &BTreeSet<String>) -> Result<Texts> {
        // Without a place for temporary files, or with a text that rustfmt does not take, each one is formatted alone.
        let together = self.format_together(texts, declared_modules).or_else(|_| self.format_together(texts, modules));
        let mut together = together.unwrap_or_default();
        let formatted = texts.iter().map(|text| match together.remove(text.as_str()) {
            Some(formatted) => Ok((text.clone(), Some(formatted))),
            None => Ok((text.clone(), self.format_alone(text)?)),
        });
        formatted.collect::<anyhow::Result<_>>().map_err(|error| {
            Failure::from(error.context("cannot format the generated code"))
                .help("`rustup component add rustfmt` installs rustfmt; the variable RUSTFMT may name another one")
        })
    }

    /// What one process makes of texts, those aside that it cannot be given as a file.
    fn format_together<'a>(
        &self,
        texts: &'a BTreeSet<String>,
        modules: fn(&str) -> Option<Vec<Utf8PathBuf>>,
    ) -> anyhow::Result<BTreeMap<&'a str, String>> {
        let directory = tempfile::tempdir()?;
        let directory = Utf8Path::from_path(directory.path()).context("the temporary directory is not UTF-8")?;
        let mut files = BTreeMap::new();
        for (index, text) in texts.iter().enumerate() {
            let Some(modules) = modules(text) else { continue };
            let file = directory.join(index.to_string()).join("mod.rs");
            write(&file, text)?;
            for module in modules {
                write(&file.with_file_name(module), "")?;
            }
            files.insert(text.as_str(), file);
        }
        if files.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut command = self.command();
        if let Some(configuration) = self.configuration() {
            command.args(["--config-path", configuration.as_str()]);
        }
        let output = command.args(files.values()).stdin(Stdio::null()).output()?;
        // A failure does not name its file.
        ensure!(output.status.success(), "rustfmt failed");
        files.into_iter().map(|(text, file)| Ok((text, fs::read_to_string(file)?))).collect()
    }

    /// Formats a text in a process of its own. Nothing if it is not Rust.
    fn format_alone(&self, text: &str) -> anyhow::Result<Option<String>> {
        let mut command = self.command();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} does not run", self.program.display()))?;
        let mut input = child.stdin.take().expect("standard input is piped");
        let text = text.to_owned();
        // Written from a thread of its own: rustfmt may fill its output before it has read everything.
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
        let output = child.wait_with_output().context("rustfmt was stopped")?;
        let written = writer.join().expect("the writer does not panic");
        // A line that does not fit the host's settings is reported, and the text is there all the same.
        if !output.status.success() && output.stdout.is_empty() {
            if output.status.code() != Some(1) {
                bail!("rustfmt failed: {}", String::from_utf8_lossy(&output.stderr).trim());
            }
            return Ok(None);
        }
        written.context("rustfmt did not read its input")?;
        String::from_utf8(output.stdout).context("rustfmt wrote no text").map(Some)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--edition", &self.edition, "--quiet"]).current_dir(&self.directory);
        command
    }

    fn settings(&self) -> Settings {
        let configuration = self.configuration().map(|file| fs::read(file).ok());
        (self.program.clone(), self.edition.clone(), configuration)
    }

    /// The configuration that rustfmt would find for a file of the host.
    fn configuration(&self) -> Option<Utf8PathBuf> {
        let candidates = self
            .directory
            .ancestors()
            .flat_map(|directory| [".rustfmt.toml", "rustfmt.toml"].map(|name| directory.join(name)));
        candidates.into_iter().find(|file| file.is_file())
    }
}

/// What the result depends on beside the text: the program, the edition, and the bytes of the configuration, if there is
/// one and it can be read.
type Settings = (OsString, String, Option<Option<Vec<u8>>>);

/// What this process formatted before. Contexts share texts, and so do the runs of a test.
static KNOWN: Mutex<BTreeMap<Settings, Texts>> = Mutex::new(BTreeMap::new());

/// Those of some texts that were formatted before, and the others.
fn known(settings: &Settings, texts: impl IntoIterator<Item = String>) -> (Texts, BTreeSet<String>) {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get(settings);
    let (mut found, mut new) = (Texts::new(), BTreeSet::new());
    for text in texts {
        match known.and_then(|known| known.get(&text)) {
            Some(formatted) => drop(found.insert(text, formatted.clone())),
            None => drop(new.insert(text)),
        }
    }
    (found, new)
}

fn remember(settings: Settings, texts: &Texts) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(settings).or_default().extend(texts.clone());
}

fn write(file: &Utf8Path, text: &str) -> std::io::Result<()> {
    fs::create_dir_all(file.parent().expect("a file has a directory"))?;
    fs::write(file, text)
}

/// As [`modules`], for texts that are Rust: most declare no module, and parsing takes its time.
fn declared_modules(text: &str) -> Option<Vec<Utf8PathBuf>> {
    if text.contains("mod ") { modules(text) } else { Some(Vec::new()) }
}

/// The files of the modules that a text declares, beside it: rustfmt goes on there, and fails where there is none.
/// Nothing if the text does not parse, or has a `#[path]` for such a file.
fn modules(text: &str) -> Option<Vec<Utf8PathBuf>> {
    let file = syn::parse_file(text).ok()?;
    let mut found = Vec::new();
    collect(&file.items, Utf8Path::new(""), &mut found)?;
    Some(found)
}

fn collect(items: &[Item], directory: &Utf8Path, found: &mut Vec<Utf8PathBuf>) -> Option<()> {
    for item in items {
        let Item::Mod(module) = item else { continue };
        if module.attrs.iter().any(|attribute| attribute.path().is_ident("path")) {
            return None;
        }
        let place = directory.join(module.ident.unraw().to_string());
        match &module.content {
            Some((_, items)) => collect(items, &place, found)?,
            None => found.push(place.with_extension("rs")),
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatter(directory: &str) -> Formatter {
        Formatter { program: "rustfmt".into(), directory: directory.into(), edition: "2024".to_owned() }
    }

    #[test]
    fn many_texts_are_formatted_as_each_one_alone() {
        let texts = [
            "mod b;\nmod a;\n\n#[cfg(test)] mod tests;",
            "mod inner { mod deep;   fn f( ) {} }\n",
            "#[path = \"elsewhere.rs\"] mod m;\nfn  g(){}\n",
            "fn h(){let x=1;}\r\n",
            "fn broken( {",
            "",
        ];
        let rustfmt = formatter(env!("CARGO_MANIFEST_DIR"));
        let together = rustfmt.format(texts.map(str::to_owned)).unwrap();
        for text in texts {
            let alone = rustfmt.format_alone(text).unwrap();
            assert_eq!(together.get(text), alone.as_deref(), "{text}");
        }
        assert_eq!(together.get("fn broken( {"), None);
        assert_eq!(together.get(texts[0]), Some("mod a;\nmod b;\n\n#[cfg(test)]\nmod tests;\n"));
    }

    #[test]
    fn the_configuration_above_a_host_counts() {
        let host = tempfile::tempdir().unwrap();
        let inner = host.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(host.path().join("rustfmt.toml"), "tab_spaces = 2\n").unwrap();
        let text = "fn f() { let x = 1; }".to_owned();
        let formatted = formatter(inner.to_str().unwrap()).format([text.clone()]).unwrap();
        assert_eq!(formatted.get(&text), Some("fn f() {\n  let x = 1;\n}\n"));
    }

    #[test]
    fn a_text_is_formatted_once_with_the_same_settings() {
        let directory = tempfile::tempdir().unwrap();
        let (program, runs) = (directory.path().join("rustfmt"), directory.path().join("runs"));
        fs::write(&program, "#!/bin/sh\necho >> runs\nexec rustfmt \"$@\"\n").unwrap();
        Command::new("chmod").arg("+x").arg(&program).status().unwrap();
        let mut rustfmt = Formatter { program: program.into(), ..formatter(directory.path().to_str().unwrap()) };
        let texts = ["fn a( ){f();}\n", "fn b( ){f();}\n"].map(str::to_owned);
        let mut formatted = |edition: &str, texts: &[String]| {
            edition.clone_into(&mut rustfmt.edition);
            let formatted = rustfmt.format(texts.to_vec()).unwrap();
            let last = formatted.get(texts.last().unwrap()).unwrap().to_owned();
            (last, fs::read_to_string(&runs).unwrap().len())
        };
        let b = "fn b() {\n    f();\n}\n".to_owned();
        assert_eq!(formatted("2021", &texts[..1]).1, 1);
        assert_eq!(formatted("2021", &texts), (b.clone(), 2), "the second one is new");
        assert_eq!(formatted("2021", &texts), (b.clone(), 2));
        assert_eq!(formatted("2024", &texts), (b.clone(), 3), "another edition may format otherwise");
        fs::write(directory.path().join("rustfmt.toml"), "tab_spaces = 2\n").unwrap();
        assert_eq!(formatted("2024", &texts), ("fn b() {\n  f();\n}\n".to_owned(), 4));
    }
}
