"""A cluster of processes on real servers: routers, workers, etcd and NATS, each of which a test may break.

Used by the `cluster_*` tests. Everything listens on free ports of loopback and ends with its test.
"""

import itertools
import json

from servers import Etcd, Nats
from tower import HANG_S, MODEL, Process, RouterProcess, run, wait_until

_CLUSTERS = itertools.count(1)
# How long a crash of a worker goes unnoticed: short, so that tests need not wait.
LEASE_TTL_MS = 2_000


class Router(RouterProcess):
    """One `switchtower router` process, with its admin API."""

    def __init__(self, *arguments, settings=None):
        super().__init__("router", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", *arguments, settings=settings)
        self.admin_url = next(
            line.split("admin API on ")[1].split()[0] for line in self.lines if "admin API on " in line
        )

    def ctl(self, *arguments):
        """What `switchtower ctl … --json` answers, under the name of the command."""
        done = run("ctl", "--url", self.admin_url, *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)[arguments[0]]

    def workers(self):
        """Ids of the workers that it routes to."""
        return sorted(int(worker["worker_id"]) for worker in self.ctl("workers"))

    def index(self):
        """Blocks and digest of every row and tier, as they can be compared between routers."""
        keys = ("worker_id", "rank", "tier", "blocks", "digest")
        return sorted(tuple(str(row[key]) for key in keys) for row in self.ctl("index"))

    def complete(self, prompt, **options):
        """One completion, whole: the HTTP answer."""
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 4, **options}
        return self.http.post("/v1/completions", json=body)


class Worker(Process):
    """One `switchtower worker --sim` process."""

    def __init__(self, *arguments, settings=None):
        settings = {"WORKER__LEASE_TTL_MS": LEASE_TTL_MS} | (settings or {})
        super().__init__("worker", "--sim", "--listen", "127.0.0.1:0", *arguments, settings=settings)
        try:
            self.url = self.wait_for_line(r"listening on (http://127\.0\.0\.1:\d+)").group(1)
        except BaseException:
            self.process.kill()
            raise

    def registered(self):
        """Waits until it says that it is registered."""
        self.wait_for_line("is registered")
        return self


class Fleet:
    """One cluster: its servers, and the processes that were started in it. Servers are its own unless given, and processes
    reach them directly unless a test gives them URLs of proxies."""

    def __init__(self, etcd=None, nats=None):
        self.name = f"test-{next(_CLUSTERS)}"
        self._ends = []
        self.etcd = etcd or self.keep(Etcd())
        self.nats = nats or self.keep(Nats())

    def keep(self, part):
        """Ends `part` with the fleet."""
        self._ends.append(part)
        return part

    def _cluster(self, etcd, nats):
        return ("--cluster", self.name, "--etcd", etcd or self.etcd.url, "--nats", nats or self.nats.url)

    def router(self, *arguments, etcd=None, nats=None, ready=True, settings=None):
        """Starts a router; by default waits until it routes."""
        router = self.keep(Router(*self._cluster(etcd, nats), *arguments, settings=settings))
        if ready:
            wait_until(router.is_ready, "the router ready")
        return router

    def worker(self, worker_id, *arguments, etcd=None, nats=None, registered=True, settings=None):
        """Starts a simulated worker; by default waits until it is registered."""
        own = ("--worker-id", str(worker_id), "--speed", "20")
        worker = self.keep(Worker(*self._cluster(etcd, nats), *own, *arguments, settings=settings))
        return worker.registered() if registered else worker

    def records(self, prefix="workers/"):
        """The records in etcd by key."""
        return self.etcd.records(self.name, prefix)

    def stop(self):
        """Ends everything, the youngest first."""
        for part in reversed(self._ends):
            part.stop()


def agree(routers, ask, what):
    """Waits until `ask(router)` gives the same answer, and a true one, for all routers; returns it."""

    def same():
        answers = [ask(router) for router in routers]
        return answers[0] if answers[0] and all(answer == answers[0] for answer in answers) else None

    return wait_until(same, what)


__all__ = ["HANG_S", "LEASE_TTL_MS", "Fleet", "Router", "Worker", "agree"]
