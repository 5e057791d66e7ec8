//! Scripts on real databases, and what is found there between them. The clients of the databases carry them out:
//! `sqlite3` and `psql`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

#[path = "../../crates/sagents/tests/support/postgres.rs"]
mod postgres;

pub enum Real {
    Sqlite,
    Postgres(postgres::Database),
}

/// An empty place of one's own there.
pub struct Session<'a> {
    real: &'a Real,
    /// Of the database, where it is a file.
    directory: TempDir,
    /// Where there are schemas.
    schema: String,
}

impl Real {
    pub fn postgres() -> Self {
        Self::Postgres(postgres::Database::new())
    }

    pub fn open(&self) -> Session<'_> {
        static SESSIONS: AtomicU32 = AtomicU32::new(0);
        let schema = format!("session_{}", SESSIONS.fetch_add(1, Ordering::Relaxed));
        Session { real: self, directory: tempfile::tempdir().unwrap(), schema }
    }
}

impl Session<'_> {
    /// Carries out a script; returns the rows of its last statement.
    pub fn run(&self, script: &str) -> Result<String, String> {
        match self.real {
            Real::Sqlite => self.run_on_sqlite(script),
            Real::Postgres(server) => {
                let schema = &self.schema;
                server.try_query(&format!(
                    "SET client_min_messages TO warning;\nCREATE SCHEMA IF NOT EXISTS {schema};\n\
                     SET search_path TO {schema};\n{script}"
                ))
            }
        }
    }

    fn run_on_sqlite(&self, script: &str) -> Result<String, String> {
        let mut sqlite = Command::new("sqlite3");
        sqlite.args(["-batch", "-bail"]).arg(self.directory.path().join("database"));
        sqlite.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = sqlite.spawn().expect("sqlite3 is installed");
        let script = format!("PRAGMA foreign_keys = ON;\nPRAGMA synchronous = OFF;\n{script}\n");
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    pub fn story(&self) -> Story<'_> {
        let text = "DROP TABLE IF EXISTS notes;\nCREATE TABLE notes (step TEXT NOT NULL, line TEXT NOT NULL);\n";
        Story { session: self, text: text.to_owned() }
    }
}

/// Scripts, and notes between them. They run in one go: starting a client is what takes the time.
pub struct Story<'a> {
    session: &'a Session<'a>,
    text: String,
}

impl Story<'_> {
    /// Carries out a script in a transaction.
    pub fn run(&mut self, script: &str) {
        self.text.extend(["BEGIN;\n", script, "\n;COMMIT;\n"]);
    }

    /// Notes what the database knows of a table, up to the order of its columns.
    pub fn note_table(&mut self, step: &str, table: &str) {
        let query = match self.session.real {
            Real::Sqlite => SQLITE_TABLE,
            Real::Postgres(_) => POSTGRES_TABLE,
        };
        let query = query.replace("{{ table }}", table);
        self.note(step, &format!("SELECT '{table}: ' || line AS line FROM ({query}) AS lines"));
    }

    /// Notes the values of some columns.
    pub fn note_rows<'c>(&mut self, step: &str, table: &str, columns: impl Iterator<Item = &'c str>) {
        let literal = |column| match self.session.real {
            Real::Sqlite => format!("quote(\"{column}\")"),
            Real::Postgres(_) => format!("quote_nullable(\"{column}\"::text)"),
        };
        let columns: Vec<_> = columns.map(literal).collect();
        self.note(step, &format!("SELECT {} AS line FROM \"{table}\"", columns.join(" || ' ' || ")));
    }

    fn note(&mut self, step: &str, query: &str) {
        self.text.extend(["INSERT INTO notes SELECT '", step, "', line FROM (\n", query, "\n) AS found;\n"]);
    }

    /// Carries out all of it.
    pub fn play(self) -> Result<Notes, String> {
        let lines = self.session.run(&format!("{}SELECT step || '\t' || line FROM notes;", self.text))?;
        let mut notes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (step, line) in lines.lines().filter_map(|line| line.split_once('\t')) {
            let lines = notes.entry(step.to_owned()).or_default();
            match line.split_once(": CREATE TABLE") {
                Some((table, sql)) => lines.extend(checks(sql).iter().map(|check| format!("{table}: {check}"))),
                None => lines.push(line.to_owned()),
            }
        }
        for lines in notes.values_mut() {
            lines.sort();
        }
        Ok(Notes(notes))
    }
}

/// What was noted, by its step, as sorted lines.
#[derive(Debug, PartialEq)]
pub struct Notes(BTreeMap<String, Vec<String>>);

impl Notes {
    /// The difference of two steps, if there is one.
    pub fn same(&self, expected: &str, found: &str) -> Result<(), String> {
        let only = |sign: &str, here: &[String], there: &[String]| {
            let lines = here.iter().filter(|line| !there.contains(line)).map(|line| format!("{sign} {line}\n"));
            lines.collect::<Vec<_>>().concat()
        };
        let (one, other) = (&self.0[expected], &self.0[found]);
        if one == other {
            return Ok(());
        }
        Err(format!("{found} is not {expected}\n{}{}", only("-", one, other), only("+", other, one)))
    }

    /// Leaves out some lines of a step.
    pub fn leave_out(&mut self, step: &str, is_out: impl Fn(&str) -> bool) {
        self.0.get_mut(step).unwrap().retain(|line| !is_out(line));
    }

    /// Adds the steps of another story.
    pub fn add(&mut self, Self(steps): Self) {
        self.0.extend(steps);
    }
}

/// The conditions in the text of a table.
fn checks(sql: &str) -> Vec<String> {
    let parts = sql.split("CHECK (").skip(1);
    let condition = |part: &str| {
        let mut depth = 1;
        let end = part.find(|c| {
            depth += match c {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            depth == 0
        });
        format!("check {}", &part[..end.expect("parentheses are closed")])
    };
    parts.map(condition).collect()
}

const SQLITE_TABLE: &str = r#"
    SELECT name || ' ' || type || ' ' || coalesce(dflt_value, '') || ' key ' || pk || iif("notnull", ' required', '') AS line
    FROM pragma_table_xinfo('{{ table }}')
    UNION ALL
    SELECT 'options ' || wr || strict FROM pragma_table_list WHERE name = '{{ table }}'
    UNION ALL
    SELECT 'foreign key ' || (
        SELECT group_concat(k."from" || ' -> ' || k."to", ', ')
        FROM (SELECT * FROM pragma_foreign_key_list('{{ table }}') WHERE id = f.id ORDER BY seq) AS k
    ) || ' ' || f."table" || ' ' || f.on_delete
    FROM pragma_foreign_key_list('{{ table }}') AS f WHERE f.seq = 0
    UNION ALL
    SELECT 'index ' || iif(i.origin = 'c', i.name, i.origin) || iif(i."unique", ' unique (', ' (') || (
        SELECT group_concat(k.name || iif(k.desc, ' desc', ''), ', ')
        FROM (SELECT * FROM pragma_index_xinfo(i.name) WHERE key ORDER BY seqno) AS k
    ) || ') ' || i.partial
    FROM pragma_index_list('{{ table }}') AS i
    UNION ALL
    SELECT replace(sql, char(10), ' ') FROM sqlite_schema WHERE name = '{{ table }}'
"#;

const POSTGRES_TABLE: &str = "
    SELECT attname::text || ' ' || format_type(atttypid, atttypmod) || ' compression ' || attcompression::text || ' '
        || coalesce('DEFAULT ' || pg_get_expr(adbin, adrelid), '') || CASE WHEN attnotnull THEN ' required' ELSE '' END AS line
    FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE attrelid = '\"{{ table }}\"'::regclass AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
    WHERE conrelid = '\"{{ table }}\"'::regclass AND contype <> 'n'
    UNION ALL
    SELECT replace(pg_get_indexdef(indexrelid), current_schema() || '.', '') FROM pg_index WHERE indrelid = '\"{{ table }}\"'::regclass
";
