//! Our headers as NATS writes them, and back.
//!
//! Other senders may write what ours may not be (longer, not ASCII); such headers are left out, the message is not.

use async_nats::HeaderMap;
use switchtower_cluster::{Headers, MAX_HEADERS, MAX_HEADERS_BYTES};

/// What headers take of the server's payload limit at most: the first line, the last, and for each `: ` and the line's
/// end.
pub(crate) const HEADER_ROOM: usize =
    "NATS/1.0\r\n\r\n".len() + MAX_HEADERS_BYTES + MAX_HEADERS * ": \r\n".len();

pub(crate) fn to_nats(headers: &Headers) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers.iter() {
        map.append(name, value);
    }
    map
}

pub(crate) fn from_nats(map: Option<&HeaderMap>) -> Headers {
    let mut pairs: Vec<(&str, &str)> = map
        .into_iter()
        .flat_map(HeaderMap::iter)
        .flat_map(|(name, values)| values.iter().map(|value| (name.as_ref(), value.as_str())))
        .collect();
    // The map has no order of its own; the sort is stable, so values of one name keep theirs.
    pairs.sort_by_key(|(name, _)| *name);
    let mut headers = Headers::new();
    for (name, value) in pairs {
        // A stranger's header that does not fit is left out.
        let _ = headers.append(name, value);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_does_not_fit_is_left_out() {
        let mut headers = Headers::new();
        for (name, value) in [("traceparent", "00-1-2-01"), ("x", "1"), ("x", "2")] {
            headers.append(name, value).unwrap();
        }
        let mut map = to_nats(&headers);
        map.append("y", "ü");
        map.append("z", "v".repeat(MAX_HEADERS_BYTES));
        assert_eq!(from_nats(Some(&map)), headers);
        assert!(from_nats(None).is_empty());
    }
}
