//! A page of Markdown: its headings, links, comments and fenced blocks.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

pub struct Page {
    /// Its path in the repository.
    pub name: String,
    pub text: String,
}

/// A fenced block.
pub struct Block {
    /// Empty if none is given.
    pub language: String,
    pub text: String,
    /// The heading above it.
    pub section: String,
}

/// A block of a page that changes a file.
pub struct Edit {
    pub path: String,
    /// In the order of the file.
    pub hunks: Vec<Hunk>,
}

/// Lines of a file, and the lines that replace them.
#[derive(Default)]
pub struct Hunk {
    pub old: String,
    pub new: String,
}

impl Edit {
    /// The text of the file after it.
    pub fn apply(&self, text: &str) -> String {
        let (mut edited, mut rest) = (String::new(), text);
        for Hunk { old, new } in &self.hunks {
            let parts = rest.split_once(old.as_str());
            let (before, after) = parts.unwrap_or_else(|| panic!("{} has no\n{old}", self.path));
            edited += before;
            edited += new;
            rest = after;
        }
        edited + rest
    }
}

impl Block {
    /// The path in the comment on the first line.
    pub fn path(&self) -> Option<&str> {
        let first = self.text.lines().next()?;
        let path = ["// ", "-- ", "# "].iter().find_map(|comment| first.strip_prefix(comment))?;
        Some(path).filter(|path| path.contains('.') && !path.contains(' '))
    }

    /// What a `diff` does to the file that its first line names. Lines with `@@` separate its hunks.
    pub fn edit(&self) -> Option<Edit> {
        let mut hunks = vec![Hunk::default()];
        for line in self.text.lines().skip(1) {
            if line.starts_with("@@") {
                hunks.push(Hunk::default());
                continue;
            }
            let (mark, text) = if line.is_empty() { (" ", "") } else { line.split_at_checked(1)? };
            let hunk = hunks.last_mut()?;
            for side in [(" -", &mut hunk.old), (" +", &mut hunk.new)] {
                if side.0.contains(mark) {
                    side.1.extend([text, "\n"]);
                }
            }
        }
        let is_edit = self.language == "diff" && hunks.iter().all(|hunk| hunk.old != hunk.new);
        is_edit.then_some(Edit { path: self.path()?.to_owned(), hunks })
    }
}

/// What a page has one after the other.
pub enum Part {
    Block(Block),
    /// The text of an HTML comment.
    Comment(String),
    Heading(String),
    Link(String),
}

/// README.md, the other pages of the top directory, and docs/.
pub fn pages() -> Vec<Page> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = |directory: &str| {
        let entries = fs::read_dir(root.join(directory)).unwrap().map(|entry| entry.unwrap().path());
        let paths = entries.filter(|path| path.extension() == Some(OsStr::new("md")));
        let names = paths.map(|path| format!("{directory}{}", path.file_name().unwrap().to_str().unwrap()));
        names.collect::<BTreeSet<_>>()
    };
    let names = files("").into_iter().chain(files("docs/"));
    names.map(|name| Page { text: fs::read_to_string(root.join(&name)).unwrap(), name }).collect()
}

impl Page {
    pub fn blocks(&self) -> impl Iterator<Item = Block> {
        self.parts().into_iter().filter_map(|part| if let Part::Block(block) = part { Some(block) } else { None })
    }

    pub fn links(&self) -> impl Iterator<Item = String> {
        self.parts().into_iter().filter_map(|part| if let Part::Link(link) = part { Some(link) } else { None })
    }

    /// What a link to a heading has behind its `#`, as code hosts and mdBook write it.
    pub fn anchors(&self) -> BTreeSet<String> {
        let mut anchors = BTreeSet::new();
        for part in self.parts() {
            let Part::Heading(heading) = part else { continue };
            let lower = heading.to_lowercase();
            let kept = lower.chars().filter(|letter| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter));
            let anchor: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
            let numbered = (1..).map(|number| format!("{anchor}-{number}"));
            let free = std::iter::once(anchor.clone()).chain(numbered).find(|anchor| !anchors.contains(anchor));
            anchors.extend(free);
        }
        anchors
    }

    /// The path of a file that the page names relative to itself.
    pub fn beside(&self, file: &str) -> String {
        let mut names: Vec<&str> = self.name.split('/').collect();
        names.pop();
        for name in file.split('/') {
            match name {
                ".." if names.last().is_some_and(|name| *name != "..") => {
                    names.pop();
                }
                "." | "" => {}
                name => names.push(name),
            }
        }
        names.join("/")
    }

    pub fn parts(&self) -> Vec<Part> {
        let (mut parts, mut section) = (Vec::new(), String::new());
        // The text of the heading or block that is open, and the language of a block.
        let (mut open, mut language) = (None::<String>, String::new());
        for event in Parser::new_ext(&self.text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Heading { level, .. }) if level <= HeadingLevel::H6 => open = Some(String::new()),
                Event::Start(Tag::CodeBlock(kind)) => {
                    open = Some(String::new());
                    language = match kind {
                        CodeBlockKind::Fenced(language) => language.into_string(),
                        CodeBlockKind::Indented => String::new(),
                    };
                }
                Event::Start(Tag::HtmlBlock) => open = Some(String::new()),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    parts.push(Part::Link(dest_url.into_string()));
                }
                Event::Text(text) | Event::Code(text) | Event::Html(text) => {
                    if let Some(open) = &mut open {
                        open.push_str(&text);
                    }
                }
                Event::End(TagEnd::Heading(_)) => {
                    section = open.take().unwrap_or_default();
                    parts.push(Part::Heading(section.clone()));
                }
                Event::End(TagEnd::CodeBlock) => {
                    let (text, language) = (open.take().unwrap_or_default(), std::mem::take(&mut language));
                    parts.push(Part::Block(Block { language, text, section: section.clone() }));
                }
                Event::End(TagEnd::HtmlBlock) => {
                    let html = open.take().unwrap_or_default();
                    let comments = html.split("<!--").skip(1).filter_map(|comment| comment.split("-->").next());
                    parts.extend(comments.map(|comment| Part::Comment(comment.trim().to_owned())));
                }
                _ => {}
            }
        }
        parts
    }
}

/// A text without times and ids.
pub fn redacted(text: &str) -> String {
    // `0` stands for a digit, `x` for one of a hexadecimal number.
    const REDACTED: [(&str, &str); 4] = [
        ("[time]", "00000000000000"),
        ("[time]", "0000-00-00 00:00:00"),
        ("[time]", "0000-00-00T00:00:00"),
        ("[id]", "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"),
    ];
    let is_like = |text: &str, pattern: &str| {
        let matches = |(letter, like): (char, char)| match like {
            '0' => letter.is_ascii_digit(),
            'x' => letter.is_ascii_hexdigit(),
            like => letter == like,
        };
        text.chars().count() >= pattern.len() && text.chars().zip(pattern.chars()).all(matches)
    };
    let (mut rest, mut redacted) = (text, String::new());
    while let Some(letter) = rest.chars().next() {
        let (length, shown) = match REDACTED.iter().find(|(_, pattern)| is_like(rest, pattern)) {
            Some((name, pattern)) => (pattern.len(), (*name).to_owned()),
            None => (letter.len_utf8(), letter.to_string()),
        };
        redacted += &shown;
        rest = &rest[length..];
    }
    redacted
}
