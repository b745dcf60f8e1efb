//! A viewer without a browser: requests by hand, and streams of events.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// The host with its port, and the token, of the address that a monitor gave.
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) token: String,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Address {
    pub(crate) fn new(url: &str) -> Address {
        let (host, token) = url.strip_prefix("http://").unwrap().split_once("/?token=").unwrap();
        Address { host: host.to_owned(), token: token.to_owned() }
    }

    /// An open request; `lines` are more lines of its head.
    fn open(&self, first: &str, lines: &[&str]) -> TcpStream {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let host = if lines.iter().any(|line| line.starts_with("Host")) { String::new() } else { self.host_line() };
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        write!(stream, "{first} HTTP/1.1\r\n{host}{lines}Connection: close\r\n\r\n").unwrap();
        stream
    }

    fn host_line(&self) -> String {
        format!("Host: {}\r\n", self.host)
    }

    /// The answer to a request such as `GET /`.
    pub(crate) fn ask(&self, first: &str, lines: &[&str]) -> Answer {
        let mut text = String::new();
        self.open(first, lines).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    pub(crate) fn bearer(&self) -> String {
        format!("Authorization: Bearer {}", self.token)
    }

    /// A viewer who has joined, and reads only when asked.
    pub(crate) fn watch(&self) -> Events {
        Events(BufReader::new(self.open(&format!("GET /events?token={}", self.token), &[])))
    }
}

/// A stream of server-sent events.
pub(crate) struct Events(BufReader<TcpStream>);

impl Events {
    /// The messages of the next event; none at the end of the stream.
    pub(crate) fn next(&mut self) -> Option<Vec<Value>> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }

    /// Reads until a message of this kind has come, and gives it.
    pub(crate) fn find(&mut self, kind: &str) -> Value {
        loop {
            let messages = self.next().unwrap_or_else(|| panic!("the stream ended without {kind}"));
            if let Some(found) = messages.into_iter().find(|message| message["kind"] == kind) {
                return found;
            }
        }
    }
}
