"""What the end-to-end tests share: a running tower, the official client on it, towers of a test's own, fresh prompts."""

import itertools

import openai
import pytest

from fleet import Fleet
from tower import HANG_S, Tower

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def tower():
    """One `switchtower up` for all tests that do not end it."""
    running = Tower()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def client(tower):
    """The official client; it does not retry, so that each test sees the first answer."""
    with openai.OpenAI(base_url=f"{tower.url}/v1", api_key="unused", max_retries=0, timeout=HANG_S) as client:
        yield client


@pytest.fixture
def own_tower():
    """Starts towers, with more arguments if given, that end with the test."""
    towers = []

    def start(*arguments):
        towers.append(Tower(*arguments))
        return towers[-1]

    yield start
    for running in towers:
        running.stop()


@pytest.fixture
def long_prompt():
    """Many blocks of text that no test has sent before."""
    number = next(_NUMBERS)
    return " ".join(f"Prompt {number}: train {train} leaves from track {train * number % 97}." for train in range(200))


@pytest.fixture
def fleet():
    """A cluster of this test's own: real servers, and no process yet."""
    running = Fleet()
    yield running
    running.stop()
