//! The program of a new package, compiled once. Every test runs it on a database of its own.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;

use tempfile::TempDir;

use crate::driver::Browser;
use crate::support::{self, Host, Run};

pub struct Site {
    program: Child,
    pub port: u16,
    pace: Pace,
    directory: TempDir,
}

#[derive(Clone, Copy)]
struct Pace {
    /// How long the model takes for a word, in milliseconds.
    word: u32,
    /// How long a tool takes, in seconds.
    tool: u32,
}

impl Site {
    /// A server whose model writes without a pause.
    pub fn start() -> Self {
        Self::with_pace(1)
    }

    pub fn with_pace(word: u32) -> Self {
        Self::new(Pace { word, tool: 0 })
    }

    /// A server whose tools take this many seconds.
    pub fn with_slow_tools(tool: u32) -> Self {
        Self::new(Pace { word: 1, tool })
    }

    fn new(pace: Pace) -> Self {
        let directory = support::temporary("sagents-site-");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let program = serve(&directory, port, pace);
        Self { program, port, pace, directory }
    }

    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Ends the server without a warning.
    pub fn kill(&mut self) {
        self.program.kill().unwrap();
        let _ = self.program.wait();
    }

    /// Starts the server again after a kill, at the same address. Its tools are fast now.
    pub fn restart(&mut self) {
        self.pace.tool = 0;
        self.program = serve(&self.directory, self.port, self.pace);
    }

    /// How often a tool has run.
    pub fn tool_runs(&self) -> usize {
        fs::read_to_string(self.directory.path().join(TOOL_RUNS)).map_or(0, |runs| runs.lines().count())
    }

    /// A browser in which somebody is signed in.
    pub fn browser(&self, person: &str) -> Browser {
        let browser = Browser::start();
        browser.go(&self.address());
        sign_in(&browser, person);
        browser
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.kill();
    }
}

/// By the page for that, which the program has.
fn sign_in(browser: &Browser, person: &str) {
    browser.click("#sign-in-link");
    browser.wait("location.pathname === '/login'");
    let button = format!("button[value={person:?}]");
    browser.click(&button);
    ready(browser);
}

/// Waits until the page has started.
pub fn ready(browser: &Browser) {
    browser.wait("document.documentElement.dataset.ready");
}

/// Starts the program and waits for its address, which it prints when it can be used.
fn serve(directory: &TempDir, port: u16, pace: Pace) -> Child {
    let mut program = Command::new(program())
        .current_dir(directory.path())
        .env("DATABASE_URL", format!("sqlite:{}", directory.path().join("conversations.db").display()))
        .env("PORT", port.to_string())
        .env("SCRIPTED_DELAY_MS", pace.word.to_string())
        .env("TOOL_SECONDS", pace.tool.to_string())
        .env_remove("OPENAI_BASE_URL")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("http://")), "the program prints its address");
    thread::spawn(move || lines.for_each(drop));
    program
}

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let host = Host::compiled("web");
        host.generate(
            "gen persistence MyApp.Conversations --scope MyApp.Accounts.Scope --init --web axum --path my_app",
        );
        let agent = host.read("my_app/src/agent.rs");
        assert!(agent.contains(RUN_TOOL));
        host.write("my_app/src/agent.rs", &agent.replace(RUN_TOOL, &format!("{RUN_TOOL}{COUNT_RUNS}")));
        support::write_workspace(&host, &["my_app"]);
        let run = Run::of(support::cargo(&host).args(["build", "--workspace", "--bins"]));
        assert_eq!(run.code, 0, "{}", run.stderr);
        let program = support::target(&host).join("debug/my_app");
        assert!(fs::exists(&program).unwrap());
        program
    })
}

/// Has a line for every tool that ran.
const TOOL_RUNS: &str = "tool_runs";

/// Where the example's agent runs a tool.
const RUN_TOOL: &str = "async fn run_tool(run: &AgentRun, name: &str, arguments: &Value) -> Result<String, String> {";

/// Counts the runs of tools, and makes them slow.
const COUNT_RUNS: &str = r#"
    let mut runs = std::fs::OpenOptions::new().create(true).append(true).open("tool_runs").unwrap();
    std::io::Write::write_all(&mut runs, b"ran\n").unwrap();
    let seconds = std::env::var("TOOL_SECONDS").unwrap().parse().unwrap();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
"#;
