use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;

fn name(text: &str) -> Name {
    Name::parse("name", text).unwrap()
}

fn declared(text: &str, module: &str, public: bool) -> Option<String> {
    let name = name(module);
    let declaration = Declaration { name: &name, public };
    let after = declare("src/lib.rs".into(), text, &declaration).unwrap()?;
    assert_eq!(declare("src/lib.rs".into(), &after, &declaration).unwrap(), None, "{after}");
    Some(after)
}

fn is_formatted(text: &str, edition: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}');
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", edition])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("rustfmt is installed");
    rustfmt.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = rustfmt.wait_with_output().unwrap();
    // What comes from standard input is printed with the line ends of the platform.
    let formatted = String::from_utf8(output.stdout).unwrap();
    output.status.success() && formatted.replace('\r', "") == text.replace('\r', "")
}

/// A host on the disk for as long as the value lives.
fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
    let directory = tempfile::tempdir().unwrap();
    let root = Utf8PathBuf::from_path_buf(directory.path().to_owned()).unwrap();
    for (path, text) in files {
        std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        std::fs::write(root.join(path), text).unwrap();
    }
    (directory, Tree::new(root))
}

fn library(root: &str) -> Crate {
    Crate { root: root.into(), library: true, style: ModuleStyle::Flat }
}

fn found(files: &[(&str, &str)], path: &[&str]) -> Result<Found> {
    let (_directory, tree) = host(files);
    let path: Vec<_> = path.iter().map(|segment| name(segment)).collect();
    find(&tree, &library(files[0].0), &path)
}

fn module(file: &str, directory: &str, public: bool) -> Found {
    Found::Module(Module { file: file.into(), directory: directory.into(), public })
}

#[test]
fn the_style_is_the_one_that_the_host_has() {
    let style_of = |files: &[(&str, &str)]| {
        let (_directory, tree) = host(files);
        style(&tree, files[0].0.into()).unwrap()
    };
    let (lib, mod_rs) = (("src/lib.rs", ""), ("src/a/b/mod.rs", ""));
    assert_eq!(style_of(&[lib]), ModuleStyle::Flat);
    assert_eq!(style_of(&[lib, ("tests/common/mod.rs", "")]), ModuleStyle::Flat);
    assert_eq!(style_of(&[("lib.rs", ""), ("tests/common/mod.rs", "")]), ModuleStyle::Flat);
    assert_eq!(style_of(&[lib, mod_rs]), ModuleStyle::ModRs);
    assert_eq!(style_of(&[("lib.rs", ""), mod_rs]), ModuleStyle::ModRs);
    assert_eq!(style_of(&[lib, mod_rs, ("src/c.rs", ""), ("src/c/d.rs", "")]), ModuleStyle::Flat);
}

#[test]
fn modules_are_found_in_both_styles_and_under_any_root() {
    let flat = [("src/lib.rs", "pub mod a;"), ("src/a.rs", "pub mod b;"), ("src/a/b.rs", "")];
    assert_eq!(found(&flat, &["a", "b"]).unwrap(), module("src/a/b.rs", "src/a/b", true));
    let mod_rs = [("src/lib.rs", "pub mod a;"), ("src/a/mod.rs", "mod b;"), ("src/a/b/mod.rs", "")];
    assert_eq!(found(&mod_rs, &["a", "b"]).unwrap(), module("src/a/b/mod.rs", "src/a/b", false));
    let odd = [("code/app.rs", "mod r#type;"), ("code/type.rs", "")];
    assert_eq!(found(&odd, &["type"]).unwrap(), module("code/type.rs", "code/type", false));
    assert_eq!(found(&odd, &[]).unwrap(), module("code/app.rs", "code", true));
}

#[test]
fn a_path_attribute_is_followed_as_rustc_does() {
    let files = [
        ("src/lib.rs", "pub mod a;"),
        ("src/a.rs", "#[path = \"../other/x.rs\"]\npub mod b;"),
        ("other/x.rs", "pub mod c;"),
        ("other/c.rs", ""),
    ];
    assert_eq!(found(&files, &["a", "b"]).unwrap(), module("other/x.rs", "other", true));
    assert_eq!(found(&files, &["a", "b", "c"]).unwrap(), module("other/c.rs", "other/c", true));
}

#[test]
fn of_alternatives_the_one_with_a_file_is_taken() {
    let text = "#[cfg(windows)]\n#[path = \"w.rs\"]\nmod a;\n#[cfg(unix)]\n#[path = \"u.rs\"]\nmod a;";
    assert_eq!(found(&[("src/lib.rs", text), ("src/u.rs", "")], &["a"]).unwrap(), module("src/u.rs", "src", false));
}

#[test]
fn what_is_not_there_is_told_apart() {
    let parent = Module { file: "src/a.rs".into(), directory: "src/a".into(), public: true };
    let files = [("src/lib.rs", "pub mod a;"), ("src/a.rs", "#[cfg(all(test, unix))]\nmod b;")];
    assert_eq!(found(&files, &["a", "b", "c"]).unwrap(), Found::Missing { parent, depth: 1 });
    let inline = [("src/lib.rs", "pub mod a { pub mod b; }")];
    assert_eq!(found(&inline, &["a", "b"]).unwrap(), Found::Inline { file: "src/lib.rs".into() });
    let message = found(&[("src/lib.rs", "mod a;")], &["a"]).unwrap_err().what;
    assert_eq!(message, "src/lib.rs declares `mod a`, but there is no `src/a.rs` or `src/a/mod.rs`");
    let message = found(&[("src/lib.rs", "mod a;\nmod {")], &["a"]).unwrap_err().what;
    assert!(message.starts_with("src/lib.rs:2:5: "), "{message}");
}

#[test]
fn a_new_child_follows_the_style() {
    let parent = Module { file: "src/chat.rs".into(), directory: "src/chat".into(), public: false };
    let flat = library("src/lib.rs");
    let mod_rs = Crate { style: ModuleStyle::ModRs, ..flat.clone() };
    assert_eq!(new_file(&flat, &parent, &name("type")), "src/chat/type.rs");
    let child = child(&mod_rs, &parent, &name("notes"), true);
    assert_eq!(
        child,
        Module { file: "src/chat/notes/mod.rs".into(), directory: "src/chat/notes".into(), public: false }
    );
}

#[test]
fn a_declaration_goes_to_its_sorted_place() {
    for (before, after) in [
        ("mod a;\nmod z;\n", "mod a;\npub mod m;\nmod z;\n"),
        (
            "mod a;\n// about z\n\n// more\n#[cfg(unix)]\nmod z;\n",
            "mod a;\n// about z\n\npub mod m;\n// more\n#[cfg(unix)]\nmod z;\n",
        ),
        ("mod a;\n// z\n/// Z.\n#[cfg(unix)]\nmod z;\n", "mod a;\npub mod m;\n// z\n/// Z.\n#[cfg(unix)]\nmod z;\n"),
        ("mod a; // first\n\nuse a::A;\n", "mod a; // first\npub mod m;\n\nuse a::A;\n"),
        ("pub mod a;\n\nmod b;\n", "pub mod a;\npub mod m;\n\nmod b;\n"),
        ("mod a;\nmod b;\n\n#[cfg(test)]\nmod tests;\n", "mod a;\nmod b;\npub mod m;\n\n#[cfg(test)]\nmod tests;\n"),
        ("mod a; /* one\n\ntwo */\nfn f() {}\n", "mod a; /* one\n\ntwo */\npub mod m;\nfn f() {}\n"),
        ("mod a;", "mod a;\npub mod m;\n"),
        ("mod a; fn f() {}", "mod a; \npub mod m;\nfn f() {}"),
        ("mod l;\nmod r#mod;\n", "mod l;\npub mod m;\nmod r#mod;\n"),
    ] {
        assert_eq!(declared(before, "m", true).as_deref(), Some(after));
    }
    assert_eq!(declared("mod s;\nmod u;\n", "type", false).as_deref(), Some("mod s;\nmod r#type;\nmod u;\n"));
}

#[test]
fn without_a_group_it_stands_apart_above_the_items() {
    for (before, after) in [
        ("", "pub mod m;\n"),
        ("\u{feff}", "\u{feff}pub mod m;\n"),
        ("//! Docs.", "//! Docs.\n\npub mod m;\n"),
        ("// Notes.\n", "// Notes.\n\npub mod m;\n"),
        ("use a::B;\n", "pub mod m;\n\nuse a::B;\n"),
        ("// Copyright me\n\n// About.\nuse a::B;\n", "// Copyright me\n\npub mod m;\n\n// About.\nuse a::B;\n"),
        (
            "// SPDX-License-Identifier: MIT\nuse a::B;\n",
            "// SPDX-License-Identifier: MIT\n\npub mod m;\n\nuse a::B;\n",
        ),
        (
            "//! Docs.\n#![allow(x)] // why\n// B.\nuse a::B;\n",
            "//! Docs.\n#![allow(x)] // why\n\npub mod m;\n\n// B.\nuse a::B;\n",
        ),
        ("#!/usr/bin/env x\nfn main() {}\n", "#!/usr/bin/env x\n\npub mod m;\n\nfn main() {}\n"),
        ("extern crate a;\n\nuse a::B;\n", "extern crate a;\n\npub mod m;\n\nuse a::B;\n"),
        ("#[macro_use]\nmod macros;\n", "pub mod m;\n\n#[macro_use]\nmod macros;\n"),
        ("fn f() {}\n\n#[cfg(test)]\nmod tests;\n", "pub mod m;\n\nfn f() {}\n\n#[cfg(test)]\nmod tests;\n"),
        ("//! Ünïcode: “x”.\r\n\r\nfn f() {}\r\n", "//! Ünïcode: “x”.\r\n\r\npub mod m;\r\n\r\nfn f() {}\r\n"),
    ] {
        assert_eq!(declared(before, "m", true).as_deref(), Some(after));
    }
}

#[test]
fn what_is_declared_is_left_alone() {
    for text in ["mod m;", "pub mod m {}", "#[cfg(unix)] mod m;", "#[cfg(not(test))] mod m;"] {
        assert_eq!(declared(text, "m", true), None, "{text}");
    }
    let name = name("m");
    let only_tests = declare("src/lib.rs".into(), "\n#[cfg(test)]\nmod m;", &Declaration { name: &name, public: true });
    assert_eq!(only_tests.unwrap_err().what, "src/lib.rs: `mod m` is there for tests only");
}

#[test]
fn an_extern_crate_is_added_once_and_stays_on_top() {
    const LINE: &str = "extern crate db as sqlx;";
    let add = |text: &str| declare_extern("src/lib.rs".into(), text, LINE).unwrap();
    assert_eq!(add("//! Docs.\n\nmod a;\n").unwrap(), format!("//! Docs.\n\n{LINE}\n\nmod a;\n"));
    assert_eq!(add("use a;\nextern crate db\n  as sqlx;\n"), None);
    let both = declared(&add("use a::B;\n").unwrap(), "m", true).unwrap();
    assert_eq!(both, format!("{LINE}\n\npub mod m;\n\nuse a::B;\n"));
}

#[test]
fn a_formatted_file_stays_formatted() {
    let inputs = [
        "",
        "//! Docs.\n",
        "// Copyright me\n\nuse a::B;\n",
        "/* Copyright\n *\n * me */\nuse a::B;\n",
        "//! Docs.\n\n#![allow(dead_code)]\n\nextern crate a;\nextern crate z;\n\nuse a::B;\n",
        "#!/usr/bin/env x\n#![allow(dead_code)]\nfn main() {}\n",
        "pub mod accounts;\nmod web; // last\n\nuse web::serve;\n",
        "mod a;\n// About z.\nmod z;\n",
        "mod z;\n// About a.\nmod a;\nmod b;\n",
        "mod a;\n\n/// Docs.\n#[cfg(unix)]\npub mod z;\npub(crate) mod zz;\n\n#[cfg(test)]\nmod tests;\n",
        "mod l;\nmod r#mod;\nmod z10;\nmod z9;\n",
        "#[macro_use]\nmod macros;\nmod a;\nmod z;\n",
        "mod z;\n#[macro_use]\nmod macros;\nfn f() {}\n",
        "use a::B;\nmod z;\nfn f() {}\n",
        "mod a {}\nmod b;\n",
        "//! Docs.\r\n\r\nmod a;\r\nmod z;\r\n",
        "\u{feff}mod a;\n",
    ];
    for edition in ["2021", "2024"] {
        for input in inputs {
            assert!(input.is_empty() || is_formatted(input, edition), "{edition}:\n{input}");
            for (module, public) in [("m", true), ("aa", false), ("zz9", true), ("type", false)] {
                let text = declared(input, module, public).unwrap();
                assert!(is_formatted(&text, edition), "{edition}:\n{text}");
            }
            let text = declare_extern("src/lib.rs".into(), input, "extern crate db as sqlx;").unwrap().unwrap();
            assert!(is_formatted(&text, edition), "{edition}:\n{text}");
        }
    }
}
