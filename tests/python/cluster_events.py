"""KV events that are lost, late, or of a former life: the routers' index ends as the workers' caches are."""

import concurrent.futures
import itertools

import pytest

from fleet import LEASE_TTL_MS, Fleet, agree
from servers import Nats, Proxy, programs
from tower import wait_until

_TOPICS = itertools.count(1)


def warm(router, count=20):
    """Sends `count` prompts that nobody has sent before, so that every worker caches something."""
    topic = next(_TOPICS)
    texts = [" ".join(f"Line {topic}.{line}: stop {stop}." for stop in range(60)) for line in range(count)]
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert {answer.status_code for answer in threads.map(router.complete, texts)} == {200}
    return texts


def blocks(router, worker_id):
    """Blocks that a router believes a worker holds."""
    return sum(int(row["blocks"]) for row in router.ctl("index") if int(row["worker_id"]) == worker_id)


def settled(routers):
    """The index that all routers agree on, none of them repairing."""
    quiet = lambda router: not any(row["repairing"] for row in router.ctl("index"))
    for router in routers:
        wait_until(lambda router=router: quiet(router), "no repair under way")
    return agree(routers, lambda router: router.index(), "the same index")


@pytest.fixture(params=programs("SWITCHTOWER_TEST_NATS", "nats-server-*"), ids=lambda path: path.rsplit("-", 1)[1])
def nats(request):
    """A NATS server, of each version."""
    server = Nats(request.param)
    yield server
    server.stop()


@pytest.fixture
def heard(nats):
    """A fleet of two workers with two ranks, heard directly by one router and through a proxy by another."""
    running = Fleet(nats=nats)
    proxy = running.keep(Proxy(nats.port))
    for worker_id in (1, 2):
        running.worker(worker_id, "--ranks", "2")
    direct = running.router()
    # A silent connection is noticed within two pings.
    behind = running.router(nats=f"nats://127.0.0.1:{proxy.port}", settings={"NATS__PING_INTERVAL_MS": 1_000})
    yield running, direct, behind, proxy
    running.stop()


@pytest.mark.parametrize("fault", ["stall", "refuse"])
def test_b26_what_was_missed_behind_a_cut_is_asked_for_and_the_index_is_exact(heard, fault):
    _, direct, behind, proxy = heard
    warm(direct)
    before = settled([direct, behind])
    getattr(proxy, fault)()
    warm(direct)
    wait_until(lambda: direct.index() != before, "news that only one router hears")
    # The other routes on what it knows, and says that the bus is gone.
    assert behind.complete("Still there?").status_code == 200
    wait_until(lambda: behind.metric("switchtower_port_connected", port="bus") == 0, "the lost bus shown")
    proxy.heal()
    wait_until(lambda: behind.metric("switchtower_port_connected", port="bus") == 1, "the bus back")
    settled([direct, behind])
    repairs = behind.metric("switchtower_kv_repairs_total")
    warm(direct)
    settled([direct, behind])
    assert behind.metric("switchtower_kv_repairs_total") == repairs, "b22: one recovery is enough"


def test_a_bus_that_is_killed_and_started_again_loses_nothing_for_good(heard, nats):
    _, direct, behind, _ = heard
    warm(direct)
    settled([direct, behind])
    nats.kill()
    # Requests are served meanwhile, on the last known index.
    warm(direct)
    nats.start()
    index = settled([direct, behind])
    assert sum(int(row[3]) for row in index) > 0
    warm(behind)
    settled([direct, behind])


def test_b07_a_frozen_bus_is_noticed_and_repaired(heard, nats):
    _, direct, behind, _ = heard
    warm(direct)
    nats.freeze()
    try:
        wait_until(lambda: direct.metric("switchtower_port_connected", port="bus") == 0, "the frozen bus noticed")
        assert direct.complete("Anyone?").status_code == 200
    finally:
        nats.thaw()
    wait_until(lambda: direct.metric("switchtower_port_connected", port="bus") == 1, "the bus back")
    warm(direct)
    settled([direct, behind])


def test_b24_a_worker_that_restarts_in_place_begins_with_an_empty_column(fleet):
    worker = fleet.worker(1)
    routers = [fleet.router(), fleet.router()]
    warm(routers[0])
    before = settled(routers)
    assert blocks(routers[0], 1) > 0
    worker.process.kill()
    worker.process.wait()
    fleet.worker(1)
    for router in routers:
        wait_until(lambda router=router: blocks(router, 1) == 0, "nothing credited to the new life")
    warm(routers[1], count=3)
    after = settled(routers)
    assert 0 < sum(int(row[3]) for row in after) < sum(int(row[3]) for row in before)


def test_b25_a_worker_that_leaves_in_full_flight_leaves_nothing_behind(fleet):
    fleet.worker(2)
    routers = [fleet.router(), fleet.router()]
    for _ in range(5):
        leaving = fleet.worker(1)
        for router in routers:
            wait_until(lambda router=router: router.workers() == [1, 2], "both workers")
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            under_way = [threads.submit(routers[turn % 2].complete, f"Leave {turn} " * 300) for turn in range(40)]
            leaving.process.kill()
            answers = [answer.result() for answer in under_way]
        # Whatever it was doing ends in an answer or in a clean error.
        assert {answer.status_code for answer in answers} <= {200, 502, 503}
        for router in routers:
            wait_until(lambda router=router: router.workers() == [2], f"the worker gone after {LEASE_TTL_MS} ms")
            assert blocks(router, 1) == 0
    settled(routers)


def test_snapshots_come_in_chunks_where_the_bus_takes_small_messages_only():
    """Blocks by the thousand, a log that has long forgotten its beginning, and messages of 4 KB."""
    running = Fleet(nats=Nats(config="max_payload: 4096"))
    running.keep(running.nats)
    try:
        running.worker(1, settings={"WORKER__KEPT_EVENTS": 4})
        first = running.router()
        warm(first, count=80)
        second = running.router()
        index = settled([first, second])
        # More than one message holds, at 8 bytes a block.
        assert sum(int(row[3]) for row in index) > 4_096 / 8 * 3
        assert second.metric("switchtower_kv_repairs_total", reason="snapshot") >= 1
    finally:
        running.stop()
