//! The name of one request, for logs on both sides: the caller's own where it is sane, otherwise made here. Goes to the
//! worker and back to the caller.

use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

/// The header that carries it.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest id that is taken from a caller, in bytes.
const BYTES_MAX: usize = 128;

/// The caller's id, if it is 1 to 128 visible ASCII characters; a UUID of version 7 otherwise.
pub(crate) fn request_id(headers: &HeaderMap) -> HeaderValue {
    match headers.get(&REQUEST_ID) {
        Some(given) if is_sane(given.as_bytes()) => given.clone(),
        _ => made(),
    }
}

fn is_sane(id: &[u8]) -> bool {
    (1..=BYTES_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

fn made() -> HeaderValue {
    let id = Uuid::now_v7().to_string();
    // A UUID's text is a valid header value; the empty one is only for the type.
    HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(id: &[u8]) -> HeaderValue {
        let mut headers = HeaderMap::new();
        headers.insert(REQUEST_ID, HeaderValue::from_bytes(id).unwrap());
        request_id(&headers)
    }

    #[test]
    fn a_sane_id_is_kept_and_any_other_replaced() {
        assert_eq!(of(b"night-train-17"), "night-train-17");
        assert_eq!(of(&[b'x'; 128]).len(), 128);
        for bad in [&b""[..], b"two words", b"\xc3\xa9", &[b'x'; 129]] {
            let made = of(bad);
            assert_eq!(made.to_str().unwrap().parse::<Uuid>().unwrap().get_version_num(), 7);
        }
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }
}
