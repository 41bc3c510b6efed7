"""Hard times: nobody reads what the tower says, descriptors run out, logs are as loud as they get, bodies are not wanted.

Each of these ends one request at most, and is told in the API's own words.
"""

import os
import resource
import socket
import subprocess

import pytest

import tower as towers
from tower import MODEL, wait_until

COMPLETION = {"model": MODEL, "prompt": "Hello", "max_tokens": 2}
CHAT = [{"role": "user", "content": "Hello"}]
# Characters that nothing but a prompt contains.
SECRET = "\u2603\u2602\u2604"


def free_port():
    """A port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def accepts(port):
    """Whether somebody listens."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def test_nobody_has_to_read_what_the_tower_says():
    unread, stdout = os.pipe()
    os.close(unread)
    port = free_port()
    process = subprocess.Popen(
        [towers.BINARY, "up", "--http", f"127.0.0.1:{port}"],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(stdout)
    try:
        wait_until(lambda: accepts(port) or process.poll() is not None, "a listener")
        process.terminate()
        _, said = process.communicate(timeout=towers.HANG_S)
    finally:
        process.kill()
    assert (process.returncode, said) == (0, "")


def lowest_free_descriptor(pid):
    """The descriptor that the process would get next."""
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    return min(set(range(len(taken) + 1)) - taken)


def test_b153_a_tower_without_descriptors_says_so_and_blames_no_worker(own_tower):
    tower = own_tower("--workers", "2")
    before = resource.prlimit(tower.process.pid, resource.RLIMIT_NOFILE)
    # The client's connection is there already; one to a worker cannot be made.
    resource.prlimit(
        tower.process.pid, resource.RLIMIT_NOFILE, (lowest_free_descriptor(tower.process.pid), before[1])
    )
    response = tower.http.post("/v1/completions", json=COMPLETION)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "router_exhausted")
    assert "ulimit -n" in response.json()["error"]["message"] and "retry-after" in response.headers
    resource.prlimit(tower.process.pid, resource.RLIMIT_NOFILE, before)
    for worker in ("1", "2"):
        pinned = tower.http.post("/v1/completions", json=COMPLETION, headers={"x-switchtower-pin": worker})
        assert pinned.status_code == 200, "no worker has failed"
    assert tower.active() == 0


def test_the_limit_of_open_files_is_what_the_machine_allows(own_tower):
    def low_soft_limit():
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))

    process = subprocess.Popen(
        [towers.BINARY, "up", "--http", "127.0.0.1:0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=low_soft_limit,
    )
    try:
        assert process.stdout.readline().startswith("listening on")
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard
    finally:
        process.kill()
        process.communicate(timeout=towers.HANG_S)


def test_invariant_9_the_loudest_log_holds_nothing_of_a_request(own_tower):
    tower = own_tower("--log", "trace,tokenizers=trace")
    headers = {
        "authorization": "Bearer sk-never-to-be-seen",
        "cookie": "crumb=never-to-be-seen",
        "x-switchtower-session": "session-never-to-be-seen",
    }
    bodies = [
        {"model": MODEL, "prompt": SECRET, "max_tokens": 2, "user": SECRET, "stop": [SECRET]},
        {"model": MODEL, "prompt": [SECRET, 5]},
        {"model": SECRET, "prompt": SECRET},
    ]
    statuses = [tower.http.post("/v1/completions", json=body, headers=headers).status_code for body in bodies]
    assert statuses == [200, 400, 404]
    chat = {"model": MODEL, "messages": [{"role": "user", "content": SECRET}], "stream": True, "max_tokens": 2}
    assert tower.http.post("/v1/chat/completions", json=chat, headers=headers).status_code == 200
    tower.interrupt()
    assert tower.wait() == 0
    said = "".join(tower.lines)
    assert '"TRACE"' in said
    assert not any(secret in said for secret in (*SECRET, "never-to-be-seen"))


def test_a_body_that_is_not_wanted_is_not_asked_for(tower):
    head = (
        "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: text/plain\r\n"
        "content-length: 1000000\r\nexpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", tower.port), timeout=towers.HANG_S) as connection:
        connection.sendall(head.encode())
        assert connection.recv(12) == b"HTTP/1.1 415"


@pytest.mark.parametrize("path", ["/v1/models/%ff", "/v1/models/a%2Fb", "/v1/models/..%2f..", "/%ff", "/"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_b105_every_error_has_the_same_shape(tower, method, path):
    response = tower.http.request(method, path)
    assert response.status_code in (404, 405)
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("pin", ["99", "1/7"])
def test_a_pin_that_cannot_be_is_named(tower, pin):
    response = tower.http.post("/v1/completions", json=COMPLETION, headers={"x-switchtower-pin": pin})
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["code"], error["param"]) == ("impossible_pin", "x-switchtower-pin")


def test_fifty_pipelined_requests_get_fifty_answers(tower):
    body = b'{"model":"%s","prompt":"a","max_tokens":1}' % MODEL.encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    request = head % len(body) + b"%s\r\n" + body
    with socket.create_connection(("127.0.0.1", tower.port), timeout=towers.HANG_S) as connection:
        connection.sendall(request % b"" * 49 + request % b"connection: close\r\n")
        answers = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answers.count(b"HTTP/1.1 200 OK") == 50
