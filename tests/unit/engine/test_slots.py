"""Engines side by side on one host: each has cards and ports of its own, and what cannot be kept apart is refused."""

import sys
from pathlib import Path

import pytest
from builders import campaign_config
from msgspec.structs import replace
from nvml_stand_in import Card, Nvml

from connector_tax.base.config import EngineConfig
from connector_tax.base.errors import ConfigError
from connector_tax.run.engine import gpus
from connector_tax.run.engine.gpus import slots_of
from connector_tax.run.engine.ports import api_port

CARDS = ("GPU-aa11-0", "GPU-bb22-1", "GPU-cc33-2", "GPU-dd44-3")


@pytest.fixture
def engine() -> EngineConfig:
    return replace(campaign_config("config.yaml").engine, python=sys.executable, gpus=(0, 2))


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    found = Nvml(*(Card(uuid) for uuid in CARDS))
    monkeypatch.setitem(sys.modules, "pynvml", found)
    return found


def cards(engine: EngineConfig, **variables: str) -> list[list[str]]:
    return [[gpu.uuid for gpu in slot.cards.gpus] for slot in slots_of(engine, variables)]


def test_each_engine_has_its_card_and_its_port(nvml: Nvml, engine: EngineConfig) -> None:
    found = slots_of(replace(engine, port=8000), {})
    assert [s.cards.environment["CUDA_VISIBLE_DEVICES"] for s in found] == ["0", "2"]
    assert [s.engine.port for s in found] == [8000, 8001]
    assert [s.cards.names for s in found] == [(CARDS[0],), (CARDS[2],)]


def test_engines_of_two_cards_take_two_each(nvml: Nvml, engine: EngineConfig) -> None:
    pair = replace(engine, args={"tensor_parallel_size": 2})
    assert cards(pair) == [list(CARDS[:2]), list(CARDS[2:])]
    with pytest.raises(
        ConfigError, match=r"engine\.gpus: 0 and 1 would both run on GPU 1: .* Each engine takes 2 cards"
    ):
        slots_of(replace(pair, gpus=(0, 1)), {})


def test_cuda_visible_devices_is_divided_and_may_have_fewer(nvml: Nvml, engine: EngineConfig) -> None:
    """As in a job of a batch system, whose cards are those that it was given."""
    assert cards(engine, CUDA_VISIBLE_DEVICES="3,1") == [[CARDS[3]], [CARDS[1]]]
    assert cards(engine, CUDA_VISIBLE_DEVICES=f"{CARDS[2]}") == [[CARDS[2]]]
    (alone,) = slots_of(engine, {"CUDA_VISIBLE_DEVICES": "1"})
    assert (alone.place, alone.of) == (0, 1)


def test_cards_of_two_kinds_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, engine: EngineConfig
) -> None:
    unlike = Nvml(Card(CARDS[0]), Card(CARDS[1]), Card(CARDS[2], name="NVIDIA L4"))
    monkeypatch.setitem(sys.modules, "pynvml", unlike)
    with pytest.raises(ConfigError) as told:
        slots_of(replace(engine, mix_cards=True), {})
    assert (
        "cards of 2 kinds: GPU 0: NVIDIA H20 (UUID: GPU-aa11-0); GPU 2: NVIDIA L4 (UUID: GPU-cc33-2)"
        in str(told.value)
    )


def test_the_last_port_is_not_passed(nvml: Nvml, engine: EngineConfig) -> None:
    with pytest.raises(ConfigError, match=r"engine\.port: 65535: each of 2 engines"):
        slots_of(replace(engine, port=65535), {})


def test_without_cards_places_are_numbers(engine: EngineConfig) -> None:
    found = slots_of(replace(engine, kind="emulator", gpus=(0, 5)), {})
    assert [s.cards.names for s in found] == [("gpu0",), ("gpu5",)]
    assert [s.cards.words for s in found] == ["place 0 on this host", "place 5 on this host"]


def test_free_ports_of_two_places_are_never_the_same() -> None:
    drawn = [{api_port(0, place, 4) % 4 for _ in range(2)} for place in range(4)]
    assert drawn == [{place} for place in range(4)]


@pytest.mark.parametrize(("said", "node"), [("1\n", 1), ("-1\n", None), (None, None)])
def test_the_node_of_a_card_is_the_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: EngineConfig, said: str | None, node: int | None
) -> None:
    """NVML spells the domain of the bus with eight digits, and the kernel with four."""
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(Card(CARDS[0], bus="00000000:3B:00.0")))
    monkeypatch.setattr(gpus, "SYSFS", tmp_path)
    if said is not None:
        device = tmp_path / "bus/pci/devices/0000:3b:00.0"
        device.mkdir(parents=True)
        (device / "numa_node").write_text(said)
    (slot,) = slots_of(replace(engine, gpus=(0,)), {})
    assert slot.cards.gpus[0].numa == node
