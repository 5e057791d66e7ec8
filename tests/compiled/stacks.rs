//! Hosts whose migrations are those of another tool.

/// A library with the migrations of diesel in it.
pub const ON_DIESEL: &[(&str, &str)] = &[
    ("on_diesel/Cargo.toml", include_str!("hosts/diesel/manifest.toml")),
    ("on_diesel/diesel.toml", "[migrations_directory]\ndir = \"migrations\"\n"),
    ("on_diesel/migrations/2024-01-01-000000_users/up.sql", "CREATE TABLE users (id UUID PRIMARY KEY);\n"),
    ("on_diesel/migrations/2024-01-01-000000_users/down.sql", "DROP TABLE users;\n"),
    ("on_diesel/src/lib.rs", include_str!("hosts/diesel/lib.rs")),
    ("on_diesel/src/accounts.rs", "use uuid::Uuid;\n\npub struct Scope {\n    pub user_id: Uuid,\n}\n"),
];

/// A library on tokio-postgres with the migrations of refinery in it.
pub const ON_REFINERY: &[(&str, &str)] = &[
    ("on_refinery/Cargo.toml", include_str!("hosts/refinery/manifest.toml")),
    ("on_refinery/migrations/V1__users.sql", "CREATE TABLE users (id UUID PRIMARY KEY);\n"),
    ("on_refinery/src/lib.rs", include_str!("hosts/refinery/lib.rs")),
    ("on_refinery/src/accounts.rs", "use uuid::Uuid;\n\npub struct Scope {\n    pub user_id: Uuid,\n}\n"),
];

/// As `loco new` leaves it, on the newest sqlx 0.8 and `SQLite`.
pub const ON_LOCO: &[(&str, &str)] = &[
    ("on_loco/Cargo.toml", include_str!("hosts/loco/manifest.toml")),
    ("on_loco/.cargo/config.toml", "[alias]\nloco = \"run --\"\n"),
    ("on_loco/config/development.yaml", include_str!("hosts/loco/development.yaml")),
    ("on_loco/src/lib.rs", "pub mod models;\n"),
    ("on_loco/src/models/mod.rs", "pub mod _entities;\npub mod users;\n"),
    ("on_loco/src/models/users.rs", include_str!("hosts/loco/model.rs")),
    ("on_loco/src/models/_entities/mod.rs", "pub mod users;\n"),
    ("on_loco/src/models/_entities/users.rs", include_str!("hosts/loco/entity.rs")),
    ("on_loco/migration/Cargo.toml", include_str!("hosts/loco/migration.toml")),
    ("on_loco/migration/src/lib.rs", include_str!("hosts/loco/migrator.rs")),
    ("on_loco/migration/src/m20220101_000001_create_users.rs", include_str!("hosts/sea_orm/create_users.rs")),
];

/// A library that keeps the migrations of sea-orm in a crate of their own.
pub const ON_SEA_ORM: &[(&str, &str)] = &[
    ("on_sea_orm/Cargo.toml", include_str!("hosts/sea_orm/manifest.toml")),
    ("on_sea_orm/src/lib.rs", "pub mod accounts;\n"),
    ("on_sea_orm/src/accounts.rs", "pub struct Scope {\n    pub user_id: i32,\n}\n"),
    ("on_sea_orm/migration/Cargo.toml", include_str!("hosts/sea_orm/migration.toml")),
    ("on_sea_orm/migration/src/lib.rs", include_str!("hosts/sea_orm/migrator.rs")),
    ("on_sea_orm/migration/src/m20220101_000001_create_users.rs", include_str!("hosts/sea_orm/create_users.rs")),
];
