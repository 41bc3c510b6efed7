"""Routers that see the same fleet: after thousands of requests with evictions their registries and indexes are equal, also
when one of them started in the middle."""

import concurrent.futures
import itertools
import random

import pytest

from fleet import agree
from tower import MODEL, wait_until

REQUESTS = 10_000
THREADS = 16
# 5 workers' worth of prompts do not fit: blocks are evicted all the time.
SMALL_CACHE = ("--ranks", "2", "--blocks", "600")


def prompts(seed):
    """Prompts of which some share a long beginning and none of the rest was seen before."""
    draw = random.Random(seed)
    beginnings = [" ".join(f"Rule {rule} of line {line}." for rule in range(draw.randrange(5, 60))) for line in range(40)]
    for number in itertools.count():
        yield f"{draw.choice(beginnings)} Train {seed}-{number} asks for track {draw.randrange(1_000)}."


def send(routers, count, seed):
    """Sends `count` requests through all routers in turn; all are answered."""
    turns = zip(range(count), itertools.cycle(routers), prompts(seed))
    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        statuses = threads.map(lambda turn: turn[1].complete(turn[2], max_tokens=1).status_code, turns)
        assert set(statuses) == {200}


def at_rest(router):
    """Whether nothing is booked and nobody waits."""
    return router.metric("switchtower_reservations", model=MODEL) == 0


def agree_on_everything(routers):
    """Waits until all routers know the same workers and the same blocks; returns the index."""
    agree(routers, lambda router: router.ctl("workers") and router.workers(), "the same workers")
    for router in routers:
        wait_until(lambda router=router: at_rest(router), "nothing booked")
    return agree(routers, lambda router: router.index(), "the same index")


@pytest.fixture
def equals(fleet):
    """Four workers of two ranks, and two routers."""
    for worker_id in range(1, 5):
        fleet.worker(worker_id, *SMALL_CACHE)
    return fleet, [fleet.router(), fleet.router()]


def test_three_routers_are_equal_after_ten_thousand_requests_one_of_them_started_under_load(equals):
    fleet, routers = equals
    with concurrent.futures.ThreadPoolExecutor(1) as load:
        first = load.submit(send, routers, REQUESTS // 2, 1)
        wait_until(lambda: sum(router.metric("switchtower_requests_total") for router in routers) > 500, "load")
        third = fleet.router(ready=False)
        wait_until(third.is_ready, "the third router ready")
        # Ready means: the whole fleet, and every row's log has been heard.
        assert third.workers() == [1, 2, 3, 4]
        assert len(third.index()) >= 8
        assert third.complete("Hello").status_code == 200
        first.result()
    routers.append(third)
    agree_on_everything(routers)
    send(routers, REQUESTS - REQUESTS // 2, 2)
    index = agree_on_everything(routers)
    assert {(worker, rank) for worker, rank, *_ in index} == {(str(w), str(r)) for w in range(1, 5) for r in range(2)}
    blocks = [int(row[3]) for row in index]
    assert all(0 < held <= 600 for held in blocks), blocks
    for router in routers:
        assert router.metric("switchtower_kv_events_refused_total") == 0
