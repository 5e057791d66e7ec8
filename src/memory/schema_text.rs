//! The text of `schema.json`: JSON with a line for each table's column, key and index, so that diffs are short.

use std::io::{self, Write};

use serde::Serialize as _;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use crate::schema::Schema;

pub fn schema_text(schema: &Schema) -> String {
    let mut text = Vec::new();
    schema.serialize(&mut Serializer::with_formatter(&mut text, Lines { depth: 0 })).expect("a schema is plain data");
    text.push(b'\n');
    String::from_utf8(text).expect("JSON is UTF-8")
}

/// Values up to this depth have lines of their own: a table, its fields, and the items of these.
const DEEPEST_LINES: usize = 4;

struct Lines {
    depth: usize,
}

impl Lines {
    fn begin_item<W: ?Sized + Write>(&self, writer: &mut W, first: bool) -> io::Result<()> {
        match (first, self.depth <= DEEPEST_LINES) {
            (true, false) => return Ok(()),
            (false, false) => return writer.write_all(b", "),
            (true, true) => {}
            (false, true) => writer.write_all(b",")?,
        }
        self.begin_line(writer)
    }

    fn begin_line<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        write!(writer, "\n{:1$}", "", 2 * self.depth)
    }

    fn open<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(bracket)
    }

    fn close<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.depth < DEEPEST_LINES {
            self.begin_line(writer)?;
        }
        writer.write_all(bracket)
    }
}

impl Formatter for Lines {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.begin_item(writer, first)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.begin_item(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
