//! The SQL statements in the source of the generated store.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Every constant of a context that is an SQL statement, with the parts put in.
pub fn statements(context: &str) -> Vec<String> {
    let store = &Path::new("src").join(context).join("store");
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    let mut sources = vec![read(&store.with_extension("rs"))];
    sources.extend(
        fs::read_dir(store)
            .unwrap()
            .map(|entry| read(&entry.unwrap().path())),
    );
    let parts = sources.iter().flat_map(|source| parts(source)).collect();
    let constants = sources.iter().flat_map(|source| {
        let bodies = source.split(": &str =").skip(1);
        bodies.filter_map(|body| {
            let ends = ["\"#;", "\";", ");"].into_iter();
            Some(&body[..ends.filter_map(|end| body.find(end)).min()? + 2])
        })
    });
    let texts = constants.map(|body| text(body, &parts));
    let verbs = ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"];
    let texts = texts.filter(|text| verbs.iter().any(|verb| text.starts_with(verb)));
    // A constant may have several statements.
    let statements = texts.flat_map(|text| {
        let statements: Vec<_> = text.split(';').map(|text| text.trim().to_owned()).collect();
        statements
    });
    statements.collect()
}

/// The lists of columns and other parts of statements, by the macros that hold them.
fn parts(source: &str) -> impl Iterator<Item = (String, String)> {
    let macros = source.split("macro_rules! ").skip(1);
    macros.map(|text| {
        let (name, rest) = text.split_once(' ').unwrap();
        (format!("{name}!()"), literals(rest).remove(0))
    })
}

/// A literal, or what `concat!` makes of several.
fn text(body: &str, parts: &BTreeMap<String, String>) -> String {
    let mut body = body.to_owned();
    for (name, part) in parts {
        body = body.replace(name, &format!("r#\"{part}\"#"));
    }
    literals(&body).concat().trim().to_owned()
}

fn literals(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(start) = rest.find('"') {
        let end = if rest[..start].ends_with("r#") {
            "\"#"
        } else {
            "\""
        };
        let (literal, after) = rest[start + 1..].split_once(end).unwrap();
        found.push(literal.to_owned());
        rest = after;
    }
    found
}
