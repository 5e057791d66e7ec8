//! A real `PostgreSQL` server that is thrown away, and databases of one's own on it.
//!
//! The server is a child of a small shell script, its supervisor, which takes orders from a pipe.
//! However this process ends, by a panic or by SIGKILL too, the pipe closes with it: the supervisor
//! then stops the server and removes its directory. Nothing here may outlive the process otherwise.
//!
//! It needs the standard library only, so that it can be copied into other crates as it is.

#![allow(dead_code, reason = "each user needs a part of it")]

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, SystemTime};
use std::{env, process};

/// How often a server is asked whether it answers, or is started again, before that counts as a
/// failure, and the pause between.
const ATTEMPTS: u32 = 1200;
const PAUSE: Duration = Duration::from_millis(50);

/// What differs from the defaults. A crash of the server loses nothing that was answered,
/// one of the machine may.
const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", "127.0.0.1"),
    ("max_connections", "200"),
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("synchronous_commit", "on"),
    ("logging_collector", "off"),
];

/// A cluster of its own in a temporary directory, with the superuser `sagents`, who needs no
/// password.
pub struct Server {
    programs: PathBuf,
    directory: PathBuf,
    port: u16,
    supervisor: Mutex<Supervisor>,
}

impl Server {
    /// Makes a cluster, starts it and waits until it answers.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// As `start`, with more settings for postgresql.conf.
    pub fn start_with(settings: &[(&str, &str)]) -> Self {
        let programs = programs();
        let directory = env::temp_dir().canonicalize();
        let directory = directory.expect("there is a directory for temporary files");
        let directory = directory.join(unique("sagents-pg-"));
        let supervisor = Mutex::new(Supervisor::new(&directory, &programs));
        let mut server = Self {
            programs,
            directory,
            port: 0, // is chosen below
            supervisor,
        };
        assert!(server.order("initdb"), "{}", server.log());
        server.configure(settings);
        // Somebody else may take the port before the server does: then it is another one's turn.
        for _ in 0..10 {
            server.port = free_port();
            if server.launch() {
                return server;
            }
        }
        panic!("PostgreSQL does not start: {}", server.log());
    }

    /// What a client connects to.
    pub fn url(&self, database: &str) -> String {
        let port = self.port;
        let database = percent_encoded(database);
        format!("postgres://sagents@127.0.0.1:{port}/{database}")
    }

    pub fn create_database(&self, name: &str) {
        self.query("postgres", &create(name));
    }

    /// Drops it, and ends the sessions that are connected to it.
    pub fn drop_database(&self, name: &str) {
        self.query("postgres", &drop_by_force(name));
    }

    /// The rows that SQL gives by `psql`, one a line, their columns separated by `|`.
    pub fn query(&self, database: &str, sql: &str) -> String {
        let rows = self.try_query(&self.url(database), sql);
        rows.unwrap_or_else(|error| panic!("{sql}\n{error}"))
    }

    /// Stops it in order: sessions end, and what they had not committed is rolled back.
    pub fn stop(&self) {
        assert!(self.order("stop"), "{}", self.log());
    }

    /// Crashes it: SIGKILL for the server and each of its processes.
    pub fn kill(&self) {
        assert!(self.order("kill"), "{}", self.log());
    }

    /// Starts it again after `stop` or `kill`, on the same port, and waits until it answers. One
    /// that runs is stopped first.
    pub fn restart(&self) {
        // What a killed server leaves must end before the next one may have its shared memory.
        for _ in 0..ATTEMPTS {
            if self.launch() {
                return;
            }
            sleep(PAUSE);
        }
        panic!("PostgreSQL does not start again: {}", self.log());
    }

    /// Where all of it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The process of the server that was started last.
    pub fn process_id(&self) -> u32 {
        let path = self.directory.join("pid");
        fs::read_to_string(path).unwrap().trim().parse().unwrap()
    }

    /// What `initdb` and the server wrote, with the path of the file.
    pub fn log(&self) -> String {
        let path = self.directory.join("log");
        match fs::read_to_string(&path) {
            Ok(log) => format!("{}\n{log}", path.display()),
            Err(error) => format!("{}: {error}", path.display()),
        }
    }

    fn try_query(&self, url: &str, sql: &str) -> Result<String, String> {
        let mut psql = psql(&self.programs.join("psql"), url, sql);
        without_postgres_variables(&mut psql).env("PGCONNECT_TIMEOUT", "10");
        output(&mut psql)
    }

    fn configure(&self, settings: &[(&str, &str)]) {
        let sockets = self.directory.to_str().unwrap();
        // The path of a socket has 103 bytes at most, of which its name takes up to 15.
        let sockets = if sockets.len() < 88 { sockets } else { "" };
        let mut all = SETTINGS.to_vec();
        all.push(("unix_socket_directories", sockets));
        if has_statistics(&self.programs) {
            all.push(("shared_preload_libraries", "pg_stat_statements"));
        }
        all.extend(settings);

        let mut text = String::new();
        for (name, value) in all {
            let value = value.replace('\\', "\\\\").replace('\'', "''");
            writeln!(text, "{name} = '{value}'").unwrap();
        }
        let path = self.directory.join("data/postgresql.conf");
        let mut file = fs::File::options().append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Whether the server was started and answers.
    fn launch(&self) -> bool {
        let data = self.directory.join("data");
        let running = self.directory.join("running");
        let url = self.url("postgres");
        assert!(self.order(&format!("start {}", self.port)));
        for _ in 0..ATTEMPTS {
            // Another server may answer on this port: it has another directory.
            let answer = self.try_query(&url, "SHOW data_directory");
            if answer.is_ok_and(|answer| Path::new(&answer) == data) {
                return true;
            }
            if !running.exists() {
                return false;
            }
            sleep(PAUSE);
        }
        false
    }

    fn order(&self, order: &str) -> bool {
        let supervisor = self.supervisor.lock();
        let mut supervisor = supervisor.unwrap_or_else(PoisonError::into_inner);
        supervisor.order(order)
    }
}

/// A new database, which is dropped with this value: on the server that `DATABASE_URL` names, or
/// else on one that all databases of this process share.
pub struct Database {
    name: String,
    place: Place,
}

impl Database {
    pub fn new() -> Self {
        Self::created(create)
    }

    /// With everything that is in another database, which nobody may be connected to.
    pub fn copy(other: &Self) -> Self {
        Self::created(|name| format!("{} TEMPLATE {}", create(name), quoted(&other.name)))
    }

    fn created(statement: impl Fn(&str) -> String) -> Self {
        let name = unique("sagents_test_");
        let place = Place::of_process();
        let created = place.query(&place.server_url(), &statement(&name));
        if let Err(error) = created {
            panic!("the database {name} cannot be created: {error}");
        }
        Self { name, place }
    }

    /// What a client connects to.
    pub fn url(&self) -> String {
        self.place.database_url(&self.name)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// As `Server::query`.
    pub fn query(&self, sql: &str) -> String {
        let rows = self.try_query(sql);
        rows.unwrap_or_else(|error| panic!("{sql}\n{error}"))
    }

    /// As `query`, or else why it failed.
    pub fn try_query(&self, sql: &str) -> Result<String, String> {
        self.place.query(&self.url(), sql)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Self { name, place } = self;
        let dropped = place.query(&place.server_url(), &drop_by_force(name));
        if let Err(error) = dropped {
            eprintln!("the database {name} stays: {error}");
        }
    }
}

/// Where databases are made.
enum Place {
    Shared(&'static Server),
    /// The URL of somebody else's server.
    Given(String),
}

impl Place {
    fn of_process() -> Self {
        // It is never dropped; the end of the process closes the pipe to its supervisor.
        static SHARED: OnceLock<Server> = OnceLock::new();
        match env::var("DATABASE_URL") {
            Ok(url) if is_postgres(&url) => Self::Given(url),
            _ => Self::Shared(SHARED.get_or_init(Server::start)),
        }
    }

    /// A database that is there already.
    fn server_url(&self) -> String {
        match self {
            Self::Shared(server) => server.url("postgres"),
            Self::Given(url) => url.clone(),
        }
    }

    fn database_url(&self, database: &str) -> String {
        match self {
            Self::Shared(server) => server.url(database),
            Self::Given(url) => with_database(url, database),
        }
    }

    fn query(&self, url: &str, sql: &str) -> Result<String, String> {
        if let Self::Shared(server) = self {
            return server.try_query(url, sql);
        }
        let program = find_programs().unwrap_or_default().join("psql");
        output(&mut psql(&program, &for_psql(url), sql))
    }
}

/// The shell that has the server as its child, and outlives this process until it cleaned up.
struct Supervisor {
    process: Child,
    /// Closed as a sign that this is the end.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Supervisor {
    fn new(directory: &Path, programs: &Path) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", SUPERVISOR, "sagents-pg"]);
        shell.args([directory, programs]);
        shell.args(unprivileged_user());
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        // What ends this process by its group, as Ctrl-C does, must not end the one who cleans up.
        shell.stderr(Stdio::null()).process_group(0);
        let mut process = without_postgres_variables(&mut shell).spawn().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Self {
            orders: process.stdin.take(), // wait() would close it otherwise, and too late
            process,
            answers,
        }
    }

    /// Whether the order, which is one line, was carried out.
    fn order(&mut self, order: &str) -> bool {
        let mut answer = String::new();
        writeln!(self.orders.as_ref().unwrap(), "{order}").unwrap();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim() == "0"
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.process.wait();
    }
}

/// Reads orders and answers each with its exit code. At the end of the orders it cleans up.
///
/// Its arguments are the directory, that of the programs, and for root the ids of a user and group.
const SUPERVISOR: &str = r#"
directory=$1 programs=$2 user=$3 group=$4
as=${user:+setpriv --reuid=$user --regid=$group --clear-groups}
# The sender of an order may be gone before it is answered.
trap '' HUP INT TERM PIPE
umask 077
cd /

# Asks the server to end, as often as it takes, since one that has just started may not listen yet.
end() {
  while [ -e "$directory/running" ]; do
    kill -s "$1" "$(cat "$directory/pid")"
    sleep 0.05
  done
}

# Children of a server that is stopped cannot become more.
crash() {
  pid=$(cat "$directory/pid")
  kill -s STOP "$pid" && kill -s KILL "$pid" $(cat "/proc/$pid/task/$pid/children")
  end KILL
}

initialize() {
  $as "$programs/initdb" -D "$directory/data" -U sagents --auth=trust --encoding=UTF8 \
    --locale="$1" --no-sync >>"$directory/log" 2>&1
}

while read -r order port; do
  case $order in
    initdb)
      mkdir "$directory" && { [ -z "$user" ] || chown "$user:$group" "$directory"; } &&
        { initialize C.UTF-8 || initialize C; } ;;
    start)
      end INT
      rm -f "$directory/pid"
      : >"$directory/running"
      {
        $as sh -c 'echo $$ >"$1/pid" && exec "$2/postgres" -D "$1/data" -p "$3"' \
          server "$directory" "$programs" "$port" </dev/null >>"$directory/log" 2>&1
        rm -f "$directory/running"
      } & ;;
    stop) end INT ;;
    kill) [ ! -e "$directory/running" ] || crash ;;
  esac
  echo $?
done

end QUIT
# Processes that a crash left may still write for a moment.
tries=0
until rm -rf "$directory" || [ $((tries += 1)) -gt 100 ]; do
  sleep 0.05
done
"#;

/// The directory with the server's programs and `psql`.
fn programs() -> PathBuf {
    find_programs().expect(
        "these tests need PostgreSQL: install the package `postgresql`, or run `scripts/test`, \
         which does; neither PATH nor /usr/lib/postgresql has initdb, postgres and psql",
    )
}

/// Debian has them in a directory for each version, and not on PATH.
fn find_programs() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).filter_map(|directory| {
        let initdb = directory.join("initdb").canonicalize().ok()?;
        Some(initdb.parent()?.to_owned())
    });
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut installed: Vec<PathBuf> = installed.flatten().map(|entry| entry.path()).collect();
    installed.sort_by_key(|path| {
        let version = path.file_name().and_then(OsStr::to_str);
        version.and_then(|version| version.parse::<u32>().ok())
    });
    let installed = installed.iter().rev().map(|path| path.join("bin"));
    on_path.chain(installed).find(|directory| {
        let needed = ["initdb", "postgres", "psql"];
        needed.iter().all(|name| directory.join(name).exists())
    })
}

/// The server refuses to run as root: the ids of the user and the group that it has then instead.
fn unprivileged_user() -> Vec<String> {
    if id(&["-u"]).as_deref() != Some("0") {
        return Vec::new();
    }
    let mut users = ["postgres", "nobody"].iter();
    let ids = users.find_map(|user| Some(vec![id(&["-u", user])?, id(&["-g", user])?]));
    ids.expect("root needs a user `postgres` or `nobody` to run PostgreSQL as")
}

fn id(arguments: &[&str]) -> Option<String> {
    let id = output(Command::new("id").args(arguments));
    id.ok()
}

/// Whether the library that counts statements is installed.
fn has_statistics(programs: &Path) -> bool {
    let mut config = Command::new(programs.join("pg_config"));
    let Ok(libraries) = output(config.arg("--pkglibdir")) else {
        return false;
    };
    let libraries = Path::new(&libraries);
    ["so", "dylib"].iter().any(|extension| {
        let name = format!("pg_stat_statements.{extension}");
        libraries.join(name).exists()
    })
}

/// A port that is free now. It is below those that systems give to outgoing connections, so that it
/// stays free while its server is down.
fn free_port() -> u16 {
    for _ in 0..ATTEMPTS {
        let port = 10_000 + u16::try_from(pseudo_random() % 20_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// A name that no other process and no other call has.
fn unique(prefix: &str) -> String {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}{}_{call}_{:x}", process::id(), pseudo_random())
}

/// Differs from call to call and from process to process: hash maps have such a key.
fn pseudo_random() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(SystemTime::now())
}

fn create(database: &str) -> String {
    format!("CREATE DATABASE {}", quoted(database))
}

fn drop_by_force(database: &str) -> String {
    let database = quoted(database);
    format!("DROP DATABASE IF EXISTS {database} WITH (FORCE)")
}

fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'~' => {
                encoded.push(byte.into());
            }
            _ => write!(encoded, "%{byte:02X}").unwrap(),
        }
        encoded
    })
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// The URL with another database, and with its other parameters as they are.
fn with_database(url: &str, database: &str) -> String {
    let (server, parameters) = url.split_once('?').unwrap_or((url, ""));
    let scheme = server.find("://").map_or(0, |at| at + 3);
    let path = server[scheme..].find('/');
    let server = path.map_or(server, |at| &server[..scheme + at]);
    let server = format!("{server}/{}", percent_encoded(database));
    with_parameters(&server, parameters, |name| name != "dbname")
}

/// The URL without the parameters that only Rust's clients know: `psql` would refuse them.
fn for_psql(url: &str) -> String {
    let (server, parameters) = url.split_once('?').unwrap_or((url, ""));
    with_parameters(server, parameters, |name| !name.contains(['-', '[', '%']))
}

fn with_parameters(server: &str, parameters: &str, keep: impl Fn(&str) -> bool) -> String {
    let parameters = parameters.split('&').filter(|parameter| {
        let (name, _) = parameter.split_once('=').unwrap_or_default();
        !name.is_empty() && keep(name)
    });
    let parameters = parameters.collect::<Vec<_>>().join("&");
    let separator = if parameters.is_empty() { "" } else { "?" };
    format!("{server}{separator}{parameters}")
}

fn psql(program: &Path, url: &str, sql: &str) -> Command {
    let mut psql = Command::new(program);
    psql.args(["--no-psqlrc", "--no-password", "--quiet"]);
    psql.args(["--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]);
    psql.args(["--dbname", url, "--command", sql]);
    psql
}

/// What the environment says of another server is not for this one.
fn without_postgres_variables(command: &mut Command) -> &mut Command {
    for (name, _) in env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"PG") {
            command.env_remove(name);
        }
    }
    command
}

/// What a command printed, without the end of the last line; or else why it failed.
fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if !output.status.success() {
        return Err(format!("{program}: {}", text(&output.stderr)));
    }
    Ok(text(&output.stdout))
}
