"""The OpenAI API as the official client sees it: chat, completions, streams, models, usage, limits of the output."""

import json

import pytest

from tower import MODEL

CHAT = [{"role": "user", "content": "Which track does the night train take?"}]


def events(response):
    """The `data:` payloads of a raw event stream."""
    return [line[len("data: "):] for line in response.iter_lines() if line.startswith("data: ")]


def test_models_lists_the_served_model(client):
    models = list(client.models.list())
    assert [(model.id, model.object) for model in models] == [(MODEL, "model")]
    assert models[0].created > 0


def test_one_model_can_be_asked_for(client):
    assert client.models.retrieve(MODEL).id == MODEL


def test_chat_answers_with_text_and_usage(client):
    answer = client.chat.completions.create(model=MODEL, messages=CHAT, max_tokens=12)
    assert answer.object == "chat.completion" and answer.model == MODEL and answer.id
    [choice] = answer.choices
    assert choice.index == 0 and choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason == "length"
    usage = answer.usage
    assert usage.completion_tokens == 12 and usage.prompt_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_chat_without_a_limit_stops_by_itself(client):
    answer = client.chat.completions.create(model=MODEL, messages=CHAT)
    assert answer.choices[0].finish_reason == "stop"


def test_max_completion_tokens_limits_like_max_tokens(client):
    answer = client.chat.completions.create(model=MODEL, messages=CHAT, max_completion_tokens=5)
    assert answer.usage.completion_tokens == 5


def test_completions_answers_with_text_and_usage(client):
    answer = client.completions.create(model=MODEL, prompt="The night train", max_tokens=7)
    assert answer.object == "text_completion" and answer.model == MODEL
    assert answer.choices[0].text and answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 7


def test_completions_takes_token_ids(client):
    answer = client.completions.create(model=MODEL, prompt=[10, 11, 12, 13, 14], max_tokens=3)
    assert answer.usage.prompt_tokens == 5


def test_echo_repeats_the_prompt_as_it_was_given(client):
    for prompts in ["Hello", ["Hello", "Bye \u2603"]]:
        answer = client.completions.create(model=MODEL, prompt=prompts, max_tokens=3, echo=True)
        given = [prompts] if isinstance(prompts, str) else prompts
        for choice, prompt in zip(answer.choices, given, strict=True):
            assert choice.text.startswith(prompt) and len(choice.text) > len(prompt)


def test_n_gives_that_many_choices(client):
    answer = client.chat.completions.create(model=MODEL, messages=CHAT, max_tokens=6, n=2)
    assert sorted(choice.index for choice in answer.choices) == [0, 1]
    assert all(choice.message.content for choice in answer.choices)
    assert answer.usage.completion_tokens == 12


def test_stop_ends_the_text_before_the_stop_string(client):
    whole = client.completions.create(model=MODEL, prompt="A stop test", max_tokens=40, seed=1).choices[0].text
    stop = whole.split()[3]
    answer = client.completions.create(model=MODEL, prompt="A stop test", max_tokens=40, seed=1, stop=stop)
    [choice] = answer.choices
    assert choice.finish_reason == "stop" and stop not in choice.text
    assert whole.startswith(choice.text) and len(choice.text) < len(whole)


def test_chat_stream_adds_up_to_one_answer(client):
    chunks = list(client.chat.completions.create(model=MODEL, messages=CHAT, max_tokens=20, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    finishes = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert finishes == ["length"]
    assert all(chunk.usage is None for chunk in chunks), "usage comes only to those who ask for it"


def test_b97_usage_comes_in_one_last_chunk_without_choices(client):
    asked = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=CHAT, max_tokens=9, stream=True, stream_options=asked
        )
    )
    with_usage = [chunk for chunk in chunks if chunk.usage is not None]
    assert with_usage == chunks[-1:] and chunks[-1].choices == []
    usage = chunks[-1].usage
    assert usage.completion_tokens == 9 and usage.total_tokens == usage.prompt_tokens + 9


def test_completion_stream_adds_up_to_one_answer(client):
    stream = client.completions.create(model=MODEL, prompt="Streaming", max_tokens=15, stream=True)
    chunks = list(stream)
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices)
    finishes = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert finishes == ["length"]


def test_a_stream_of_two_choices_finishes_both(client):
    stream = client.chat.completions.create(model=MODEL, messages=CHAT, max_tokens=5, n=2, stream=True)
    finished = [choice.index for chunk in stream for choice in chunk.choices if choice.finish_reason]
    assert sorted(finished) == [0, 1]


@pytest.mark.parametrize(
    ("path", "request_body"),
    [("/v1/chat/completions", {"messages": CHAT}), ("/v1/completions", {"prompt": "Raw"})],
)
def test_the_raw_stream_is_json_events_and_ends_with_done(tower, path, request_body):
    body = {"model": MODEL, "max_tokens": 6, "stream": True, **request_body}
    with tower.http.stream("POST", path, json=body) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        payloads = events(response)
    assert payloads[-1] == "[DONE]" and payloads.count("[DONE]") == 1
    assert all(json.loads(payload)["model"] == MODEL for payload in payloads[:-1])
