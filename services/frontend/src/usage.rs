//! What a worker says a request cost. Untrusted: fields of the wrong type or size count as absent (field report B98), and
//! the front end's own count takes their place. Reads only; the bytes go to the client as they came.

use bytes::{Bytes, BytesMut};
use serde_json::Value;

/// Bytes at the end of a whole answer in which its usage is looked for.
const TAIL_BYTES: usize = 16 * 1024;

/// Tokens as the worker counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) completion_tokens: Option<u64>,
    pub(crate) cached_tokens: Option<u64>,
}

impl Usage {
    /// What can be believed of a `usage` member; nothing of one that is no object.
    pub(crate) fn read(usage: &Value) -> Option<Self> {
        let usage = usage.as_object()?;
        let tokens = |name| usage.get(name).and_then(Value::as_u64);
        let details = usage.get("prompt_tokens_details");
        Some(Self {
            prompt_tokens: tokens("prompt_tokens"),
            completion_tokens: tokens("completion_tokens"),
            cached_tokens: details.and_then(|details| details.get("cached_tokens")?.as_u64()),
        })
    }
}

/// The last bytes of an answer that is not an event stream.
#[derive(Debug, Default)]
pub(crate) struct Tail(BytesMut);

impl Tail {
    /// More of the answer has passed.
    pub(crate) fn passed(&mut self, chunk: &Bytes) {
        let kept = chunk.slice(chunk.len().saturating_sub(TAIL_BYTES)..);
        let surplus = (self.0.len() + kept.len()).saturating_sub(TAIL_BYTES).min(self.0.len());
        let _ = self.0.split_to(surplus);
        self.0.extend_from_slice(&kept);
    }

    /// The usage, if the answer ended with one. A quote inside a JSON string is escaped, so generated text cannot pose
    /// as the member.
    pub(crate) fn usage(&self) -> Option<Usage> {
        const MEMBER: &[u8] = b"\"usage\"";
        let at = self.0.windows(MEMBER.len()).rposition(|window| window == MEMBER)?;
        let rest = self.0.get(at + MEMBER.len()..)?.trim_ascii_start().strip_prefix(b":")?;
        let value = serde_json::Deserializer::from_slice(rest).into_iter::<Value>().next()?.ok()?;
        Usage::read(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage_of(body: &str, chunk_bytes: usize) -> Option<Usage> {
        let mut tail = Tail::default();
        body.as_bytes().chunks(chunk_bytes).for_each(|chunk| tail.passed(&Bytes::copy_from_slice(chunk)));
        assert!(tail.0.len() <= TAIL_BYTES);
        tail.usage()
    }

    #[test]
    fn the_usage_is_found_at_the_end_of_a_long_answer() {
        let text = r#"say \"usage\": {\"completion_tokens\": 1} "#.repeat(2_000);
        let usage =
            r#"{"prompt_tokens":5,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":4}}"#;
        let body = format!(r#"{{"choices":[{{"text":"{text}"}}], "usage" : {usage}, "extra":null}}"#);
        let expected = Usage { prompt_tokens: Some(5), completion_tokens: Some(7), cached_tokens: Some(4) };
        for chunk_bytes in [1, 7, 5_000, body.len()] {
            assert_eq!(usage_of(&body, chunk_bytes), Some(expected));
        }
    }

    #[test]
    fn b98_a_usage_of_any_shape_is_read_as_far_as_it_can_be_believed() {
        let none = [
            r#"{"usage":"oops"}"#,
            r#"{"usage":[1]}"#,
            r#"{"usage":null}"#,
            "{}",
            "",
            "<html>",
            r#"{"usage"#,
            r#"{"usage":{"#,
        ];
        for body in none {
            assert_eq!(usage_of(body, 3), None, "{body}");
        }
        for value in ["-1", "\"7\"", "1.5", "1e400", "18446744073709551616", "null", "{}"] {
            let body = format!(r#"{{"usage":{{"completion_tokens":{value},"prompt_tokens":3}}}}"#);
            assert_eq!(usage_of(&body, 9).and_then(|usage| usage.completion_tokens), None, "{body}");
        }
    }
}
