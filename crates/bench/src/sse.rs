//! Server-sent events, as far as replies use them: the data of each event.

use std::io::{self, BufRead};

/// Reads events one by one.
pub(crate) struct Events<R> {
    reader: R,
}

impl<R: BufRead> Events<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader }
    }
}

impl<R: BufRead> Iterator for Events<R> {
    type Item = io::Result<String>;

    /// The data of the next event that has some; comments and other fields are passed over.
    fn next(&mut self) -> Option<Self::Item> {
        let mut data: Option<String> = None;
        let mut line = String::new();
        loop {
            line.clear();
            match self.reader.read_line(&mut line) {
                Err(error) => return Some(Err(error)),
                // The last event of a body may lack its empty line.
                Ok(0) => return data.map(Ok),
                Ok(_) => {}
            }
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() {
                if data.is_some() {
                    return data.map(Ok);
                }
            } else if let Some(text) = line.strip_prefix("data:") {
                let text = text.strip_prefix(' ').unwrap_or(text);
                data = Some(match data {
                    None => text.to_owned(),
                    Some(before) => format!("{before}\n{text}"),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str) -> Vec<String> {
        Events::new(text.as_bytes()).map(Result::unwrap).collect()
    }

    #[test]
    fn data_is_read_and_the_rest_passed_over() {
        assert_eq!(
            events(": waiting\n\ndata: {\"a\":1}\n\nevent: x\ndata:two\n\n"),
            ["{\"a\":1}", "two"]
        );
        assert_eq!(events("data: a\ndata: b\r\n\r\ndata: [DONE]"), ["a\nb", "[DONE]"]);
        assert_eq!(events("data:  two spaces\n\n"), [" two spaces"]);
        assert!(events("\n\n: only comments\n").is_empty());
    }
}
