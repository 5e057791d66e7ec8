//! The option sets, and who owns what.

use sagents::{Group, KeyKind, OwnerColumn, SCHEMA, Tables};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    Sqlite,
    Postgres,
}

/// What a context is generated with.
#[derive(Debug)]
pub struct Set {
    pub name: &'static str,
    pub prefix: &'static str,
    pub owner: Option<Owner>,
}

#[derive(Debug, Clone, Copy)]
pub struct Owner {
    pub noun: &'static str,
    pub field: &'static str,
    pub key: Key,
    /// Whether there is a foreign key.
    pub referenced: bool,
    /// Whether organizations read what their members own.
    pub grouped: bool,
}

/// The hosts' tables of owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    User,
    Person,
    Login,
    Team,
    Org,
    Company,
    Account,
}

pub const KEYS: [Key; 7] = [Key::User, Key::Person, Key::Login, Key::Team, Key::Org, Key::Company, Key::Account];

const fn owner(noun: &'static str, field: &'static str, key: Key) -> Owner {
    Owner { noun, field, key, referenced: true, grouped: false }
}

const fn loose(noun: &'static str, field: &'static str, key: Key) -> Owner {
    Owner { noun, field, key, referenced: false, grouped: false }
}

const fn grouped(owner: Owner) -> Owner {
    Owner { grouped: true, ..owner }
}

/// As long as a prefix may be: names that the database makes of it are cut.
const LONGEST: &str = "as_long_as_a_prefix_may_be_in_tables";

pub const SETS: &[Set] = &[
    Set { name: "user", prefix: "sagents_", owner: Some(owner("user", "user_id", Key::User)) },
    Set { name: "user_by_uuid", prefix: "sagents_", owner: Some(owner("user", "user_id", Key::Person)) },
    Set { name: "user_by_text", prefix: "sagents_", owner: Some(owner("user", "user_id", Key::Login)) },
    Set { name: "user_by_another_field", prefix: "sagents_", owner: Some(owner("user", "member_id", Key::User)) },
    Set { name: "user_without_table", prefix: "sagents_", owner: Some(grouped(loose("user", "user_id", Key::User))) },
    Set { name: "user_in_chat", prefix: "chat_", owner: Some(grouped(owner("user", "user_id", Key::User))) },
    Set { name: "user_without_prefix", prefix: "", owner: Some(owner("user", "user_id", Key::User)) },
    Set { name: "team", prefix: "sagents_", owner: Some(owner("team", "team_id", Key::Team)) },
    Set { name: "org", prefix: "sagents_", owner: Some(owner("org", "org_id", Key::Org)) },
    Set { name: "org_without_table", prefix: LONGEST, owner: Some(loose("org", "tenant", Key::Org)) },
    Set { name: "company", prefix: "sagents_", owner: Some(owner("company", "company_id", Key::Company)) },
    // Its table is in another schema, where there are schemas.
    Set { name: "account", prefix: "ai_", owner: Some(owner("account", "user_id", Key::Account)) },
    Set { name: "none", prefix: "sagents_", owner: None },
];

/// What becomes of the owner between two sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Stays,
    Leaves,
    Comes,
}

pub fn change(old: &Set, new: &Set) -> Change {
    match (&old.owner, &new.owner) {
        (None, None) => Change::Stays,
        (Some(_), None) => Change::Leaves,
        (Some(old), Some(new)) => {
            // Whatever the column is called.
            let same_table = !old.referenced || !new.referenced || old.key == new.key;
            let stays = old.noun == new.noun && old.key.kind() == new.key.kind() && same_table;
            if stays { Change::Stays } else { Change::Comes }
        }
        (None, Some(_)) => Change::Comes,
    }
}

impl Set {
    pub fn find(name: &str) -> &'static Self {
        SETS.iter().find(|set| set.name == name).unwrap_or_else(|| panic!("no option set is called {name}"))
    }

    /// Every option that it decides, so that none of another set stays.
    pub fn options(&self, database: Database) -> Vec<String> {
        let mut options = vec![format!("--table-prefix={}", self.prefix)];
        let mut add = |name: &str, value: &str| options.extend([format!("--{name}"), value.to_owned()]);
        match &self.owner {
            None => {
                add("scope", "crate::scopes::Anyone");
                add("owner-type", "none");
                add("group-type", "none");
            }
            Some(Owner { noun, field, key, referenced, grouped }) => {
                add("scope", &format!("crate::scopes::{key:?}Scope"));
                add("scope-owner", "key");
                add("owner-type", noun);
                add("owner-field", field);
                add("owner-id", key.kind());
                add("owner-table", if *referenced { key.table(database) } else { "none" });
                add("group-type", if *grouped { "organization" } else { "none" });
                if *grouped {
                    add("group-table", "members");
                }
            }
        }
        options
    }

    pub fn table(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The owner's column.
    pub fn field(&self) -> &'static str {
        self.owner.as_ref().map_or("sagents_owner", |owner| owner.field)
    }

    /// The owner of a person's conversations, as a literal.
    pub fn owner_of(&self, person: u8, database: Database) -> String {
        self.owner.as_ref().map_or_else(|| "0".to_owned(), |owner| owner.key.of(person, database))
    }

    /// The tables as generated code describes them.
    pub fn tables(&self) -> Tables {
        let column = match &self.owner {
            None => OwnerColumn::none(),
            Some(Owner { field, key, .. }) => match key.kind() {
                "uuid" => OwnerColumn::uuid(field),
                "text" => OwnerColumn::text(field),
                _ => OwnerColumn::integer(field),
            },
        };
        let tables = Tables::new(SCHEMA, self.prefix, column);
        if !self.owner.is_some_and(|owner| owner.grouped) {
            return tables;
        }
        let (table, group, member) = ("members", "organization_id", "user_id");
        tables.group(Group { table, group, kind: KeyKind::Integer, member })
    }
}

/// The expression for `--backfill`, which finds the new owner by the old one.
pub fn backfill(old: &Set, new: &Set) -> Option<String> {
    let (Change::Comes, Some(to)) = (change(old, new), &new.owner) else { return None };
    let found = match &old.owner {
        None => "k = CAST(conversation.title AS INTEGER)".to_owned(),
        Some(from) => format!("{} = conversation.{}", from.key.column(), from.field),
    };
    Some(format!("(SELECT {} FROM identities WHERE {found} ORDER BY k LIMIT 1)", to.key.column()))
}

/// How many people there are. Each has a key in every table; teams, orgs and companies have two each.
pub const PEOPLE: u8 = 4;

impl Key {
    pub fn kind(self) -> &'static str {
        match self {
            Self::User | Self::Company | Self::Account => "i64",
            Self::Person | Self::Team => "uuid",
            Self::Login | Self::Org => "text",
        }
    }

    pub fn table(self, database: Database) -> &'static str {
        match self {
            Self::User => "users",
            Self::Person => "people",
            Self::Login => "logins",
            Self::Team => "teams",
            Self::Org => "orgs",
            Self::Company => "companies",
            Self::Account if database == Database::Postgres => "auth.accounts",
            Self::Account => "accounts",
        }
    }

    /// In the table of identities.
    pub fn column(self) -> String {
        format!("{self:?}_key").to_lowercase()
    }

    fn column_type(self, database: Database) -> &'static str {
        match (self, database) {
            (Self::Company, _) | (Self::User | Self::Account, Database::Sqlite) => "INTEGER",
            (Self::User | Self::Account, Database::Postgres) => "BIGINT",
            (Self::Login | Self::Org, _) => "TEXT",
            (Self::Person | Self::Team, Database::Sqlite) => "BLOB",
            (Self::Person | Self::Team, Database::Postgres) => "UUID",
        }
    }

    /// The key of a person, as a literal.
    pub fn of(self, person: u8, database: Database) -> String {
        let group = person.div_ceil(2);
        match self {
            Self::User => format!("{person}0"),
            Self::Person => uuid(&format!("aaaaaaaa{person:024}"), database),
            Self::Login => format!("'it''s {person}'"),
            Self::Team => uuid(&format!("bbbbbbbb{group:024}"), database),
            Self::Org => format!("'org {group}'"),
            Self::Company => group.to_string(),
            Self::Account => format!("{person}00"),
        }
    }

    /// The first person who has the same key.
    pub fn first(self, person: u8) -> u8 {
        let same = |other: &u8| self.of(*other, Database::Sqlite) == self.of(person, Database::Sqlite);
        (1..=PEOPLE).find(same).unwrap()
    }
}

/// A UUID of 32 hexadecimal digits, as a literal.
pub fn uuid(digits: &str, database: Database) -> String {
    match database {
        Database::Sqlite => format!("x'{digits}'"),
        Database::Postgres => {
            let part = |range: std::ops::Range<usize>| &digits[range];
            format!("'{}-{}-{}-{}-{}'", part(0..8), part(8..12), part(12..16), part(16..20), part(20..32))
        }
    }
}

/// The migration with the owners of every kind, and who of them is the same.
pub fn owners(database: Database) -> String {
    let mut lines = Vec::new();
    if database == Database::Postgres {
        lines.push("CREATE SCHEMA IF NOT EXISTS auth;".to_owned());
    }
    for key in KEYS {
        // Databases of this test share the other schema.
        let table = key.table(database);
        let kind = key.column_type(database);
        lines.push(format!("CREATE TABLE IF NOT EXISTS {table} (id {kind} NOT NULL PRIMARY KEY);"));
        let insert =
            |person| format!("INSERT INTO {table} VALUES ({}) ON CONFLICT DO NOTHING;", key.of(person, database));
        lines.extend((1..=PEOPLE).map(insert));
    }
    let columns = KEYS.map(|key| format!("{} {}", key.column(), key.column_type(database)));
    let user = Key::User.column_type(database);
    lines.push(format!("CREATE TABLE members (user_id {user} NOT NULL, organization_id INTEGER NOT NULL);"));
    // Some columns are called like those of a conversation, and are of no use.
    let decoys = "user_id INTEGER, team_id INTEGER, title TEXT";
    lines.push(format!("CREATE TABLE identities (k INTEGER NOT NULL PRIMARY KEY, {}, {decoys});", columns.join(", ")));
    for person in 1..=PEOPLE {
        let values = KEYS.map(|key| key.of(person, database));
        lines.push(format!("INSERT INTO identities VALUES ({person}, {}, NULL, NULL, NULL);", values.join(", ")));
    }
    lines.join("\n") + "\n"
}
