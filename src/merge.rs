//! Three texts become one: what was generated last, what is in the file, and what is generated now. Lines that only
//! one side changed are taken from it. Where both did, and the generator only renamed tables or columns, the names change
//! in the edited lines; otherwise markers in the style of git hold both.

use std::collections::BTreeMap;

use diffy::{ConflictStyle, MergeOptions};

const YOURS: &str = "<<<<<<< yours\n";
const GENERATED: &str = ">>>>>>> generated\n";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    pub text: String,
    /// There are markers in the text.
    pub conflict: bool,
}

pub fn merge(base: &str, yours: &str, generated: &str) -> Merged {
    let merged = MergeOptions::new().set_conflict_style(ConflictStyle::Diff3).merge(base, yours, generated);
    let text = match merged {
        Ok(text) => return Merged { text, conflict: false },
        Err(text) => text,
    };
    let mut merged = Merged { text: String::new(), conflict: false };
    let mut rest = text.as_str();
    while let Some((before, conflict, after)) = next_conflict(rest) {
        merged.text += before;
        if let Some(renamed) = renamed(conflict) {
            merged.text += &renamed;
        } else {
            let Sides { yours, base: _, generated } = conflict;
            merged.text.extend([YOURS, yours, "=======\n", generated, GENERATED]);
            merged.conflict = true;
        }
        rest = after;
    }
    merged.text += rest;
    merged
}

/// The lines of a conflict.
#[derive(Clone, Copy)]
struct Sides<'a> {
    yours: &'a str,
    base: &'a str,
    generated: &'a str,
}

/// The text before the next conflict, the conflict, and the text behind it.
fn next_conflict(text: &str) -> Option<(&str, Sides<'_>, &str)> {
    let (before, rest) = split_at_line(text, "<<<<<<< ours")?;
    let (yours, rest) = split_at_line(rest, "||||||| original")?;
    let (base, rest) = split_at_line(rest, "=======")?;
    let (generated, after) = split_at_line(rest, ">>>>>>> theirs")?;
    Some((before, Sides { yours, base, generated }, after))
}

/// The text before and behind a line.
fn split_at_line<'a>(text: &'a str, line: &str) -> Option<(&'a str, &'a str)> {
    let mut at = 0;
    for candidate in text.split_inclusive('\n') {
        let end = at + candidate.len();
        if candidate.trim_end() == line {
            return Some((&text[..at], &text[end..]));
        }
        at = end;
    }
    None
}

/// The edited lines with the new names, if names are all that the generator changes in them. How a scope is read is for a
/// person to decide, and a name that the edited lines have already would become ambiguous.
fn renamed(Sides { yours, base, generated }: Sides) -> Option<String> {
    let (old, new) = (tokens(base), tokens(generated));
    if old.len() != new.len() || old.iter().any(|token| matches!(*token, "self" | "Self")) {
        return None;
    }
    let mut names = BTreeMap::new();
    for (old, new) in old.into_iter().zip(new) {
        if *names.entry(old).or_insert(new) != new {
            return None;
        }
    }
    names.retain(|old, new| old != new);
    // Of two names of a table or column, one has an underscore: `user_id`, `sagents_conversations`.
    let is_name = |old: &str, new: &str| {
        old.starts_with(is_word) && new.starts_with(is_word) && format!("{old}{new}").contains('_')
    };
    let are_names = names.iter().all(|(old, new)| is_name(old, new));
    let yours = tokens(yours);
    if names.is_empty() || !are_names || names.values().any(|new| yours.contains(new)) {
        return None;
    }
    Some(yours.into_iter().map(|token| names.get(token).copied().unwrap_or(token)).collect())
}

/// Words, and everything else letter by letter.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
        let (token, behind) = rest.split_at(if word == 0 { first.len_utf8() } else { word });
        tokens.push(token);
        rest = behind;
    }
    tokens
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Whether a text still has the markers of a merge, ours or git's.
pub fn has_markers(text: &str) -> bool {
    let has = |marker: &str| text.lines().any(|line| line.starts_with(marker));
    has("<<<<<<< ") && has(">>>>>>> ")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_one_side_changed_is_taken_and_what_both_changed_is_marked() {
        let base = "a\nb\nc\nd\ne\n";
        assert_eq!(merge(base, "a\nB\nc\nd\ne\n", "a\nb\nc\nd\nE\n").text, "a\nB\nc\nd\nE\n");
        assert_eq!(merge(base, "a\nd\ne\n", "a\nb\nc\nd\ne\nf\n").text, "a\nd\ne\nf\n");
        let conflict = merge(base, "a\nB\nc\nd\ne\n", "a\nbb\nc\nd\ne\n");
        assert!(conflict.conflict && has_markers(&conflict.text));
        assert_snapshot!(conflict.text, @"
        a
        <<<<<<< yours
        B
        =======
        bb
        >>>>>>> generated
        c
        d
        e
        ");
    }

    #[test]
    fn new_names_of_tables_and_columns_reach_edited_lines() {
        let base = "SELECT user_id, id\nFROM sagents_chats\nWHERE user_id = $1\n";
        let yours = "SELECT user_id, id, project\nFROM sagents_chats\nWHERE user_id = $1 AND project = $2\n";
        let generated = base.replace("user_id", "team_id").replace("sagents", "chat");
        let merged = merge(base, yours, &generated);
        assert_snapshot!(merged.text, @"
        SELECT team_id, id, project
        FROM chat_chats
        WHERE team_id = $1 AND project = $2
        ");
        assert!(!merged.conflict);
        // The host has a column of that name, something else changes too, or it's how the scope is read.
        let other = "SELECT user_id, id, team_id\nFROM sagents_chats\nWHERE user_id = $1\n";
        assert!(merge(base, other, &generated).conflict);
        assert!(merge(base, yours, &generated.replace(", id", "")).conflict);
        assert!(merge("(self.user_id)\n", "(self.user_id + 1)\n", "(self.team_id)\n").conflict);
    }

    proptest! {
        #[test]
        fn a_side_that_did_not_change_gives_way(base in lines(), other in lines()) {
            prop_assert_eq!(merge(&base, &base, &other), Merged { text: other.clone(), conflict: false });
            prop_assert_eq!(merge(&base, &other, &base), Merged { text: other.clone(), conflict: false });
            prop_assert_eq!(merge(&base, &other, &other), Merged { text: other, conflict: false });
        }

        /// Lines that a side added are in the result, whatever the other side did.
        #[test]
        fn what_a_side_added_survives(base in lines(), generated in lines(), at in 0..20_usize) {
            let mut yours: Vec<_> = base.lines().collect();
            yours.insert(at.min(yours.len()), "an edit");
            let merged = merge(&base, &(yours.join("\n") + "\n"), &generated);
            prop_assert!(merged.text.lines().any(|line| line == "an edit"), "{}", merged.text);
        }
    }

    fn lines() -> impl Strategy<Value = String> {
        proptest::collection::vec("[a-d]", 0..16).prop_map(|lines| lines.join("\n") + "\n")
    }
}
