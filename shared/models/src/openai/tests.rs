//! Requests that are right, and those that are wrong in every way the field has reported.

use super::*;
use crate::{Model, ModelSource, prompt_inputs};
use serde_json::{Value, json};

fn chat(changes: &Value) -> Vec<u8> {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    merge(&mut body, changes)
}

fn completion(changes: &Value) -> Vec<u8> {
    let mut body = json!({"model": "m", "prompt": "hi"});
    merge(&mut body, changes)
}

/// Set the fields of `changes`; `"absent"` takes one away.
fn merge(body: &mut Value, changes: &Value) -> Vec<u8> {
    let object = body.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        if value == "absent" {
            object.remove(name);
        } else {
            object.insert(name.clone(), value.clone());
        }
    }
    serde_json::to_vec(body).unwrap()
}

fn message(message: &Value) -> Value {
    json!({"messages": [{"role": "user", "content": "hi"}, message]})
}

fn function(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
}

/// Wrong chat requests: what is changed, and the field that the error names.
fn wrong_chats() -> Vec<(Value, &'static str)> {
    let image = json!({"type": "image_url"});
    let call = json!([{"id": "1", "type": "function", "function": {"arguments": "{}"}}]);
    vec![
        (json!({"model": "absent"}), "model"),
        (json!({"model": null}), "model"),
        (json!({"model": ""}), "model"),
        (json!({"model": 7}), "model"),
        (json!({"model": "m\n"}), "model"),
        (json!({"model": "m".repeat(257)}), "model"),
        (json!({"messages": "absent"}), "messages"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": "hi "}), "messages"),
        (json!({"messages": {"role": "user"}}), "messages"),
        (json!({"messages": ["hi"]}), "messages[0]"),
        (json!({"messages": [[]]}), "messages[0]"),
        (message(&json!({"content": "hi"})), "messages[1].role"),
        (message(&json!({"role": "usr", "content": "hi"})), "messages[1].role"),
        (message(&json!({"role": 1, "content": "hi"})), "messages[1].role"),
        (message(&json!({"role": "user"})), "messages[1].content"),
        (message(&json!({"role": "user", "content": null})), "messages[1].content"),
        (message(&json!({"role": "user", "content": 5})), "messages[1].content"),
        (message(&json!({"role": "user", "content": []})), "messages[1].content"),
        (message(&json!({"role": "user", "content": ["hi"]})), "messages[1].content[0]"),
        (message(&json!({"role": "user", "content": [{"text": "hi"}]})), "messages[1].content[0].type"),
        (
            message(&json!({"role": "user", "content": [{"type": "txt", "text": ""}]})),
            "messages[1].content[0].type",
        ),
        (message(&json!({"role": "user", "content": [{"type": "text"}]})), "messages[1].content[0].text"),
        (
            message(&json!({"role": "user", "content": [{"type": "text", "text": 1}]})),
            "messages[1].content[0].text",
        ),
        (message(&json!({"role": "user", "content": [image]})), "messages[1].content[0].image_url"),
        (message(&json!({"role": "assistant"})), "messages[1].content"),
        (message(&json!({"role": "tool", "content": "4"})), "messages[1].tool_call_id"),
        (message(&json!({"role": "function", "content": "4"})), "messages[1].name"),
        (message(&json!({"role": "user", "content": "", "name": 1})), "messages[1].name"),
        (message(&json!({"role": "user", "content": "", "tool_calls": call})), "messages[1].tool_calls"),
        (message(&json!({"role": "assistant", "tool_calls": "f"})), "messages[1].tool_calls"),
        (
            message(&json!({"role": "assistant", "tool_calls": call})),
            "messages[1].tool_calls[0].function.name",
        ),
        (json!({"tools": {}}), "tools"),
        (json!({"tools": [{}]}), "tools[0].type"),
        (json!({"tools": [{"type": "web"}]}), "tools[0].type"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].function"),
        (json!({"tools": [function("")]}), "tools[0].function.name"),
        (
            json!({"tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}]}),
            "tools[0].function.parameters",
        ),
        (json!({"tools": vec![function("f"); 1025]}), "tools"),
        (json!({"tool_choice": "auto"}), "tool_choice"),
        (json!({"tool_choice": "any"}), "tool_choice"),
        (json!({"tool_choice": 1}), "tool_choice"),
        (json!({"tools": [function("f")], "tool_choice": function("g")}), "tool_choice.function.name"),
        (json!({"top_logprobs": 3}), "top_logprobs"),
        (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs"),
        (json!({"logprobs": 1}), "logprobs"),
        (json!({"max_completion_tokens": 0}), "max_completion_tokens"),
        (json!({"max_completion_tokens": -1}), "max_completion_tokens"),
        (json!({"chat_template": "{{ 1 }}"}), "chat_template"),
        (json!({"chat_template_kwargs": []}), "chat_template_kwargs"),
        (json!({"chat_template_kwargs": {"messages": []}}), "chat_template_kwargs.messages"),
        (json!({"continue_final_message": true, "add_generation_prompt": true}), "continue_final_message"),
    ]
}

/// Wrong in both kinds of request.
fn wrong_options() -> Vec<(Value, &'static str)> {
    let stops = |count: usize| json!({"stop": vec!["x"; count]});
    let mut wrong = vec![
        (json!({"max_tokens": 1.5}), "max_tokens"),
        (json!({"seed": 1.5}), "seed"),
        (json!({"seed": "x"}), "seed"),
        (stops(33), "stop"),
        (json!({"stop": 1}), "stop"),
        (json!({"stop": ""}), "stop"),
        (json!({"stop": ["a", ""]}), "stop[1]"),
        (json!({"stop": ["a", null]}), "stop[1]"),
        (json!({"user": 1}), "user"),
        (json!({"stream": "yes"}), "stream"),
        (json!({"stream": 1}), "stream"),
        (json!({"stream_options": {"include_usage": true}}), "stream_options"),
        (json!({"stream": true, "stream_options": []}), "stream_options"),
        (json!({"stream": true, "stream_options": {"include_usage": 1}}), "stream_options.include_usage"),
        (json!({"top_k": -2}), "top_k"),
        (json!({"min_p": 2}), "min_p"),
        (json!({"repetition_penalty": 0}), "repetition_penalty"),
        (json!({"ignore_eos": "no"}), "ignore_eos"),
        (json!({"logit_bias": []}), "logit_bias"),
        (json!({"logit_bias": {"x": 1}}), "logit_bias.x"),
        (json!({"logit_bias": {"1": 101}}), "logit_bias.1"),
        (json!({"response_format": "json"}), "response_format"),
        (json!({"response_format": {}}), "response_format.type"),
        (json!({"response_format": {"type": "xml"}}), "response_format.type"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema"),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"schema": 1}}}),
            "response_format.json_schema.schema",
        ),
    ];
    let out_of_range: [(&'static str, &[Value]); 6] = [
        ("temperature", &[json!(-1), json!(2.1)]),
        ("top_p", &[json!(0), json!(-1), json!(1.1)]),
        ("n", &[json!(0), json!(-1), json!(129)]),
        ("presence_penalty", &[json!(-2.1), json!(2.1)]),
        ("frequency_penalty", &[json!(-2.1), json!(2.1)]),
        ("max_tokens", &[json!(0), json!(-1), json!(4_294_967_296_u64)]),
    ];
    for (name, values) in out_of_range {
        let of_wrong_type = [json!("1"), json!([1]), json!({}), json!(true), json!(1e300)];
        wrong.extend(values.iter().chain(&of_wrong_type).map(|value| (json!({name: value}), name)));
    }
    wrong
}

/// Wrong completion requests.
fn wrong_completions() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"prompt": "absent"}), "prompt"),
        (json!({"prompt": null}), "prompt"),
        (json!({"prompt": 1}), "prompt"),
        (json!({"prompt": {}}), "prompt"),
        (json!({"prompt": []}), "prompt"),
        (json!({"prompt": [[]]}), "prompt[0]"),
        (json!({"prompt": [true]}), "prompt[0]"),
        (json!({"prompt": [1, "a"]}), "prompt[1]"),
        (json!({"prompt": [1, -1]}), "prompt[1]"),
        (json!({"prompt": [1.5]}), "prompt[0]"),
        (json!({"prompt": [4_294_967_296_u64]}), "prompt[0]"),
        (json!({"prompt": ["a", 1]}), "prompt[1]"),
        (json!({"prompt": [[1], [1, "a"]]}), "prompt[1][1]"),
        (json!({"prompt": vec!["a"; 2049]}), "prompt"),
        (json!({"logprobs": 21}), "logprobs"),
        (json!({"logprobs": true}), "logprobs"),
        (json!({"echo": 1}), "echo"),
        (json!({"suffix": 1}), "suffix"),
        (json!({"best_of": 0}), "best_of"),
        (json!({"best_of": 1, "n": 2}), "best_of"),
    ]
}

fn assert_refused<T: std::fmt::Debug>(result: Result<T, RequestError>, param: &str, case: &Value) {
    let error = result.expect_err(&case.to_string());
    assert_eq!(error.param.as_deref(), Some(param), "{case}: {error}");
    assert_eq!(error.status(), 400);
    assert!(error.message.len() > 15 && !error.code.is_empty(), "{case}: {error}");
    let body = serde_json::to_value(error.body()).unwrap();
    assert_eq!(body["error"]["param"], param);
    assert_eq!(body["error"]["type"], "invalid_request_error");
    assert!(body["error"]["message"].as_str().unwrap().starts_with(param));
}

#[test]
fn b94_every_invalid_request_is_a_400_that_names_the_field() {
    let (chats, options, completions) = (wrong_chats(), wrong_options(), wrong_completions());
    assert!(chats.len() + options.len() + completions.len() >= 100);
    for stream in [false, true] {
        let with_stream = |case: &Value| {
            let mut case = case.clone();
            case.as_object_mut().unwrap().entry("stream").or_insert(json!(stream));
            case
        };
        for (case, param) in chats.iter().chain(&options) {
            let case = if *param == "stream_options" { case.clone() } else { with_stream(case) };
            assert_refused(parse_chat(&chat(&case)), param, &case);
        }
        for (case, param) in completions.iter().chain(&options) {
            let case = if *param == "stream_options" { case.clone() } else { with_stream(case) };
            assert_refused(parse_completion(&completion(&case)), param, &case);
        }
    }
}

#[test]
fn b94_stop_lists_up_to_the_documented_limit_are_taken() {
    for count in 0..=STOPS_MAX {
        let body = chat(&json!({"stop": vec!["x"; count]}));
        assert_eq!(parse_chat(&body).unwrap().options.stop.len(), count);
    }
}

#[test]
fn b94_a_body_that_is_no_json_object_is_refused_with_its_place() {
    let cases: [&[u8]; 14] = [
        b"",
        b" ",
        b"{",
        b"[]",
        b"null",
        b"\"x\"",
        b"{\"model\": NaN}",
        b"{\"model\": 'm'}",
        b"{\"a\": 1,}",
        b"{\"a\": 1} x",
        b"{\"a\": 1e999}",
        b"\xff\xfe",
        b"{\"a\": \"\xc3\x28\"}",
        b"{\"a\": \"\\ud800\"}",
    ];
    for body in cases {
        for error in [parse_chat(body).unwrap_err(), parse_completion(body).unwrap_err()] {
            assert_eq!((error.status(), error.code.as_ref()), (400, "invalid_json"), "{error}");
            assert_eq!(error.param, None);
        }
    }
    let error = parse_chat(b"{\"model\":\n  oops}").unwrap_err();
    assert!(error.message.contains("line 2 column 3"), "{error}");
    let error = parse_chat(b"\xef\xbb\xbf{}").unwrap_err();
    assert!(error.code == "invalid_json" && error.message.contains("byte order mark"), "{error}");
}

#[test]
fn b94_a_field_given_twice_is_refused_by_name() {
    let body = br#"{"model": "a", "messages": [{"role": "user", "content": "x", "role": "system"}]}"#;
    let error = parse_chat(body).unwrap_err();
    assert_eq!((error.param.as_deref(), error.code.as_ref()), (Some("role"), "duplicate_field"));
    assert!(error.message.contains("line 1"), "{error}");
}

#[test]
fn b94_a_prompt_of_the_whole_context_is_refused_with_both_numbers() {
    let model = Model::load(&ModelSource::BuiltIn).unwrap();
    let context = model.card().context_length as usize;
    let ask = |tokens: usize, max: Value| {
        let body = completion(&json!({"prompt": vec![300; tokens], "max_tokens": max}));
        prompt_inputs(&model, &parse_completion(&body).unwrap())
    };
    assert_eq!(ask(context - 1, Value::Null).unwrap()[0].len(), context - 1);
    assert_eq!(ask(context - 10, json!(10)).unwrap()[0].len(), context - 10);
    for (tokens, max) in
        [(context + 1, Value::Null), (context, Value::Null), (context - 9, json!(10)), (1, json!(u32::MAX))]
    {
        let error = ask(tokens, max).unwrap_err();
        assert_eq!((error.code.as_ref(), error.status()), ("context_length_exceeded", 400));
        assert!(
            error.message.contains(&context.to_string()) && error.message.contains(&tokens.to_string()),
            "{error}"
        );
    }
}

#[test]
fn b152_deep_nesting_is_refused_or_passed_on_and_never_overflows() {
    for depth in [1_000, 10_000, 1_000_000] {
        let arrays =
            format!("{{\"model\": \"m\", \"messages\": {}{}}}", "[".repeat(depth), "]".repeat(depth));
        let schema = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        let tools = format!(
            r#"{{"model": "m", "messages": [{{"role": "user", "content": "x"}}], "tools": [{{"type": "function", "function": {{"name": "f", "parameters": {schema}}}}}]}}"#
        );
        let format = format!(
            r#"{{"model": "m", "prompt": "x", "response_format": {{"type": "json_schema", "json_schema": {schema}}}}}"#
        );
        for body in [&arrays, &tools, &format] {
            assert_eq!(parse_chat(body.as_bytes()).unwrap_err().code, "invalid_json");
            assert_eq!(parse_completion(body.as_bytes()).unwrap_err().code, "invalid_json");
        }
        let grammar =
            completion(&json!({"guided_grammar": "(".repeat(depth), "guided_regex": "[".repeat(depth)}));
        parse_completion(&grammar).unwrap();
    }
}

#[test]
fn b152_nesting_that_is_accepted_renders() {
    let model = Model::load(&ModelSource::BuiltIn).unwrap();
    let mut schema = json!({"type": "object"});
    (0..100).for_each(|_| schema = json!({"p": schema}));
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": schema}});
    let request = parse_chat(&chat(&json!({"tools": [tool]}))).unwrap();
    assert!(prompt_inputs(&model, &request).unwrap()[0].len() > 100);
}

#[test]
fn a_full_chat_request_keeps_every_field() {
    let body = json!({
        "model": "m",
        "messages": [
            {"role": "developer", "content": "be kind", "name": "boss"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "data:"}}]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "content": "4", "tool_call_id": "1"}
        ],
        "tools": [function("f")], "tool_choice": {"type": "function", "function": {"name": "f"}},
        "temperature": 0.5, "top_p": 0.9, "n": 2, "presence_penalty": -2.0, "frequency_penalty": 2.0, "seed": -7,
        "stop": ["a", "b"], "max_tokens": 1, "max_completion_tokens": 2, "user": "u", "stream": true,
        "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 20,
        "chat_template_kwargs": {"enable_thinking": false}, "top_k": -1, "min_p": 0.5, "metadata": {"deep": [1, {"x": null}]}
    });
    let request = parse_chat(&serde_json::to_vec(&body).unwrap()).unwrap();
    assert_eq!(serde_json::to_value(&request).unwrap(), body);
    assert_eq!(request.output_tokens_max(), Some(2));
    assert!(request.options.include_usage());
    assert_eq!(request.extra["metadata"]["deep"][0], 1);
    let roles: Vec<Role> = request.messages.iter().map(Message::role).collect();
    assert_eq!(roles, [Role::Developer, Role::User, Role::Assistant, Role::Tool]);
}

#[test]
fn every_form_of_prompt_is_taken_and_kept() {
    for prompt in [json!(""), json!("hi"), json!(["a", ""]), json!([1, 2]), json!([[1], [2, 3]])] {
        let request =
            parse_completion(&completion(&json!({"prompt": prompt, "echo": true, "best_of": 1}))).unwrap();
        assert_eq!(serde_json::to_value(&request).unwrap()["prompt"], prompt);
    }
}

#[test]
fn fields_that_are_null_count_as_absent() {
    let nulls = json!({"temperature": null, "stop": null, "max_tokens": null, "tools": null, "stream": null, "n": null});
    let request = parse_chat(&chat(&nulls)).unwrap();
    assert_eq!(request.options, GenerationOptions::default());
    assert_eq!((request.options.choices(), request.output_tokens_max()), (1, None));
}

#[test]
fn debug_and_errors_hold_no_prompt_text() {
    let secret = "correct horse";
    let request = parse_chat(&chat(&message(&json!({"role": "user", "content": secret})))).unwrap();
    assert!(!format!("{request:?}{:?}", request.messages).contains(secret));
    let request = parse_completion(&completion(&json!({"prompt": secret}))).unwrap();
    assert!(!format!("{request:?}").contains(secret));
    let error = parse_chat(&chat(&message(&json!({"role": "user", "content": [secret]})))).unwrap_err();
    assert!(!format!("{error:?}").contains(secret));
}

#[test]
fn b95_answers_with_empty_or_missing_members_are_read() {
    use response::{ChatCompletion, ChatCompletionChunk, TextCompletion, Usage};
    let head = r#""id": "1", "created": 1, "model": "m""#;
    let chunk = format!(r#"{{{head}, "object": "chat.completion.chunk", "choices": [], "usage": {{}}}}"#);
    let chunk: ChatCompletionChunk = serde_json::from_str(&chunk).unwrap();
    assert_eq!((chunk.choices.len(), chunk.usage), (0, Some(Usage::default())));
    let whole = format!(r#"{{{head}, "object": "chat.completion", "choices": [{{}}], "more": 1}}"#);
    assert_eq!(serde_json::from_str::<ChatCompletion>(&whole).unwrap().choices[0].finish_reason, None);
    let text = format!(r#"{{{head}, "object": "text_completion"}}"#);
    assert!(serde_json::from_str::<TextCompletion>(&text).unwrap().choices.is_empty());
}

#[test]
fn answers_have_the_published_shape() {
    use response::{ChunkChoice, Delta, FinishReason, ObjectType, Usage};
    let delta = Delta { content: Some("hi".into()), ..Delta::default() };
    let choice =
        ChunkChoice { delta, finish_reason: Some(FinishReason::ToolCalls), ..ChunkChoice::default() };
    let chunk = response::ChatCompletionChunk {
        id: "chatcmpl-1".into(),
        object: ObjectType::ChatCompletionChunk,
        created: 5,
        model: "m".into(),
        choices: vec![choice],
        usage: Some(Usage::new(3, 2, 1)),
    };
    let expected = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 5, "model": "m",
        "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "prompt_tokens_details": {"cached_tokens": 1}}
    });
    assert_eq!(serde_json::to_value(&chunk).unwrap(), expected);
}
