//! The event stream under every chunking.

use super::*;

fn feed(text: &[u8], chunk_bytes: usize) -> (EventStream, Vec<u8>) {
    let mut stream = EventStream::default();
    let mut passed = Vec::new();
    for chunk in text.chunks(chunk_bytes) {
        passed.extend_from_slice(&stream.pass(Bytes::copy_from_slice(chunk)));
        assert!(stream.held.len() <= LINE_BYTES_MAX);
    }
    (stream, passed)
}

const GOOD: &str = concat!(
    ": hello\n\n",
    "data: {\"choices\":[{\"delta\":{\"content\":\"[DONE] 🚂 \\u2028\"}}]}\n\n",
    "data:{\"choices\":[{\"delta\":{\"content\":\"\\\"error\\\" é\"}}]}\r\n\r\n",
    "data: {\"choices\":[],\"usage\":{\"completion_tokens\":2}}\n\n",
    "data: [DONE]\n\n",
);

#[test]
fn b96_b60_any_chunking_passes_the_same_bytes_and_sees_the_same_events() {
    for chunk_bytes in 1..=GOOD.len() {
        let (stream, passed) = feed(GOOD.as_bytes(), chunk_bytes);
        assert_eq!(passed, GOOD.as_bytes(), "{chunk_bytes}");
        assert_eq!((stream.events(), stream.is_done(), stream.trouble()), (3, true, None), "{chunk_bytes}");
        assert_eq!(stream.usage().and_then(|usage| usage.completion_tokens), Some(2));
    }
}

#[test]
fn b96_bytes_that_are_no_utf_8_pass_too() {
    let text = b"data: \xff\xfe\xf0\x9f\n\ndata: [DONE]\n\n";
    for chunk_bytes in 1..text.len() {
        let (stream, passed) = feed(text, chunk_bytes);
        assert_eq!(passed, text);
        assert!(stream.is_done());
    }
}

#[test]
fn b92_a_stream_that_breaks_is_closed_with_an_error_and_an_end_wherever_it_broke() {
    for cut in 0..GOOD.len() {
        let (mut stream, mut passed) = feed(&GOOD.as_bytes()[..cut], 5);
        passed.extend_from_slice(&stream.close("broke", "worker_lost"));
        let text = String::from_utf8(passed).unwrap().replace("\r\n", "\n");
        let events: Vec<_> = text
            .split("\n\n")
            .filter_map(|event| event.trim().strip_prefix("data:"))
            .map(str::trim)
            .collect();
        if stream.is_done() {
            assert_eq!(text.matches("broke").count(), 0);
            continue;
        }
        let [.., error, done] = &events[..] else { panic!("{cut}: {text}") };
        assert_eq!(*done, "[DONE]", "{cut}: {text}");
        let error: Value = serde_json::from_str(error).unwrap();
        assert_eq!(error["error"]["code"], "worker_lost", "{cut}");
        for event in &events[..events.len() - 2] {
            assert!(serde_json::from_str::<Value>(event).is_ok(), "{cut}: a torn event passed: {event}");
        }
    }
}

#[test]
fn the_end_may_lack_its_line_end_but_nothing_else_may() {
    let (mut stream, _) = feed(b"data: 1\n\ndata: [DONE]", 4);
    assert_eq!(stream.end(), "data: [DONE]\n\n");
    assert!(stream.is_done() && stream.close("x", "y").is_empty());
    let (mut stream, _) = feed(b"data: 1\n\ndata: {\"to", 4);
    assert!(stream.end().is_empty() && !stream.is_done());
}

#[test]
fn b93_an_error_inside_the_stream_is_classified_and_not_said_twice() {
    let cases = [
        (r#"data: {"error":{"message":"m","code":503}}"#, label::OVERLOAD, true),
        (r#"data: {"error":{"type":"overloaded_error"}}"#, label::OVERLOAD, true),
        (r#"data: {"error":{"code":"429"}}"#, label::OVERLOAD, true),
        (r#"data: {"error":{"type":"server_error","code":500}}"#, label::INTERNAL, true),
        (r#"data: {"error":"text"}"#, label::INTERNAL, true),
        ("event: error\ndata: oops", label::INTERNAL, false),
    ];
    for (event, expected, shown) in cases {
        let (mut stream, _) = feed(format!("{event}\n\n").as_bytes(), 7);
        assert_eq!(stream.trouble(), Some(expected), "{event}");
        let closing = stream.close("ours", "c");
        assert_eq!(closing.windows(4).any(|window| window == b"ours"), !shown, "{event}");
        assert!(closing.ends_with(b"data: [DONE]\n\n"));
    }
}

#[test]
fn b98_a_line_without_end_is_not_held_and_counts_once() {
    let mut text = b"data: {\"usage\":\"oops\"}\n\ndata: ".to_vec();
    text.extend(std::iter::repeat_n(b'x', 10 * LINE_BYTES_MAX));
    text.extend_from_slice(b"\n\ndata: [DONE]\n\n");
    for chunk_bytes in [1_000, 70_000, text.len() - 20, text.len()] {
        let (stream, passed) = feed(&text, chunk_bytes);
        assert_eq!(passed.len(), text.len());
        assert_eq!((stream.events(), stream.is_done(), stream.usage()), (2, true, None), "{chunk_bytes}");
    }
    let (mut stream, _) = feed(&text[..text.len() - 40], 1_000);
    assert!(stream.close("broke", "c").starts_with(b"\n\ndata: {\"error\""));
}
