//! Runs that do not come to their end: stopped before any of their writes, killed, refused by the disk, or two at once.
//! Whatever happens, the next run leaves the old project or the new one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Instant;

use insta::assert_snapshot;

use crate::support::{Host, PLAIN, Run, manifest, sagents, unformatted};
use crate::transcript::{anonymous, everything, outside, refusals};

const REFUSED: &str = "gen persistence conversations --table-prefix x-y";
/// Without tests no text and no digest depends on the time; only the migration's name does.
const INIT: &str = "gen persistence MyApp.Conversations -s MyApp.Accounts.Scope --init --no-tests";

/// Every file by its path, without what depends on the time.
type Files = BTreeMap<String, Content>;

#[derive(Debug, PartialEq, Eq)]
struct Content {
    mode: u32,
    /// Of a link, where it leads.
    text: String,
}

#[test]
fn a_first_run_stopped_anywhere_leaves_the_old_project_or_the_new_one() {
    Interruption::of(library(), PLAIN).at_every(7);
}

#[test]
fn a_rerun_stopped_anywhere_leaves_the_old_project_or_the_new_one() {
    Interruption::of(without_tests(), PLAIN).at_every_write();
}

#[test]
fn a_rerun_that_removes_a_file_stopped_anywhere_leaves_the_old_project_or_the_new_one() {
    removal().at_every_write();
}

#[test]
fn a_forced_run_stopped_anywhere_leaves_the_old_project_or_the_new_one() {
    let host = with_tests();
    host.write("src/conversations/scope.rs", "//! Mine.\n");
    let interruption = Interruption::of(host, &format!("{PLAIN} --force"));
    assert_eq!(interruption.new["host/src/conversations/scope.rs.orig"].text, "//! Mine.\n");
    interruption.at_every_write();
}

#[test]
fn init_stopped_anywhere_leaves_nothing_or_the_new_package() {
    Interruption::of(Host::empty(), INIT).at_every(11);
}

#[test]
fn init_in_a_new_directory_stopped_anywhere_leaves_nothing_or_the_new_package() {
    Interruption::of(Host::empty(), &format!("{INIT} --path apps/new")).at_every(5);
}

#[test]
fn a_write_that_fails_leaves_the_old_project_and_no_trace() {
    // One in some of a run with many files, every one of a run with few.
    Interruption::of(library(), PLAIN).fails_at_every(31);
    Interruption::of(Host::empty(), &format!("{INIT} --path apps/new")).fails_at_every(31);
    Interruption::of(without_tests(), PLAIN).fails_at_every(1);
    removal().fails_at_every(1);
}

#[test]
fn a_run_that_cannot_be_undone_either_is_ended_by_the_next_one() {
    let interruption = Interruption::of(without_tests(), PLAIN);
    for turn in (1..).step_by(3) {
        let host = copy_of(&interruption.before);
        let mut run = Stepped::start(&host, PLAIN);
        if !run.skip(turn) || !run.fail() {
            break;
        }
        while run.fail() {}
        let (success, stderr) = run.end();
        assert!(success || stderr.contains("help: make it possible to write there"), "{turn}: {stderr}");
        interruption.assert_a_refused_run_ends_it(&host, turn);
    }
}

#[test]
fn an_interruption_whose_end_is_interrupted_is_ended_by_the_next_run() {
    let interruption = Interruption::of(library(), PLAIN);
    let host = interrupted_while_committing();
    let mut run = Stepped::start(&host, REFUSED);
    let mut turn = 0;
    while run.is_about_to_write() {
        turn += 1;
        if turn % 5 != 0 {
            run.go_on();
            continue;
        }
        let stopped = copy_of(&host);
        assert_eq!(stopped.refused(&REFUSED.split(' ').collect::<Vec<_>>()).code, 2);
        assert_eq!(difference(&files(&stopped), &interruption.new), "", "{turn}");
        run.go_on();
    }
    assert!(turn > 10, "only {turn} writes");
}

/// A run that is interrupted: the project before it, its command line, and the project after it if nobody disturbs it.
struct Interruption {
    before: Host,
    line: String,
    old: Files,
    new: Files,
}

impl Interruption {
    fn of(before: Host, line: &str) -> Self {
        let after = copy_of(&before);
        let run = run(&after, line);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        Self { old: files(&before), new: files(&after), line: line.to_owned(), before }
    }

    fn at_every_write(self) {
        self.at_every(1);
    }

    /// Looks at what the run has done before its writes, as if it had been stopped there: what comes next? Writes of many
    /// files are alike, so one in some is enough, with the first ones and what follows on a change of the journal.
    fn at_every(self, step: usize) {
        let journal = self.before.root().join(".sagents/journal.toml");
        let read = || fs::read_to_string(&journal).ok();
        let mut run = Stepped::start(&self.before, &self.line);
        let (mut turn, mut known): (usize, _) = (0, read());
        while run.is_about_to_write() {
            turn += 1;
            let is_next = known != read();
            known = read();
            if turn <= 20 || is_next || turn.is_multiple_of(step) {
                self.assert_the_next_run_ends_it(turn);
            }
            run.go_on();
        }
        assert!(run.end().0 && turn > 10, "only {turn} writes");
        assert_eq!(difference(&files(&self.before), &self.new), "");
    }

    /// A refused command shows how an interruption is ended. That is how every command begins, so with one that is not
    /// refused some checks are enough.
    fn assert_the_next_run_ends_it(&self, turn: usize) {
        let stopped = copy_of(&self.before);
        assert_no_file_is_torn(&files(&stopped), &self.old, &self.new);
        if turn.is_multiple_of(10) {
            self.assert_the_same_run_ends_it(&copy_of(&stopped));
        }
        self.assert_a_refused_run_ends_it(&stopped, turn);
    }

    fn assert_the_same_run_ends_it(&self, host: &Host) {
        let again = run(host, &self.line);
        assert_eq!((again.code, difference(&files(host), &self.new)), (0, String::new()), "{again:?}");
    }

    fn assert_a_refused_run_ends_it(&self, host: &Host, turn: usize) {
        let line = format!("{} --table-prefix x-y", self.line);
        let refused = host.refused(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(refused.code, 2, "{turn}: {refused:?}");
        let left = files(host);
        let is_complete = left == self.old || left == self.new;
        assert!(is_complete, "{turn}: neither the old project:\n{}", difference(&left, &self.old));
    }

    /// Lets writes fail, each in a run of its own.
    fn fails_at_every(&self, step: usize) {
        for turn in (1..).step_by(step) {
            let host = copy_of(&self.before);
            let before = everything(&host);
            let mut run = Stepped::start(&host, &self.line);
            if !run.skip(turn) {
                assert!(turn > 10, "only {turn} writes");
                return;
            }
            run.fail();
            let (success, stderr) = run.end();
            if success {
                // It was something that may fail, such as removing an empty directory.
                assert_eq!(difference(&files(&host), &self.new), "", "{turn}");
            } else {
                assert!(stderr.starts_with("error: nothing was changed: cannot "), "{turn}: {stderr}");
                assert_eq!(everything(&host), before, "{turn}");
            }
        }
    }
}

/// Right after a stop every file is the old one or the new one, beside what is staged.
fn assert_no_file_is_torn(stopped: &Files, old: &Files, new: &Files) {
    let is_ours = |path: &str| {
        let name = path.rsplit('/').next().unwrap();
        path.contains("/.sagents-init.tmp/") || name.starts_with(".sagents-") || name.starts_with("journal.")
    };
    for (path, bytes) in stopped.iter().filter(|(path, _)| !is_ours(path)) {
        assert!([old.get(path), new.get(path)].contains(&Some(bytes)), "{path} is neither old nor new");
    }
    for path in old.keys().filter(|path| new.contains_key(*path)) {
        assert!(stopped.contains_key(path), "{path} is gone");
    }
}

#[test]
fn a_run_killed_at_any_moment_is_ended_by_the_next_one() {
    let interruption = Interruption::of(library(), PLAIN);
    let start = Instant::now();
    // A process takes longer than a call.
    Run::of(&mut command(&library(), PLAIN));
    let duration = start.elapsed();
    for _ in 0..20 {
        let host = library();
        let mut child = command(&host, PLAIN).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(duration.mul_f64(random()));
        child.kill().unwrap();
        child.wait().unwrap();
        interruption.assert_the_same_run_ends_it(&host);
    }
}

#[test]
fn what_was_edited_after_an_interruption_is_kept() {
    let host = interrupted_while_committing();
    host.write("src/lib.rs", "// Mine.\n");
    let run = run(&host, PLAIN);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(host.read("real/lib.rs.orig"), "// Mine.\n");
    assert_eq!(host.read("src/lib.rs"), "pub mod accounts;\npub mod conversations;\n");
    assert_snapshot!(run.stderr, @"
    an earlier run was interrupted: what it had begun is now finished
    edited since then, and kept: real/lib.rs.orig
    ");
}

#[test]
fn what_was_kept_before_an_interruption_stays() {
    let host = interrupted_while_committing();
    host.write("real/lib.rs.orig", "// Older.\n");
    host.write("src/lib.rs", "// Mine.\n");
    assert_eq!(run(&host, PLAIN).code, 0);
    assert_eq!(["orig", "orig.1"].map(|kept| host.read(&format!("real/lib.rs.{kept}"))), ["// Older.\n", "// Mine.\n"]);
}

#[test]
fn a_command_that_only_looks_refuses_an_interrupted_run() {
    let hosts = [interrupted_while_committing(), interrupted_between_files()];
    let lines = ["check", "diff", "list", &format!("{PLAIN} --dry-run"), &format!("{PLAIN} --diff")];
    let [none, some] = hosts.map(|host| refusals(&host, &lines));
    assert_eq!(none, some);
    assert_snapshot!(some, @"
    $ check
    error: an earlier run of sagents was interrupted here
    help: `sagents update` ends it
    exit 3

    $ diff
    error: an earlier run of sagents was interrupted here
    help: `sagents update` ends it
    exit 3

    $ list
    error: an earlier run of sagents was interrupted here
    help: `sagents update` ends it
    exit 3

    $ gen persistence conversations -s accounts::Scope --dry-run
    error: an earlier run of sagents was interrupted here
    help: `sagents update` ends it
    exit 3

    $ gen persistence conversations -s accounts::Scope --diff
    error: an earlier run of sagents was interrupted here
    help: `sagents update` ends it
    exit 3
    ");
}

/// A host whose run was killed when all was staged and nothing in place yet.
fn interrupted_while_committing() -> Host {
    let host = library();
    committing(&host).kill();
    host
}

/// A host whose run was killed when some files were in place.
fn interrupted_between_files() -> Host {
    let host = library();
    let mut run = committing(&host);
    while !host.exists("src/conversations.rs") {
        run.go_on();
        assert!(run.is_about_to_write(), "it is at its end");
    }
    run.kill();
    host
}

/// A run that has staged all and is about to put the first file in place.
fn committing(host: &Host) -> Stepped {
    let mut run = Stepped::start(host, PLAIN);
    while run.is_about_to_write() {
        let journal = fs::read_to_string(host.root().join(".sagents/journal.toml")).unwrap_or_default();
        if journal.contains("phase = \"committing\"") {
            break;
        }
        run.go_on();
    }
    run
}

#[test]
fn a_journal_that_cannot_be_meant_is_refused() {
    let journals = [
        "phase = \"staging\"\n<<<<<<<\n",
        "phase = \"resting\"\ndirectories = []\nfiles = []\n",
        "phase = \"committing\"\ndirectories = []\n[[files]]\npath = \"../precious\"\nbecomes = \"removed\"\n",
        "phase = \"committing\"\ndirectories = []\n[[files]]\npath = \"link/precious\"\nbecomes = \"removed\"\n",
    ];
    let all = journals.map(|journal| {
        let host = library();
        host.write(".sagents/journal.toml", journal);
        host.write("../precious", "");
        symlink("..", host.root().join("link")).unwrap();
        let before = everything(&host);
        let run = run(&host, PLAIN);
        assert_eq!(everything(&host), before);
        format!("{}exit {}\n", anonymous(&host, &run.stderr), run.code)
    });
    assert_snapshot!(all.join("\n"), @"
    error: .sagents/journal.toml cannot be read: key with no value, expected `=`
    help: restore the project from version control, remove .sagents/journal.toml, then run this again
    exit 2

    error: .sagents/journal.toml cannot be read: unknown variant `resting`, expected one of `staging`, `committing`, `undoing`
    help: restore the project from version control, remove .sagents/journal.toml, then run this again
    exit 2

    error: .sagents/journal.toml cannot be read: ../precious is outside of the package
    help: restore the project from version control, remove .sagents/journal.toml, then run this again
    exit 2

    error: .sagents/journal.toml cannot be read: link/precious is outside of the package
    help: restore the project from version control, remove .sagents/journal.toml, then run this again
    exit 2
    ");
}

#[test]
fn a_full_disk_leaves_no_trace() {
    let host = library();
    let before = everything(&host);
    // A limit on the size of a file stands for it.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 24; exec \"$@\"", "sh"]).arg(sagents().get_program());
    let run = Run::of(limited.args(PLAIN.split(' ')).current_dir(host.root()).stdin(Stdio::null()));
    assert_eq!(everything(&host), before);
    assert_eq!(run.code, 1);
    let (error, help) = run.stderr.split_once('\n').unwrap();
    assert!(error.starts_with("error: nothing was changed: cannot write "), "{error}");
    assert!(error.ends_with(": File too large (os error 27)"), "{error}");
    assert_eq!(help, "help: make it possible to write there, then run the same command again\n");
}

#[test]
fn two_runs_at_once_both_succeed() {
    for (host, line) in [(library(), PLAIN), (Host::empty(), INIT), (Host::empty(), &format!("{INIT} --path apps/new"))]
    {
        let interruption = Interruption::of(host, line);
        let host = &interruption.before;
        let start = || command(host, line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        for child in [start(), start(), start()] {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        assert_eq!(difference(&files(host), &interruption.new), "");
    }
}

#[test]
fn a_run_waits_for_another_one_and_says_so() {
    let host = library();
    let before = everything(&host);
    let lock = File::open(host.root()).unwrap();
    lock.lock().unwrap();
    let (mut child, stderr) = waiting(&host);
    assert_eq!(everything(&host), before);
    lock.unlock().unwrap();
    assert_eq!(anonymous(&host, &stderr), "waiting for another run of sagents in [host]\n");
    assert!(child.wait().unwrap().success());
    assert!(host.exists("src/conversations.rs"));
}

#[test]
fn a_run_that_only_reads_does_not_wait() {
    let host = library();
    let lock = File::open(host.root()).unwrap();
    lock.lock().unwrap();
    assert_eq!(run(&host, &format!("{PLAIN} --dry-run")).code, 0);
}

#[test]
fn a_run_goes_on_when_the_one_that_it_waits_for_is_killed() {
    let interruption = Interruption::of(library(), PLAIN);
    let host = &interruption.before;
    let mut holder = Stepped::start(host, PLAIN);
    assert!(holder.skip(20) && holder.is_about_to_write());
    let (mut child, stderr) = waiting(host);
    assert!(stderr.starts_with("waiting for another run"), "{stderr}");
    holder.kill();
    assert!(child.wait().unwrap().success());
    assert_eq!(difference(&files(host), &interruption.new), "");
}

/// A run that waits, and what it said.
fn waiting(host: &Host) -> (Child, String) {
    let mut child = command(host, PLAIN).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    (child, line)
}

/// A run that asks before each of its writes.
struct Stepped {
    child: Child,
    stderr: BufReader<ChildStderr>,
    said: String,
}

impl Stepped {
    fn start(host: &Host, line: &str) -> Self {
        let mut command = command(host, line);
        command.env("SAGENTS_STEP", "1").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        Self { stderr: BufReader::new(child.stderr.take().unwrap()), said: String::new(), child }
    }

    /// Waits until it is about to write, or ends.
    fn is_about_to_write(&mut self) -> bool {
        loop {
            let mut line = String::new();
            self.stderr.read_line(&mut line).unwrap();
            match line.as_str() {
                "" => return false,
                "about to change the disk\n" => return true,
                said => self.said += said,
            }
        }
    }

    /// Lets it write.
    fn go_on(&mut self) {
        self.answer("\n");
    }

    /// Lets writes before a certain one pass. False if there are not so many.
    fn skip(&mut self, turn: usize) -> bool {
        for _ in 1..turn {
            if !self.is_about_to_write() {
                return false;
            }
            self.go_on();
        }
        true
    }

    /// Lets the next write fail. False if there is none.
    fn fail(&mut self) -> bool {
        let is_there = self.is_about_to_write();
        if is_there {
            self.answer("fail\n");
        }
        is_there
    }

    fn answer(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Whether it succeeds, and what it says.
    fn end(mut self) -> (bool, String) {
        while self.is_about_to_write() {
            self.go_on();
        }
        (self.child.wait().unwrap().success(), self.said)
    }
}

/// A library whose root is a link to a file that not everybody may read. Its migrations are sequential, so that no
/// file's name tells the time.
fn library() -> Host {
    let host = Host::empty();
    host.write("Cargo.toml", &manifest("my_app", "2024", ""));
    host.write("real/lib.rs", "");
    fs::set_permissions(host.root().join("real/lib.rs"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::create_dir(host.root().join("src")).unwrap();
    symlink("../real/lib.rs", host.root().join("src/lib.rs")).unwrap();
    host.write("migrations/0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY);\n");
    host
}

/// A library whose tests are one file; the others are its own, so that a run which adds or removes them has few writes.
fn with_few_tests() -> Host {
    let tests = ["branches", "exports", "messages", "owners", "runs", "states", "tool_calls", "usage"];
    let ejected = tests.map(|name| format!("src/conversations/tests/{name}.rs"));
    library().file("sagents.toml", &format!("[contexts.conversations]\nejected = {ejected:?}\n"))
}

/// A library that was generated into.
fn with_tests() -> Host {
    let host = with_few_tests();
    let run = run(&host, PLAIN);
    assert_eq!(run.code, 0, "{run:?}");
    host
}

/// The run that leaves the tests out of a library that has them.
fn removal() -> Interruption {
    let interruption = Interruption::of(with_tests(), &format!("{PLAIN} --no-tests"));
    assert!(!interruption.new.contains_key("host/src/conversations/tests.rs"), "nothing is removed");
    interruption
}

/// A library that was generated into without tests; since then somebody changed the options.
fn without_tests() -> Host {
    let host = with_few_tests();
    let run = run(&host, &format!("{PLAIN} --no-tests"));
    assert_eq!(run.code, 0, "{run:?}");
    host.write("sagents.toml", &host.read("sagents.toml").replace("no-tests = true\n", ""));
    host
}

fn copy_of(host: &Host) -> Host {
    let copy = Host::empty();
    let status = Command::new("cp").arg("-a").arg(host.root().join(".")).arg(copy.root()).status().unwrap();
    assert!(status.success());
    copy
}

/// Every file and link in a host and beside it.
fn files(host: &Host) -> Files {
    let is_kept = |path: &Path| path.is_symlink() || !path.is_dir();
    let all = everything(host).into_iter().filter(|(path, _)| is_kept(path));
    all.map(|(path, bytes)| {
        let mode = path.symlink_metadata().unwrap().permissions().mode();
        let name = path.strip_prefix(outside(host)).unwrap().to_str().unwrap();
        (anonymous(host, name), Content { mode, text: timeless(host, String::from_utf8(bytes).unwrap()) })
    })
    .collect()
}

/// As [`anonymous`], which takes its time with texts that are so already.
fn timeless(host: &Host, text: String) -> String {
    let is_so = ["_create_", outside(host).to_str().unwrap()].iter().all(|part| !text.contains(part));
    if is_so { text } else { anonymous(host, &text) }
}

/// The paths that are not the same in both.
fn difference(one: &Files, other: &Files) -> String {
    let paths: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    let differing: Vec<&str> =
        paths.into_iter().filter(|path| one.get(*path) != other.get(*path)).map(String::as_str).collect();
    differing.join("\n")
}

fn run(host: &Host, line: &str) -> Run {
    host.unformatted(&line.split_whitespace().collect::<Vec<_>>())
}

/// The program in a host, with a rustfmt that costs nothing.
fn command(host: &Host, line: &str) -> Command {
    let mut command = unformatted();
    command.args(line.split_whitespace()).current_dir(host.root());
    command
}

/// Between 0 and 1.
fn random() -> f64 {
    f64::from(u16::try_from(RandomState::new().hash_one(()) >> 48).unwrap()) / f64::from(u16::MAX)
}
