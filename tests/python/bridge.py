"""The two sides that the parity tests compare: the Rust crate, driven through its `render` example (one process, JSON
lines in and out), and Python's Jinja set up as the engines set it up.

Used by the parity tests beside this file. Starts nothing else and touches no network.
"""

import json
import subprocess
import threading
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path

import jinja2
import jinja2.ext
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = Path(__file__).parents[2]
NOW_UNIX_S = 1_790_000_000


def package_file(package, *parts):
    """Path of a data file inside an installed package, without importing it."""
    return Path(find_spec(package).origin).parent.joinpath(*parts)


class Rust:
    """The example process. `ask` sends one operation; `ask_all` sends many and reads the answers meanwhile."""

    def __init__(self):
        command = ["cargo", "run", "-q", "-p", "switchtower-models", "--example", "render"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, **operation):
        return self.ask_all([operation])[0]

    def ask_all(self, operations):
        def send():
            for operation in operations:
                self.process.stdin.write(json.dumps(operation) + "\n")
            self.process.stdin.flush()

        sender = threading.Thread(target=send)
        sender.start()
        answers = [json.loads(self.process.stdout.readline()) for _ in operations]
        sender.join()
        return answers

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


@pytest.fixture(scope="session")
def rust():
    """The Rust side, started once and checked to end well; a test file imports this name to use it."""
    process = Rust()
    yield process
    assert process.close() == 0


class Generation(jinja2.ext.Extension):
    """`{% generation %}` as far as text goes: its body."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(format):
    return datetime.fromtimestamp(NOW_UNIX_S, timezone.utc).strftime(format)


def python_environment():
    """Jinja set up as the transformers library documents it."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, Generation]
    )
    environment.filters["tojson"] = to_json
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return environment
