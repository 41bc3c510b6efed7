//! Watches a worker's server-sent events pass: counts them, notices the end, errors and usage, and holds an unfinished
//! line back so that a stream that breaks can be closed in a way that clients understand. Pure: bytes in, bytes out, in
//! bounded memory, whatever the chunking. Never changes a byte that passes. Called by `relay`.

use crate::{refusal::label, usage::Usage};
use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::Value;
use switchtower_models::openai::ErrorBody;

/// Longest line that is held back until it is whole, in bytes. A longer one passes as it comes and is not looked into.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// One answer in server-sent events, as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct EventStream {
    /// The beginning of a line whose end has not come.
    held: BytesMut,
    /// The line now passing was too long to be held.
    overlong: bool,
    /// The last line ended with a carriage return, so a line feed that follows belongs to it.
    after_return: bool,
    /// Lines of an event have passed whose blank line has not.
    mid_event: bool,
    /// The event at hand has data already.
    has_data: bool,
    /// The event at hand is called `error`; clients skip those.
    is_named_error: bool,
    events: u64,
    done: bool,
    trouble: Option<&'static str>,
    /// Clients have been shown an error that they understand.
    error_shown: bool,
    usage: Option<Usage>,
}

/// The members of an event's data that matter here.
#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    error: Option<Value>,
    #[serde(default)]
    usage: Option<Value>,
}

impl EventStream {
    /// Takes what came from the worker and returns what may pass now.
    pub(crate) fn pass(&mut self, chunk: Bytes) -> Bytes {
        if self.held.is_empty() && chunk.last().is_some_and(ends_line) {
            self.scan(&chunk);
            return chunk;
        }
        self.held.extend_from_slice(&chunk);
        let whole = self.held.iter().rposition(ends_line).map_or(0, |at| at + 1);
        let mut passing = self.held.split_to(whole);
        self.scan(&passing);
        if self.overlong || self.held.len() > LINE_BYTES_MAX {
            self.let_go();
            passing.unsplit(self.held.split());
        }
        passing.freeze()
    }

    /// The worker's answer ended by itself. Its last line may lack its end; only the end of the stream is taken without.
    pub(crate) fn end(&mut self) -> Bytes {
        let mut rest = self.held.split();
        if data_of(&rest) != Some(DONE) {
            return Bytes::new();
        }
        self.scan_line(&rest);
        rest.extend_from_slice(b"\n\n");
        rest.freeze()
    }

    /// What makes a stream that broke end with an error that clients raise, then with the end they wait for (field report
    /// B92). Nothing if it ended well.
    pub(crate) fn close(&mut self, message: &str, code: &str) -> Bytes {
        self.held.clear();
        let mut closing = BytesMut::new();
        if self.done {
            return closing.freeze();
        }
        if self.overlong || self.mid_event || self.after_return {
            closing.extend_from_slice(b"\n\n");
        }
        if !self.error_shown {
            let body = ErrorBody::new(message, "server_error", None, Some(code));
            // These shapes always serialize; should they not, the end alone is still sent.
            let json = serde_json::to_vec(&body).unwrap_or_default();
            closing.extend_from_slice(b"data: ");
            closing.extend_from_slice(&json);
            closing.extend_from_slice(b"\n\n");
        }
        closing.extend_from_slice(b"data: [DONE]\n\n");
        closing.freeze()
    }

    /// Events with data so far, the end not counted: about one per token.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Whether the end has passed.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// The metric label of an error that the worker sent inside the stream.
    pub(crate) fn trouble(&self) -> Option<&'static str> {
        self.trouble
    }

    /// The last usage that the worker sent.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// The line at hand is too long to wait for.
    fn let_go(&mut self) {
        if !self.overlong && self.held.starts_with(b"data:") {
            self.count_data();
        }
        self.overlong = true;
    }

    /// `lines` begins where a line begins, or inside one that was let go, and ends where one ends.
    fn scan(&mut self, lines: &[u8]) {
        let mut start = 0;
        for (at, byte) in lines.iter().enumerate().filter(|(_, byte)| ends_line(byte)) {
            let is_second_half = *byte == b'\n' && self.after_return && at == start;
            if !is_second_half {
                self.scan_line(lines.get(start..at).unwrap_or_default());
            }
            self.after_return = *byte == b'\r';
            start = at + 1;
        }
    }

    fn scan_line(&mut self, line: &[u8]) {
        if std::mem::take(&mut self.overlong) {
            self.mid_event = true;
        } else if line.is_empty() {
            (self.mid_event, self.has_data, self.is_named_error) = (false, false, false);
        } else {
            self.mid_event = true;
            if let Some(name) = field(line, b"event:") {
                self.is_named_error = name == b"error";
            } else if let Some(data) = data_of(line) {
                self.scan_data(data);
            }
        }
    }

    fn scan_data(&mut self, data: &[u8]) {
        if data == DONE {
            self.done = true;
            return;
        }
        self.count_data();
        let mentions = |member: &[u8]| data.windows(member.len()).any(|window| window == member);
        if self.is_named_error {
            self.trouble = self.trouble.or(Some(classify(&serde_json::from_slice(data).unwrap_or_default())));
        } else if mentions(b"\"error\"") || mentions(b"\"usage\"") {
            let Ok(data) = serde_json::from_slice::<Data>(data) else { return };
            if let Some(error) = data.error {
                self.trouble = self.trouble.or(Some(classify(&error)));
                self.error_shown = true;
            }
            self.usage = data.usage.as_ref().and_then(Usage::read).or(self.usage);
        }
    }

    fn count_data(&mut self) {
        if !std::mem::replace(&mut self.has_data, true) {
            self.events = self.events.saturating_add(1);
        }
    }
}

const DONE: &[u8] = b"[DONE]";

fn ends_line(byte: &u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = line.strip_prefix(name)?;
    Some(value.trim_ascii())
}

fn data_of(line: &[u8]) -> Option<&[u8]> {
    field(line, b"data:")
}

/// Overload is told from a bug by status or name, wherever the worker put them (field report B93).
fn classify(error: &Value) -> &'static str {
    const OVERLOAD: [&str; 5] = ["overload", "rate_limit", "too_many", "queue_full", "unavailable"];
    let says = |value: &Value| match value {
        Value::Number(status) => matches!(status.as_u64(), Some(429 | 503)),
        Value::String(name) => {
            let name = name.to_ascii_lowercase();
            name == "429" || name == "503" || OVERLOAD.iter().any(|word| name.contains(word))
        }
        _ => false,
    };
    let error = error.get("error").unwrap_or(error);
    let overloaded = ["code", "type", "status"].iter().filter_map(|member| error.get(member)).any(says);
    if overloaded { label::OVERLOAD } else { label::INTERNAL }
}

#[cfg(test)]
mod tests;
