"""``connector-tax gpu-smoke`` says everything that a host lacks at once, and asks the virtual GPU the same as a card."""

import json
import sys
from pathlib import Path

import pytest

from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import read_yaml
from connector_tax.base.errors import EngineError
from connector_tax.base.files import to_json
from connector_tax.base.plan import cells_of
from connector_tax.cli import command
from connector_tax.commands.gpu_smoke import SMOKE, on_virtual_gpu
from connector_tax.run.engine import gpu_host
from connector_tax.run.engine.gpus import Gpu

CARD = Gpu(0, "GPU-1", "NVIDIA H200", 143_771, "GPU-1")
WELL = {"vllm": True, "torch": True, "nixl": True, "nixl_cu13": False, "cuda": {"build": "13.0", "available": True}}  # fmt: skip


def engine(tmp_path: Path, answer: str) -> str:
    """An interpreter that answers so, whatever it is asked."""
    path = tmp_path / "python"
    path.write_text(f"#!{sys.executable}\nprint({answer!r})\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"vllm": False}, ["has no vLLM"]),
        ({"torch": False, "cuda": None}, ["has no torch"]),
        ({"cuda": {"build": None, "available": False}}, ["its torch is a CPU build"]),
        ({"cuda": {"build": "13.0", "available": False}}, ["finds no card"]),
        ({"nixl": False}, ["has no NIXL"]),
        ({"nixl": False, "nixl_cu13": True}, []),
        ({"vllm": False, "nixl": False}, ["has no vLLM", "has no NIXL"]),
    ],
)
def test_each_thing_that_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], said: list[str]
) -> None:
    monkeypatch.setattr(gpu_host, "host_gpus", lambda: ((CARD,), None))
    found = gpu_host.lacking(engine(tmp_path, json.dumps({**WELL, **changes})))
    assert len(found) == len(said) and all(word in text for word, text in zip(said, found, strict=True))


def test_a_host_without_a_card_is_told_of_it_and_of_what_else_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_host, "host_gpus", lambda: ((), "this host has no NVIDIA driver"))
    python = engine(tmp_path, json.dumps({**WELL, "vllm": False}))
    with pytest.raises(EngineError) as refused:
        command("gpu-smoke").call(["--engine-python", python])
    assert "no NVIDIA GPU: this host has no NVIDIA driver" in str(refused.value)
    assert "has no vLLM" in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "said"), [("", "does not answer as Python does"), ("{", "does not answer")]
)
def test_what_is_no_interpreter_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, said: str
) -> None:
    monkeypatch.setattr(gpu_host, "host_gpus", lambda: ((CARD,), None))
    [found] = gpu_host.lacking(engine(tmp_path, answer))
    assert said in found and "--engine-python" in found


def test_the_virtual_gpu_is_asked_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates, shape and configurations stay; what only a card takes is left out."""
    monkeypatch.setenv("ENGINE_PYTHON", sys.executable)
    monkeypatch.setenv("MODEL_FOLDER", str(tmp_path))
    path = tmp_path / "virtual.yaml"
    path.write_text(to_json(on_virtual_gpu(read_yaml(SMOKE))))
    virtual, real = load_campaign(path), load_campaign(SMOKE)
    assert virtual.engine.kind == "virtual_gpu" and virtual.campaign == "gpu-smoke-virtual"
    assert virtual.connector_ids == ("plain", "noop_connector", "nixl_virtual")
    assert cells_of(virtual, "plain", "a") == cells_of(real, "plain", "a")
    assert real.engine.args["load_format"] == "dummy" and "load_format" not in virtual.engine.args
