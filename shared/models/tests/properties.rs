//! What holds for every input: nothing that a client can send panics, and nothing is lost between text and tokens.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;
use switchtower_models::{Model, ModelSource, openai, prompt_inputs};

static MODEL: LazyLock<Model> = LazyLock::new(|| Model::load(&ModelSource::BuiltIn).unwrap());

/// Any JSON, a few levels deep.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop_oneof![".*", Just("user".to_owned()), Just("text".to_owned())].prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        let key = prop_oneof![
            "[a-z]{1,4}",
            Just("role".to_owned()),
            Just("content".to_owned()),
            Just("type".to_owned())
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6)
                .prop_map(|entries| Value::Object(Map::from_iter(entries))),
        ]
    })
}

const FIELDS: [&str; 14] = [
    "model",
    "messages",
    "prompt",
    "tools",
    "tool_choice",
    "stop",
    "n",
    "temperature",
    "stream_options",
    "logit_bias",
    "response_format",
    "chat_template_kwargs",
    "max_tokens",
    "anything",
];

proptest! {
    #[test]
    fn b94_any_bytes_are_a_request_or_a_400(body in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(error) = openai::parse_chat(&body) {
            prop_assert_eq!(error.status(), 400);
        }
        if let Err(error) = openai::parse_completion(&body) {
            prop_assert_eq!(error.status(), 400);
        }
    }

    #[test]
    fn b94_any_value_of_any_field_is_served_or_a_400(field in prop::sample::select(&FIELDS[..]), value in any_json()) {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "prompt": "hi"});
        body[field] = value;
        let body = serde_json::to_vec(&body).unwrap();
        let chat = openai::parse_chat(&body).and_then(|request| prompt_inputs(&MODEL, &request));
        let completion = openai::parse_completion(&body).and_then(|request| prompt_inputs(&MODEL, &request));
        for result in [chat, completion] {
            match result {
                Ok(prompts) => prop_assert!(!prompts.is_empty() && prompts.iter().all(|ids| !ids.is_empty())),
                Err(error) => prop_assert_eq!(error.status(), 400),
            }
        }
    }

    #[test]
    fn a_request_reads_the_same_after_it_was_written(text in ".*", temperature in 0.0..2.0_f64, n in 1..128_u32) {
        let body = json!({
            "model": "m", "messages": [{"role": "user", "content": text}], "temperature": temperature, "n": n, "x": [text]
        });
        let request = openai::parse_chat(&serde_json::to_vec(&body).unwrap()).unwrap();
        let written = serde_json::to_vec(&request).unwrap();
        prop_assert_eq!(openai::parse_chat(&written).unwrap(), request);
    }

    #[test]
    fn text_comes_back_from_its_tokens(text in any::<String>()) {
        let tokenizer = MODEL.tokenizer();
        let ids = tokenizer.encode(&text, false).unwrap();
        prop_assert!(ids.len() >= tokenizer.tokens_min(text.len()) && ids.len() <= text.len());
        prop_assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    }
}
