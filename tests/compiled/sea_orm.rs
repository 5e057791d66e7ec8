//! A host on sea-orm, which has sqlx 0.8: the conversations get a pool of sqlx 0.9 beside it.

use crate::workspace::{Workspace, add_tests};

#[test]
fn a_host_on_sea_orm_migrates_and_shares_a_database_with_the_conversations() {
    let workspace = Workspace::new("sea_orm", &["on_sea_orm", "on_sea_orm/migration"]);
    for (path, text) in FILES {
        workspace.host.write(&format!("on_sea_orm/{path}"), text);
    }
    // The second migration of ours gives the tables other names.
    for more in ["", " --table-prefix chat_"] {
        workspace
            .generate("on_sea_orm", &format!("gen persistence conversations --scope crate::accounts::Scope{more}"));
    }
    add_tests(&workspace.host, "on_sea_orm", "on_sea_orm", &[("test.rs", include_str!("hosts/sea_orm/test.rs"))]);
    workspace.prove();
}

const FILES: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("hosts/sea_orm/manifest.toml")),
    ("src/lib.rs", "//! An application on sea-orm.\n\npub mod accounts;\n"),
    ("src/accounts.rs", "pub struct Scope {\n    pub user_id: i32,\n}\n"),
    ("migration/Cargo.toml", include_str!("hosts/sea_orm/migration.toml")),
    ("migration/src/lib.rs", include_str!("hosts/sea_orm/migrator.rs")),
    ("migration/src/m20220101_000001_create_users.rs", include_str!("hosts/sea_orm/create_users.rs")),
];
