//! The options of a context as a person gives them: flags on the command line, keys in `sagents.toml`. What is absent
//! has its default. This is the only list of them; `options` turns it into typed values.

use camino::Utf8PathBuf;
use clap::Args;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Given {
    /// The host's scope type: who is asking. Not needed with `--owner-type none`
    #[arg(short, long, value_name = "TYPE", help_heading = "Owner")]
    pub scope: Option<String>,

    /// Who owns a conversation: user, account, team, org, none, or any other identifier [default: user]
    #[arg(short = 't', long, value_name = "NAME", help_heading = "Owner")]
    pub owner_type: Option<String>,

    /// The owner's column and Rust field [default: <owner type>_id]
    #[arg(short = 'f', long, value_name = "NAME", help_heading = "Owner")]
    pub owner_field: Option<String>,

    /// The owner's Rust type, for documentation links and inference
    #[arg(long, value_name = "TYPE", help_heading = "Owner")]
    pub owner_module: Option<String>,

    /// The table that the foreign key names; `none` for no foreign key [default: read from the migrations]
    #[arg(long, value_name = "TABLE", help_heading = "Owner")]
    pub owner_table: Option<String>,

    /// The type of the owner's key: i64, uuid or text [default: read from the migrations or the scope]
    #[arg(long, value_name = "TYPE", help_heading = "Owner")]
    pub owner_id: Option<String>,

    /// How the owner's id is read from the scope, for example `user.id` [default: read from the scope's source]
    #[arg(long, value_name = "PATH", help_heading = "Owner")]
    pub scope_owner: Option<String>,

    /// A group of owners, whose scope may read what its members own: organization, company, … [default: none]
    #[arg(long, value_name = "NAME", help_heading = "Group")]
    pub group_type: Option<String>,

    /// The column that names the group of an owner [default: <group type>_id]
    #[arg(long, value_name = "NAME", help_heading = "Group")]
    pub group_field: Option<String>,

    /// The table with that column: the owner's, or one of memberships [default: read from the migrations]
    #[arg(long, value_name = "TABLE", help_heading = "Group")]
    pub group_table: Option<String>,

    /// How the group's id is read from the scope, for example `organization.id` [default: read from the scope's source]
    #[arg(long, value_name = "PATH", help_heading = "Group")]
    pub scope_group: Option<String>,

    /// What the tables' names start with [default: sagents_]
    #[arg(long, value_name = "PREFIX", help_heading = "Database")]
    pub table_prefix: Option<String>,

    /// The database: sqlite or postgres [default: the one that the project shows, else sqlite]
    #[arg(long, value_name = "NAME", help_heading = "Database")]
    pub database: Option<String>,

    /// The directory of migrations [default: where the project's own tool finds them]
    #[arg(long, value_name = "DIR", help_heading = "Database")]
    pub migrations: Option<Utf8PathBuf>,

    /// Where the owner changes: an SQL expression that gives the new owner of a row `conversation`, for example
    /// `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`; `none` if there are no conversations yet
    #[arg(long, value_name = "SQL", help_heading = "Database")]
    pub backfill: Option<String>,

    /// HTTP routes, server-sent events and a page for the context: axum or none [default: none]
    #[arg(long, value_name = "NAME", help_heading = "Web")]
    pub web: Option<String>,

    /// Where Cargo.toml gets the library from: a version, a path, or a git URL with a tag (`https://…#v1.2.3`)
    /// [default: this program's version]
    #[arg(long, value_name = "SOURCE", help_heading = "Host")]
    pub library: Option<String>,

    /// Print the lines for Cargo.toml and the parent module instead of adding them
    #[arg(long, num_args = 0, default_missing_value = "true", help_heading = "Host")]
    pub no_wire: Option<bool>,

    /// Leave the generated tests out
    #[arg(long, num_args = 0, default_missing_value = "true", help_heading = "Host")]
    pub no_tests: Option<bool>,

    /// Generated files that are the host's now. There is no flag for it: people write it in `sagents.toml`.
    #[arg(skip)]
    pub ejected: Option<Vec<Utf8PathBuf>>,
}

impl Given {
    /// What is given now wins over what was given before.
    #[must_use]
    pub fn over(&self, before: &Self) -> Self {
        let mut options = before.table();
        options.extend(self.table());
        options.try_into().expect("options of the same type have the same keys")
    }

    /// As in `sagents.toml`, without what is absent.
    pub fn table(&self) -> toml::Table {
        toml::Table::try_from(self).expect("options are plain values")
    }
}
