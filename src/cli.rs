//! The command line, as clap types only. No rule about a value lives here: `options` has them all.

use camino::Utf8PathBuf;
use clap::{Args, Parser, Subcommand};

use crate::given::Given;

#[derive(Debug, Parser)]
#[command(
    name = "sagents",
    bin_name = "sagents",
    version,
    about = "Generates persistence for AI-agent conversations into your Rust project",
    after_help = EXIT_CODES,
    after_long_help = EXAMPLES,
    propagate_version = true,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Generate code, or rerun over what was generated
    #[command(subcommand)]
    Gen(Generator),
    /// Rerun with the recorded options, after an upgrade of sagents or an edit of sagents.toml
    #[command(after_help = EXIT_CODES, after_long_help = UPDATE_EXAMPLES)]
    Update(Update),
    /// For CI: is everything as the generator would leave it? Writes nothing
    #[command(after_help = EXIT_CODES, after_long_help = CHECK_EXAMPLES)]
    Check(Look),
    /// Show what a rerun would change, as a unified diff. Writes nothing
    #[command(after_help = EXIT_CODES)]
    Diff(Look),
    /// Show the generated contexts and their options
    #[command(after_help = EXIT_CODES)]
    List(List),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  sagents completions bash > ~/.local/share/bash-completion/completions/sagents")]
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write one for every command
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// The directory to write all pages to; it is made if it is missing
        #[arg(long, value_name = "DIR")]
        dir: Option<Utf8PathBuf>,
    },
}

impl Command {
    pub fn host(&mut self) -> Option<&mut HostArgs> {
        match self {
            Self::Gen(Generator::Persistence(args)) => Some(&mut args.run.host),
            Self::Update(args) => Some(&mut args.host),
            Self::Check(args) | Self::Diff(args) => Some(&mut args.host),
            Self::List(args) => Some(&mut args.host),
            Self::Completions { .. } | Self::Man { .. } => None,
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum Generator {
    /// Conversations, agent states and display messages: context, models, migration and tests
    #[command(visible_alias = "p", after_help = EXIT_CODES, after_long_help = GEN_EXAMPLES)]
    Persistence(Box<Persistence>),
}

#[derive(Debug, Args)]
pub struct Persistence {
    /// The module to generate: `MyApp.Conversations`, `crate::chat::conversations` or `conversations`
    #[arg(value_name = "CONTEXT")]
    pub context: String,

    #[command(flatten)]
    pub given: Given,

    /// Write the scope type if it does not exist. With --init, and in a package without any type, that needs no flag
    #[arg(long, help_heading = "Owner")]
    pub create_scope: bool,

    /// Drop the columns of former owners, which a change of owner keeps
    #[arg(long, help_heading = "Database")]
    pub drop_old_owner: bool,

    #[command(flatten)]
    pub run: GenerateArgs,
}

/// What every generator takes.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags")]
pub struct GenerateArgs {
    #[command(flatten, next_help_heading = "Host")]
    pub host: HostArgs,

    /// Create a new package there first, with a runnable example
    #[arg(long, conflicts_with = "package", help_heading = "Host")]
    pub init: bool,

    /// Show what would happen to each file; write nothing
    #[arg(long, help_heading = "Run")]
    pub dry_run: bool,

    /// Show the whole difference; write nothing
    #[arg(long, help_heading = "Run")]
    pub diff: bool,

    /// Replace files that cannot be merged; the old ones are kept beside as `.orig`
    #[arg(long, help_heading = "Run")]
    pub force: bool,

    /// Answer yes to questions. Without a terminal nothing is ever asked
    #[arg(short, long, help_heading = "Run")]
    pub yes: bool,

    /// Print the report as JSON
    #[arg(long, help_heading = "Run")]
    pub json: bool,
}

/// Where the host is.
#[derive(Debug, Args)]
pub struct HostArgs {
    /// The host's package directory
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub path: Utf8PathBuf,

    /// The host's package by its name, in the workspace of that directory
    #[arg(short, long, value_name = "NAME")]
    pub package: Option<String>,
}

#[derive(Debug, Args)]
pub struct Update {
    /// The contexts to update [default: all]
    #[arg(value_name = "CONTEXT")]
    pub contexts: Vec<String>,

    #[command(flatten)]
    pub host: HostArgs,

    /// Drop the columns of former owners, which a change of owner keeps
    #[arg(long)]
    pub drop_old_owner: bool,

    /// Replace files that cannot be merged; the old ones are kept beside as `.orig`
    #[arg(long)]
    pub force: bool,

    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Look {
    /// The contexts to look at [default: all]
    #[arg(value_name = "CONTEXT")]
    pub contexts: Vec<String>,

    #[command(flatten)]
    pub host: HostArgs,

    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    pub host: HostArgs,

    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,
}

/// The exit codes are written once, and `concat!` takes no constants.
macro_rules! exit_codes {
    () => {
        "\
Exit codes:
  0  done, or up to date
  1  the file system refused, or a tool is missing
  2  bad command line or option value
  3  changes are pending (check, diff)
  4  conflicts are left in files
  5  a decision is needed that only a person or a flag can make"
    };
}

const EXIT_CODES: &str = exit_codes!();

const EXAMPLES: &str = concat!(
    "\
Examples:
  # A new project that runs at once
  sagents gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --init
  # Into the project that you are in
  sagents gen persistence conversations --scope crate::accounts::Scope
  # After an upgrade of sagents: bring everything up to date, edits and rows included
  sagents update
  # In CI
  sagents check
  # What is there
  sagents list

",
    exit_codes!()
);

const MAN_EXAMPLES: &str = "\
Examples:
  # Read it here
  sagents man | man -l -
  # For `man sagents` and `man sagents-gen-persistence`
  sagents man --dir ~/.local/share/man/man1";

const UPDATE_EXAMPLES: &str = concat!(
    "\
Examples:
  # Every context
  sagents update
  # One, after its options in sagents.toml were edited
  sagents update conversations

",
    exit_codes!()
);

const CHECK_EXAMPLES: &str = concat!(
    "\
Examples:
  # In CI: fails if a rerun is due, conflicts are left, or a migration was altered
  sagents check
  # What is wrong, for a program
  sagents check --json

",
    exit_codes!()
);

const GEN_EXAMPLES: &str = concat!(
    "\
Examples:
  # A new project that runs at once
  sagents gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --init

  # Into a project whose scope knows its user
  sagents gen persistence MyApp.Conversations \\
    --scope MyApp.Accounts.Scope --owner-type user --owner-field user_id \\
    --owner-module MyApp.Accounts.User --table-prefix sagents_

  # Owned by a team, read from the scope by hand; see the plan first
  sagents gen persistence crate::chat::conversations -s crate::auth::Session \\
    -t team --scope-owner 'membership.team_id' --dry-run

  # An application with one user: conversations have no owner, and there is no scope to name
  sagents gen persistence conversations --owner-type none

  # Rerun: from users to teams, keeping every row
  sagents gen persistence MyApp.Conversations --owner-type team \\
    --backfill '(SELECT team_id FROM users WHERE users.id = conversation.user_id)'

",
    exit_codes!()
);
