//! A client that speaks HTTP/1.0, whose replies end with the connection.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

#[derive(Debug, Clone)]
pub struct Client {
    pub address: SocketAddr,
    /// With every request.
    pub headers: Vec<(&'static str, String)>,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// The body of a reply with this status.
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// A problem with this status, and its detail.
    pub fn problem(self, status: u16) -> Option<String> {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let body = self.json();
        assert_eq!(body["status"], status, "{self:?}");
        assert_eq!(body["type"], "about:blank", "{self:?}");
        body["detail"].as_str().map(str::to_owned)
    }
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, headers: Vec::new() }
    }

    pub fn with(&self, name: &'static str, value: impl ToString) -> Self {
        let mut client = self.clone();
        client.headers.push((name, value.to_string()));
        client
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.request("GET", path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.request("POST", path, Some(("application/json", &body.to_string()))).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Reply {
        self.request("PATCH", path, Some(("application/json", &body.to_string()))).await
    }

    pub async fn request(&self, method: &str, path: &str, body: Option<(&str, &str)>) -> Reply {
        let mut connection = self.send(method, path, body).await;
        let (status, headers) = head(&mut connection).await;
        let mut body = Vec::new();
        connection.read_to_end(&mut body).await.unwrap();
        let body = String::from_utf8(body).unwrap();
        Reply { status, headers, body }
    }

    /// Opens an event stream, or returns the refusal.
    pub async fn follow(&self, path: &str) -> Result<Events, Reply> {
        self.open(path).await.map(Events)
    }

    /// The connection behind the head of a reply, or the refusal.
    pub async fn open(&self, path: &str) -> Result<BufReader<TcpStream>, Reply> {
        let mut connection = self.send("GET", path, None).await;
        let (status, headers) = head(&mut connection).await;
        if status == 200 {
            return Ok(connection);
        }
        let mut body = String::new();
        connection.read_to_string(&mut body).await.unwrap();
        Err(Reply { status, headers, body })
    }

    /// Sends a request and reads nothing.
    pub async fn send(&self, method: &str, path: &str, body: Option<(&str, &str)>) -> BufReader<TcpStream> {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        let mut lines = vec![format!("{method} {path} HTTP/1.0")];
        if self.headers.iter().all(|(name, _)| *name != "host") {
            lines.push(format!("Host: {}", self.address));
        }
        lines.extend(self.headers.iter().map(|(name, value)| format!("{name}: {value}")));
        if let Some((kind, text)) = body {
            lines.push(format!("Content-Type: {kind}\r\nContent-Length: {}", text.len()));
        }
        let text = body.map_or("", |(_, text)| text);
        let request = format!("{}\r\n\r\n{text}", lines.join("\r\n"));
        // A server that refuses a body does not read all of it.
        let _ = connection.write_all(request.as_bytes()).await;
        BufReader::with_capacity(1024, connection)
    }
}

async fn head(connection: &mut BufReader<TcpStream>) -> (u16, Vec<(String, String)>) {
    let mut status = None;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        connection.read_line(&mut line).await.unwrap();
        let line = line.trim_end();
        if line.is_empty() {
            return (status.unwrap(), headers);
        }
        match line.split_once(": ") {
            Some((name, value)) if status.is_some() => {
                headers.push((name.to_lowercase(), value.to_owned()));
            }
            _ => {
                status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
            }
        }
    }
}

/// An open stream of events.
pub struct Events(BufReader<TcpStream>);

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub name: String,
    pub data: Value,
    pub id: Option<String>,
}

impl Events {
    /// The next event; nothing if the server has ended the stream.
    pub async fn next(&mut self) -> Option<Event> {
        let mut event = Event { name: String::new(), data: Value::Null, id: None };
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("event", name)) => name.clone_into(&mut event.name),
                Some(("data", data)) => event.data = serde_json::from_str(data).unwrap(),
                Some(("id", id)) => event.id = Some(id.to_owned()),
                None if !event.name.is_empty() => return Some(event),
                _ => {}
            }
        }
    }

    /// The next event with this name that is as wanted.
    pub async fn until(&mut self, name: &str, wanted: impl Fn(&Value) -> bool) -> Event {
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("the stream ended before `{name}`"));
            if event.name == name && wanted(&event.data) {
                return event;
            }
        }
    }

    /// Waits until the run has this status.
    pub async fn run(&mut self, status: &str) {
        let _ = self.until("run", |data| data["status"] == status).await;
    }

    /// The rows up to the one with this content, in order.
    pub async fn rows_until(&mut self, content: &str) -> (Vec<Value>, String) {
        let mut rows = Vec::new();
        loop {
            let event = self.until("rows", |_| true).await;
            rows.extend(event.data["items"].as_array().unwrap().iter().cloned());
            if rows.iter().any(|row| row["content"] == content && row["delivery"] != "draft") {
                return (rows, event.id.unwrap());
            }
        }
    }
}
