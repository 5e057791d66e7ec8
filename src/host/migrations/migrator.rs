//! The `Migrator` of sea-orm-migration: the file that lists a host's migrations in the order in which they run, and that
//! file with one more in its list.

use camino::{Utf8Path, Utf8PathBuf};
use proc_macro2::Span;
use syn::ext::IdentExt as _;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Expr, ExprMacro, ImplItemFn, ItemImpl, MacroDelimiter, Token};

use crate::failure::{Failure, Result};
use crate::host::modules;

/// A list of migrations in a file.
#[derive(Debug)]
pub struct Migrator {
    /// The modules of the migrations, in the order in which they run.
    pub modules: Vec<String>,
    list: Option<List>,
}

/// The elements of `vec![…]`, as places in the text.
#[derive(Debug)]
struct List {
    open: Span,
    close: Span,
    elements: Vec<Span>,
    comma: Option<Span>,
}

impl Migrator {
    /// Nothing if there is none in the file, or it cannot be parsed.
    pub fn read(text: &str) -> Option<Self> {
        if !text.contains("MigratorTrait") {
            return None;
        }
        let mut finder = Finder { inside: false, found: None };
        finder.visit_file(&syn::parse_file(text).ok()?);
        finder.found
    }

    /// Where the modules below the file are.
    pub fn directory(file: &Utf8Path) -> Utf8PathBuf {
        let parent = file.parent().unwrap_or(Utf8Path::new(""));
        match file.file_name() {
            Some("lib.rs" | "main.rs" | "mod.rs") => parent.to_owned(),
            _ => file.with_extension(""),
        }
    }

    /// The text with a migration behind the others of its list. Nothing if it is there.
    pub fn register(file: &Utf8Path, text: &str, module: &str) -> Result<Option<String>> {
        let plain = text.strip_prefix('\u{feff}').unwrap_or(text);
        modules::parse(file, plain)?;
        let found = Self::read(plain);
        if found.as_ref().is_some_and(|migrator| migrator.modules.iter().any(|other| other == module)) {
            return Ok(None);
        }
        let element = format!("Box::new({module}::Migration)");
        let Some(list) = found.and_then(|migrator| migrator.list) else {
            return Err(Failure::decision(format!(
                "{file}: `fn migrations()` has no `vec![…]` that lists the migrations"
            ))
            .help(format!(
                "write it as `vec![Box::new(…::Migration)]`, or run this with --no-wire and add `{element}` yourself"
            )));
        };
        let spliced = list.with(plain, &element);
        Ok(Some(format!("{}{spliced}", &text[..text.len() - plain.len()])))
    }
}

impl List {
    /// The text with an element behind the others. What is around them is kept, except for blanks: a list of one
    /// line without comments gets a line for each element.
    fn with(&self, text: &str, element: &str) -> String {
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let (open, close) = (self.open.byte_range().end, self.close.byte_range().start);
        let last = self.elements.last().map(Span::byte_range);
        let in_lines = last.as_ref().is_some_and(|last| text[open..last.start].contains('\n'));
        let indent = blanks(&text[line_start(text, open)..]);
        if !in_lines && !self.has_comments(text) {
            // The list was short enough for one line, and is not any longer.
            let elements = self.elements.iter().map(|span| &text[span.byte_range()]).chain([element]);
            let lines: Vec<_> = elements.map(|one| format!("{newline}{indent}    {one},")).collect();
            return format!("{}{}{newline}{indent}{}", &text[..open], lines.concat(), &text[close..]);
        }
        let comma = if last.is_some() && self.comma.is_none() { "," } else { "" };
        let end = self.comma.or(self.elements.last().copied()).map_or(open, |span| span.byte_range().end);
        let behind = &text[end..close];
        // A comment on the line of the last element is about that one.
        let kept = match behind.split_once('\n') {
            None => behind.trim_end().len(),
            Some((line, _)) if line.trim_start().starts_with("//") => line.trim_end().len(),
            Some(_) => 0,
        };
        let new = if text[open..close].contains('\n') {
            let beside = behind.lines().skip(1).find(|line| !line.trim().is_empty());
            let indent = match last.filter(|_| in_lines) {
                Some(last) => blanks(&text[line_start(text, last.start)..]).to_owned(),
                None => beside.map_or_else(|| format!("{indent}    "), |line| blanks(line).to_owned()),
            };
            format!("{newline}{indent}{element},")
        } else {
            format!(" {element}")
        };
        format!("{}{comma}{}{new}{}{}", &text[..end], &behind[..kept], &behind[kept..], &text[close..])
    }

    /// Whether there is something else than elements, commas and blanks.
    fn has_comments(&self, text: &str) -> bool {
        let starts = self.elements.iter().map(|span| span.byte_range().start).chain([self.close.byte_range().start]);
        let ends = [self.open].into_iter().chain(self.elements.iter().copied()).map(|span| span.byte_range().end);
        ends.zip(starts).any(|(end, start)| text[end..start].contains(|c: char| c != ',' && !c.is_whitespace()))
    }
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |end| end + 1)
}

/// What a line begins with.
fn blanks(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Finds the first `vec![…]` in `fn migrations()` of an `impl MigratorTrait`.
struct Finder {
    inside: bool,
    found: Option<Migrator>,
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let is_migrator = item.trait_.as_ref().and_then(|(path, _)| path.segments.last());
        if is_migrator.is_some_and(|name| name.ident == "MigratorTrait") {
            self.found.get_or_insert(Migrator { modules: Vec::new(), list: None });
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.inside = item.sig.ident == "migrations";
        visit::visit_impl_item_fn(self, item);
        self.inside = false;
    }

    fn visit_expr_macro(&mut self, item: &'ast ExprMacro) {
        let Some(migrator) = self.found.as_mut().filter(|found| self.inside && found.list.is_none()) else { return };
        let MacroDelimiter::Bracket(bracket) = &item.mac.delimiter else { return };
        if !item.mac.path.is_ident("vec") {
            return;
        }
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        let Ok(elements) = item.mac.parse_body_with(parser) else { return };
        migrator.modules = elements.iter().filter_map(module).collect();
        migrator.list = Some(List {
            open: bracket.span.open(),
            close: bracket.span.close(),
            comma: elements.pairs().next_back().and_then(|pair| pair.punct().map(Spanned::span)),
            elements: elements.iter().map(Spanned::span).collect(),
        });
    }
}

/// `Box::new(m20240101_000001_users::Migration)`
fn module(element: &Expr) -> Option<String> {
    let Expr::Call(call) = element else { return None };
    let path = match call.args.first()? {
        Expr::Path(path) => &path.path,
        Expr::Struct(item) => &item.path,
        _ => return None,
    };
    let mut segments = path.segments.iter().rev();
    let _type = segments.next()?;
    Some(segments.next()?.ident.unraw().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered(list: &str) -> String {
        let text = format!(
            "pub struct Migrator;\n\nimpl MigratorTrait for Migrator {{\n    fn migrations() -> Vec<Box<dyn \
             MigrationTrait>> {{\n        {list}\n    }}\n}}\n"
        );
        let new = Migrator::register(Utf8Path::new("lib.rs"), &text, "m2_b").unwrap().unwrap();
        assert_eq!(Migrator::register(Utf8Path::new("lib.rs"), &new, "m2_b").unwrap(), None);
        let start = text.find(list).unwrap();
        new[start..new.len() - "\n    }\n}\n".len()].to_owned()
    }

    #[test]
    fn a_migration_is_put_behind_the_others() {
        insta::assert_snapshot!(registered("vec![Box::new(m1_a::Migration)]"), @"
        vec![
                    Box::new(m1_a::Migration),
                    Box::new(m2_b::Migration),
                ]
        ");
        insta::assert_snapshot!(registered("vec![]"), @"
        vec![
                    Box::new(m2_b::Migration),
                ]
        ");
        let loco = "vec![\n            Box::new(m1_a::Migration),\n            // inject-above\n        ]";
        insta::assert_snapshot!(registered(loco), @"
        vec![
                    Box::new(m1_a::Migration),
                    Box::new(m2_b::Migration),
                    // inject-above
                ]
        ");
        let no_comma = "vec![\n            Box::new(m1_a::Migration) // first\n        ]";
        insta::assert_snapshot!(registered(no_comma), @"
        vec![
                    Box::new(m1_a::Migration), // first
                    Box::new(m2_b::Migration),
                ]
        ");
    }

    #[test]
    fn comments_in_a_list_stay_where_they_are() {
        let lists = [
            "vec![\n            // inject-above (do not remove this comment)\n        ]",
            "vec![ // none yet\n        ]",
            "vec![/* none yet */]",
            "vec![Box::new(m1_a::Migration) /* first */]",
            "vec![/* first */ Box::new(m1_a::Migration), ]",
            "vec![Box::new(m0::Migration), Box::new(m1_a::Migration), // both\n            // inject-above\n        ]",
            "vec![\n            Box::new(m1_a::Migration), // first\n            // inject-above\n        ]",
            "vec![\n            Box::new(m1_a::Migration) /* first\n            one */\n        ]",
        ];
        insta::assert_snapshot!(lists.map(registered).join("\n\n"), @"
        vec![
                    Box::new(m2_b::Migration),
                    // inject-above (do not remove this comment)
                ]

        vec![ // none yet
                    Box::new(m2_b::Migration),
                ]

        vec![/* none yet */ Box::new(m2_b::Migration)]

        vec![Box::new(m1_a::Migration), /* first */ Box::new(m2_b::Migration)]

        vec![/* first */ Box::new(m1_a::Migration), Box::new(m2_b::Migration) ]

        vec![Box::new(m0::Migration), Box::new(m1_a::Migration), // both
                    Box::new(m2_b::Migration),
                    // inject-above
                ]

        vec![
                    Box::new(m1_a::Migration), // first
                    Box::new(m2_b::Migration),
                    // inject-above
                ]

        vec![
                    Box::new(m1_a::Migration),
                    Box::new(m2_b::Migration), /* first
                    one */
                ]
        ");
    }

    #[test]
    fn a_list_keeps_the_ends_of_its_lines() {
        let list = "vec![\r\n            // inject-above\r\n        ]";
        let new = "vec![\r\n            Box::new(m2_b::Migration),\r\n            // inject-above\r\n        ]";
        assert_eq!(registered(list), new);
    }

    #[test]
    fn a_list_that_is_made_in_another_way_is_refused() {
        let text = "impl MigratorTrait for M { fn migrations() -> Vec<B> { all() } }";
        let refused = Migrator::register(Utf8Path::new("src/lib.rs"), text, "m2_b").unwrap_err();
        insta::assert_snapshot!(refused, @"
        src/lib.rs: `fn migrations()` has no `vec![…]` that lists the migrations
        help: write it as `vec![Box::new(…::Migration)]`, or run this with --no-wire and add `Box::new(m2_b::Migration)` yourself
        ");
    }
}
