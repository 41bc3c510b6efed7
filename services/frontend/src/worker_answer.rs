//! A worker's answer as far as it has been read: its head, and the body's first bytes where somebody had to look. What
//! was read is kept, so that the client gets every byte. Made by `dispatch`, passed on by `relay`.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode, response::Parts};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use switchtower_ids::Row;

/// An answer whose body says why is read up to here, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// A worker's answer.
pub(crate) struct WorkerAnswer {
    row: Row,
    parts: Parts,
    read: Bytes,
    rest: Incoming,
}

impl WorkerAnswer {
    /// The answer of `row`, nothing of its body read.
    pub(crate) fn new(row: Row, response: Response<Incoming>) -> Self {
        let (parts, rest) = response.into_parts();
        Self { row, parts, read: Bytes::new(), rest }
    }

    /// Who answers.
    pub(crate) fn row(&self) -> Row {
        self.row
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.parts.status
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// What has been read, and the rest.
    pub(crate) fn into_body(self) -> (Bytes, Incoming) {
        (self.read, self.rest)
    }

    /// Waits for the body's first bytes; false if it has none.
    pub(crate) async fn read_first_byte(&mut self) -> Result<bool, hyper::Error> {
        while self.read.is_empty() {
            let Some(frame) = self.rest.frame().await.transpose()? else { return Ok(false) };
            self.read = frame.into_data().unwrap_or_default();
        }
        Ok(true)
    }

    /// Reads the body, or the beginning of a long one.
    pub(crate) async fn read_head_of_body(&mut self) -> Result<(), hyper::Error> {
        let mut read = BytesMut::from(&self.read[..]);
        while read.len() < HEAD_BYTES_MAX {
            let Some(frame) = self.rest.frame().await.transpose()? else { break };
            read.extend_from_slice(&frame.into_data().unwrap_or_default());
        }
        self.read = read.freeze();
        Ok(())
    }
}

/// Whether the worker refused because the request was meant for another life of it.
pub(crate) fn is_incarnation_mismatch(answer: &WorkerAnswer) -> bool {
    let body: Value = serde_json::from_slice(&answer.read).unwrap_or_default();
    body.pointer("/error/code").and_then(Value::as_str) == Some("incarnation_mismatch")
}
