"""Two measurements at once would measure each other."""

import errno
import fcntl
import os
import re
import tempfile
from pathlib import Path

import pytest

from connector_tax.base.errors import EngineError
from connector_tax.base.locks import cache_folder
from connector_tax.run.engine.gpus import Cards, Gpu
from connector_tax.run.measure import locks
from connector_tax.run.measure.locks import measuring_alone


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))


def on(uuid: str, index: int = 0) -> Cards:
    return Cards((Gpu(index, uuid, "NVIDIA H20", 97_871, uuid),), 0)


TWO = Cards((*on("GPU-bb", 1).gpus, *on("GPU-aa").gpus), 0)


def test_another_campaign_on_the_same_gpu_is_told_who_measures_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it has that card beside another, under another index."""
    monkeypatch.setattr(locks, "WAIT_S", 0.0)
    with measuring_alone(tmp_path / "first", "first", TWO), pytest.raises(EngineError) as found:
        with measuring_alone(tmp_path / "second", "second", on("GPU-bb", index=0)):
            pytest.fail("held twice")
    holder = f"process {os.getpid()}, which works on campaign first in {tmp_path / 'first'}"
    words = re.escape(f"GPU 0: NVIDIA H20 (UUID: GPU-bb) is in use by {holder} ")
    assert re.search(words, str(found.value))


def test_what_was_held_is_free_afterwards_and_another_gpu_always(tmp_path: Path) -> None:
    """Two cards that have the same index in two containers are two cards."""
    with (
        measuring_alone(tmp_path / "a", "a", on("GPU-aa")),
        measuring_alone(tmp_path / "b", "b", on("GPU-bb")),
    ):
        pass
    with measuring_alone(tmp_path / "c", "c", TWO):
        pass


def test_two_campaigns_do_not_take_the_same_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On two cards of a host; 0 is a free one for each."""
    monkeypatch.setattr(locks, "WAIT_S", 0.0)
    with measuring_alone(tmp_path / "a", "a", on("GPU-aa"), 8000):
        with pytest.raises(
            EngineError, match=r"engine\.port 8000 is in use by process \d+, which works on campaign a"
        ):
            with measuring_alone(tmp_path / "b", "b", on("GPU-bb"), 8000):
                pytest.fail("held twice")
        with measuring_alone(tmp_path / "c", "c", on("GPU-bb"), 8001):
            pass
    with (
        measuring_alone(tmp_path / "d", "d", on("GPU-aa")),
        measuring_alone(tmp_path / "e", "e", on("GPU-bb")),
    ):
        pass


def test_a_shorter_holder_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for holder in ("a holder of many words", "short"):
        with locks.held(path, "it", holder):
            assert path.read_text() == holder


def test_a_file_system_that_does_not_lock_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = errno.ENOLCK

    def flock(handle: object, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(EngineError) as told:
        with measuring_alone(tmp_path / "a", "a", TWO):
            pytest.fail("held")
    path = tmp_path / "a" / ".lock"
    words = f"{path}: the lock of campaign a cannot be taken ({os.strerror(number)}). Nothing is measured without it."
    assert str(told.value).startswith(words)


@pytest.mark.parametrize("lies", ["folder", "file"])
def test_what_lies_in_the_place_of_a_lock_is_named(tmp_path: Path, lies: str) -> None:
    """It was said that results/ must lie where files can be locked, which they did."""
    root = tmp_path / "a"
    root.touch() if lies == "file" else (root / ".lock").mkdir(parents=True)
    said = f"{root} is no folder" if lies == "file" else "a folder lies there"
    with pytest.raises(
        EngineError, match=rf"{root}/\.lock: the lock of campaign a .*: {said}\. Move it away"
    ):
        with measuring_alone(root, "a", TWO):
            pytest.fail("held")


def test_a_lock_that_cannot_be_written_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for another user's cache: root may write anywhere here."""
    number = errno.EACCES

    def refuse(*args: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(EngineError) as told:
        with measuring_alone(tmp_path / "a", "a", TWO):
            pytest.fail("held")
    monkeypatch.undo()
    assert f"cannot be taken ({os.strerror(number)})" in str(told.value)
    assert "CONNECTOR_TAX_CACHE" in str(told.value)


def test_a_user_without_a_home_has_a_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """HOME is unset, and the user's number is in no passwd."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in ("HOME", "CONNECTOR_TAX_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert cache_folder() == Path(tempfile.gettempdir()) / f"connector-tax-cache-{os.getuid()}"
