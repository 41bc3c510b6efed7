"""Real etcd and NATS servers on loopback, and a proxy that drops, stalls and delays: what the `cluster_*` tests break.

Programs come from `SWITCHTOWER_TEST_ETCD` and `SWITCHTOWER_TEST_NATS` (lists joined by colons, set by `tests/run`), or else
from `tests/.servers`. A server keeps its ports and its data over a restart unless told otherwise.
"""

import base64
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import urllib.request

from tower import HANG_S, REPOSITORY, wait_until


def programs(variable, pattern):
    """The programs to test on; there has to be one."""
    named = [path for path in os.environ.get(variable, "").split(":") if path]
    found = named or sorted(str(path) for path in (REPOSITORY / "tests" / ".servers").glob(pattern))
    assert found, f"no {pattern} to test on: run tests/run once, or set {variable} to its path"
    return found


def free_port():
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A program that is stopped, continued, killed and started again, and ends with its test."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="switchtower-test-"))
        self.process = None
        self.start()

    def command(self):
        """The program and its arguments."""
        raise NotImplementedError

    def is_up(self):
        """Whether it answers."""
        raise NotImplementedError

    def start(self):
        """Starts it on its ports, with the data it has."""
        log = open(self.folder / "log", "ab")
        with log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(lambda: self.process.poll() is not None or self.is_up(), f"{type(self).__name__} up")
        assert self.process.poll() is None, (self.folder / "log").read_text(errors="replace")[-2_000:]

    def freeze(self):
        """SIGSTOP: its connections stay open and silent."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        """SIGKILL."""
        self.process.kill()
        self.process.wait(timeout=HANG_S)

    def stop(self):
        """Ends it for good."""
        if self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Etcd(Server):
    """One etcd server, asked over its JSON gateway."""

    def __init__(self, program=None, port=None):
        self.program = program or programs("SWITCHTOWER_TEST_ETCD", "etcd-*")[-1]
        self.port, self.peer_port = port or free_port(), free_port()
        super().__init__()

    @property
    def url(self):
        """Its client URL."""
        return f"http://127.0.0.1:{self.port}"

    def command(self):
        peer = f"http://127.0.0.1:{self.peer_port}"
        return [
            self.program, "--name", "one", "--data-dir", str(self.folder / "data"), "--listen-client-urls", self.url,
            "--advertise-client-urls", self.url, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"one={peer}", "--log-level", "error",
        ]  # fmt: skip

    def is_up(self):
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return b"true" in answer.read()
        except OSError:
            return False

    def wipe(self):
        """Forgets all data; the server must be down."""
        shutil.rmtree(self.folder / "data", ignore_errors=True)

    def call(self, method, **body):
        """One call of the gateway: `call("kv/range", key=...)`."""
        request = urllib.request.Request(f"{self.url}/v3/{method}", json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return json.loads(answer.read())

    def records(self, cluster, prefix="workers/"):
        """The JSON records under a prefix of a cluster, by relative key."""
        root = f"/switchtower/{cluster}/"
        first = root + prefix
        found = self.call("kv/range", key=text(first), range_end=text(first[:-1] + chr(ord(first[-1]) + 1)))
        return {
            base64.b64decode(pair["key"]).decode()[len(root) :]: json.loads(base64.b64decode(pair["value"]))
            for pair in found.get("kvs", [])
        }

    def put(self, cluster, key, value, lease=0):
        """Puts a record: text as it is, anything else as JSON."""
        value = value if isinstance(value, str) else json.dumps(value)
        self.call("kv/put", key=text(f"/switchtower/{cluster}/{key}"), value=text(value), lease=lease)

    def delete(self, cluster, key):
        """Deletes a record."""
        self.call("kv/deleterange", key=text(f"/switchtower/{cluster}/{key}"))

    def revoke_leases(self):
        """Ends every lease, behind the backs of those that keep them."""
        for lease in self.call("lease/leases").get("leases", []):
            self.call("kv/lease/revoke", ID=lease["ID"])

    def compact(self):
        """Compacts all history."""
        revision = self.call("kv/range", key=text("/"))["header"]["revision"]
        self.call("kv/compaction", revision=revision, physical=True)


def text(value):
    """A key or value as the gateway wants it."""
    return base64.b64encode(value.encode()).decode()


class Nats(Server):
    """One NATS server, with the lines of its configuration file."""

    def __init__(self, program=None, config="", port=None):
        self.program = program or programs("SWITCHTOWER_TEST_NATS", "nats-server-*")[-1]
        self.config = config
        self.port = port or free_port()
        super().__init__()

    @property
    def url(self):
        """Its client URL."""
        return f"nats://127.0.0.1:{self.port}"

    def command(self):
        (self.folder / "config").write_text(self.config)
        return [self.program, "-a", "127.0.0.1", "-p", str(self.port), "-c", str(self.folder / "config")]

    def is_up(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False


class Proxy:
    """A TCP proxy to one port: passes, stalls (connections stay, no byte moves), or refuses."""

    def __init__(self, port):
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self._flow = threading.Event()
        self._flow.set()
        self._refuses = False
        self._open = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self):
        """Keeps every connection and moves no byte."""
        self._flow.clear()

    def refuse(self):
        """Closes every connection, and new ones at once."""
        self._refuses = True
        for connection in list(self._open):
            _close(connection)

    def heal(self):
        """Passes again."""
        self._refuses = False
        self._flow.set()

    def stop(self):
        """Ends it."""
        _close(self.listener)
        self.refuse()
        self._flow.set()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self._refuses:
                _close(client)
                continue
            threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, client):
        self._flow.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self.target), timeout=5)
        except OSError:
            _close(client)
            return
        server.settimeout(None)
        self._open |= {client, server}
        for one, other in ((client, server), (server, client)):
            threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one, other):
        try:
            while data := one.recv(65_536):
                self._flow.wait()
                other.sendall(data)
        except OSError:
            pass
        for connection in (one, other):
            _close(connection)
            self._open.discard(connection)


def _close(connection):
    """Closes it at both ends, also while another thread reads from it."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    connection.close()
