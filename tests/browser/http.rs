//! Requests without a browser.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

/// Sends a request as a signed-in person. The reply can be read from the stream until it ends.
pub fn open(port: u16, person: &str, method: &str, path: &str, body: Option<&Value>) -> TcpStream {
    let body = body.map(Value::to_string).unwrap_or_default();
    // The replies of HTTP/1.0 end with their connection.
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nCookie: user={person}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len(),
    );
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// The status and the JSON of a reply. A reply without a body is `null`.
pub fn send(port: u16, person: &str, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let mut reply = String::new();
    open(port, person, method, path, body).read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: {reply}"));
    let status = head.split_whitespace().nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{head}")), serde_json::from_str(body).unwrap_or_default())
}
