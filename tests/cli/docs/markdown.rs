//! A page of Markdown: its headings, links, comments and fenced blocks.

use std::collections::BTreeSet;
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

/// What a page has one after the other.
pub enum Part {
    Block(Block),
    /// The text of an HTML comment.
    Comment(String),
    Heading(String),
    Link(String),
}

impl Page {
    pub fn read(directory: &Path, name: String) -> Self {
        let text = fs::read_to_string(directory.join(&name)).unwrap();
        Self { name, text }
    }

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
