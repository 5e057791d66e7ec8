//! Lints that generated code has to `allow`, which a host must not forbid.

use super::Options;
use crate::failure::{Failure, Result};
use crate::host::Host;
use crate::host::lints::{Forbidden, forbidden};

/// A host may `deny` these lints. What it forbids cannot be allowed any more.
pub(super) fn refuse_forbidden(options: &Options, host: &Host) -> Result<()> {
    let mut conflicts = Vec::new();
    let mut is_for_tests = true;
    for Forbidden { name, place, in_tests } in forbidden(host)? {
        let of_group = GROUPS.iter().find(|(group, _)| *group == name).map(|(_, lint)| *lint);
        let lint = of_group.unwrap_or(&name);
        let matters = |user: &User| match user {
            User::Tests => options.tests && in_tests,
            User::Code | User::Serde => true,
        };
        let mut users = ALLOWED.iter().filter(|(_, lints)| lints.contains(&lint)).map(|(user, _)| user);
        let Some(user) = users.find(|user| matters(user)) else { continue };
        let allowed = of_group.map_or("it".to_owned(), |lint| format!("`{lint}`, which is in this group"));
        conflicts.push(format!("\n  {place}: {} {allowed}", user.shown()));
        is_for_tests &= matches!(user, User::Tests);
    }
    if conflicts.is_empty() {
        return Ok(());
    }
    let what = "generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a \
                group:";
    let otherwise = if is_for_tests { "; or generate no tests, with --no-tests" } else { "" };
    Err(Failure::decision(format!("{what}{}", conflicts.concat())).help(format!(
        "write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it{otherwise}"
    )))
}

/// What allows a lint.
#[derive(Debug, Clone, Copy)]
enum User {
    Code,
    Tests,
    Serde,
}

impl User {
    fn shown(self) -> &'static str {
        match self {
            Self::Code => "the generated code allows",
            Self::Tests => "the generated tests allow",
            Self::Serde => "code that serde derives allows",
        }
    }
}

/// The templates, and the macros that they use.
const ALLOWED: &[(User, &[&str])] = &[
    (User::Code, &["clippy::option_option", "dead_code", "unreachable_pub", "unused_imports"]),
    (
        User::Serde,
        &[
            "clippy::absolute_paths",
            "clippy::useless_attribute",
            "non_upper_case_globals",
            "unused_attributes",
            "unused_extern_crates",
            "unused_qualifications",
        ],
    ),
    // `#[tokio::test]` does.
    (
        User::Tests,
        &[
            "clippy::diverging_sub_expression",
            "clippy::expect_used",
            "clippy::needless_return",
            "clippy::unwrap_in_result",
        ],
    ),
];

/// Groups, each with one of these lints.
const GROUPS: &[(&str, &str)] = &[
    ("bad_style", "non_upper_case_globals"),
    ("clippy::all", "clippy::needless_return"),
    ("clippy::complexity", "clippy::diverging_sub_expression"),
    ("clippy::correctness", "clippy::useless_attribute"),
    ("clippy::pedantic", "clippy::option_option"),
    ("clippy::restriction", "clippy::expect_used"),
    ("clippy::style", "clippy::needless_return"),
    ("nonstandard_style", "non_upper_case_globals"),
    ("rust_2018_idioms", "unused_extern_crates"),
    ("unused", "dead_code"),
    ("warnings", "dead_code"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::{fs, path::Path};

    use super::{ALLOWED, GROUPS};

    /// What stands in every `allow(…)` below a directory, reasons aside.
    fn allowed_below(directory: &Path) -> BTreeSet<String> {
        let mut lints = BTreeSet::new();
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                lints.extend(allowed_below(&path));
                continue;
            }
            let text = fs::read_to_string(path).unwrap();
            for list in text.split("[allow(").skip(1).map(|rest| &rest[..rest.find(')').unwrap()]) {
                let names = list.split(',').map(str::trim).take_while(|name| !name.starts_with("reason"));
                lints.extend(names.map(str::to_owned));
            }
        }
        lints
    }

    #[test]
    fn every_lint_that_a_template_allows_is_listed() {
        let listed: BTreeSet<&str> = ALLOWED.iter().flat_map(|(_, lints)| lints.iter().copied()).collect();
        let mut allowed = allowed_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("templates"));
        assert!(allowed.contains("clippy::option_option"), "{allowed:?}");
        allowed.extend(GROUPS.iter().map(|(_, lint)| (*lint).to_owned()));
        let missing: Vec<_> = allowed.iter().filter(|lint| !listed.contains(lint.as_str())).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
