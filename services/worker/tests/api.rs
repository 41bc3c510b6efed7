//! The worker's OpenAI API, asked by a real HTTP client: shapes, usage, limits, refusals.

mod support;

use hyper::StatusCode;
use serde_json::{Value, json};
use support::{Bench, MODEL, chat, events_of, fast, json_of, long_text, with};
use switchtower_models::{openai::parse_chat, prompt_inputs};
use switchtower_selection::wire::{INCARNATION_HEADER, RANK_HEADER};
use switchtower_worker::SimulatedWorkerConfig;

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

fn completion(prompt: Value) -> Value {
    json!({"model": "switchtower-demo", "prompt": prompt})
}

fn encoded(text: &str) -> usize {
    MODEL.tokenizer().encode(text, false).unwrap().len()
}

#[tokio::test]
async fn a_chat_is_answered_with_text_and_the_right_usage() {
    let bench = Bench::start(fast()).await;
    let body = chat("Which way?");
    let (status, answer) = bench.ask(CHAT, &body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let prompt = prompt_inputs(&MODEL, &parse_chat(body.to_string().as_bytes()).unwrap()).unwrap();
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    let (prompt, completion) = (prompt[0].len(), encoded(text));
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "switchtower-demo");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(
        answer["usage"],
        json!({
            "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": 0},
        })
    );
}

#[tokio::test]
async fn a_streamed_chat_is_valid_events_with_the_same_text_and_ends_with_done() {
    let bench = Bench::start(fast()).await;
    let (_, whole) = bench.ask(CHAT, &chat("Which way?")).await;
    let stream = json!({"stream": true, "stream_options": {"include_usage": true}});
    let mut events = events_of(bench.send(CHAT, &with(chat("Which way?"), stream)).await).await;
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    let events: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert!(
        events
            .iter()
            .all(|event| event["object"] == "chat.completion.chunk" && event["id"] == events[0]["id"])
    );
    let (usage, pieces) = events.split_last().unwrap();
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
    assert_eq!(pieces.len() as u64, usage["usage"]["completion_tokens"], "one event per token");
    assert_eq!(pieces[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String =
        pieces.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, whole["choices"][0]["message"]["content"]);
    let ends: Vec<_> = pieces.iter().map(|event| &event["choices"][0]["finish_reason"]).collect();
    assert_eq!(ends.iter().filter(|end| !end.is_null()).count(), 1);
    assert_eq!(ends.last().unwrap().as_str(), Some("stop"));
}

#[tokio::test]
async fn usage_is_streamed_only_when_asked_for() {
    let bench = Bench::start(fast()).await;
    let events = events_of(bench.send(CHAT, &with(chat("a"), json!({"stream": true}))).await).await;
    assert!(events.iter().all(|event| !event.contains("usage")));
    let options = json!({"stream": true, "stream_options": {"continuous_usage_stats": true}});
    let events = events_of(bench.send(CHAT, &with(chat("a"), options)).await).await;
    let second: Value = serde_json::from_str(&events[1]).unwrap();
    assert_eq!(second["usage"]["completion_tokens"], 2);
}

#[tokio::test]
async fn the_second_turn_finds_the_first_one_cached_answer_included() {
    let bench = Bench::start(fast()).await;
    let question = long_text(50);
    let (_, first) = bench.ask(CHAT, &chat(&question)).await;
    let reply = &first["choices"][0]["message"]["content"];
    let body = json!({"model": "switchtower-demo", "messages": [
        {"role": "user", "content": question}, {"role": "assistant", "content": reply},
        {"role": "user", "content": "And then?"}]});
    let (_, second) = bench.ask(CHAT, &body).await;
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    let first_tokens = first["usage"]["total_tokens"].as_u64().unwrap();
    assert!(cached > first["usage"]["prompt_tokens"].as_u64().unwrap(), "{cached}");
    assert!(cached + 2 * 16 > first_tokens, "all but the last blocks of {first_tokens} tokens, not {cached}");
}

#[tokio::test]
async fn max_tokens_n_stop_and_echo_are_honoured() {
    let bench = Bench::start(fast()).await;
    let body = with(completion(json!(["One", "Two"])), json!({"n": 2, "max_tokens": 5, "echo": true}));
    let (_, answer) = bench.ask(TEXT, &body).await;
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    assert_eq!(answer["usage"]["completion_tokens"], 20);
    let tokens = |text: &str| MODEL.tokenizer().encode(text, true).unwrap().len();
    assert_eq!(answer["usage"]["prompt_tokens"], tokens("One") + tokens("Two"), "each prompt counts once");
    for (index, choice) in choices.iter().enumerate() {
        assert_eq!((&choice["index"], &choice["finish_reason"]), (&json!(index), &json!("length")));
        assert!(choice["text"].as_str().unwrap().contains(["One", "Two"][index / 2]));
    }
    assert_ne!(choices[0]["text"], choices[1]["text"], "choices differ");

    let (_, answer) = bench.ask(TEXT, &with(completion(json!("One")), json!({"stop": ["."]}))).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let text = answer["choices"][0]["text"].as_str().unwrap();
    assert!(!text.is_empty() && !text.contains('.'), "{text}");

    let exactly = json!({"max_tokens": 777, "ignore_eos": true});
    let (_, answer) = bench.ask(TEXT, &with(completion(json!([5, 6, 7])), exactly)).await;
    assert_eq!(answer["usage"]["completion_tokens"], 777);
    assert_eq!(answer["usage"]["prompt_tokens"], 3);
}

#[tokio::test]
async fn streamed_completions_interleave_their_choices_and_each_ends_once() {
    let bench = Bench::start(fast()).await;
    let body =
        with(completion(json!("One")), json!({"n": 3, "stream": true, "max_tokens": 9, "ignore_eos": true}));
    let mut events = events_of(bench.send(TEXT, &body).await).await;
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    let events: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    for index in 0..3 {
        let own: Vec<_> =
            events.iter().map(|event| &event["choices"][0]).filter(|c| c["index"] == index).collect();
        assert_eq!(own.len(), 9);
        assert!(own[..8].iter().all(|choice| choice["finish_reason"].is_null()));
        assert_eq!(own[8]["finish_reason"], "length");
    }
}

#[tokio::test]
async fn the_same_request_gets_the_same_words_from_every_worker() {
    let (one, two) = (Bench::start(fast()).await, Bench::start(fast()).await);
    let (_, first) = one.ask(CHAT, &chat("Which way?")).await;
    let (_, second) = two.ask(CHAT, &chat("Which way?")).await;
    assert_eq!(first["choices"], second["choices"]);
}

#[tokio::test]
async fn wrong_requests_are_refused_in_openais_shape() {
    let bench = Bench::start(SimulatedWorkerConfig { max_body_bytes: 100_000, ..fast() }).await;
    let long = "word ".repeat(60_000);
    for (path, body, status, code) in [
        (CHAT, "{".to_owned(), 400, "invalid_json"),
        (CHAT, json!({"model": "switchtower-demo"}).to_string(), 400, "missing_required_parameter"),
        (CHAT, with(chat("a"), json!({"n": 0})).to_string(), 400, "invalid_value"),
        (CHAT, with(chat("a"), json!({"model": "other"})).to_string(), 404, "model_not_found"),
        (CHAT, with(chat("a"), json!({"max_tokens": 40_000})).to_string(), 400, "context_length_exceeded"),
        (CHAT, chat(&long).to_string(), 413, "request_too_large"),
        (TEXT, completion(json!([[1], [4_000_000]])).to_string(), 400, "invalid_token_id"),
        (TEXT, with(completion(json!(vec!["a"; 100])), json!({"n": 100})).to_string(), 400, "invalid_value"),
        ("/v1/nothing", "{}".to_owned(), 404, "not_found"),
    ] {
        let request = bench.post(path, &[], body);
        let (got, answer) = json_of(bench.client.request(request).await.unwrap()).await;
        assert_eq!((got.as_u16(), answer["error"]["code"].as_str()), (status, Some(code)), "{answer}");
        assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
        assert_eq!(answer["error"]["type"], "invalid_request_error");
    }
    assert_eq!(bench.worker.requests(), 0);
}

#[tokio::test]
async fn a_prompt_that_the_engine_could_never_hold_is_refused() {
    let mut config = fast();
    config.engine.total_blocks = 4;
    let bench = Bench::start(config).await;
    let (status, answer) = bench.ask(CHAT, &chat(&long_text(100))).await;
    assert_eq!((status.as_u16(), &answer["error"]["code"]), (400, &json!("context_length_exceeded")));
}

#[tokio::test]
async fn models_and_health_describe_the_worker() {
    let bench = Bench::start(SimulatedWorkerConfig { ranks: 3, ..fast() }).await;
    let (status, models) = bench.get("/v1/models").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(models["data"][0]["id"], "switchtower-demo");
    assert_eq!(models["data"][0]["max_model_len"], MODEL.card().context_length);
    let (status, health) = bench.get("/health").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        (&health["status"], &health["worker_id"], &health["ranks"]),
        (&json!("ok"), &json!(7), &json!(3))
    );
    assert_eq!(health["incarnation"], bench.worker.incarnation().to_string());
}

#[tokio::test]
async fn a_request_for_another_life_is_refused_with_409() {
    let bench = Bench::start(fast()).await;
    let ours = bench.worker.incarnation().to_string();
    for (value, status, code) in [
        (ours.as_str(), 200, Value::Null),
        ("00000000000000ff", 409, json!("incarnation_mismatch")),
        ("not a number", 400, json!("invalid_header")),
    ] {
        let request = bench.post(CHAT, &[(INCARNATION_HEADER, value)], chat("a").to_string());
        let (got, answer) = json_of(bench.client.request(request).await.unwrap()).await;
        assert_eq!((got.as_u16(), &answer["error"]["code"]), (status, &code), "{value}: {answer}");
    }
}

#[tokio::test]
async fn b28_the_rank_that_is_named_serves_and_foreign_ones_are_refused() {
    let bench = Bench::start(SimulatedWorkerConfig { ranks: 2, ..fast() }).await;
    let send = async |rank: &str| {
        let request = bench.post(CHAT, &[(RANK_HEADER, rank)], chat(&long_text(30)).to_string());
        bench.client.request(request).await.unwrap()
    };
    let answer = send("1").await;
    assert_eq!(answer.headers()[RANK_HEADER], "1");
    json_of(answer).await;
    assert!(bench.worker.cached_blocks(switchtower_ids::Rank(0)).is_empty());
    assert!(!bench.worker.cached_blocks(switchtower_ids::Rank(1)).is_empty());
    for (rank, code) in [("2", "rank_not_served"), ("-1", "invalid_header"), ("4294967296", "invalid_header")]
    {
        let (status, answer) = json_of(send(rank).await).await;
        assert_eq!((status.as_u16(), answer["error"]["code"].as_str()), (400, Some(code)), "{answer}");
    }
}
