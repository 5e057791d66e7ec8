//! The SQL statements in the source of the generated store.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Every constant of a context that is an SQL statement or has several, with the parts put in.
pub fn statements(context: &str) -> Vec<String> {
    let store = &Path::new("src").join(context).join("store");
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    let mut sources = vec![read(&store.with_extension("rs"))];
    sources.extend(
        fs::read_dir(store)
            .unwrap()
            .map(|entry| read(&entry.unwrap().path())),
    );
    let shared = sources.iter().flat_map(|source| macros(source)).collect();
    let texts = sources.iter().flat_map(|source| {
        // Files have macros of the same name.
        let mut macros: Macros<'_> = BTreeMap::clone(&shared);
        macros.extend(self::macros(source));
        let constants = source.split("const ").skip(1);
        let values = constants.filter_map(|text| Some(text.split_once(" =")?.1));
        values
            .flat_map(|value| Reader::new(value, &macros).constant())
            .collect::<Vec<_>>()
    });
    let verbs = ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"];
    let texts = texts.map(|text| text.trim().to_owned());
    let texts = texts.filter(|text| verbs.iter().any(|verb| text.starts_with(verb)));
    // A constant may have several statements.
    let statements = texts.flat_map(|text| {
        let statements: Vec<_> = text.split(';').map(|text| text.trim().to_owned()).collect();
        statements
    });
    statements.collect()
}

/// The ends of the names of the indexes that a list of conversations has to be read from: none if it
/// is in the order of the table's key, or if the statement is not a list.
pub fn list_indexes(statement: &str) -> Vec<String> {
    let mut indexes = Vec::new();
    for (condition, name) in [("IS NULL", "active"), ("IS NOT NULL", "archived")] {
        let has = |next: &str| {
            let texts =
                ["c", "d"].map(|t| format!("archived_at {condition} AND {}", next.replace('_', t)));
            texts.iter().any(|text| statement.contains(text.as_str()))
        };
        if has("(_.updated") {
            indexes.push(format!("_conversations_{name}"));
        }
        if has("_.id ") {
            indexes.push(format!("_conversations_{name}_id"));
        }
    }
    indexes
}

/// The names of the parameters, and the text behind the opening brace.
type Macros<'a> = BTreeMap<&'a str, (Vec<&'a str>, &'a str)>;

/// The macros that hold lists of columns, parts of statements, or whole ones.
fn macros(source: &str) -> impl Iterator<Item = (&str, (Vec<&str>, &str))> {
    let macros = source.split("macro_rules! ").skip(1);
    macros.map(|text| {
        let (name, rest) = text.split_once(" {").unwrap();
        let (pattern, body) = rest.split_once("=>").unwrap();
        let parameters = pattern.split('$').skip(1);
        let parameters = parameters.map(|text| text.split_once(':').unwrap().0);
        (
            name,
            (parameters.collect(), body.split_once('{').unwrap().1),
        )
    })
}

/// Reads texts as the compiler puts them together.
struct Reader<'a> {
    rest: &'a str,
    macros: &'a Macros<'a>,
    arguments: BTreeMap<&'a str, String>,
}

impl<'a> Reader<'a> {
    fn new(rest: &'a str, macros: &'a Macros<'a>) -> Self {
        Self {
            rest,
            macros,
            arguments: BTreeMap::new(),
        }
    }

    /// The texts of a constant: none if it is something else.
    fn constant(&mut self) -> Vec<String> {
        if let Some(text) = self.text() {
            return text;
        }
        // A struct of texts.
        let mut texts = Vec::new();
        if self.take_while(char::is_alphanumeric).is_empty() || !self.take("{") {
            return texts;
        }
        while !self.take("}") {
            self.take_while(|c| c.is_alphanumeric() || c == '_');
            if !self.take(":") {
                break;
            }
            let Some(text) = self.text() else { break };
            texts.extend(text);
            self.take(",");
        }
        texts
    }

    fn text(&mut self) -> Option<Vec<String>> {
        for (start, end) in [("r#\"", "\"#"), ("\"", "\"")] {
            if self.take(start) {
                let (literal, rest) = self.rest.split_once(end)?;
                self.rest = rest;
                return Some(vec![literal.to_owned()]);
            }
        }
        if self.take("$") {
            let name = self.take_while(char::is_alphanumeric);
            return Some(vec![self.arguments.get(name)?.clone()]);
        }
        let before = self.rest;
        let name = self.take_while(|c| c.is_alphanumeric() || c == '_');
        if name.is_empty() || !self.take("!(") {
            self.rest = before;
            return None;
        }
        let mut arguments = Vec::new();
        while !self.take(")") {
            arguments.push(self.text()?.concat());
            self.take(",");
        }
        if name == "concat" {
            return Some(vec![arguments.concat()]);
        }
        let (parameters, body) = self.macros.get(name)?;
        let mut inner = Self::new(body, self.macros);
        inner.arguments = parameters.iter().copied().zip(arguments).collect();
        Some(inner.constant())
    }

    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let text = self.rest.trim_start();
        let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
        self.rest = &text[end..];
        &text[..end]
    }
}
