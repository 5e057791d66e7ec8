//! Splices: text put into TOML at the place that `toml_edit` found, in the form that its surroundings have. Nothing
//! here knows what a dependency is.

use std::ops::Range;

use toml_edit::{Array, InlineTable, Item, Value};

use super::entry::strings;

/// Puts `key = value` into a table, whichever way that table is written. Between sorted keys it goes to its place.
pub(super) fn put(raw: &str, table: &Item, key: &str, value: &str) -> String {
    let span = span_of(table);
    if let Some(inline) = table.as_inline_table() {
        let prefix = if inline.is_dotted() { format!("{}.", &raw[span.clone()]) } else { String::new() };
        return match last_end(inline) {
            Some(end) => replace(raw, end..end, &format!(", {prefix}{key} = {value}")),
            None => replace(raw, span, &format!("{{ {key} = {value} }}")),
        };
    }
    let table = table.as_table().expect("a dependency table is a table");
    let lines: Vec<_> = table.iter().filter_map(|(name, item)| Some((name, end_of(item)?))).collect();
    let is_sorted = lines.is_sorted_by_key(|(name, _)| *name) && key != "features";
    let above = lines.iter().filter(|(name, _)| !is_sorted || *name < key).map(|(_, end)| *end).max();
    // A table with a header may be empty; one of dotted keys has a first key, and its lines all begin alike.
    let prefix = match lines.first().and_then(|(name, _)| table.key(name)?.span()) {
        Some(first) if table.is_dotted() => &raw[raw[..first.start].rfind('\n').map_or(0, |at| at + 1)..first.start],
        _ => "",
    };
    let above = above.unwrap_or(if table.is_dotted() { lines[0].1 } else { span.end });
    insert_line(raw, above, &format!("{prefix}{key} = {value}"))
}

/// The end of the last value of an item, if it has one outside of tables with headers of their own.
fn end_of(item: &Item) -> Option<usize> {
    match item {
        Item::Value(value) => end_of_value(value),
        Item::Table(table) if table.is_dotted() => table.iter().filter_map(|(_, item)| end_of(item)).max(),
        Item::Table(_) | Item::ArrayOfTables(_) | Item::None => None,
    }
}

fn end_of_value(value: &Value) -> Option<usize> {
    match value.as_inline_table() {
        Some(table) if table.is_dotted() => last_end(table),
        _ => value.span().map(|span| span.end),
    }
}

fn last_end(table: &InlineTable) -> Option<usize> {
    table.iter().filter_map(|(_, value)| end_of_value(value)).max()
}

/// Adds a line below the one that `position` is in.
fn insert_line(raw: &str, position: usize, line: &str) -> String {
    let newline = newline(raw);
    match raw[position..].find('\n') {
        Some(length) => {
            let start = position + length + 1;
            replace(raw, start..start, &format!("{line}{newline}"))
        }
        None => format!("{raw}{newline}{line}{newline}"),
    }
}

/// Adds strings to an array: on lines of their own if the last one has its own, else behind it.
pub(super) fn append(raw: &str, array: &Array, strings: &[&str]) -> String {
    let span = array.span().expect("a parsed array has a span");
    let quoted: Vec<_> = strings.iter().map(|string| format!("\"{string}\"")).collect();
    let Some(last) = array.iter().last().and_then(Value::span) else {
        return replace(raw, span.start + 1..span.start + 1, &quoted.join(", "));
    };
    let indent = &raw[raw[..last.start].rfind('\n').map_or(0, |at| at + 1)..last.start];
    if !indent.chars().all(char::is_whitespace) {
        return replace(raw, last.end..last.end, &format!(", {}", quoted.join(", ")));
    }
    let close = span.end - 1;
    let comma = if array.trailing_comma() { raw[last.end..close].find(',').map(|at| last.end + at + 1) } else { None };
    let behind = comma.unwrap_or(last.end);
    let newline = newline(raw);
    let end = raw[behind..close].find(newline).map_or(behind, |at| behind + at);
    let added = quoted.iter().map(|string| format!("{newline}{indent}{string}"));
    let added = added.collect::<Vec<_>>().join(",") + if comma.is_some() { "," } else { "" };
    // The last one so far gets its comma before a comment on its line.
    let text = replace(raw, end..end, &added);
    if comma.is_some() { text } else { replace(&text, last.end..last.end, ",") }
}

pub(super) fn list(features: &[&str]) -> String {
    let quoted: Vec<_> = features.iter().map(|feature| format!("\"{feature}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

pub(super) fn one_line(raw: &str, item: &Item) -> String {
    let text = &raw[span_of(item)];
    if !text.contains('\n') {
        return text.to_owned();
    }
    if let Some(table) = item.as_inline_table() {
        let fields = table.iter().map(|(key, value)| format!("{key} = {}", one_line(raw, &Item::Value(value.clone()))));
        return format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "));
    }
    list(&strings(Some(item)).iter().map(String::as_str).collect::<Vec<_>>())
}

pub(super) fn replace(raw: &str, span: Range<usize>, text: &str) -> String {
    format!("{}{text}{}", &raw[..span.start], &raw[span.end..])
}

pub(super) fn span_of(item: &Item) -> Range<usize> {
    item.span().expect("what was parsed has a span")
}

pub(super) fn newline(raw: &str) -> &'static str {
    if raw.contains("\r\n") { "\r\n" } else { "\n" }
}
