"""The cards are waited for after every launch, and most of all after one that failed."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import campaign_config
from msgspec.structs import replace
from nvml_stand_in import Card, Nvml

from connector_tax.base.config import EngineConfig
from connector_tax.base.errors import EngineError
from connector_tax.run.engine import process
from connector_tax.run.engine.gpus import cards_of
from connector_tax.run.engine.process import LaunchError, LaunchRequest, running_engine

Launch = Callable[..., None]


@pytest.fixture
def engine(tmp_path: Path) -> EngineConfig:
    """Dies at once, and says of what."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ValueError: no such kernel' >&2\nexit 1\n")
    python.chmod(0o755)
    config = campaign_config("config.yaml").engine
    return replace(config, python=str(python), release_timeout_s=5.0, release_tolerance_mib=50)


@pytest.fixture
def launch(engine: EngineConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    monkeypatch.setattr(process, "RELEASE_POLL_S", 0.0)
    # The second card, so that asking about the first would be seen.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bb")

    def run(card: Card, fails: type[BaseException] | None = None, timeout_s: float = 5.0) -> None:
        nvml = Nvml(Card("GPU-aa"), card)
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        own = replace(engine, release_timeout_s=timeout_s)
        cards = cards_of(own)
        nvml.memory_asked_of.clear()
        connector = campaign_config("config.yaml").connector("plain")
        try:
            with running_engine(LaunchRequest(own, connector, tmp_path / "run", cards=cards)) as running:
                if fails is not None:
                    raise fails("the body")
                running.wait_ready()
        finally:
            assert set(nvml.memory_asked_of) == {"GPU-bb"}
            card.used_mib.append(len(nvml.memory_asked_of))

    return run


def test_a_failed_launch_gives_the_card_back_before_its_error_is_told(launch: Launch) -> None:
    """One reading looks cards up, one is from before the launch; the engine held memory for three more."""
    card = Card("GPU-bb", used_mib=[0, 100, 9000, 9000, 4000, 120, 120])
    with pytest.raises(LaunchError, match="ValueError: no such kernel"):
        launch(card)
    assert card.used_mib[-1] == 5


def test_a_card_that_is_not_given_back_is_told_beside_what_went_wrong(launch: Launch) -> None:
    card = Card("GPU-bb", used_mib=[0, 100, 9000])
    with pytest.raises(EngineError) as told:
        launch(card, timeout_s=0.0)
    assert not isinstance(told.value, LaunchError)  # launching again would meet a smaller card
    assert "ValueError: no such kernel" in str(told.value)
    expected = "GPU 1: NVIDIA H20 (UUID: GPU-bb): 9000 MiB in use 0 s after the engine ended, 100 MiB before"
    assert expected in str(told.value)


def test_an_error_of_the_measurement_waits_as_well_and_stays_what_it_is(launch: Launch) -> None:
    card = Card("GPU-bb", used_mib=[0, 100, 9000, 100, 100])
    with pytest.raises(ZeroDivisionError, match="the body"):
        launch(card, ZeroDivisionError)
    assert card.used_mib[-1] == 3


def test_who_is_told_to_end_does_not_wait(launch: Launch) -> None:
    card = Card("GPU-bb", used_mib=[0, 100, 9000])
    with pytest.raises(SystemExit):
        launch(card, SystemExit)
    assert card.used_mib[-1] == 1
