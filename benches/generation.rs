//! The generator beside the programs that it runs: a generation beside two `cargo metadata` and one rustfmt of its files,
//! `check` and an up-to-date rerun beside `cargo metadata`. Nothing here is asserted; the last column is the target.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use support::{FULL, Host, sagents};

/// `quick` makes fewer.
const ROUNDS: usize = 15;

/// Milliseconds: by the clock, and of CPU with all child processes.
#[derive(Clone, Copy)]
struct Cost {
    wall: f64,
    cpu: f64,
}

struct Round {
    generation: Cost,
    rerun: Cost,
    check: Cost,
    metadata: Cost,
    rustfmt: Cost,
}

fn main() {
    if cfg!(debug_assertions) {
        println!("This is a debug build: `cargo bench` measures a release build.");
    }
    let count = if std::env::args().any(|argument| argument == "quick") { 2 } else { ROUNDS };
    // The first round warms the caches.
    let rounds: Vec<Round> = (0..=count).map(|_| Round::measure()).skip(1).collect();
    println!("Milliseconds, median of {count} interleaved rounds; a ratio is the median of the rounds' ratios\n");
    println!(
        "{:<12}{:<28}{:>8}{:>12}{:>9}{:>10}{:>12}{:>9}{:>10}",
        "sagents", "beside", "CPU", "of that", "ratio", "clock", "of that", "ratio", "limit"
    );
    let both = |round: &Round| 2.0 * round.metadata + round.rustfmt;
    row("gen", "2 cargo metadata + rustfmt", 1.0, &rounds, |round| round.generation, both);
    row("gen again", "cargo metadata", 2.0, &rounds, |round| round.rerun, |round| round.metadata);
    row("check", "cargo metadata", 2.0, &rounds, |round| round.check, |round| round.metadata);
}

fn row(
    name: &str,
    reference: &str,
    limit: f64,
    rounds: &[Round],
    ours: impl Fn(&Round) -> Cost,
    theirs: impl Fn(&Round) -> Cost,
) {
    let columns = |part: fn(Cost) -> f64| {
        let ours = |round: &Round| part(ours(round));
        let theirs = |round: &Round| part(theirs(round));
        let ratio = median(rounds, |round| ours(round) / theirs(round));
        format!("{:>12.1}{:>9.2}", median(rounds, theirs), ratio)
    };
    println!(
        "{name:<12}{reference:<28}{:>8.1}{}{:>10.1}{}{:>10}",
        median(rounds, |round| ours(round).cpu),
        columns(|cost| cost.cpu),
        median(rounds, |round| ours(round).wall),
        columns(|cost| cost.wall),
        format!("<= {limit:.1}"),
    );
}

fn median(rounds: &[Round], value: impl Fn(&Round) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { wall: self.wall + other.wall, cpu: self.cpu + other.cpu }
    }
}

impl std::ops::Mul<Cost> for f64 {
    type Output = Cost;

    fn mul(self, cost: Cost) -> Cost {
        Cost { wall: self * cost.wall, cpu: self * cost.cpu }
    }
}

impl Round {
    fn measure() -> Self {
        let host = Host::library().file("src/lib.rs", "pub mod accounts;\n").file(
            "src/accounts.rs",
            "pub struct User {\n    pub id: i64,\n}\n\npub struct Scope {\n    pub user: User,\n}\n",
        );
        let generation = cost(|| run(&host, FULL));
        let rerun = cost(|| run(&host, FULL));
        let check = cost(|| run(&host, "check"));
        let metadata = cost(|| metadata(host.root()));
        let unformatted = unformatted(&host);
        let rustfmt = cost(|| rustfmt(unformatted.root()));
        Self { generation, rerun, check, metadata, rustfmt }
    }
}

fn run(host: &Host, line: &str) {
    succeed(sagents().args(line.split_whitespace()).current_dir(host.root()));
}

fn metadata(root: &Path) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline", "--quiet"];
    succeed(Command::new(cargo).args(arguments).current_dir(root));
}

/// The same host with its generated files as they were before rustfmt: the generator's memory has them.
fn unformatted(host: &Host) -> Host {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("a host's files are text");
    let files = host.files();
    let bases: Vec<_> = files.iter().filter_map(|(path, bytes)| Some((path.split_once("/base/")?.1, bytes))).collect();
    assert!(bases.len() > 4, "the generator remembers its renderings");
    let copy = Host::library().file("src/lib.rs", &host.read("src/lib.rs"));
    let copy = copy.file("src/accounts.rs", &host.read("src/accounts.rs"));
    bases.into_iter().fold(copy, |copy, (path, bytes)| copy.file(path, &text(bytes.clone())))
}

/// One process, which follows the modules from the crate's root.
fn rustfmt(root: &Path) {
    succeed(Command::new("rustfmt").args(["--edition", "2024", "--quiet", "src/lib.rs"]).current_dir(root));
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn cost(work: impl FnOnce()) -> Cost {
    let (before, start) = (cpu_of_children(), Instant::now());
    work();
    Cost { wall: start.elapsed().as_secs_f64() * 1e3, cpu: cpu_of_children() - before }
}

/// The CPU time, user and system, of all child processes that have ended.
fn cpu_of_children() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let micros = (usage.user_time() + usage.system_time()).num_microseconds();
    Duration::from_micros(micros.unsigned_abs()).as_secs_f64() * 1e3
}
