//! Every form of request becomes the tokens that the engine will see.

use super::*;
use crate::{
    Clock, ModelCard, ModelSource,
    openai::{parse_chat, parse_completion},
};
use serde_json::json;

fn built_in() -> Model {
    Model::load(&ModelSource::BuiltIn).unwrap()
}

/// The built-in model with another template and card.
fn with_card(change: impl FnOnce(&mut ModelCard)) -> Model {
    let mut card = crate::builtin::card(crate::builtin::NAME).unwrap();
    change(&mut card);
    Model::assemble(card, crate::builtin::tokenizer().unwrap(), &Clock::fixed(0)).unwrap()
}

fn chat(body: &Value) -> ChatRequest {
    parse_chat(&serde_json::to_vec(body).unwrap()).unwrap()
}

fn completion(body: &Value) -> CompletionRequest {
    parse_completion(&serde_json::to_vec(body).unwrap()).unwrap()
}

fn complete(model: &Model, prompt: &Value) -> Result<Vec<Vec<u32>>, RequestError> {
    prompt_inputs(model, &completion(&json!({"model": "m", "prompt": prompt})))
}

#[test]
fn a_chat_is_rendered_and_encoded() {
    let model = built_in();
    let request = chat(&json!({"model": "m", "messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is the train?"}
    ]}));
    let text = "<|begin|><|system|>Be brief.<|end|><|user|>Where is the train?<|end|><|assistant|>";
    assert_eq!(render_chat(&model, &request).unwrap(), text);
    let tokens = prompt_inputs(&model, &request).unwrap();
    assert_eq!(tokens, [model.tokenizer().encode(text, false).unwrap()]);
}

#[test]
fn b119_every_form_of_request_becomes_tokens_and_a_longer_conversation_extends_the_shorter() {
    let model = built_in();
    let tools =
        json!([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]);
    let calls = json!([{"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Bern\"}"}}]);
    let messages = [
        json!({"role": "system", "content": "You are a helpful assistant."}),
        json!({"role": "user", "content": [{"type": "text", "text": "How is the weather "}, {"type": "text", "text": "in Bern?"}]}),
        json!({"role": "assistant", "content": null, "tool_calls": calls}),
        json!({"role": "tool", "tool_call_id": "1", "content": "rain"}),
        json!({"role": "assistant", "content": "It rains."}),
        json!({"role": "user", "content": "Thanks!"}),
    ];
    for tools in [json!([]), tools] {
        let mut shorter: Vec<u32> = Vec::new();
        for turn in 1..=messages.len() {
            let body = json!({"model": "m", "messages": messages[..turn], "tools": tools, "add_generation_prompt": false});
            let mut tokens = prompt_inputs(&model, &chat(&body)).unwrap();
            let longer = tokens.remove(0);
            assert!(longer.len() > shorter.len() && longer.starts_with(&shorter), "turn {turn}");
            shorter = longer;
        }
    }
    let ids = complete(&model, &json!("How is the weather?")).unwrap().remove(0);
    assert_eq!(complete(&model, &json!(ids)).unwrap()[0], ids);
    assert_eq!(complete(&model, &json!([ids, [1]])).unwrap(), [ids, vec![1]]);
}

#[test]
fn b95_edge_prompts_are_answered() {
    let model = built_in();
    let block = model.card().block_size as usize;
    let bos = model.tokenizer().token_id("<|begin|>").unwrap();
    assert_eq!(complete(&model, &json!("")).unwrap(), [[bos]]);
    assert_eq!(complete(&model, &json!(["", "a"])).unwrap()[0], [bos]);
    assert_eq!(complete(&model, &json!("<|begin|><|end|>")).unwrap()[0].len(), 3);
    assert!(complete(&model, &json!(" ")).unwrap()[0].len() > 1);
    for tokens in [1, block - 1, block, block + 1] {
        assert_eq!(complete(&model, &json!(vec![0; tokens])).unwrap()[0].len(), tokens);
    }
    let request = completion(&json!({
        "model": "m", "prompt": "", "add_special_tokens": false, "echo": true, "logprobs": 5, "n": 2, "best_of": 3
    }));
    assert_eq!(prompt_inputs(&model, &request).unwrap(), [[bos]]);
    let without = with_card(|card| card.bos_token = None);
    assert_eq!(prompt_inputs(&without, &request).unwrap_err().code, "empty_prompt");
}

#[test]
fn a_token_that_the_model_does_not_have_is_refused() {
    let model = built_in();
    let vocab_size = model.tokenizer().vocab_size();
    let cases = [(json!([1, vocab_size]), "prompt[1]"), (json!([[1], [2, u32::MAX]]), "prompt[1][1]")];
    for (prompt, param) in cases {
        let error = complete(&model, &prompt).unwrap_err();
        assert_eq!((error.param.as_deref(), error.code.as_ref()), (Some(param), "invalid_token_id"));
        assert!(error.message.contains(&(vocab_size - 1).to_string()), "{error}");
    }
}

#[test]
fn a_hopeless_prompt_is_refused_before_it_is_encoded() {
    let model = built_in();
    let error = complete(&model, &json!("x".repeat(8 << 20))).unwrap_err();
    assert_eq!(error.code, "context_length_exceeded");
    assert!(error.message.contains("at least"), "{error}");
}

#[test]
fn a_model_without_a_template_completes_but_does_not_chat() {
    let model = with_card(|card| card.chat_template = None);
    complete(&model, &json!("hi")).unwrap();
    let request = chat(&json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}));
    let error = prompt_inputs(&model, &request).unwrap_err();
    assert_eq!(error.code, "no_chat_template");
    assert!(error.message.contains("/v1/completions"), "{error}");
}

#[test]
fn a_refusing_template_is_the_clients_error() {
    let model = with_card(|card| {
        card.chat_template = Some("{{ raise_exception('only user and assistant') }}".into());
    });
    let request = chat(&json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}));
    let error = prompt_inputs(&model, &request).unwrap_err();
    assert_eq!((error.status(), error.code.as_ref()), (400, "conversation_refused"));
    assert!(error.message.contains("only user and assistant"));
}

#[test]
fn a_text_template_gets_joined_parts_and_no_images() {
    let model = with_card(|card| {
        card.chat_template = Some("{% for m in messages %}{{ '<' + m.content + '>' }}{% endfor %}".into());
    });
    let ask = |part: Value| {
        let content = json!([{"type": "text", "text": "a"}, part]);
        render_chat(&model, &chat(&json!({"model": "m", "messages": [{"role": "user", "content": content}]})))
    };
    assert_eq!(ask(json!({"type": "text", "text": "b"})).unwrap(), "<a\nb>");
    let error = ask(json!({"type": "image_url", "image_url": {"url": "x"}})).unwrap_err();
    assert_eq!(error.code, "unsupported_content");
}

#[test]
fn b125_arguments_of_calls_reach_templates_as_engines_hand_them_over() {
    let template = "{% for c in messages[0].tool_calls %}{{ c.function.arguments if c.function.arguments is string else c.function.arguments.x }}{% endfor %}";
    let call =
        |arguments: &str| json!({"type": "function", "function": {"name": "f", "arguments": arguments}});
    let calls = json!([call("{\"x\": 1}"), call(""), call("no json")]);
    let request = chat(&json!({"model": "m", "messages": [{"role": "assistant", "tool_calls": calls}]}));
    let parsed = with_card(|card| card.chat_template = Some(template.into()));
    assert_eq!(render_chat(&parsed, &request).unwrap(), "1no json");
    let as_sent = with_card(|card| {
        card.chat_template = Some(template.into());
        card.tool_arguments = ToolArguments::AsSent;
    });
    assert_eq!(render_chat(&as_sent, &request).unwrap(), "{\"x\": 1}no json");
}

#[test]
fn b125_a_final_message_can_be_continued() {
    let model = built_in();
    let ask = |content: &str| {
        let messages =
            json!([{"role": "user", "content": "count"}, {"role": "assistant", "content": content}]);
        let body = json!({"model": "m", "messages": messages, "continue_final_message": true});
        render_chat(&model, &chat(&body))
    };
    assert!(ask("one, two,").unwrap().ends_with("<|assistant|>one, two,"));
    assert!(ask("one, two, ").unwrap().ends_with("<|assistant|>one, two, "));
    assert_eq!(ask(" ").unwrap_err().param.as_deref(), Some("continue_final_message"));
}

#[test]
fn tools_choose_the_tool_template_where_there_is_one() {
    let model = with_card(|card| {
        card.chat_template = Some("plain".into());
        card.tool_use_template = Some("{{ tools | length }} tools".into());
    });
    let ask = |tools: Value| {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": tools});
        render_chat(&model, &chat(&body)).unwrap()
    };
    assert_eq!(ask(json!([])), "plain");
    assert_eq!(ask(json!([{"type": "function", "function": {"name": "f"}}])), "1 tools");
}
