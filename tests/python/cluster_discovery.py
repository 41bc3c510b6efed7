"""What goes wrong between processes and etcd: lost leases, frozen servers, compaction, cuts, and records that should not be.
Nobody exits, nobody is forgotten, and nobody who is gone stays."""

import time

import pytest

from fleet import LEASE_TTL_MS, Fleet
from servers import Etcd, Proxy, programs
from tower import run, wait_until


@pytest.fixture(params=programs("SWITCHTOWER_TEST_ETCD", "etcd-*"), ids=lambda path: path.rsplit("-", 1)[1])
def etcd(request):
    """An etcd server, of each version."""
    server = Etcd(request.param)
    yield server
    server.stop()


@pytest.fixture
def stored(etcd):
    """A fleet on that etcd, with no process yet."""
    running = Fleet(etcd=etcd)
    yield running
    running.stop()


def lists(router, *worker_ids):
    """Waits until a router routes to exactly these workers."""
    wait_until(lambda: router.workers() == sorted(worker_ids), f"workers {worker_ids}, no others")


def port_connected(router, port="discovery"):
    """Whether a router says that it is connected."""
    return router.metric("switchtower_port_connected", port=port) == 1


def reasons(router):
    """Why records are refused, by key."""
    return {refused["key"]: refused["reason"] for refused in router.ctl("refused")}


def serves(router, text="Which track?"):
    """One completion is answered well."""
    answer = router.complete(text)
    assert answer.status_code == 200, answer.text
    return answer


def test_b01_nobody_exits_when_etcd_freezes_for_longer_than_the_leases_live(stored, etcd):
    workers = [stored.worker(worker_id) for worker_id in (1, 2)]
    router = stored.router()
    etcd.freeze()
    # Not a wait for something to happen: this is how long the fault lasts.
    time.sleep(LEASE_TTL_MS * 3 / 1_000)
    serves(router)
    etcd.thaw()
    wait_until(lambda: sorted(stored.records()) == ["workers/1", "workers/2"], "the records back")
    lists(router, 1, 2)
    serves(router)
    assert all(process.process.poll() is None for process in [*workers, router])


@pytest.mark.parametrize("loses_data", [False, True], ids=["keeps data", "loses data"])
def test_b01_b08_etcd_is_killed_and_started_again(stored, etcd, loses_data):
    stored.worker(1)
    router = stored.router()
    for round_number in (2, 3):
        etcd.kill()
        serves(router)
        if loses_data:
            etcd.wipe()
        etcd.start()
        stored.worker(round_number)
        lists(router, *range(1, round_number + 1))
        serves(router)
    assert not any("panicked" in line for line in router.lines)


def test_b03_a_lease_that_was_revoked_is_got_back_and_said_once(stored, etcd):
    worker = stored.worker(1)
    router = stored.router()
    etcd.revoke_leases()
    wait_until(lambda: "workers/1" in stored.records(), "the record back")
    lists(router, 1)
    serves(router)
    assert worker.process.poll() is None
    assert sum("lease" in line for line in worker.lines) <= 3, worker.lines


def test_b02_a_worker_that_cannot_register_any_more_serves_what_it_has_and_comes_back(fleet):
    proxy = fleet.keep(Proxy(fleet.etcd.port))
    worker = fleet.worker(1, etcd=f"http://127.0.0.1:{proxy.port}")
    router = fleet.router()
    with router.http.stream("POST", "/v1/completions", json=long_answer()) as answer:
        lines = answer.iter_lines()
        next(lines)
        proxy.refuse()
        fleet.etcd.revoke_leases()
        lists(router)
        # The stream that was open ends whole.
        assert "[DONE]" in [line for line in lines if line][-1]
    proxy.heal()
    lists(router, 1)
    serves(router)
    assert worker.process.poll() is None


ANY = {"model": "switchtower-demo", "prompt": "Which way?", "max_tokens": 2}


def long_answer():
    """A request whose answer takes longer than a lease lives."""
    return {"model": "switchtower-demo", "prompt": "Go on.", "max_tokens": 6_000, "stream": True, "ignore_eos": True}


@pytest.mark.parametrize("fault", ["stall", "refuse"])
def test_b05_b07_a_router_that_was_cut_off_learns_all_that_it_missed(fleet, fault):
    proxy = fleet.keep(Proxy(fleet.etcd.port))
    gone = fleet.worker(1)
    fleet.worker(2)
    router = fleet.router(etcd=f"http://127.0.0.1:{proxy.port}")
    lists(router, 1, 2)
    getattr(proxy, fault)()
    wait_until(lambda: not port_connected(router), "the lost connection noticed")
    gone.interrupt()
    assert gone.wait() == 0
    fleet.worker(3)
    # It routes on with what it knows, past the worker that is gone.
    for number in range(6):
        serves(router, f"Question {number}")
    proxy.heal()
    lists(router, 2, 3)
    wait_until(lambda: port_connected(router), "connected again")


def test_b06_compaction_during_a_cut_ends_in_the_state_of_the_store(stored, etcd):
    proxy = stored.keep(Proxy(etcd.port))
    first, second = stored.worker(1), stored.worker(2)
    router = stored.router(etcd=f"http://127.0.0.1:{proxy.port}")
    lists(router, 1, 2)
    proxy.refuse()
    for leaving in (first, second):
        leaving.interrupt()
        assert leaving.wait() == 0
    again = stored.worker(2)
    for number in range(500):
        etcd.put(stored.name, "elsewhere/1", str(number))
    etcd.compact()
    proxy.heal()
    lists(router, 2)
    wait_until(lambda: [worker["endpoint"] for worker in router.ctl("workers")] == [again.url], "the new address")
    serves(router)


def test_b09_a_record_with_a_new_address_moves_all_requests_there(fleet):
    worker = fleet.worker(1)
    router = fleet.router()
    port = int(worker.url.rsplit(":", 1)[1])
    old, new = fleet.keep(Proxy(port)), fleet.keep(Proxy(port))
    # A worker that registers itself puts a record right that somebody else changed; this one is registered by hand.
    record = fleet.records()["workers/1"] | {"worker_id": 7}
    pinned = {"x-switchtower-pin": "7"}
    at = lambda proxy: fleet.etcd.put(fleet.name, "workers/7", record | {"endpoint": f"http://127.0.0.1:{proxy.port}"})
    ask = lambda: router.http.post("/v1/completions", json=ANY, headers=pinned).status_code
    at(old)
    wait_until(lambda: ask() == 200, "served at the old address")
    at(new)
    old.refuse()
    wait_until(lambda: ask() == 200, "served at the new address")
    assert {ask() for _ in range(20)} == {200}, "nothing goes to the old one any more"


def test_b12_a_model_that_is_listed_answers(fleet):
    router = fleet.router(ready=False)
    for worker_id in range(1, 6):
        worker = fleet.worker(worker_id, registered=False)
        wait_until(lambda: router.http.get("/v1/models").json()["data"], "the model listed")
        serves(router)
        worker.interrupt()
        assert worker.wait() == 0
        wait_until(lambda: router.workers() == [], "the worker gone")
        assert router.complete("Anyone?").status_code in (404, 503)


def test_two_workers_of_one_id_the_first_stays_and_the_second_takes_over(fleet):
    first = fleet.worker(1)
    router = fleet.router()
    second = fleet.worker(1, registered=False)
    wait_until(lambda: any("1" in key for key in reasons(router)), "the second claim shown")
    assert [worker["endpoint"] for worker in router.ctl("workers")] == [first.url]
    assert router.metric("switchtower_records_refused") >= 1
    serves(router)
    first.process.kill()
    second.registered()
    wait_until(lambda: [worker["endpoint"] for worker in router.ctl("workers")] == [second.url], "the second's turn")
    wait_until(lambda: not reasons(router), "nothing refused any more")
    serves(router)


BROKEN = {
    "no JSON": ("workers/77", "{"),
    "another worker's key": ("workers/78", {"version": 1, "worker_id": 79}),
    "a version to come": ("workers/80", {"version": 9, "worker_id": 80}),
}


@pytest.mark.parametrize("key, value", BROKEN.values(), ids=BROKEN)
def test_a_record_that_cannot_be_is_refused_with_a_reason_and_harms_nobody(fleet, key, value):
    fleet.worker(1)
    router = fleet.router()
    complete = {} if isinstance(value, str) else fleet.records()["workers/1"] | value
    fleet.etcd.put(fleet.name, key, complete or value)
    wait_until(lambda: key in reasons(router), "the refusal")
    assert router.metric("switchtower_records_refused") == 1
    assert router.workers() == [1]
    serves(router)
    fleet.etcd.delete(fleet.name, key)
    wait_until(lambda: not reasons(router), "forgotten with its record")


def test_b118_a_second_block_size_in_one_partition_is_refused_until_it_agrees(fleet):
    fleet.worker(1)
    router = fleet.router()
    record = fleet.records()["workers/1"] | {"worker_id": 2}
    fleet.etcd.put(fleet.name, "workers/2", record | {"block_size": 64})
    wait_until(lambda: "workers/2" in reasons(router), "the refusal")
    assert "block_size" in reasons(router)["workers/2"]
    assert router.workers() == [1]
    serves(router)
    fleet.etcd.put(fleet.name, "workers/2", record)
    lists(router, 1, 2)
    assert not reasons(router)


def test_drain_and_resume_through_any_replica_outlive_every_process(stored, etcd):
    worker = stored.worker(1)
    stored.worker(2)
    routers = [stored.router(), stored.router()]
    drained = lambda router: [w["worker_id"] for w in router.ctl("workers") if w["drained"]]
    done = run("ctl", "--url", routers[0].admin_url, "drain", "1")
    assert done.returncode == 0, done.stderr
    for router in routers:
        wait_until(lambda router=router: drained(router) == [1], "drained at both")
        assert {serves(router, f"Q {n}").headers["x-switchtower-worker"][0] for n in range(8)} == {"2"}
    worker.interrupt()
    assert worker.wait() == 0
    etcd.kill()
    etcd.start()
    stored.worker(1)
    third = stored.router()
    wait_until(lambda: drained(third) == [1], "still drained, by a new router, in a new life")
    assert run("ctl", "--url", third.admin_url, "resume", "1").returncode == 0
    for router in [*routers, third]:
        wait_until(lambda router=router: not drained(router), "resumed at all")
    unknown = run("ctl", "--url", third.admin_url, "drain", "999")
    assert unknown.returncode == 1 and "999" in unknown.stderr, unknown.stderr


def test_clusters_on_one_store_and_bus_do_not_see_each_other(fleet):
    fleet.worker(1)
    router = fleet.router()
    other = fleet.keep(Fleet(etcd=fleet.etcd, nats=fleet.nats))
    stranger = other.router(ready=False)
    other.worker(2)
    lists(stranger, 2)
    assert router.workers() == [1]
