"""Two measurements at once would measure each other."""

import os
import re
from pathlib import Path

import pytest

from connector_tax.errors import EngineError
from connector_tax.measure import locks
from connector_tax.measure.locks import measuring_alone


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))


def test_another_campaign_on_the_same_gpu_is_told_who_measures_there(tmp_path: Path) -> None:
    with measuring_alone(tmp_path / "first", "first", 0), pytest.raises(EngineError) as found:
        with locks.held(tmp_path / "cache" / "locks" / "gpu0.lock", "GPU 0", "me", wait_s=0.0):
            pytest.fail("held twice")
    holder = f"process {os.getpid()}, which works on campaign first in {tmp_path / 'first'}"
    assert re.search(f"GPU 0 is in use by {re.escape(holder)} ", str(found.value))


def test_what_was_held_is_free_afterwards_and_another_gpu_always(tmp_path: Path) -> None:
    with measuring_alone(tmp_path / "a", "a", 0), measuring_alone(tmp_path / "b", "b", 1):
        pass
    with measuring_alone(tmp_path / "c", "c", 0):
        pass


def test_a_shorter_holder_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for holder in ("a holder of many words", "short"):
        with locks.held(path, "it", holder):
            assert path.read_text() == holder
