//! Where the modules of a host's crate live, and the `mod` lines that declare them. `syn` finds places; text is spliced
//! there, never printed back from a syntax tree, and a file that was formatted by rustfmt stays so.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use camino::{Utf8Path, Utf8PathBuf};
use proc_macro2::Span;
use syn::ext::IdentExt as _;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Attribute, Expr, ExprLit, Item, ItemMod, Lit, Meta, Token, Visibility};

use crate::failure::{Failure, Result};
use crate::names::Name;
use crate::tree::Tree;

/// How the host names the file of a module that has children: `chat.rs` beside `chat/`, or `chat/mod.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleStyle {
    Flat,
    ModRs,
}

/// The crate (target) of the host that gets the code.
#[derive(Debug, Clone)]
pub struct Crate {
    /// Relative to the package: `src/lib.rs`.
    pub root: Utf8PathBuf,
    pub library: bool,
    pub style: ModuleStyle,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    pub file: Utf8PathBuf,
    /// Where the files of its child modules live.
    pub directory: Utf8PathBuf,
    /// Whether other crates can reach it: the crate is a library and every `mod` on the way is `pub`.
    pub public: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Module(Module),
    /// `mod chat { … }` in this file: there is no file to put anything into.
    Inline {
        file: Utf8PathBuf,
    },
    /// The first `depth` segments are there and end at `parent`; the next one is not declared.
    Missing {
        parent: Module,
        depth: usize,
    },
}

/// A `mod` line to add.
#[derive(Debug, Clone, Copy)]
pub struct Declaration<'a> {
    pub name: &'a Name,
    pub public: bool,
}

/// The style that a crate already has; [`ModuleStyle::Flat`] if nothing shows one.
pub fn style(tree: &Tree, root: &Utf8Path) -> Result<ModuleStyle> {
    let files = tree.sources(directory_of(root))?;
    let has_mod_rs = files.iter().any(|file| file.file_name() == Some("mod.rs"));
    let is_flat = files.iter().any(|file| files.binary_search(&directory_of(file).with_extension("rs")).is_ok());
    Ok(if has_mod_rs && !is_flat { ModuleStyle::ModRs } else { ModuleStyle::Flat })
}

/// Follows `mod` declarations from the crate's root. What exists only under `cfg(test)` counts as not declared.
pub fn find(tree: &Tree, krate: &Crate, path: &[Name]) -> Result<Found> {
    Finder::new(tree, krate).find(path)
}

/// As [`find`], for several modules: each file is parsed once.
pub struct Finder<'a> {
    tree: &'a Tree,
    krate: &'a Crate,
    parsed: RefCell<BTreeMap<Utf8PathBuf, Rc<syn::File>>>,
}

impl<'a> Finder<'a> {
    pub fn new(tree: &'a Tree, krate: &'a Crate) -> Self {
        Self { tree, krate, parsed: RefCell::default() }
    }

    pub fn find(&self, path: &[Name]) -> Result<Found> {
        let directory = directory_of(&self.krate.root).to_owned();
        let mut module = Module { file: self.krate.root.clone(), directory, public: self.krate.library };
        for (depth, name) in path.iter().enumerate() {
            let source = self.source(&module.file)?;
            let declarations: Vec<_> = declarations(&source, name).filter(|item| !is_for_tests(&item.attrs)).collect();
            if declarations.is_empty() {
                return Ok(Found::Missing { parent: module, depth });
            }
            match follow(self.tree, &module, name, &declarations)? {
                Some(next) => module = next,
                None => return Ok(Found::Inline { file: module.file }),
            }
        }
        Ok(Found::Module(module))
    }

    fn source(&self, file: &Utf8Path) -> Result<Rc<syn::File>> {
        if let Some(source) = self.parsed.borrow().get(file) {
            return Ok(Rc::clone(source));
        }
        let text = self
            .tree
            .read(file)?
            .ok_or_else(|| Failure::usage(format!("{file} does not exist")).help("create it, or fix Cargo.toml"))?;
        let source = Rc::new(parse(file, &text)?);
        self.parsed.borrow_mut().insert(file.to_owned(), Rc::clone(&source));
        Ok(source)
    }
}

/// Where the file of a new child module goes.
pub fn new_file(krate: &Crate, parent: &Module, name: &Name) -> Utf8PathBuf {
    match krate.style {
        ModuleStyle::Flat => parent.directory.join(format!("{name}.rs")),
        ModuleStyle::ModRs => parent.directory.join(name.as_str()).join("mod.rs"),
    }
}

/// A new child module as [`find`] will see it once it is there.
pub fn child(krate: &Crate, parent: &Module, name: &Name, public: bool) -> Module {
    Module {
        file: new_file(krate, parent, name),
        directory: parent.directory.join(name.as_str()),
        public: public && parent.public,
    }
}

/// Adds a `mod` line: at its sorted place in a group of such lines, else above the items. Nothing if it is there.
pub fn declare(file: &Utf8Path, text: &str, declaration: &Declaration<'_>) -> Result<Option<String>> {
    let Declaration { name, public } = *declaration;
    let source = Source::parse(file, text)?;
    let mut same = declarations(&source.file, name).peekable();
    if same.peek().is_some() {
        if same.all(|item| is_for_tests(&item.attrs)) {
            return Err(Failure::usage(format!("{file}: `mod {}` is there for tests only", name.rust()))
                .help("give that module another name, or choose another one for the generated code"));
        }
        return Ok(None);
    }
    let line = format!("{}mod {};", if public { "pub " } else { "" }, name.rust());
    Ok(Some(match source.group(public) {
        Some(group) => source.insert_sorted(group, name, &line),
        None => source.insert_apart(source.externs(), &line),
    }))
}

/// Adds an item of one line, such as `extern crate db as sqlx;`, above all other items. Nothing if it is there.
pub fn declare_extern(file: &Utf8Path, text: &str, line: &str) -> Result<Option<String>> {
    let source = Source::parse(file, text)?;
    let wanted = parse(file, line)?.items;
    let is_there = wanted.iter().all(|item| source.file.items.contains(item));
    Ok((!is_there).then(|| source.insert_apart(0, line)))
}

/// A source file that does not parse is an error that names the place.
pub fn parse(file: &Utf8Path, text: &str) -> Result<syn::File> {
    syn::parse_file(text).map_err(|error| {
        let start = error.span().start();
        let reason = match error.to_string() {
            // The words of a lexer, which do not name the cause.
            words if words == "cannot parse string into token stream" => {
                "something here is not closed, or is no Rust at all".to_owned()
            }
            words => words,
        };
        Failure::usage(format!("{file}:{}:{}: {reason}", start.line, start.column + 1))
            .help(format!("fix {file}, then run this again"))
    })
}

fn directory_of(file: &Utf8Path) -> &Utf8Path {
    file.parent().unwrap_or(Utf8Path::new(""))
}

fn declarations<'a>(source: &'a syn::File, name: &Name) -> impl Iterator<Item = &'a ItemMod> {
    modules(&source.items).filter(move |item| item.ident.unraw() == name.as_str())
}

fn modules(items: &[Item]) -> impl Iterator<Item = &ItemMod> {
    items.iter().filter_map(|item| if let Item::Mod(item) = item { Some(item) } else { None })
}

/// The module behind the first of several `mod` items (alternatives under `cfg`) that has a file. Nothing if inline.
fn follow(tree: &Tree, parent: &Module, name: &Name, declarations: &[&ItemMod]) -> Result<Option<Module>> {
    let mut tried = Vec::new();
    for item in declarations {
        if item.content.is_some() {
            return Ok(None);
        }
        let public = parent.public && matches!(item.vis, Visibility::Public(_));
        for (file, directory) in places(parent, name, item) {
            if tree.is_file(&file) {
                return Ok(Some(Module { file, directory, public }));
            }
            tried.push(format!("`{file}`"));
        }
    }
    let (declared, tried) = (&parent.file, tried.join(" or "));
    Err(Failure::usage(format!("{declared} declares `mod {}`, but there is no {tried}", name.rust()))
        .help(format!("create the file, or remove the line from {declared}")))
}

/// The files that rustc would look for, each with the directory of its children.
fn places(parent: &Module, name: &Name, item: &ItemMod) -> Vec<(Utf8PathBuf, Utf8PathBuf)> {
    if let Some(path) = item.attrs.iter().find_map(path_attribute) {
        let file = clean(&directory_of(&parent.file).join(path));
        let directory = directory_of(&file).to_owned();
        return vec![(file, directory)];
    }
    let directory = parent.directory.join(name.as_str());
    vec![(parent.directory.join(format!("{name}.rs")), directory.clone()), (directory.join("mod.rs"), directory)]
}

/// `src/chat/../x.rs` is `src/x.rs`.
pub fn clean(path: &Utf8Path) -> Utf8PathBuf {
    path.components().fold(Utf8PathBuf::new(), |mut clean, component| {
        match component.as_str() {
            "." => {}
            ".." if clean.file_name().is_some_and(|name| name != "..") => drop(clean.pop()),
            name => clean.push(name),
        }
        clean
    })
}

fn path_attribute(attribute: &Attribute) -> Option<String> {
    match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a condition (`cfg`) keeps an item out of every build but that of tests.
pub(super) fn is_for_tests(attributes: &[Attribute]) -> bool {
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.filter_map(|attribute| attribute.parse_args::<Meta>().ok()).any(|condition| needs_test(&condition))
}

fn needs_test(condition: &Meta) -> bool {
    let Meta::List(list) = condition else { return condition.path().is_ident("test") };
    let Ok(inner) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) else { return false };
    match list.path.get_ident().map(ToString::to_string).as_deref() {
        Some("all") => inner.iter().any(needs_test),
        Some("any") => !inner.is_empty() && inner.iter().all(needs_test),
        _ => false,
    }
}

/// The modules in files of their own that are declared for tests only.
pub(super) fn test_modules(text: &str) -> impl Iterator<Item = String> {
    const FOR_TESTS: &str = "#[cfg(test)]";
    text.match_indices(FOR_TESTS).filter_map(|(at, attribute)| {
        let is_alone = |rest: Option<&str>| rest.is_none_or(|rest| rest.trim().is_empty());
        let (before, behind) = (text[..at].rsplit('\n').next(), &text[at + attribute.len()..]);
        let mut lines = behind.lines();
        if !is_alone(before) || !is_alone(lines.next()) {
            return None;
        }
        let line = lines.next()?.trim();
        let name = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?.strip_suffix(';')?;
        Some(name.to_owned())
    })
}

/// Whether a file belongs to one of these modules, by its name.
pub(super) fn is_in_any(file: &Utf8Path, modules: &[String]) -> bool {
    let names = [file.file_stem(), file.parent().and_then(Utf8Path::file_name)];
    modules.iter().any(|module| names.contains(&Some(module.as_str())))
}

/// A file with the places of its items in the text.
struct Source<'a> {
    text: &'a str,
    file: syn::File,
    /// What `syn` skips before it counts: a byte order mark, a `#!` line.
    skipped: usize,
    /// The end of what must stay on top: that `#!` line, inner attributes, inner documentation.
    top: Option<usize>,
    /// Items with their attributes and documentation, without the comments above.
    spans: Vec<Range<usize>>,
}

impl<'a> Source<'a> {
    fn parse(path: &Utf8Path, text: &'a str) -> Result<Self> {
        let file = parse(path, text)?;
        let mark = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let skipped = mark + file.shebang.as_ref().map_or(0, String::len);
        let place = |span: Span| {
            let range = span.byte_range();
            range.start + skipped..range.end + skipped
        };
        let attributes = file.attrs.iter().map(|attribute| place(attribute.span()).end);
        let top = attributes.chain(file.shebang.is_some().then_some(skipped)).max();
        let spans = file.items.iter().map(|item| place(item.span())).collect();
        Ok(Self { text, file, skipped, top, spans })
    }

    /// The group of `mod` lines that a new one joins, as a range of items: the last one of the same visibility, else the
    /// last one. A group that is there for tests only is none.
    fn group(&self, public: bool) -> Option<Range<usize>> {
        let groups = self.groups();
        let has = |group: &&Range<usize>, test: &dyn Fn(&ItemMod) -> bool| {
            modules(&self.file.items[(*group).clone()]).any(|item| !is_for_tests(&item.attrs) && test(item))
        };
        let same = |item: &ItemMod| matches!(item.vis, Visibility::Public(_)) == public;
        let last_of = |test: &dyn Fn(&ItemMod) -> bool| groups.iter().rev().find(|group| has(group, test)).cloned();
        last_of(&same).or_else(|| last_of(&|_| true))
    }

    /// Runs of `mod` lines without a blank line between them.
    fn groups(&self) -> Vec<Range<usize>> {
        let mut groups: Vec<Range<usize>> = Vec::new();
        for (index, item) in self.file.items.iter().enumerate() {
            if !is_line(item) {
                continue;
            }
            match groups.last_mut() {
                Some(group) if group.end == index && !self.above(index).has_blank_line() => group.end += 1,
                _ => groups.push(index..index + 1),
            }
        }
        groups
    }

    /// How many `extern crate` items lead the file.
    fn externs(&self) -> usize {
        self.file.items.iter().take_while(|item| matches!(item, Item::ExternCrate(_))).count()
    }

    /// rustfmt sorts by the bare name, without `r#` and whatever the visibility.
    fn insert_sorted(&self, group: Range<usize>, name: &Name, line: &str) -> String {
        let later = |index: &usize| match &self.file.items[*index] {
            Item::Mod(item) => item.ident.unraw().to_string().as_str() > name.as_str(),
            _ => false,
        };
        let newline = self.newline();
        if let Some(next) = group.clone().find(later) {
            let (above, below) = self.text.split_at(self.above(next).attached());
            return format!("{above}{line}{newline}{below}");
        }
        let gap = self.above(group.end);
        // The last line of a file may lack its end, and two items may share a line.
        let (at, end) = gap.first_line().map_or((gap.start + gap.text.len(), newline), |start| (start, ""));
        let (above, below) = self.text.split_at(at);
        format!("{above}{end}{line}{newline}{below}")
    }

    /// Puts a line above an item and its comments, with a blank line on either side.
    fn insert_apart(&self, index: usize, line: &str) -> String {
        let (above, below) = self.text.split_at(self.above(index).attached());
        let (above, below) = (above.trim_end(), below.trim_start_matches(['\r', '\n']));
        let newline = self.newline();
        let before = if above.trim_start_matches('\u{feff}').is_empty() { String::new() } else { newline.repeat(2) };
        let after = if below.is_empty() { "" } else { newline };
        format!("{above}{before}{line}{newline}{after}{below}")
    }

    /// What is between an item and the one before it. Behind the last item that is the rest of the file.
    fn above(&self, index: usize) -> Gap<'a> {
        let behind = if index == 0 { self.top } else { Some(self.spans[index - 1].end) };
        let start = behind.unwrap_or(self.skipped);
        let end = self.spans.get(index).map_or(self.text.len(), |span| span.start);
        Gap {
            text: &self.text[start..end],
            start,
            opens_file: behind.is_none(),
            closes_file: index == self.spans.len(),
        }
    }

    fn newline(&self) -> &'static str {
        if self.text.contains("\r\n") { "\r\n" } else { "\n" }
    }
}

/// `mod name;` that rustfmt may move.
fn is_line(item: &Item) -> bool {
    let Item::Mod(item) = item else { return false };
    item.content.is_none() && !item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_use"))
}

/// Blanks and comments between two items.
struct Gap<'a> {
    text: &'a str,
    start: usize,
    opens_file: bool,
    closes_file: bool,
}

impl Gap<'_> {
    /// Where the comments begin that belong to the item below: those without a blank line between them and the item.
    /// A licence at the top of a file belongs to none.
    fn attached(&self) -> usize {
        let starts = self.line_starts();
        let Some(first) = starts.first() else { return self.start + self.text.len() };
        let blank = starts.windows(2).rev().find(|pair| self.text[pair[0]..pair[1]].trim().is_empty());
        let attached = match blank {
            _ if self.closes_file => self.text.len(),
            Some(pair) => pair[1],
            None if self.opens_file && is_licence(self.text) => self.text.len(),
            None => *first,
        };
        self.start + attached
    }

    fn has_blank_line(&self) -> bool {
        self.line_starts().windows(2).any(|pair| self.text[pair[0]..pair[1]].trim().is_empty())
    }

    /// The start of the line below the item above.
    fn first_line(&self) -> Option<usize> {
        self.line_starts().first().map(|start| self.start + start)
    }

    /// The starts of lines, of those that do not start inside a comment.
    fn line_starts(&self) -> Vec<usize> {
        let mut starts = if self.opens_file { vec![0] } else { Vec::new() };
        let mut depth = 0_usize;
        let mut rest = self.text;
        while let Some(next) = rest.chars().next() {
            let length = match rest.get(..2) {
                Some("/*") => {
                    depth += 1;
                    2
                }
                Some("*/") => {
                    depth = depth.saturating_sub(1);
                    2
                }
                Some("//") if depth == 0 => rest.find('\n').unwrap_or(rest.len()),
                _ => next.len_utf8(),
            };
            rest = &rest[length..];
            if next == '\n' && depth == 0 {
                starts.push(self.text.len() - rest.len());
            }
        }
        starts
    }
}

fn is_licence(comment: &str) -> bool {
    let comment = comment.to_lowercase();
    ["copyright", "license", "licence", "spdx"].iter().any(|word| comment.contains(word))
}
