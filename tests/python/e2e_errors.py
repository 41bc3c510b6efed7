"""Requests that cannot be served: the status, the type, the field and the code that a client acts on.

None of them may reach a worker, none may end the process, and every answer is an OpenAI-shaped error.
"""

import openai
import pytest

from tower import CONTEXT_TOKENS, MODEL

CHAT = [{"role": "user", "content": "Hello"}]
JSON = {"content-type": "application/json"}


def error_of(response):
    """The error object of a raw answer, checked for its shape."""
    error = response.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"} and error["message"]
    return error


@pytest.fixture(autouse=True)
def no_worker_is_reached(tower):
    """B94: an invalid request books nothing, and leaves nothing booked."""
    before = tower.metric("switchtower_prompt_tokens_total", model=MODEL)
    yield
    assert tower.metric("switchtower_prompt_tokens_total", model=MODEL) == before
    assert tower.http.get("/health").status_code == 200


def test_an_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="no-such-model", messages=CHAT)
    assert caught.value.code == "model_not_found" and "no-such-model" in caught.value.message


def test_an_unknown_model_is_not_found_when_asked_for(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("no-such-model")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("temperature", 2.5),
        ("temperature", -1),
        ("top_p", 0),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("n", 0),
        ("n", 129),
        ("presence_penalty", 3),
        ("frequency_penalty", -3),
        ("top_logprobs", 21),
        ("messages", []),
    ],
)
def test_b94_a_value_out_of_range_names_its_field(client, param, value, stream):
    request = {"model": MODEL, "messages": CHAT, "stream": stream}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{**request, param: value})
    error = caught.value
    assert error.param == param and error.type == "invalid_request_error"
    assert param in error.message


@pytest.mark.parametrize(
    ("param", "value"),
    [("temperature", "warm"), ("max_tokens", "many"), ("messages", "Hello"), ("stream", "yes"), ("stop", 7)],
)
def test_b94_a_value_of_a_wrong_type_names_its_field(client, param, value):
    request = {"model": MODEL, "messages": CHAT}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{**request, param: value})
    assert caught.value.param == param


def test_a_missing_field_is_named(tower):
    response = tower.http.post("/v1/chat/completions", json={"messages": CHAT})
    assert response.status_code == 400 and error_of(response)["param"] == "model"


def test_a_prompt_over_the_context_length_is_refused_with_both_numbers(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt=[10] * (CONTEXT_TOKENS + 1), max_tokens=1)
    assert caught.value.code == "context_length_exceeded"
    assert str(CONTEXT_TOKENS) in caught.value.message


def test_prompt_and_output_together_have_to_fit(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt=[10] * 100, max_tokens=CONTEXT_TOKENS)
    assert caught.value.code == "context_length_exceeded"


def test_a_token_outside_the_vocabulary_is_refused(client):
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=MODEL, prompt=[2**31 - 1], max_tokens=1)


@pytest.mark.parametrize("body", [b"", b"{", b'{"model": ', b"[1, 2]", b'"text"', b"\xff\xfe", b"{'model': 1}"])
def test_a_body_that_is_no_json_object_is_refused(tower, body):
    response = tower.http.post("/v1/chat/completions", content=body, headers=JSON)
    assert response.status_code == 400
    assert error_of(response)["type"] == "invalid_request_error"


def test_b152_deep_nesting_is_refused_and_the_process_lives(tower):
    body = b'{"model":"' + MODEL.encode() + b'","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    response = tower.http.post("/v1/chat/completions", content=body, headers=JSON)
    assert response.status_code == 400
    error_of(response)


def test_a_wrong_content_type_is_refused(tower):
    response = tower.http.post(
        "/v1/chat/completions", content=b"model=x", headers={"content-type": "application/x-www-form-urlencoded"}
    )
    assert response.status_code in (400, 415)
    error_of(response)


def test_content_of_a_wrong_kind_names_the_message(tower):
    body = {"model": MODEL, "messages": [{"role": "user", "content": {"text": "Hello"}}]}
    response = tower.http.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert error_of(response)["param"].startswith("messages[0]")


def test_b99_a_body_over_the_limit_is_too_large(tower):
    body = b'{"model":"' + b"x" * (64 * 1024 * 1024) + b'"}'
    response = tower.http.post("/v1/chat/completions", content=body, headers=JSON)
    assert response.status_code == 413
    error_of(response)


def test_b99_a_body_of_some_megabytes_is_not_too_large(tower):
    request = {"model": "no-such-model", "messages": [{"role": "user", "content": "a" * 3_000_000}]}
    response = tower.http.post("/v1/chat/completions", json=request)
    assert response.status_code == 404 and error_of(response)["code"] == "model_not_found"


def test_an_unknown_path_is_not_found(tower):
    response = tower.http.get("/v1/no-such-path")
    assert response.status_code == 404
    error_of(response)


def test_a_wrong_method_is_not_allowed(tower):
    response = tower.http.get("/v1/chat/completions")
    assert response.status_code == 405
    error_of(response)
