"""What holds for every test."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Nothing that a test writes has to outlive a power cut, and waiting for the disk is half of what a made campaign takes.

    Tests of what is made durable and when put an fsync of their own in its place. Processes that a test starts have the real one.
    """
    real = os.fsync
    os.fsync = lambda _: None
    yield
    os.fsync = real
