//! Drives the built binary: commands, and a server on a free port with a plain HTTP client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// No answer takes this long unless something hangs.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Waits until something is so; panics where it never is.
pub fn wait_for(mut what: impl FnMut() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < TIMEOUT, "waited too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The binary with an environment of its own: no setting leaks in, the demo lies in a shared place.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_finback"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FINBACK_")) {
        command.env_remove(name);
    }
    command.env("FINBACK_CACHE_DIR", env!("CARGO_TARGET_TMPDIR"));
    // Tests run side by side: threads of one would wait for those of another.
    command.env("FINBACK_THREADS", "1");
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub fn finback(args: &[&str]) -> Output {
    command(args).output().expect("the binary runs")
}

/// Standard output of a run that must succeed.
pub fn stdout(args: &[&str]) -> String {
    let output = finback(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The one JSON document a run prints.
pub fn json(args: &[&str]) -> Value {
    let text = stdout(args);
    assert_eq!(text.lines().count(), 1, "one line of JSON: {text:?}");
    serde_json::from_str(&text).expect("JSON")
}

/// Exit code and standard error of a run that must fail.
pub fn failure(args: &[&str]) -> (i32, String) {
    failure_of(command(args))
}

/// As [`failure`], of a prepared command.
pub fn failure_of(mut command: Command) -> (i32, String) {
    let output = command.output().expect("the binary runs");
    assert!(!output.status.success(), "fails: {}", text(&output.stdout));
    (output.status.code().expect("ends by itself"), text(&output.stderr))
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Where the vectors' checkpoint called `name` lies.
pub fn vectors(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/vectors").join(name)
}

/// A server of this binary; killed when dropped.
pub struct Server {
    child: Child,
    /// What it printed up to its address.
    pub banner: String,
    address: String,
}

impl Server {
    /// Starts `finback serve --port 0` with more arguments and waits for its address.
    pub fn start(args: &[&str]) -> Self {
        let mut child = command(&["serve", "--port", "0"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut banner = String::new();
        // The banner ends with the line of the curl command, after the address.
        while !banner.lines().last().is_some_and(|line| line.contains("curl ")) {
            let read = lines.read_line(&mut banner).expect("readable");
            assert!(read > 0, "the server ends early after {banner:?}");
        }
        let address = banner
            .split_once("http://")
            .and_then(|(_, rest)| rest.split_whitespace().next())
            .expect("an address")
            .trim_end_matches('/')
            .to_string();
        // Whatever it prints later must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Self { child, banner, address }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().expect("waits")
    }

    /// Sends a request and leaves the connection open.
    pub fn open(&self, method: &str, path: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        stream.set_read_timeout(Some(TIMEOUT)).expect("sets");
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .expect("sends");
        BufReader::new(stream)
    }

    /// Status and body.
    pub fn request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        read_response(self.open(method, path, body))
    }

    /// The JSON answer of a POST that must succeed.
    pub fn post(&self, path: &str, body: &Value) -> Value {
        let (status, text) = self.request("POST", path, &body.to_string());
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// The JSON events of a streamed POST; the last `[DONE]` is checked and left out.
    pub fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let (status, text) = self.request("POST", path, &body.to_string());
        assert_eq!(status, 200, "{path}: {text}");
        let mut events: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(events.pop(), Some("[DONE]"), "{text}");
        events.into_iter().map(|event| serde_json::from_str(event).expect("JSON")).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Where it has ended already there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the head of a response: status and lines.
pub fn read_head(reader: &mut BufReader<TcpStream>) -> (u16, String) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).expect("readable") > 0, "cut: {head:?}");
    }
    (head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status"), head)
}

/// Reads a whole response: status and body, chunked or not.
pub fn read_response(mut reader: BufReader<TcpStream>) -> (u16, String) {
    let (status, head) = read_head(&mut reader);
    let mut body = Vec::new();
    if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).expect("a chunk size");
            let size = usize::from_str_radix(size.trim(), 16).expect("hexadecimal");
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).expect("a chunk");
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    } else {
        reader.read_to_end(&mut body).expect("readable");
    }
    (status, text(&body))
}
