"""Running `switchtower` processes, `switchtower up` first of all: starts them on free ports, reads their addresses, sends
them signals, asks their metrics.

Used by every `e2e_*` and `cluster_*` test. Waits on conditions with a generous bound that only ends a run that hangs.
"""

import os
import pathlib
import queue
import re
import signal
import subprocess
import threading
import time

import httpx2

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("SWITCHTOWER_BIN", str(REPOSITORY / "target" / "debug" / "switchtower"))
MODEL = "switchtower-demo"
CONTEXT_TOKENS = 32_768
# Far longer than anything takes on a loaded machine: a test that reaches it has failed.
HANG_S = 60.0

SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)(?: \S+)?$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def run(*arguments):
    """Runs the command to its end."""
    return subprocess.run(
        [BINARY, *arguments], capture_output=True, text=True, timeout=HANG_S, stdin=subprocess.DEVNULL, check=False
    )


def wait_until(condition, what):
    """The first true value of `condition`, asked again and again."""
    ends = time.monotonic() + HANG_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > ends:
            raise AssertionError(f"waited {HANG_S} s for: {what}")
        time.sleep(0.02)


class Process:
    """A running `switchtower` command whose output is kept."""

    def __init__(self, *arguments, settings=None):
        """`settings` are environment variables without their prefix: `{"WORKER__RANKS": 2}`."""
        named = {f"SWITCHTOWER__{name}": str(value) for name, value in (settings or {}).items()}
        self.process = subprocess.Popen(
            [BINARY, *arguments],
            env=os.environ | named,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self.lines = []
        self._unread = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            self._unread.put(line)
        self._unread.put(None)

    def wait_for_line(self, pattern):
        """The first line not read yet that matches."""
        while True:
            line = self._unread.get(timeout=HANG_S)
            if line is None:
                raise AssertionError(f"ended before it said {pattern!r}, said: {''.join(self.lines)}")
            if found := re.search(pattern, line):
                return found

    def interrupt(self):
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def wait(self):
        """The exit code, once it ends by itself."""
        code = self.process.wait(timeout=HANG_S)
        self._reader.join(timeout=HANG_S)
        return code

    def stop(self):
        """Ends the process, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=HANG_S)


class RouterProcess(Process):
    """A process that listens for requests: its address, its client, its metrics."""

    def __init__(self, *arguments, settings=None):
        super().__init__(*arguments, settings=settings)
        try:
            self.url = self.wait_for_line(r"listening on (http://127\.0\.0\.1:\d+)").group(1)
        except BaseException:
            self.process.kill()
            raise
        self.http = httpx2.Client(base_url=self.url, timeout=HANG_S, trust_env=False)

    @property
    def port(self):
        """The port it listens on."""
        return int(self.url.rsplit(":", 1)[1])

    def is_ready(self):
        """Whether it says that it routes."""
        return self.http.get("/ready").status_code == 200

    def metrics(self, name):
        """Every sample of a metric: [(labels, value)]."""
        samples = []
        for line in self.http.get("/metrics").raise_for_status().text.splitlines():
            found = SAMPLE.match(line)
            if found and found["name"] == name:
                samples.append((dict(LABEL.findall(found["labels"] or "")), float(found["value"])))
        return samples

    def metric(self, name, **labels):
        """The sum of a metric's samples that carry `labels`; 0 where there is none."""
        return sum(value for have, value in self.metrics(name) if labels.items() <= have.items())

    def stop(self):
        if getattr(self, "http", None):
            self.http.close()
        super().stop()


class Tower(RouterProcess):
    """One `switchtower up` process."""

    def __init__(self, *arguments):
        super().__init__("up", "--http", "127.0.0.1:0", *arguments)
        try:
            wait_until(self.is_ready, "readiness")
        except BaseException:
            self.process.kill()
            raise

    def active(self):
        """Reservations that live now."""
        return self.metric("switchtower_reservations", model=MODEL)
