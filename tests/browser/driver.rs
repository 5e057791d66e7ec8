//! A real browser, driven through chromedriver. The protocol (`WebDriver`) is JSON over HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support;

/// Keys that are no characters, as `WebDriver` names them.
pub const ENTER: &str = "\u{e007}";
pub const ESCAPE: &str = "\u{e00c}";
pub const TAB: &str = "\u{e004}";
pub const UP: &str = "\u{e013}";
pub const DOWN: &str = "\u{e015}";
pub const CONTROL: &str = "\u{e009}";
pub const ALT: &str = "\u{e00a}";

/// A browser with a profile of its own. It ends with the value.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    profile: TempDir,
}

impl Browser {
    pub fn start() -> Self {
        let mut driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = |line: String| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok();
        let port = lines.find_map(port).expect("chromedriver prints its port");
        // It would wait for somebody to read the rest.
        thread::spawn(move || lines.for_each(drop));
        let profile = support::temporary("sagents-browser-");
        let mut browser = Self { driver, port, session: String::new(), profile };
        browser.session = browser.open();
        browser.resize(1200, 900);
        browser
    }

    fn open(&self) -> String {
        let profile = format!("--user-data-dir={}", self.profile.path().display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-dev-shm-usage",
            "--disable-sync",
            "--lang=en",
            &profile,
        ];
        let options = json!({ "goog:chromeOptions": { "args": arguments } });
        let opened = self.send("POST", "/session", &json!({ "capabilities": { "alwaysMatch": options } }));
        opened.expect("the browser starts")["sessionId"].as_str().unwrap().to_owned()
    }

    pub fn go(&self, address: &str) {
        self.call("POST", "url", &json!({ "url": address })).unwrap();
    }

    pub fn reload(&self) {
        self.call("POST", "refresh", &json!({})).unwrap();
    }

    pub fn resize(&self, width: u32, height: u32) {
        self.call("POST", "window/rect", &json!({ "width": width, "height": height })).unwrap();
    }

    /// The value of a JavaScript expression.
    pub fn value(&self, expression: &str) -> Value {
        self.run(&format!("return {expression};")).unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Runs statements that may wait.
    pub fn run(&self, script: &str) -> Result<Value, String> {
        let script = format!("return (async () => {{ {script} }})();");
        self.call("POST", "execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until a JavaScript expression is true, for as long as it takes.
    pub fn wait(&self, expression: &str) {
        let mut patience = Patience::new(expression);
        while self.run(&format!("return Boolean({expression});")) != Ok(Value::Bool(true)) {
            patience.sleep(|| self.text("body"));
        }
    }

    /// Waits until the text of some element that matches contains this.
    pub fn see(&self, selector: &str, text: &str) {
        let (selector, text) = (json!(selector), json!(text));
        self.wait(&format!(
            "[...document.querySelectorAll({selector})].some((node) => node.innerText.includes({text}))"
        ));
    }

    pub fn text(&self, selector: &str) -> String {
        let script = format!("document.querySelector({})?.innerText ?? ''", json!(selector));
        self.value(&script).as_str().unwrap_or_default().to_owned()
    }

    pub fn count(&self, selector: &str) -> usize {
        let count = self.value(&format!("document.querySelectorAll({}).length", json!(selector)));
        usize::try_from(count.as_u64().unwrap()).unwrap()
    }

    /// Clicks the first element that matches, as soon as that is possible.
    pub fn click(&self, selector: &str) {
        let mut patience = Patience::new(selector);
        while self.try_click(selector).is_err() {
            patience.sleep(|| self.text("body"));
        }
    }

    fn try_click(&self, selector: &str) -> Result<Value, String> {
        // The driver clicks where an element was, also if it slides in.
        let is_still = format!(
            "const place = () => JSON.stringify(document.querySelector({}).getBoundingClientRect()); \
             const before = place(); \
             await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next))); \
             return before === place();",
            json!(selector)
        );
        if self.run(&is_still)? != Value::Bool(true) {
            return Err("it moves".to_owned());
        }
        let found = self.call("POST", "element", &json!({ "using": "css selector", "value": selector }))?;
        let id = found.as_object().and_then(|found| found.values().next()).and_then(Value::as_str);
        self.call("POST", &format!("element/{}/click", id.unwrap_or_default()), &json!({}))
    }

    /// Replaces the text of a field by typing.
    pub fn fill(&self, selector: &str, text: &str) {
        self.click(selector);
        self.press(&[CONTROL, "a"]);
        self.write(text);
    }

    /// Types into what has the focus.
    pub fn write(&self, text: &str) {
        let keys: Vec<_> =
            text.chars().flat_map(|key| [key_action("keyDown", key), key_action("keyUp", key)]).collect();
        self.keys(&keys);
    }

    /// Presses keys together.
    pub fn press(&self, keys: &[&str]) {
        let keys: Vec<_> = keys.iter().filter_map(|key| key.chars().next()).collect();
        let down = keys.iter().map(|key| key_action("keyDown", *key));
        let up = keys.iter().rev().map(|key| key_action("keyUp", *key));
        self.keys(&down.chain(up).collect::<Vec<_>>());
    }

    fn keys(&self, actions: &[Value]) {
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.call("POST", "actions", &json!({ "actions": [keyboard] })).unwrap();
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        self.send(method, &format!("/session/{}/{path}", self.session), body)
    }

    /// A request, and the value of its response.
    fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = body.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(|error| error.to_string())?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n",
            self.port,
            body.len(),
        );
        stream.write_all((head + &body).as_bytes()).map_err(|error| error.to_string())?;
        let mut reply = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reply.read_line(&mut line).map_err(|error| error.to_string())?;
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut text = vec![0; length];
        reply.read_exact(&mut text).map_err(|error| error.to_string())?;
        let mut reply: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        match reply["value"].take() {
            value if value["error"].is_string() => Err(format!("{}: {}", value["error"], value["message"])),
            value => Ok(value),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.send("DELETE", &format!("/session/{}", self.session), &json!({}));
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn key_action(kind: &str, key: char) -> Value {
    json!({ "type": kind, "value": key })
}

/// A wait without an end, which says once in a while what it waits for.
pub struct Patience<'a> {
    what: &'a str,
    told: Instant,
}

impl<'a> Patience<'a> {
    pub fn new(what: &'a str) -> Self {
        Self { what, told: Instant::now() }
    }

    pub fn sleep(&mut self, state: impl FnOnce() -> String) {
        if self.told.elapsed() > Duration::from_mins(1) {
            self.told = Instant::now();
            // Past the capture of the test's output, which is printed when the test has ended.
            let _ = writeln!(std::io::stderr(), "waiting for {}, and there is:\n{}", self.what, state());
        }
        thread::sleep(Duration::from_millis(25));
    }
}
