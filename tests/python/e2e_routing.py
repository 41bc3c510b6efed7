"""Where requests go: the worker that holds the prompt, the rows that a request asks for, and what the books say."""

import openai
import pytest

from tower import MODEL, wait_until

WORKER = "x-switchtower-worker"


def send(client, prompt, **headers):
    """The answer's worker row and the answer, with `headers` on the request."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = client.completions.with_raw_response.create(model=MODEL, prompt=prompt, max_tokens=4, extra_headers=names)
    return raw.headers.get(WORKER), raw.parse()


def test_the_answer_names_its_worker(client):
    row, _ = send(client, "Where am I?")
    worker, rank = row.split("/")
    assert int(worker) >= 0 and int(rank) >= 0


def test_a_stream_names_its_worker_too(client):
    raw = client.completions.with_raw_response.create(model=MODEL, prompt="Where?", max_tokens=4, stream=True)
    assert "/" in raw.headers[WORKER]
    assert list(raw.parse())


def test_the_same_prompt_goes_where_it_is_cached(tower, client, long_prompt):
    before = tower.metric("switchtower_cached_tokens_total", model=MODEL)
    first, cold = send(client, long_prompt)
    assert not (cold.usage.prompt_tokens_details and cold.usage.prompt_tokens_details.cached_tokens)

    def warm():
        row, answer = send(client, long_prompt)
        details = answer.usage.prompt_tokens_details
        return details and details.cached_tokens and row

    assert wait_until(warm, "the worker's cache events") == first
    wait_until(
        lambda: tower.metric("switchtower_cached_tokens_total", model=MODEL) > before, "cached tokens in the metrics"
    )


def test_prompt_tokens_are_counted(tower, client):
    before = tower.metric("switchtower_prompt_tokens_total", model=MODEL)
    _, answer = send(client, "Count my tokens, please.")
    wait_until(
        lambda: tower.metric("switchtower_prompt_tokens_total", model=MODEL) == before + answer.usage.prompt_tokens,
        "the prompt's tokens in the metrics",
    )


def test_requests_are_counted_by_outcome(tower, client):
    name = "switchtower_requests_total"
    before = tower.metric(name, model=MODEL)
    send(client, "One more request.")
    wait_until(lambda: tower.metric(name, model=MODEL) == before + 1, "the request in the metrics")
    with pytest.raises(openai.BadRequestError):
        send(client, "Refused.", x_switchtower_pin="4711/0")
    wait_until(lambda: tower.metric(name, model=MODEL) == before + 2, "the refusal in the metrics")
    samples = tower.metrics(name)
    assert all(labels.keys() >= {"model", "endpoint", "outcome"} for labels, _ in samples)
    assert len({labels["outcome"] for labels, _ in samples}) >= 2


def test_unknown_models_do_not_become_labels(tower, client):
    for number in range(20):
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model=f"made-up-{number}", prompt="x")
    models = {labels["model"] for labels, _ in tower.metrics("switchtower_requests_total")}
    assert not [model for model in models if model.startswith("made-up")]


def test_the_request_id_comes_back(tower):
    body = {"model": MODEL, "prompt": "x", "max_tokens": 1}
    response = tower.http.post("/v1/completions", json=body, headers={"x-request-id": "night-train-17"})
    assert response.headers["x-request-id"] == "night-train-17"
    assert tower.http.post("/v1/completions", json=body).headers["x-request-id"]


def test_a_pin_is_kept(client):
    for _ in range(3):
        assert send(client, "Pinned.", x_switchtower_pin="2/0")[0] == "2/0"


@pytest.mark.parametrize("pin", ["4711/0", "2/99"])
def test_an_impossible_pin_is_refused(client, pin):
    with pytest.raises(openai.BadRequestError) as caught:
        send(client, "Pinned to nowhere.", x_switchtower_pin=pin)
    assert pin.split("/")[0] in caught.value.message


@pytest.mark.parametrize("pin", ["2/", "two/0", "-1/0", "2/0/0"])
def test_a_pin_that_is_no_row_is_refused(client, pin):
    with pytest.raises(openai.BadRequestError) as caught:
        send(client, "Pinned badly.", x_switchtower_pin=pin)
    assert "x-switchtower-pin" in (caught.value.message + str(caught.value.param))


def test_only_allowed_workers_are_chosen(client):
    rows = {send(client, f"Allowed {number}.", x_switchtower_allowed_workers="1,3")[0] for number in range(8)}
    assert rows <= {"1/0", "3/0"} and rows


def test_a_pin_outside_the_allowed_workers_is_refused(client):
    with pytest.raises(openai.BadRequestError):
        send(client, "Both.", x_switchtower_allowed_workers="1,3", x_switchtower_pin="2/0")


def test_nothing_stays_booked(tower, client):
    for number in range(5):
        send(client, f"Booked {number}.")
    wait_until(lambda: tower.active() == 0, "every reservation released")
    rows = tower.metrics("switchtower_row_active_requests")
    assert len(rows) >= 3 and all(labels.keys() >= {"worker", "rank"} for labels, _ in rows)
    wait_until(
        lambda: all(value == 0 for _, value in tower.metrics("switchtower_row_active_requests")), "idle rows"
    )
