"""CUDA_VISIBLE_DEVICES to cards: engine, lock, sampler and receipt get the same one, whatever names it."""

import platform
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import campaign_config
from msgspec.structs import replace
from nvml_stand_in import Card, Nvml

from connector_tax.base.config import EngineConfig
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.run.engine.command import engine_environment
from connector_tax.run.engine.gpus import Cards, Gpu, cards_of, cards_wanted
from connector_tax.run.engine.identity import engine_identity, env_text

A, B, C = "GPU-aa11-0", "GPU-ab22-1", "GPU-cc33-2"
MIG = "MIG-77-0"


@pytest.fixture
def engine() -> EngineConfig:
    return replace(campaign_config("config.yaml").engine, python=sys.executable)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    found = Nvml(Card(A), Card(B), Card(C, instances={MIG: 20_000}))
    monkeypatch.setitem(sys.modules, "pynvml", found)
    return found


def shown(engine: EngineConfig, devices: str | None, **variables: str) -> Cards:
    return cards_of(engine, {**variables, **({} if devices is None else {"CUDA_VISIBLE_DEVICES": devices})})


def test_without_a_word_it_is_the_campaigns_card(nvml: Nvml, engine: EngineConfig) -> None:
    cards = shown(replace(engine, gpu=1), None)
    assert cards.gpus == (Gpu(1, B, "NVIDIA H20", 97_871, B),)
    assert cards.environment == {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert cards.note is None


@pytest.mark.parametrize(
    ("devices", "uuid", "index"),
    [
        (" 1 , 0", B, "1"),
        ("GPU-ab", B, "1"),
        ("gpu-CC33", C, "2"),
        (MIG, MIG, MIG),
    ],
)
def test_every_way_to_name_a_card_gives_one_uuid(
    nvml: Nvml, engine: EngineConfig, devices: str, uuid: str, index: str
) -> None:
    """The engine gets an index, which every vLLM reads, and the order in which it means that card."""
    cards = shown(replace(engine, gpu=0), devices)
    assert [g.uuid for g in cards.gpus] == [uuid]
    assert cards.environment["CUDA_VISIBLE_DEVICES"] == index


def test_the_engines_own_environment_comes_before_the_shells(nvml: Nvml, engine: EngineConfig) -> None:
    own = replace(engine, env={"CUDA_VISIBLE_DEVICES": A})
    assert [g.uuid for g in shown(own, "2").gpus] == [A]


def test_an_engine_over_two_cards_gets_both_in_its_order(nvml: Nvml, engine: EngineConfig) -> None:
    two = replace(engine, args={**engine.args, "tensor_parallel_size": 2})
    assert [g.index for g in shown(two, "2,0,1").gpus] == [2, 0]
    assert shown(two, "2,0,1").environment["CUDA_VISIBLE_DEVICES"] == "2,0"
    assert [g.index for g in shown(replace(two, gpu=1), None).gpus] == [1, 2]
    assert cards_wanted(replace(engine, extra_args=("-tp", "2", "--data-parallel-size=3"))) == 6
    with pytest.raises(ConfigError, match=r"CUDA_VISIBLE_DEVICES=1: 1 cards, but .* multiply to 2"):
        shown(two, "1")
    with pytest.raises(ConfigError, match="names one card twice"):
        shown(two, f"1,{B}")


@pytest.mark.parametrize(
    ("devices", "found"),
    [
        ("3", "no card of this host"),
        ("²", "no card of this host"),
        ("GPU-a", "several cards"),
    ],
)
def test_what_names_no_single_card_is_said_with_those_there_are(
    nvml: Nvml, engine: EngineConfig, devices: str, found: str
) -> None:
    with pytest.raises(ConfigError) as told:
        shown(engine, devices)
    assert f"CUDA_VISIBLE_DEVICES={devices}: {devices!r} names {found}." in str(told.value)
    assert f"GPU 1: NVIDIA H20 (UUID: {B})" in str(told.value)


@pytest.mark.parametrize("devices", ["", "-1"])
def test_an_engine_that_is_shown_none_has_none(nvml: Nvml, engine: EngineConfig, devices: str) -> None:
    cards = shown(engine, devices)
    assert cards.gpus == () and cards.sampled is None
    assert cards.environment == {"CUDA_VISIBLE_DEVICES": devices}


def test_an_index_on_a_host_of_unlike_cards_is_the_buses_and_said(
    monkeypatch: pytest.MonkeyPatch, engine: EngineConfig
) -> None:
    """CUDA itself may count the fastest card as 0; the engine is told the order, so that nobody guesses."""
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(Card(A, "NVIDIA T4"), Card(B, "NVIDIA H100")))
    cards = shown(engine, "0")
    assert cards.environment == {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert cards.note is not None and f"GPU 0: NVIDIA T4 (UUID: {A})" in cards.note
    assert "may put the fastest card first" in cards.note
    assert shown(engine, "0", CUDA_DEVICE_ORDER="PCI_BUS_ID").note is None
    assert shown(engine, B).note is None


def test_a_mig_instance_is_named_by_its_own_uuid_and_sampled_by_its_cards(
    nvml: Nvml, engine: EngineConfig
) -> None:
    cards = shown(engine, "MIG-77")
    assert (cards.gpus[0].uuid, cards.gpus[0].memory_mib, cards.sampled) == (MIG, 20_000, C)
    assert cards.note is not None and "invalid literal for int()" in cards.note


def test_the_embedded_engine_has_no_card_whatever_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    embedded = campaign_config("demo.yaml").engine
    assert shown(embedded, "garbage") == Cards((), 0)


def test_a_host_without_a_driver_says_that_it_could_not_look(
    monkeypatch: pytest.MonkeyPatch, engine: EngineConfig
) -> None:
    devices = "GPU-12"
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(failing=Nvml.NVMLError_LibraryNotFound()))
    cards = shown(engine, devices)
    assert cards.gpus == () and cards.environment == {"CUDA_VISIBLE_DEVICES": devices}
    assert cards.note is not None
    assert cards.note.startswith(f"CUDA_VISIBLE_DEVICES={devices} names no card that could be looked up")
    assert "no NVIDIA driver" in cards.note
    assert shown(engine, None).note is None


def test_a_driver_that_fails_is_no_reason_not_to_launch(
    monkeypatch: pytest.MonkeyPatch, engine: EngineConfig
) -> None:
    monkeypatch.setitem(
        sys.modules, "pynvml", Nvml(failing=Nvml.NVMLError("Driver/library version mismatch"))
    )
    cards = shown(engine, None)
    assert cards.gpus == () and "version mismatch" in str(cards.note)


def test_receipt_and_environment_name_the_same_card(
    nvml: Nvml, engine: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-ab")
    plain = campaign_config("config.yaml").connector("plain")
    cards = cards_of(engine)
    identity = engine_identity(engine, cards)
    assert identity.gpu == (f"GPU 1: NVIDIA H20 (UUID: {B})",)
    text = env_text(engine, plain, identity, cards)
    assert "\nCUDA_VISIBLE_DEVICES=1\n" in text and "\nCUDA_DEVICE_ORDER=PCI_BUS_ID\n" in text
    assert B in text and A not in text


def test_a_connector_chooses_no_card(nvml: Nvml, engine: EngineConfig) -> None:
    """The lock and the receipt would know nothing of it."""
    connector = ConnectorSpec(id="x", label="x", kv_transfer_config=None, env={"CUDA_VISIBLE_DEVICES": "2"})
    with pytest.raises(ConfigError, match=r"x: env\.CUDA_VISIBLE_DEVICES: cards are chosen for the campaign"):
        engine_environment(engine, connector, cards_of(engine, {}))


def test_an_interpreter_that_greets_is_asked_all_the_same(
    nvml: Nvml, engine: EngineConfig, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho Welcome to the cluster\n{sys.executable} "$@"\necho Bye\n')
    python.chmod(0o755)
    asked = engine_identity(replace(engine, python=str(python)), Cards((), 0))
    assert asked.versions["python"] == platform.python_version()
    python.write_text("#!/bin/sh\necho Welcome to the cluster\n")
    with pytest.raises(EngineError, match="is it a Python interpreter"):
        engine_identity(replace(engine, python=str(python)), Cards((), 0))


def test_cuda_is_read_off_the_engines_torch(
    nvml: Nvml, engine: EngineConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And decides which Mooncake is named: CUDA 13 has a package of its own."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('importing torch takes seconds')")
    version = tmp_path / "torch" / "version.py"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    mooncake = campaign_config("config.yaml").connector("mooncake_both").modules[0]

    def told(line: str) -> Any:
        version.write_text(f"__version__ = '2.11.0'\n{line}\nhip = None\n")
        return engine_identity(engine, Cards((), 0)).cuda

    assert told("cuda: Optional[str] = '13.0'") == "13.0"
    assert told("cuda = '12.8'") == "12.8"
    assert told("cuda: Optional[str] = None") is None
    assert mooncake.install_for("13.0") == "pip install mooncake-transfer-engine-cuda13"
    assert (
        mooncake.install_for("12.8") == mooncake.install_for(None) == "pip install mooncake-transfer-engine"
    )
