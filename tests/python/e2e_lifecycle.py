"""A tower's life: health, disconnects, Ctrl-C, and what it says when it cannot start."""

import json
import socket
import threading

import pytest

import tower as towers
from tower import MODEL, wait_until

# Engines' own option: without it an answer ends where its text does.
ENDLESS = {"ignore_eos": True}
LONG = {"model": MODEL, "prompt": "Count the sleepers.", "max_tokens": 20_000, "stream": True, **ENDLESS}


def one_line(result):
    """What a failed start said: one line, so that a person reads it."""
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, result.stderr
    assert "panicked" not in lines[0]
    return lines[0]


@pytest.mark.parametrize("path", ["/health", "/live", "/ready"])
def test_probes_answer(tower, path):
    assert tower.http.get(path).status_code == 200


def test_b42_closing_a_stream_releases_its_reservation(tower, client):
    stream = client.completions.create(**{key: value for key, value in LONG.items() if key not in ENDLESS}, extra_body=ENDLESS)
    next(iter(stream))
    assert tower.active() >= 1
    stream.close()
    wait_until(lambda: tower.active() == 0, "the reservation of the closed stream released")
    wait_until(
        lambda: all(value == 0 for _, value in tower.metrics("switchtower_row_active_requests")), "idle rows"
    )


def test_b42_a_client_that_vanishes_without_a_word_releases_its_reservation(tower):
    body = json.dumps(LONG).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", tower.port), timeout=towers.HANG_S) as connection:
        connection.sendall(head.encode() + body)
        assert connection.recv(15).startswith(b"HTTP/1.1 200")
        wait_until(lambda: tower.active() >= 1, "the reservation")
        # With a zero linger time, closing resets the connection instead of ending it.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    wait_until(lambda: tower.active() == 0, "the reservation of the vanished client released")


def test_many_closed_streams_leave_nothing_behind(tower, client):
    def open_and_close():
        stream = client.completions.create(**{key: value for key, value in LONG.items() if key not in ENDLESS}, extra_body=ENDLESS)
        next(iter(stream))
        stream.close()

    threads = [threading.Thread(target=open_and_close) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(towers.HANG_S)
    wait_until(lambda: tower.active() == 0, "all reservations released")


def test_interrupt_ends_with_zero(own_tower):
    tower = own_tower()
    tower.interrupt()
    assert tower.wait() == 0, "".join(tower.lines)


def test_b101_interrupt_lets_a_stream_finish(own_tower):
    tower = own_tower()
    body = {**LONG, "max_tokens": 40}
    with tower.http.stream("POST", "/v1/completions", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        tower.interrupt()
        assert [line for line in lines if line][-1] == "data: [DONE]"
    assert tower.wait() == 0, "".join(tower.lines)


def test_a_second_interrupt_ends_at_once(own_tower):
    tower = own_tower()
    with tower.http.stream("POST", "/v1/completions", json=LONG) as response:
        # Kept: an iterator that is dropped closes the stream, and a tower with nothing to drain ends at once.
        lines = response.iter_lines()
        next(lines)
        tower.interrupt()
        # Signals that arrive together count as one, so it is sent until it is heard.
        wait_until(lambda: tower.process.poll() is not None or tower.interrupt(), "the end after a second signal")
        assert tower.wait() != 0


def test_an_unknown_flag_is_refused_in_one_line():
    result = towers.run("up", "--no-such-flag")
    assert result.returncode in (2, 64)
    assert "--no-such-flag" in one_line(result)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:99999", ""])
def test_a_bad_address_is_refused_in_one_line(address):
    result = towers.run("up", "--http", address)
    assert result.returncode in (2, 64)
    assert "--http" in one_line(result)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "subcommand"),
        (("up", "--speed", "NaN"), "greater than 0"),
        (("up", "--speed", "-1"), "greater than 0"),
        (("up", "--workers", "-1"), "1..=256"),
        (("up", "--workers", "0"), "1..=256"),
        (("up", "--http", "localhost:80"), "127.0.0.1:8080"),
        (("up", "--queue-threshold", "-1"), "above 0"),
        (("up", "--model", ""), "256 characters"),
        (("up", "--log", "loud=very"), "info"),
        (("up", "--tokenizer", "/no/such/place"), "tokenizer.json"),
    ],
)
def test_b154_what_cannot_be_is_refused_in_one_line_that_says_what_can(arguments, said):
    result = towers.run(*arguments)
    assert result.returncode == 64 and said in one_line(result)


def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = towers.run("up", "--http", f"127.0.0.1:{port}")
    assert result.returncode == 1
    assert str(port) in one_line(result)


def test_an_unknown_policy_is_refused_with_the_known_ones():
    result = towers.run("up", "--http", "127.0.0.1:0", "--policy", "no-such-policy")
    assert result.returncode == 64
    line = one_line(result)
    assert "no-such-policy" in line and "round-robin" in line and "additive" in line


@pytest.mark.parametrize("policy", ["round-robin", "random", "least-loaded", "product", "active-requests", "additive"])
def test_every_built_in_policy_serves(own_tower, policy):
    tower = own_tower("--policy", policy)
    body = {"model": MODEL, "prompt": "Which policy?", "max_tokens": 2}
    rows = [tower.http.post("/v1/completions", json=body).raise_for_status().headers for _ in range(4)]
    assert all("/" in headers["x-switchtower-worker"] for headers in rows)


def test_help_and_version_say_what_this_is():
    for arguments in (["--help"], ["up", "--help"]):
        result = towers.run(*arguments)
        assert result.returncode == 0 and "switchtower" in result.stdout
    result = towers.run("--version")
    assert result.returncode == 0 and result.stdout.startswith("switchtower ")
