//! Damage to what the generator remembers: it says what is wrong, or goes on.

use std::sync::OnceLock;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, FileFailurePersistence};

use super::unformatted;
use crate::support::Host;
use crate::transcript::everything;

proptest! {
    // Each case runs the program once.
    #![proptest_config(Config {
        cases: 160,
        max_shrink_iters: 64,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..Config::default()
    })]

    /// Whatever stands in the files that the program reads of its own, it says what is wrong, or goes on.
    #[test]
    fn no_damage_to_the_memory_makes_the_program_panic(
        damages in proptest::collection::vec((any::<Index>(), damage()), 1..4),
        line in select(&[
            "check",
            "diff",
            "list",
            "update",
            "update --json",
            "update --drop-old-owner",
            "gen persistence conversations --table-prefix other_",
            "gen persistence conversations -t user --backfill 1",
            "gen persistence conversations -t none",
        ][..]),
    ) {
        let host = remembered();
        let is_memory = |path: &String| path == "sagents.toml" || path.starts_with(".sagents/");
        let paths: Vec<_> = host.files().into_keys().filter(is_memory).collect();
        // Most files are renderings, of which little is read.
        let (renderings, rest): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| path.contains("/base/"));
        let paths = [rest.clone(), rest, renderings[..2].to_vec()].concat();
        for (path, damage) in &damages {
            let path = path.get(&paths);
            if host.exists(path) {
                damage.apply(&host, path);
            }
        }
        let before = everything(&host);
        let run = unformatted(&host, line);
        prop_assert!((0..=5).contains(&run.code), "{run:?}");
        if ![0, 4].contains(&run.code) {
            prop_assert_eq!(everything(&host), before, "{:?}", run);
        }
    }
}

#[derive(Debug, Clone)]
enum Damage {
    Delete,
    Truncate(Index),
    DropLine(Index),
    RepeatLine(Index),
    /// A word becomes another word of the same file.
    Exchange(Index, Index),
    Insert(Index, &'static str),
    /// All of it becomes something of another form.
    Replace(&'static str),
}

const FORMS: &[&str] = &[
    "",
    "[]",
    "{}",
    "null",
    "contexts = 1\n",
    "contexts = []\n",
    "[[contexts]]\nscope = \"accounts::Scope\"\n",
    "contexts = { conversations = { scope = \"accounts::Scope\" } }\n",
    "contexts.conversations = \"accounts::Scope\"\n",
    "[contexts]\nconversations = [{ scope = \"accounts::Scope\" }]\n",
    "[contexts.conversations]\nscope = 1\n",
    "[contexts.conversations]\nscope = \"crate::sagents::Scope\"\nejected = \"src\"\n",
    "[contexts.\"\"]\nscope = \"accounts::Scope\"\n",
    "[contexts.\"a::b.c\".d]\nscope = \"accounts::Scope\"\n",
];

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<Index>;
    prop_oneof![
        1 => Just(Damage::Delete),
        1 => index().prop_map(Damage::Truncate),
        3 => index().prop_map(Damage::DropLine),
        3 => index().prop_map(Damage::RepeatLine),
        4 => (index(), index()).prop_map(|(one, other)| Damage::Exchange(one, other)),
        2 => select(FORMS).prop_map(Damage::Replace),
        3 => (index(), select(&["<<<<<<< ours\n", "\u{0}", "é", "[", "= 1\n", "-1", "\"\"", "null", "../../x"][..]))
            .prop_map(|(at, text)| Damage::Insert(at, text)),
    ]
}

impl Damage {
    fn apply(&self, host: &Host, path: &str) {
        let text = host.read(path);
        let at = |index: &Index| {
            let places: Vec<_> = text.char_indices().map(|(place, _)| place).chain([text.len()]).collect();
            *index.get(&places)
        };
        let lines: Vec<_> = text.split_inclusive('\n').collect();
        let words: Vec<_> = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).collect();
        let damaged = match self {
            Self::Delete => return std::fs::remove_file(host.root().join(path)).unwrap(),
            Self::Truncate(index) => text[..at(index)].to_owned(),
            Self::DropLine(index) | Self::RepeatLine(index) if !lines.is_empty() => {
                let place = index.index(lines.len());
                let count = if matches!(self, Self::DropLine(_)) { 0 } else { 2 };
                let repeated = |(at, line): (usize, &&str)| line.repeat(if at == place { count } else { 1 });
                lines.iter().enumerate().map(repeated).collect()
            }
            Self::Exchange(one, other) if !words.is_empty() => {
                let place = one.get(&words).as_ptr() as usize - text.as_ptr() as usize;
                let word = one.get(&words);
                format!("{}{}{}", &text[..place], other.get(&words), &text[place + word.len()..])
            }
            Self::Insert(index, inserted) => {
                let (above, below) = text.split_at(at(index));
                format!("{above}{inserted}{below}")
            }
            Self::Replace(form) => (*form).to_owned(),
            Self::DropLine(_) | Self::RepeatLine(_) | Self::Exchange(..) => text.clone(),
        };
        host.write(path, &damaged);
    }
}

/// A copy of a host with two contexts, of which one had another owner before.
fn remembered() -> Host {
    static WHOLE: OnceLock<Host> = OnceLock::new();
    let whole = WHOLE.get_or_init(|| {
        let host = Host::library().file("migrations/0001_first.sql", "");
        for line in [
            "gen persistence conversations -s accounts::Scope",
            "gen persistence notes -t none --table-prefix notes_",
            "gen persistence conversations -t team --owner-id text --backfill 'a'",
        ] {
            let run = unformatted(&host, line);
            assert_eq!(run.code, 0, "{run:?}");
        }
        host
    });
    let host = Host::empty();
    for (path, bytes) in whole.files() {
        host.write(&path, std::str::from_utf8(&bytes).unwrap());
    }
    host
}
