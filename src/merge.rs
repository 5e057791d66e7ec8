//! Three texts become one: what was generated last, what is in the file, and what is generated now. Lines that only
//! one side changed are taken from it; where both did, markers in the style of git hold both.

use diffy::{ConflictStyle, MergeOptions};

const YOURS: &str = "<<<<<<< yours";
const GENERATED: &str = ">>>>>>> generated";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    pub text: String,
    /// There are markers in the text.
    pub conflict: bool,
}

pub fn merge(base: &str, yours: &str, generated: &str) -> Merged {
    let merged = MergeOptions::new().set_conflict_style(ConflictStyle::Merge).merge(base, yours, generated);
    match merged {
        Ok(text) => Merged { text, conflict: false },
        Err(text) => {
            let lines = text.split_inclusive('\n').map(|line| match line.trim_end() {
                "<<<<<<< ours" => line.replace("<<<<<<< ours", YOURS),
                ">>>>>>> theirs" => line.replace(">>>>>>> theirs", GENERATED),
                _ => line.to_owned(),
            });
            Merged { text: lines.collect(), conflict: true }
        }
    }
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
