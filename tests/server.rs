//! The `PostgreSQL` server that other tests use: it answers, survives a crash and leaves nothing behind.

#[path = "../crates/sagents/tests/support/postgres.rs"]
mod postgres;

use std::io::{BufRead, BufReader, Read, stdin};
use std::os::unix::fs::PermissionsExt;
use std::panic::{catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use postgres::{Database, Server};

/// Says to `owner`, in a child of this test binary, what it shall own.
const OWNER: &str = "SAGENTS_TEST_OWNER";

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn a_server_answers_with_its_settings() {
    let server = Server::start_with(&[("cluster_name", r"it's a \ test"), ("max_connections", "50")]);
    let names = ["cluster_name", "max_connections", "fsync", "synchronous_commit", "server_encoding"];
    let values = names.map(|name| server.query("postgres", &format!("SHOW {name}")));
    assert_eq!(values, [r"it's a \ test", "50", "off", "on", "UTF8"]);
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn a_database_may_have_any_name() {
    let server = Server::start();
    let name = r#"a "b" c/d?é%"#;
    server.create_database(name);
    assert_eq!(server.query(name, "SELECT current_database()"), name);
    server.drop_database(name);
    assert_eq!(server.query("postgres", "SELECT count(*) FROM pg_database WHERE datname LIKE 'a %'"), "0");
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn a_killed_server_starts_again_with_every_row_that_was_committed() {
    let server = Server::start();
    server.query("postgres", "CREATE TABLE rows (id int)");
    for crash in 1..=5 {
        server.query("postgres", &format!("INSERT INTO rows VALUES ({crash})"));
        thread::scope(|scope| {
            // A session that works would not notice for a long time that its server is gone.
            let busy = scope.spawn(|| server.query("postgres", "SELECT count(*) FROM generate_series(1, 1e12::int8)"));
            let count = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%series%'";
            // The one that counts is found as well.
            poll(|| server.query("postgres", count) == "2", || "no session works".into());
            server.kill();
            assert!(busy.join().is_err());
        });
        server.restart();
        assert_eq!(server.query("postgres", "SELECT count(*) FROM rows"), crash.to_string());
    }
    assert!(server.log().contains("not properly shut down"), "{}", server.log());
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn a_stopped_server_starts_again_at_the_same_url() {
    let server = Server::start();
    let (url, first) = (server.url("postgres"), server.process_id());
    server.stop();
    assert!(!is_running(first));
    server.restart();
    assert_eq!(server.url("postgres"), url);
    assert_ne!(server.process_id(), first);
    assert!(!server.log().contains("not properly shut down"), "{}", server.log());
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn two_servers_know_nothing_of_each_other() {
    let (one, two) = (Server::start(), Server::start());
    one.create_database("one");
    two.create_database("two");
    let names = "SELECT string_agg(datname, ',') FROM pg_database WHERE datname IN ('one', 'two')";
    assert_eq!([one.query("postgres", names), two.query("postgres", names)], ["one", "two"]);
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn a_database_is_its_owners_alone_and_goes_with_it() {
    let (one, two) = (Database::new(), Database::new());
    one.query("CREATE TABLE conversations (id int)");
    assert_eq!(two.query("SELECT to_regclass('conversations') IS NULL"), "t");
    assert_eq!(one.query("SELECT current_database()"), one.name());
    let name = one.name().to_owned();
    drop(one);
    assert_eq!(two.query(&format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'")), "0");
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn the_server_that_the_environment_names_is_used() {
    let server = Server::start();
    let url = server.url("postgres") + "?sslmode=disable&statement-cache-capacity=5";
    let (mut owner, traces) = start_owner(command("database").env("DATABASE_URL", &url));
    assert_eq!(traces.directory, server.directory());
    let count = "SELECT count(*) FROM pg_database WHERE datname LIKE 'sagents_test_%'";
    assert_eq!(server.query("postgres", count), "1");
    drop(owner.stdin.take());
    owner.wait().unwrap();
    assert_eq!(server.query("postgres", count), "0");
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn a_dropped_server_leaves_nothing_behind() {
    let ends: [fn(&Server); 3] = [|_| (), Server::stop, Server::kill];
    for end in ends {
        let server = Server::start();
        let traces = Traces::of(&|sql| server.query("postgres", sql));
        end(&server);
        drop(server);
        assert_eq!(traces.left(), Vec::<String>::new());
    }
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn a_panic_leaves_nothing_behind() {
    let panicked = catch_unwind(|| {
        let server = Server::start();
        let traces = Traces::of(&|sql| server.query("postgres", sql));
        resume_unwind(Box::new(traces));
    });
    let traces: Box<Traces> = panicked.unwrap_err().downcast().unwrap();
    assert_eq!(traces.left(), Vec::<String>::new());
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn a_process_that_is_killed_leaves_nothing_behind() {
    let (mut owner, traces) = start_owner(&mut command("server"));
    owner.kill().unwrap();
    owner.wait().unwrap();
    poll(|| traces.left().is_empty(), || traces.left().join("\n"));
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn a_process_that_is_killed_while_its_server_starts_leaves_nothing_behind() {
    let temporary = tempfile::tempdir().unwrap();
    fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for milliseconds in [0, 20, 50, 100, 200, 500, 800, 1000, 1200, 1500] {
        let mut owner = command("server").env("TMPDIR", temporary.path()).spawn().unwrap();
        thread::sleep(Duration::from_millis(milliseconds));
        owner.kill().unwrap();
        owner.wait().unwrap();
    }
    let left = || temporary.path().read_dir().unwrap().count();
    poll(|| left() == 0, || format!("{} directories are left", left()));
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn the_server_that_a_process_shares_ends_with_it() {
    let (mut owner, traces) = start_owner(command("database").env_remove("DATABASE_URL"));
    drop(owner.stdin.take());
    assert!(owner.wait().unwrap().success());
    poll(|| traces.left().is_empty(), || traces.left().join("\n"));
}

/// No test of its own: it owns what the variable says until its input ends or it is killed.
#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn owner() {
    let wait = |query: &dyn Fn(&str) -> String| {
        println!("\n{}", Traces::of(query).line());
        stdin().read_to_end(&mut Vec::new()).unwrap();
    };
    match env::var(OWNER).as_deref() {
        Ok("server") => {
            let server = Server::start();
            wait(&|sql| server.query("postgres", sql));
        }
        Ok("database") => {
            let database = Database::new();
            wait(&|sql| database.query(sql));
        }
        _ => {}
    }
}

/// This test binary, to run `owner` alone.
fn command(kind: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["owner", "--exact", "--include-ignored", "--nocapture"]).env(OWNER, kind);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Runs it until its server answers.
fn start_owner(command: &mut Command) -> (Child, Traces) {
    let mut owner = command.spawn().unwrap();
    let lines = BufReader::new(owner.stdout.as_mut().unwrap()).lines();
    let traces = lines.map_while(Result::ok).find_map(|line| Traces::parse(&line));
    (owner, traces.expect("the owner says what it owns"))
}

/// What is there as long as a server is.
struct Traces {
    directory: PathBuf,
    processes: Vec<u32>,
}

impl Traces {
    fn of(query: &dyn Fn(&str) -> String) -> Self {
        let data = PathBuf::from(query("SHOW data_directory"));
        let postmaster = fs::read_to_string(data.join("postmaster.pid")).unwrap();
        let processes = query("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()");
        let processes = postmaster.lines().take(1).chain(processes.lines()).map(|line| line.parse().unwrap());
        let traces = Self { directory: data.parent().unwrap().into(), processes: processes.collect() };
        assert!(traces.left().len() > 3, "{}", traces.line());
        traces
    }

    fn line(&self) -> String {
        format!("owns {} {:?}", self.directory.display(), self.processes)
    }

    fn parse(line: &str) -> Option<Self> {
        let (directory, processes) = line.strip_prefix("owns ")?.strip_suffix(']')?.split_once(" [")?;
        let processes = processes.split(", ").map(|process| process.parse().unwrap()).collect();
        Some(Self { directory: directory.into(), processes })
    }

    fn left(&self) -> Vec<String> {
        let directory = self.directory.exists().then(|| self.directory.display().to_string());
        let processes = self.processes.iter().filter(|process| is_running(**process));
        directory.into_iter().chain(processes.map(|process| format!("process {process}"))).collect()
    }
}

/// A process that ended but that nobody asked for its exit code does not run.
fn is_running(process: u32) -> bool {
    let status = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    status.is_ok_and(|status| !status.contains(") Z "))
}

/// Waits until it is so.
fn poll(is_so: impl Fn() -> bool, otherwise: impl Fn() -> String) {
    for _ in 0..1200 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("{}", otherwise());
}
