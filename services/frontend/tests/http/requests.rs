//! Requests on their way in: what is refused, how, and that none of it reaches a worker.

use crate::{
    fake_worker::{COMPLETION, FakeWorker, answer_json, closed},
    rig::{CHAT, COMPLETIONS, MODEL, Rig, chat, cluster, completion, in_time},
};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn serving() -> (FakeWorker, Rig) {
    let runtime = cluster();
    let worker = FakeWorker::start(runtime.tasks(), |_, stream| answer_json(stream, 200, COMPLETION)).await;
    let rig = Rig::over(std::slice::from_ref(&worker), runtime).await;
    (worker, rig)
}

/// (field that is to be named, value) for fields that both endpoints have.
fn bad_fields() -> Vec<(&'static str, Value)> {
    let mut cases = Vec::new();
    let numbers =
        ["temperature", "top_p", "presence_penalty", "frequency_penalty", "max_tokens", "n", "seed"];
    for field in numbers {
        cases.extend([(field, json!("1")), (field, json!([1])), (field, json!({})), (field, json!(true))]);
    }
    cases.extend([
        ("temperature", json!(-1)),
        ("temperature", json!(2.5)),
        ("temperature", json!(1e300)),
        ("top_p", json!(0)),
        ("top_p", json!(-1)),
        ("top_p", json!(1.5)),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(-1)),
        ("max_tokens", json!(1.5)),
        ("max_tokens", json!(1_u64 << 60)),
        ("n", json!(0)),
        ("n", json!(-1)),
        ("n", json!(129)),
        ("presence_penalty", json!(3)),
        ("frequency_penalty", json!(-3)),
        ("seed", json!(1.5)),
        ("stop", json!(7)),
        ("stop", json!(vec!["s"; 33])),
        ("stop", json!([""])),
        ("stop", json!([1])),
        ("stream", json!("yes")),
        ("stream", json!(1)),
        ("model", json!(7)),
        ("model", Value::Null),
    ]);
    cases
}

fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

/// Whole bodies that are refused.
fn bad_bodies() -> Vec<(&'static str, Bytes)> {
    let mut bodies: Vec<(&str, Bytes)> = Vec::new();
    for text in ["", "{", "null", "[]", "7", "\"text\"", "{\"model\":NaN}", "{'model':1}", "\u{feff}{}"] {
        bodies.extend([CHAT, COMPLETIONS].map(|path| (path, Bytes::copy_from_slice(text.as_bytes()))));
    }
    let nested =
        format!("{{\"model\":\"{MODEL}\",\"messages\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    bodies.push((CHAT, nested.into()));
    bodies.push((CHAT, Bytes::from_static(b"\xff\xfe{}")));
    let messages = [
        json!([]),
        json!("hello"),
        json!([{"role": "king", "content": "x"}]),
        json!([{"role": "user", "content": {"text": "x"}}]),
        json!([{"content": "x"}]),
        json!([7]),
    ];
    bodies
        .extend(messages.map(|messages| (CHAT, with(chat(false), "messages", messages).to_string().into())));
    let prompts = [
        json!([]),
        json!([[]]),
        json!(7),
        json!([-1]),
        json!([1.5]),
        json!([4_294_967_295_u32]),
        json!(["a", 1]),
        Value::Null,
    ];
    bodies.extend(
        prompts.map(|prompt| (COMPLETIONS, with(completion(false), "prompt", prompt).to_string().into())),
    );
    let over = vec![5; 32_769];
    bodies.push((COMPLETIONS, with(completion(false), "prompt", json!(over)).to_string().into()));
    bodies.push((COMPLETIONS, with(completion(false), "max_tokens", json!(32_768)).to_string().into()));
    bodies
        .push((CHAT, with(chat(false), "stream_options", json!({"include_usage": true})).to_string().into()));
    bodies
}

#[tokio::test]
async fn b94_invalid_requests_are_refused_by_field_and_none_reaches_a_worker() {
    let (worker, rig) = serving().await;
    let mut refused = 0;
    for (path, base) in [(CHAT, chat as fn(bool) -> Value), (COMPLETIONS, completion)] {
        for stream in [false, true] {
            for (field, value) in bad_fields() {
                let reply = rig.post(path, &with(base(stream), field, value.clone())).await;
                assert_eq!(reply.status.as_u16(), 400, "{path} {field} {value}: {reply:?}");
                let param = reply.json()["error"]["param"].as_str().unwrap_or_default().to_owned();
                assert!(param.starts_with(field), "{path} {field} {value}: {param}");
                refused += 1;
            }
        }
    }
    for (path, body) in bad_bodies() {
        let reply = rig.post_bytes(path, body.clone(), &[]).await;
        assert!([400, 422].contains(&reply.status.as_u16()), "{path} {body:?}: {reply:?}");
        assert_eq!(reply.json()["error"]["type"], "invalid_request_error");
        refused += 1;
    }
    let reply = rig.post(CHAT, &with(chat(true), "model", json!("no-such"))).await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (404, "model_not_found"));
    let reply = rig.post_with(CHAT, &chat(true), &[("content-type", "text/plain")]).await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (415, "unsupported_media_type"));
    let reply = rig.post_with(CHAT, &chat(true), &[("content-encoding", "gzip")]).await;
    assert_eq!(reply.status.as_u16(), 415);
    assert!(refused >= 50, "only {refused} cases");
    assert!(worker.received().is_empty(), "an invalid request reached a worker");
    rig.at_rest().await;
    assert_eq!(rig.ended("invalid_request").await, f64::from(refused));
    assert_eq!(rig.metric("switchtower_prompt_tokens_total", &[]).await, 0.0);
}

#[tokio::test]
async fn b95_edge_prompts_are_answered_or_refused_and_the_process_lives() {
    let (_worker, rig) = serving().await;
    let blocks = [1, 15, 16, 17].map(|length| json!(vec![5; length]));
    let texts = ["", " ", "<|begin|>", "<|begin|><|end|>", "\u{0}", "\u{feff}", "🚂", "a\u{301}"]
        .map(|text| json!(text));
    let lists = [json!([""]), json!(["", "a"]), json!([[1], [2, 3]])];
    for prompt in blocks.into_iter().chain(texts).chain(lists) {
        for (field, value) in
            [("logprobs", json!(1)), ("echo", json!(true)), ("n", json!(2)), ("best_of", json!(2))]
        {
            let body = with(with(completion(false), "prompt", prompt.clone()), field, value);
            let status = rig.post(COMPLETIONS, &body).await.status.as_u16();
            assert!(status == 200 || status == 400, "{prompt}: {status}");
        }
    }
    for content in [json!(""), json!(" "), json!([]), json!([{"type": "text", "text": ""}])] {
        let body = with(chat(false), "messages", json!([{"role": "user", "content": content}]));
        let status = rig.post(CHAT, &body).await.status.as_u16();
        assert!(status == 200 || status == 400, "{body}: {status}");
    }
    assert_eq!(rig.get("/live").await.status.as_u16(), 200);
    rig.at_rest().await;
    assert_eq!(rig.ended("internal").await, 0.0);
}

const BODY_LIMIT: usize = 3_000_000;

/// A valid body of exactly this length.
fn body_of(path: &str, length: usize) -> Bytes {
    let (opening, closing) = match path {
        CHAT => ("{\"model\":\"no-such\",\"messages\":[{\"role\":\"user\",\"content\":\"", "\"}]}"),
        _ => ("{\"model\":\"no-such\",\"prompt\":\"", "\"}"),
    };
    let filling = "a".repeat(length - opening.len() - closing.len());
    format!("{opening}{filling}{closing}").into()
}

#[tokio::test]
async fn b99_bodies_up_to_the_configured_limit_pass_and_larger_ones_hear_413() {
    let runtime = cluster();
    let rig = Rig::configured(&[], runtime, |config| config.limits.max_body_bytes = BODY_LIMIT).await;
    for path in [CHAT, COMPLETIONS] {
        for length in [1_900_000, 2_100_000, BODY_LIMIT - 1, BODY_LIMIT] {
            let reply = rig.post_bytes(path, body_of(path, length), &[]).await;
            assert_eq!(reply.code(), "model_not_found", "{length} bytes were not read");
        }
        for length in [BODY_LIMIT + 1, BODY_LIMIT + 1_000_000, 3 * BODY_LIMIT] {
            let reply = rig.post_bytes(path, body_of(path, length), &[]).await;
            assert_eq!(
                (reply.status.as_u16(), reply.code().as_str()),
                (413, "request_too_large"),
                "{length}"
            );
        }
    }
    assert_eq!(rig.ended("request_too_large").await, 6.0);
}

#[tokio::test]
async fn b99_chunked_bodies_have_the_same_limit_and_the_connection_stays_usable() {
    let runtime = cluster();
    let rig = Rig::configured(&[], runtime, |config| config.limits.max_body_bytes = BODY_LIMIT).await;
    let mut client = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    for (length, status) in
        [(BODY_LIMIT, "404"), (BODY_LIMIT + 1, "413"), (BODY_LIMIT + 2_000_000, "413"), (100, "404")]
    {
        client.write_all(head.as_bytes()).await.unwrap();
        for chunk in body_of(COMPLETIONS, length).chunks(60_000) {
            client.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await.unwrap();
            client.write_all(chunk).await.unwrap();
            client.write_all(b"\r\n").await.unwrap();
        }
        client.write_all(b"0\r\n\r\n").await.unwrap();
        let answer = read_answer(&mut client).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{length}: {answer}");
    }
}

/// One answer with a known length.
async fn read_answer(client: &mut tokio::net::TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(in_time(client.read_u8()).await.unwrap());
    }
    let head = String::from_utf8(read).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    in_time(client.read_exact(&mut body)).await.unwrap();
    head + std::str::from_utf8(&body).unwrap()
}

#[tokio::test]
async fn a_body_that_does_not_come_is_refused_in_time() {
    let rig = Rig::configured(&[], cluster(), |config| config.timeouts.body_read_ms = 20).await;
    let mut client = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-length: 100\r\n\r\n{";
    client.write_all(head.as_bytes()).await.unwrap();
    let answer = read_answer(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("body_timeout"), "{answer}");
}

#[tokio::test]
async fn more_requests_than_may_be_in_flight_are_told_to_come_back() {
    let runtime = cluster();
    let worker = FakeWorker::start(runtime.tasks(), |number, mut stream| async move {
        if number == 0 { closed(&mut stream).await } else { answer_json(stream, 200, COMPLETION).await }
    })
    .await;
    let workers = std::slice::from_ref(&worker);
    let rig = Rig::configured(workers, runtime, |config| config.limits.max_concurrent_requests = 1).await;
    let held = rig.raw(COMPLETIONS, &completion(false)).await;
    in_time(worker.wait_for(1)).await;
    let reply = rig.post(CHAT, &chat(false)).await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (429, "too_many_requests"));
    assert_eq!(reply.header("retry-after"), "1");
    assert_eq!(rig.get("/live").await.status.as_u16(), 200, "probes need no place");
    drop(held);
    rig.at_rest().await;
    assert_eq!(rig.post(CHAT, &chat(false)).await.status.as_u16(), 200);
    assert_eq!(rig.ended("too_many_requests").await, 1.0);
}

#[tokio::test]
async fn b105_unknown_paths_and_wrong_methods_have_the_same_shape_as_every_error() {
    let (_worker, rig) = serving().await;
    for path in ["/", "/v1", "/v1/embeddings", "/v1/models/", "/metrics/x", "//v1/models"] {
        let reply = rig.get(path).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (404, "unknown_url"), "{path}");
    }
    for (method, path, allow) in
        [("GET", CHAT, "POST"), ("DELETE", "/v1/models", "GET"), ("POST", "/health", "GET")]
    {
        let request = Request::builder().method(method).uri(format!("http://{}{path}", rig.address));
        let reply = rig.send(request.body(Full::default()).unwrap()).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (405, "method_not_allowed"));
        assert!(reply.header("allow").contains(allow), "{method} {path}: {:?}", reply.headers);
    }
}

#[tokio::test]
async fn hints_decide_where_a_request_goes() {
    let runtime = cluster();
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers
            .push(FakeWorker::start(runtime.tasks(), |_, stream| answer_json(stream, 200, COMPLETION)).await);
    }
    let rig = Rig::over(&workers, runtime).await;
    let send = async |name: &str, value: &str| {
        rig.post_with(COMPLETIONS, &completion(false), &[(name, value)]).await
    };
    for _ in 0..4 {
        assert_eq!(send("x-switchtower-pin", "2/0").await.header("x-switchtower-worker"), "2/0");
        assert_eq!(send("x-switchtower-pin", "3").await.header("x-switchtower-worker"), "3/0");
        assert_eq!(send("x-switchtower-required-taints", "t1").await.header("x-switchtower-worker"), "1/0");
        let row = send("x-switchtower-allowed-workers", "1,3").await;
        assert_ne!(row.header("x-switchtower-worker"), "2/0");
    }
    let reply = send("x-switchtower-pin", "4711/0").await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (400, "impossible_pin"));
    let reply = send("x-switchtower-required-taints", "nowhere").await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (503, "nothing_eligible"));
    assert_eq!(reply.header("retry-after"), "1");
    let reply = send("x-switchtower-priority", "high").await;
    assert_eq!(
        (reply.status.as_u16(), reply.json()["error"]["param"].as_str()),
        (400, Some("x-switchtower-priority"))
    );
    rig.at_rest().await;
}

#[tokio::test]
async fn b132_names_that_clients_make_up_become_no_series() {
    let (_worker, rig) = serving().await;
    let series = async || {
        let text = rig.get("/metrics").await.body;
        String::from_utf8(text.to_vec()).unwrap().lines().filter(|line| !line.starts_with('#')).count()
    };
    rig.post(CHAT, &chat(false)).await;
    let before = series().await;
    for number in 0..200 {
        let name = format!("made-up-{number}");
        rig.post_with(CHAT, &with(chat(false), "model", json!(name)), &[("x-switchtower-session", &name)])
            .await;
        rig.get(&format!("/{name}")).await;
    }
    let after = series().await;
    assert!(after < before + 60, "{before} series became {after}");
    assert_eq!(rig.metric("switchtower_requests_total", &["made-up"]).await, 0.0);
    assert_eq!(rig.ended("model_not_found").await, 200.0);
}
