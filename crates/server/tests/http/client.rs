//! As much HTTP as the tests need, so that they see the bytes.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer that was read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Lower-case `name: value` lines.
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The data of each event, the last one `[DONE]`, which is left out.
    pub(crate) fn events(&self) -> Vec<Value> {
        assert!(self.headers.contains("content-type: text/event-stream"), "{self:?}");
        let data: Vec<&str> = self
            .body
            .split_terminator("\n\n")
            .filter(|event| !event.starts_with(':'))
            .map(|event| event.strip_prefix("data: ").unwrap())
            .collect();
        let (last, rest) = data.split_last().unwrap();
        assert_eq!(*last, "[DONE]");
        rest.iter().map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

/// Sends a request and leaves the answer to be read.
pub(crate) async fn open(to: SocketAddr, method: &str, path: &str, body: &str) -> TcpStream {
    let mut socket = TcpStream::connect(to).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    socket
}

/// Reads the answer to its end.
pub(crate) async fn finish(socket: &mut (impl AsyncRead + Unpin)) -> Answer {
    let mut bytes = Vec::new();
    // A connection that is reset after the answer gives its bytes first; they are judged below.
    let _ = socket.read_to_end(&mut bytes).await;
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
    let headers = head.to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = if headers.contains("transfer-encoding: chunked") {
        dechunk(body)
    } else {
        body.to_owned()
    };
    Answer { status, headers, body }
}

fn dechunk(mut rest: &str) -> String {
    let mut body = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        body.push_str(&after[..size]);
        if size == 0 {
            return body;
        }
        rest = &after[size + 2..];
    }
}

pub(crate) async fn post(to: SocketAddr, path: &str, body: &Value) -> Answer {
    finish(&mut open(to, "POST", path, &body.to_string()).await).await
}

pub(crate) async fn get(to: SocketAddr, path: &str) -> Answer {
    finish(&mut open(to, "GET", path, "").await).await
}

/// Reads until `wanted` has come.
pub(crate) async fn read_until(socket: &mut TcpStream, wanted: &str) -> String {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&seen);
        if text.contains(wanted) {
            return text.into_owned();
        }
        let read = socket.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the answer ended without {wanted:?}: {text}");
        seen.extend_from_slice(&buffer[..read]);
    }
}
