//! The CPU that generating takes, beside the programs it has to run: `cargo metadata` once and rustfmt for each file.
//! What is left is our own. Nothing here is asserted: section 10 of the design asks for 30 ms or less.

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use support::{FULL, Host, sagents};

const ROUNDS: usize = 15;

/// What one round measured, in milliseconds of CPU.
struct Round {
    fresh: f64,
    rerun: f64,
    metadata: f64,
    rustfmt: f64,
}

fn main() {
    let rounds: Vec<Round> = (0..=ROUNDS).map(|_| Round::measure()).skip(1).collect();
    println!("CPU time (user and system, with child processes), median of {ROUNDS} interleaved rounds\n");
    println!(
        "{:<22}{:>12}{:>18}{:>12}{:>12}{:>12}",
        "gen persistence", "total", "cargo metadata", "rustfmt", "our own", "target"
    );
    row("into a fresh host", &rounds, |round| round.fresh);
    row("rerun, up to date", &rounds, |round| round.rerun);
}

fn row(name: &str, rounds: &[Round], total: impl Fn(&Round) -> f64) {
    let median = |of: &dyn Fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    println!(
        "{name:<22}{:>9.1} ms{:>15.1} ms{:>9.1} ms{:>9.1} ms{:>12}",
        median(&total),
        median(&|round| round.metadata),
        median(&|round| round.rustfmt),
        median(&|round| total(round) - round.metadata - round.rustfmt),
        "<= 30 ms",
    );
}

impl Round {
    fn measure() -> Self {
        let host = Host::library().file("src/lib.rs", "pub mod accounts;\n").file(
            "src/accounts.rs",
            "pub struct User {\n    pub id: i64,\n}\n\npub struct Scope {\n    pub user: User,\n}\n",
        );
        let fresh = cpu_of(|| generate(&host));
        let rerun = cpu_of(|| generate(&host));
        let metadata = cpu_of(|| metadata(host.root()));
        // The generator's memory has the texts as they were before rustfmt.
        let texts: Vec<_> =
            host.files().into_iter().filter(|(path, _)| path.contains("/base/")).map(|(_, text)| text).collect();
        assert!(!texts.is_empty(), "the generator remembers its renderings");
        let rustfmt = cpu_of(|| rustfmt(host.root(), &texts));
        Self { fresh, rerun, metadata, rustfmt }
    }
}

fn generate(host: &Host) {
    let output = sagents().args(FULL.split_whitespace()).current_dir(host.root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn metadata(root: &Path) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--quiet"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// All at once, as the generator does it.
fn rustfmt(root: &Path, texts: &[Vec<u8>]) {
    let start = |text: &Vec<u8>| {
        let mut child = Command::new("rustfmt")
            .args(["--edition", "2024", "--quiet"])
            .current_dir(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text).unwrap();
        child
    };
    let running: Vec<_> = texts.iter().map(start).collect();
    for child in running {
        assert!(child.wait_with_output().unwrap().status.success());
    }
}

/// The CPU time of the processes that `work` starts and waits for, in milliseconds.
fn cpu_of(work: impl FnOnce()) -> f64 {
    let before = children();
    work();
    children() - before
}

fn children() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let micros = (usage.user_time() + usage.system_time()).num_microseconds();
    Duration::from_micros(micros.unsigned_abs()).as_secs_f64() * 1e3
}
