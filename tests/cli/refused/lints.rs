//! Lints that a host forbids and generated code has to allow.

use insta::assert_snapshot;

use super::{refusals_in, with_manifest, with_root};
use crate::support::{Host, PLAIN, manifest};
use crate::transcript::refusal;

/// A library with a scope, whose root begins with this.
fn with_attributes(attributes: &str) -> Host {
    with_root("").file("src/lib.rs", &format!("//! A library.\n\n{attributes}\n\npub mod accounts;\n"))
}

#[test]
fn lints_that_generated_code_allows_are_not_forbidden() {
    let hosts = [
        with_attributes("#![forbid(unsafe_code, unused_qualifications)]"),
        with_attributes("#![forbid(unused, reason = \"order\")]\n#![cfg_attr(feature = \"ci\", forbid(clippy::all))]"),
        with_attributes(
            "#![cfg_attr(not(test), forbid(clippy::option_option))]\n#![cfg_attr(any(unix, not(test)), cfg_attr(all(), forbid(clippy::needless_return)))]",
        ),
        with_attributes("#![forbid(clippy::unwrap_in_result)]"),
        with_manifest(
            "\n[lints.rust]\nunsafe_code = \"forbid\"\nunused-qualifications = { level = \"forbid\", priority = 1 }\n\n[lints.clippy]\nexpect_used = \"forbid\"\n",
        ),
        with_manifest("\n[lints]\nworkspace = true\n\n[workspace.lints]\nrust.dead_code = \"forbid\"\n"),
        Host::binary().file("src/main.rs", "#![forbid(non_upper_case_globals)]\nfn main() {}\n"),
    ];
    let member = Host::empty()
        .file("Cargo.toml", "[workspace]\nmembers = [\"web\"]\n\n[workspace.lints.clippy]\nexpect_used = \"forbid\"\n")
        .file("web/Cargo.toml", &manifest("web", "2024", "\n[lints]\nworkspace = true\n"))
        .file("web/src/lib.rs", "");
    let all = [refusals_in(&hosts), refusal(&member, "gen persistence conversations -s accounts::Scope --path web")];
    assert_snapshot!(all.join("\n"), @"
    $ gen persistence conversations -s accounts::Scope
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      src/lib.rs:3: `forbid(unused_qualifications)`: code that serde derives allows it
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      src/lib.rs:3: `forbid(unused)`: the generated code allows `dead_code`, which is in this group
      src/lib.rs:4: `forbid(clippy::all)`: the generated tests allow `clippy::needless_return`, which is in this group
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      src/lib.rs:3: `forbid(clippy::option_option)`: the generated code allows it
      src/lib.rs:4: `forbid(clippy::needless_return)`: the generated tests allow it
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      src/lib.rs:3: `forbid(clippy::unwrap_in_result)`: the generated tests allow it
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it; or generate no tests, with --no-tests
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      Cargo.toml: `unused-qualifications` in [lints.rust]: code that serde derives allows it
      Cargo.toml: `expect_used` in [lints.clippy]: the generated tests allow it
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      Cargo.toml: `dead_code` in [workspace.lints.rust]: the generated code allows it
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it
    exit 5

    $ gen persistence conversations -s accounts::Scope
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      src/main.rs:1: `forbid(non_upper_case_globals)`: code that serde derives allows it
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it
    exit 5

    $ gen persistence conversations -s accounts::Scope --path web
    error: generated code has to `allow` lints that are forbidden here, which is an error (E0453), or a warning for a group:
      [host]/Cargo.toml: `expect_used` in [workspace.lints.clippy]: the generated tests allow it
    help: write `deny` there instead of `forbid`: it fails a build just the same, but code may `allow` it; or generate no tests, with --no-tests
    exit 5
    ");
}

#[test]
fn lints_that_generated_code_does_not_allow_may_be_forbidden() {
    let strict = "#![forbid(unsafe_code, missing_docs, clippy::unused_self)]\n#![deny(unused, clippy::unwrap_used)]\n\
                  #![cfg_attr(not(test), forbid(clippy::needless_return))]\n\
                  #![cfg_attr(all(unix, not(any(test, feature = \"testing\"))), forbid(clippy::expect_used))]";
    with_attributes(strict).generate(PLAIN);
    let offered = "\n[workspace.lints.rust]\ndead_code = \"forbid\"\n\n[lints.rust]\nunsafe_code = \"forbid\"\nunused = \"deny\"\n";
    with_manifest(offered).generate(PLAIN);
    let without_tests = with_attributes("#![forbid(clippy::expect_used, clippy::needless_return)]");
    without_tests.generate("gen persistence conversations -s accounts::Scope --no-tests");
}
