"""What holds for every test."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

BUNDLE = Path(__file__).parents[1] / "published" / "virtual-h200.tar.xz"


@pytest.fixture(scope="session")
def published_campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published campaign's folder as its bundle holds it, unpacked once for each worker; tests change nothing there."""
    from connector_tax.read.bundle.archive import unpack

    folder = tmp_path_factory.mktemp("published")
    unpack(BUNDLE, folder)
    return folder / "results" / "virtual-h200"


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Nothing that a test writes has to outlive a power cut, and waiting for the disk is half of what a made campaign takes.

    Tests of what is made durable and when put an fsync of their own in its place. Processes that a test starts have the real one.
    """
    real = os.fsync
    os.fsync = lambda _: None
    yield
    os.fsync = real
