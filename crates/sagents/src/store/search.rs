//! The call that searches display messages.

use tracing::instrument;
use uuid::Uuid;

use super::{Store, with_driver};
use crate::page::{is_cut, rows_to_read};
use crate::values::clean_text;
use crate::{DisplayMessage, Error, OwnerScope, Page, Result, SearchPage, Timestamp};

/// The words of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Words {
    /// For `LIKE` or `ILIKE`, which rule most messages out. It's the beginning of the longest word.
    pub(crate) like: String,
    /// Every one must occur.
    pub(crate) all: Vec<String>,
}

/// The position that a page of results starts behind: time, conversation and sequence.
pub(crate) type Found = (Timestamp, Uuid, i64);

impl Store {
    /// Returns a page of the display messages that contain all words of a text, newest first. It searches the content of
    /// messages and the arguments of tool calls. A conversation whose title has all words is found by its first message.
    ///
    /// Words are separated by spaces and match inside longer ones. `"double quotes"` keep words together. Case is
    /// ignored, wildcards have no meaning. A page of large messages ends at [`SearchPage::MAX_BYTES`], before its limit.
    ///
    /// A search reads all messages that the scope reaches. So it's limited: each caller has one at a time, all together
    /// use a quarter of the connections, and one that takes more than a few seconds is interrupted.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the text has more than 200 characters, the limit is 0 or above [`SearchPage::MAX_LIMIT`], or
    /// the cursor belongs to another list; [`Error::Database`] if the search takes too long.
    #[instrument(level = "debug", target = "sagents", skip_all, fields(sagents.tables = self.tables().prefix()))]
    pub async fn search_messages(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        text: &str,
        page: SearchPage,
    ) -> Result<Page<DisplayMessage>> {
        const LONGEST: usize = 200;

        let reach = scope.reach()?;
        if text.chars().count() > LONGEST {
            return Err(Error::Invalid(format!("a search text has at most {LONGEST} characters")));
        }
        let (words, start) = (Words::of(text), page.start()?);
        let mut read = rows_to_read(page.limit, SearchPage::MAX_LIMIT)?;
        loop {
            let found = with_driver!(self, driver => driver.search_messages(&reach, &words, start, read).await?);
            let (rows, fit) = found.into_parts();
            let limit = page.limit.min(fit);
            if !is_cut(&rows, limit, read.into(), DisplayMessage::found) {
                return Ok(Page::new(rows, limit, DisplayMessage::found));
            }
            read = read.saturating_mul(2);
        }
    }
}

impl Words {
    fn of(text: &str) -> Self {
        let text = clean_text(text);
        let mut all = Vec::new();
        for (index, part) in text.split('"').enumerate() {
            if index % 2 == 0 {
                all.extend(part.split_whitespace().map(str::to_owned));
            } else if !part.is_empty() {
                all.push(part.to_owned());
            }
        }
        let longest = all.iter().max_by_key(|word| word.chars().count());
        Self { like: like_pattern(longest.map_or("", String::as_str)), all }
    }
}

/// A pattern that ignores the case of ASCII letters only: other letters that have a case match anything. It has only the
/// beginning of a word: the time it takes grows with its length, and `PostgreSQL` can't cancel it within a message.
fn like_pattern(word: &str) -> String {
    let mut pattern = String::from("%");
    for c in word.chars().take(16) {
        match c {
            '%' | '_' | '\\' => pattern.extend(['\\', c]),
            _ if !c.is_ascii() && has_cases(c) => pattern.push('_'),
            _ => pattern.push(c),
        }
    }
    pattern.push('%');
    pattern
}

pub(crate) fn has_cases(c: char) -> bool {
    cases(c).len() > c.len_utf8()
}

/// A letter with its other case, if that's a single letter, too.
pub(crate) fn cases(c: char) -> String {
    let mut cases = String::from(c);
    for other in [c.to_lowercase().to_string(), c.to_uppercase().to_string()] {
        if other.chars().count() == 1 && !cases.contains(&other) {
            cases += &other;
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_into_words_and_quoted_phrases() {
        let words = |text| Words::of(text).all;
        assert_eq!(words(" postcard\tlisbon "), ["postcard", "lisbon"]);
        assert_eq!(words(r#"a "to the sea" b"#), ["a", "to the sea", "b"]);
        assert_eq!(words(r#"an "open quote"#), ["an", "open quote"]);
        assert_eq!(words(r#" "" "#), [""; 0]);
    }

    #[test]
    fn the_first_pattern_is_the_beginning_of_the_longest_word() {
        assert_eq!(Words::of("a 100%_é b").like, r"%100\%\__%");
        assert_eq!(Words::of("").like, "%%");
        assert_eq!(Words::of("abcdefghijklmnopqrstuvwxyz").like, "%abcdefghijklmnop%");
    }
}
