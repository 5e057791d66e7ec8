//! Packages that `--init` makes, which compile, pass their tests and run without an edit.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::workspace::{Program, Workspace};
use crate::{documents, markdown};

#[test]
fn init_makes_a_package_that_passes_its_tests_and_runs_without_an_edit() {
    let workspace = Workspace::new("init", &["my_app"]);
    let args = "gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --init --path my_app";
    workspace.generate_by_program(args);
    assert!(workspace.host.read("my_app/Cargo.toml").contains("name = \"my_app\""));
    let programs = workspace.prove();

    let first = workspace.show(&programs);
    let printed = documents::output("docs/getting-started.md", "cargo run");
    assert_eq!(markdown::redacted(&first), markdown::redacted(&printed));
    let second = workspace.show(&programs);
    assert_eq!((shown(&first), shown(&second)), (1, 2), "the second run finds the first one's");
}

/// How many conversations a new package shows.
fn shown(printed: &str) -> usize {
    printed.lines().filter(|line| line.contains("A first conversation")).count()
}

#[test]
#[ignore = "needs PostgreSQL: run scripts/test"]
fn init_with_a_page_makes_a_package_that_passes_its_tests_and_answers_without_an_edit() {
    let workspace = Workspace::with_server("page", &["my_app"]);
    workspace.generate_by_program(
        "gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --owner-id uuid --group-type team \
         --database postgres --web axum --init --path my_app",
    );
    // Another context with the same scope, whose conversations are moved. It has no use for the group.
    workspace.generate(
        "my_app",
        "gen persistence MyApp.Former --scope MyApp.Accounts.Scope --owner-id uuid --database sqlite \
         --table-prefix former_ --migrations migrations/former --no-tests",
    );
    assert!(!workspace.host.exists("my_app/src/former/scope.rs"));
    let programs = workspace.prove();
    let served = Served::start(&workspace, &programs);
    assert!(served.ask("GET", "/login", "", "").contains("Ada"));
    assert!(served.ask("GET", "/api/me", "", "").starts_with("HTTP/1.1 401"));
    let login = served.ask("POST", "/login", "content-type: application/x-www-form-urlencoded\r\n", "user=ada");
    assert!(login.contains("set-cookie: user=ada;"), "{login}");

    let ada = "cookie: user=ada\r\ncontent-type: application/json\r\n";
    let created = served.ask("POST", "/api/conversations", ada, "{}");
    let id = created.split_once("\"id\":\"").and_then(|(_, rest)| rest.split_once('"')).expect(&created).0;
    let messages = format!("/api/conversations/{id}/messages");
    let sent = served.ask("POST", &messages, ada, &format!(r#"{{"id":"{id}","text":"What time is it?"}}"#));
    assert!(sent.starts_with("HTTP/1.1 202"), "{sent}");
    while !served.ask("GET", &messages, ada, "").contains("The tool says: 2") {
        thread::sleep(Duration::from_millis(50));
    }
    let bob = served.ask("GET", &messages, "cookie: user=bob\r\n", "");
    assert!(bob.starts_with("HTTP/1.1 404"), "{bob}");
    served.stop();
}

/// The program of a new package with a page, while it runs.
struct Served {
    program: Child,
    address: String,
}

impl Served {
    fn start(workspace: &Workspace, programs: &[Program]) -> Self {
        let program = programs.iter().find(|program| !program.is_test).unwrap();
        let mut command = program.command();
        if let Some(database) = &workspace.database {
            command.env("DATABASE_URL", database.url());
        }
        command.env("PORT", "0").env("SCRIPTED_DELAY_MS", "1").stdout(Stdio::piped());
        let mut program = command.spawn().unwrap();
        let mut printed = BufReader::new(program.stdout.take().unwrap()).lines();
        let address = printed.find_map(|line| line.unwrap().strip_prefix("http://").map(str::to_owned)).unwrap();
        Self { program, address }
    }

    /// The whole reply to a request.
    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        let (address, length) = (&self.address, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}");
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "{head}content-length: {length}\r\n\r\n{body}").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    fn stop(mut self) {
        let id = self.program.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.program.wait().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It has ended, unless the test failed.
        drop(self.program.kill());
    }
}
