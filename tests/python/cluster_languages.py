"""A worker in another language, written after proto/README.md alone, takes part like any other."""

import subprocess
import sys

import pytest

from tower import HANG_S, MODEL, REPOSITORY, wait_until

WORKER = REPOSITORY / "proto" / "examples" / "worker.py"


@pytest.fixture
def stranger(fleet):
    """The Python worker, registered as worker 7."""
    where = ["--etcd", fleet.etcd.url, "--nats", fleet.nats.url, "--cluster", fleet.name]
    process = subprocess.Popen(
        [sys.executable, str(WORKER), *where, "--worker-id", "7"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert "is registered" in process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait(timeout=HANG_S)


def held(router):
    """Blocks that a router believes the Python worker holds."""
    return sum(int(row["blocks"]) for row in router.ctl("index") if int(row["worker_id"]) == 7)


def test_a_python_worker_is_found_serves_tells_its_cache_and_leaves(fleet, stranger):
    router = fleet.router()
    wait_until(lambda: router.workers() == [7], "the Python worker")
    tokens = {"model": MODEL, "prompt": list(range(1, 161)), "max_tokens": 4}
    assert router.http.post("/v1/completions", json=tokens).json()["choices"][0]["text"] == "hello"
    wait_until(lambda: held(router) == 10, "its ten blocks of 16 tokens")
    wait_until(lambda: all(row["report"] != "unknown" for row in router.ctl("loads")), "its load report")
    # A router that comes later learns its cache by asking, and hashes prompts as it does.
    late = fleet.router()
    wait_until(lambda: held(late) == 10, "the same blocks at a later router")
    before = late.metric("switchtower_cached_tokens_total")
    assert late.http.post("/v1/completions", json=tokens).status_code == 200
    assert late.metric("switchtower_cached_tokens_total") - before >= 144
    # Told to stop it deregisters itself, long before its lease would have ended.
    stranger.terminate()
    assert stranger.wait(timeout=HANG_S) == 0
    for one in (router, late):
        wait_until(lambda one=one: one.workers() == [], "the Python worker gone")
