//! What templates of the field rely on, construct by construct; whole public templates are compared with Python's in
//! `tests/python/parity_chat_templates.py`.

use super::*;
use serde_json::json;

fn input(messages: &serde_json::Value) -> RenderInput {
    RenderInput { messages: serde_json::from_value(messages.clone()).unwrap(), ..RenderInput::default() }
}

fn render(source: &str) -> Result<String, TemplateError> {
    let template = ChatTemplate::compile(source, Clock::fixed(1_767_225_600))?;
    template.render(&input(
        &json!([{"role": "user", "content": "hi <b>", "n": 1.0, "tags": ["a'b", true, null]}]),
    ))
}

#[test]
fn values_are_printed_as_python_prints_them() {
    let cases = [
        ("{{ true }} {{ none }} {{ missing }}", "True None "),
        ("{{ messages[0].tags }}", "[\"a'b\", True, None]"),
        ("{{ {'k': 'it\\n'} }}", "{'k': 'it\\n'}"),
        ("{{ messages[0].n }} {{ 1e16 }} {{ 0.00001 }} {{ 0.5 }}", "1.0 1e+16 1e-05 0.5"),
        ("{{ messages[0].content }}", "hi <b>"),
        ("{{ true|string + 'x' }}", "Truex"),
    ];
    for (source, expected) in cases {
        assert_eq!(render(source).unwrap(), expected, "{source}");
    }
}

#[test]
fn json_is_written_as_python_writes_it() {
    let cases = [
        (
            "{{ {'a': [1, 2.0, none], 'ü': '<\\u007f\"'} | tojson }}",
            "{\"a\": [1, 2.0, null], \"ü\": \"<\u{7f}\\\"\"}",
        ),
        ("{{ {'a': [1], 'b': {}} | tojson(indent=2) }}", "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}"),
        ("{{ ['é🦀'] | tojson(ensure_ascii=true) }}", "[\"\\u00e9\\ud83e\\udd80\"]"),
        ("{{ {'b': 1, 'a': 2} | tojson(separators=(',', ':'), sort_keys=true) }}", "{\"a\":2,\"b\":1}"),
    ];
    for (source, expected) in cases {
        assert_eq!(render(source).unwrap(), expected, "{source}");
    }
    assert!(matches!(render("{{ missing | tojson }}"), Err(TemplateError::Failed { .. })));
}

#[test]
fn what_transformers_adds_is_there() {
    let cases = [
        ("{{ strftime_now('%d %b %Y') }}", "01 Jan 2026"),
        (
            "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "02",
        ),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("a{% generation %}b{%- endgeneration %} c", "ab c"),
        ("{{ 'a,b,c'.rsplit(',', 1) }}{{ ' x '.strip() }}{{ 'x.y'.partition('.')[2] }}", "['a,b', 'c']xy"),
        ("{{ [][::-1] }}{{ [1, 2][::-1][0] }}{{ missing|length }}{{ [1]|trim }}", "[]20[1]"),
        ("{{ 'ab'.removeprefix('a') }}{{ 'ab'.removesuffix('b') }}", "ba"),
        ("{{ 'a' is sequence }}{{ {} is iterable }}{{ 1 is iterable }}", "TrueTrueFalse"),
    ];
    for (source, expected) in cases {
        assert_eq!(render(source).unwrap(), expected, "{source}");
    }
}

#[test]
fn a_refusal_by_the_template_is_told_from_a_failure() {
    let raised =
        render("{% macro f() %}{{ raise_exception('roles must alternate') }}{% endmacro %}{{ f() }}");
    assert_eq!(raised, Err(TemplateError::Raised { reason: "roles must alternate".into() }));
    let failed = render("\n{{ 'a' + 1 }}").unwrap_err();
    assert!(matches!(&failed, TemplateError::Failed { reason } if reason.contains("line 2")), "{failed}");
    let compile = ChatTemplate::compile("{% if %}", Clock::fixed(0)).unwrap_err().to_string();
    assert!(compile.contains("line 1") && compile.contains("chat_template.jinja"), "{compile}");
}

#[test]
fn b152_work_and_output_of_a_render_are_bounded() {
    let limits = RenderLimits { instructions_max: 20_000, output_bytes_max: 1_000 };
    let compile = |source| ChatTemplate::compile_with_limits(source, Clock::fixed(0), limits).unwrap();
    let many = json!(vec![json!({"role": "user", "content": "x"}); 500]);
    let quadratic =
        compile("{% for m in messages %}{% for n in messages %}{% set x = n %}{% endfor %}{% endfor %}");
    assert_eq!(quadratic.render(&input(&many)), Err(TemplateError::TooMuchWork { instructions_max: 20_000 }));
    let copying = compile("{% for m in messages %}{{ m.content * 9 }}{% endfor %}");
    assert_eq!(copying.render(&input(&many)), Err(TemplateError::TooLong { bytes_max: 1_000 }));
    let endless = compile("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}");
    assert!(endless.render(&input(&many)).is_err());
}

#[test]
fn b152_deep_values_are_printed_without_exhausting_the_stack() {
    let mut deep = json!("leaf");
    (0..120).for_each(|_| deep = json!({"a": [deep]}));
    let template =
        ChatTemplate::compile("{{ messages | tojson(indent=1) }}{{ messages }}", Clock::fixed(0)).unwrap();
    let text = template.render(&input(&json!([{"role": "user", "content": deep}]))).unwrap();
    assert_eq!(text.matches("leaf").count(), 2);
}

#[test]
fn the_probe_tells_templates_that_take_parts() {
    let accepts = |source| ChatTemplate::compile(source, Clock::fixed(0)).unwrap().accepts_parts();
    assert!(accepts(
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}"
    ));
    assert!(!accepts("{% for m in messages %}{{ m.content }}{% endfor %}"));
    assert!(!accepts("{% for m in messages %}{{ 'x' + m.content }}{% endfor %}"));
}

#[test]
fn chat_template_kwargs_reach_the_template_and_win() {
    let template = ChatTemplate::compile(
        "{{ enable_thinking }}{{ add_generation_prompt }}{{ bos_token }}",
        Clock::fixed(0),
    )
    .unwrap();
    let mut input = input(&json!([]));
    input.special_tokens.insert("bos_token".into(), "<s>".into());
    input.kwargs =
        serde_json::from_value(json!({"enable_thinking": false, "add_generation_prompt": true})).unwrap();
    assert_eq!(template.render(&input).unwrap(), "FalseTrue<s>");
}

#[test]
fn a_panic_of_the_engine_costs_one_render() {
    // The engine's slicing indexes past the start of an empty list when it goes backwards.
    let template =
        ChatTemplate::compile("{% for m in messages[5::-1] %}{{ m.content }}{% endfor %}", Clock::fixed(0));
    let template = template.unwrap();
    assert!(matches!(template.render(&input(&json!([]))), Err(TemplateError::Failed { .. })));
    assert_eq!(template.render(&input(&json!([{"role": "user", "content": "x"}]))).unwrap(), "x");
}
