//! SQL that a reviewer reads: steps, each with a line that says what it does.

#[derive(Debug, Default)]
pub(super) struct Script {
    text: String,
}

impl Script {
    /// Adds statements, which end with their `;`. A step without any is none.
    pub fn step(&mut self, about: &str, statements: impl IntoIterator<Item = String>) {
        let statements: Vec<_> = statements.into_iter().collect();
        if statements.is_empty() {
            return;
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.extend(["-- ", about, "\n"]);
        for statement in statements {
            self.text.push_str(statement.trim_end());
            self.text.push('\n');
        }
    }

    pub fn finish(self) -> String {
        self.text
    }
}
