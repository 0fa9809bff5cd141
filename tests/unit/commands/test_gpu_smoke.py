"""``connector-tax run --smoke`` says everything that a host lacks at once, and asks the virtual GPU the same as a card."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from connector_tax.base.config import load_campaign
from connector_tax.base.errors import ConfigError
from connector_tax.base.plan import cells_of
from connector_tax.cli import command
from connector_tax.commands import smoke
from connector_tax.commands.smoke import CONFIGS, GPU, VIRTUAL
from connector_tax.run.engine import gpu_host
from connector_tax.run.engine.gpus import Gpu

CARD = Gpu(0, "GPU-1", "NVIDIA H200", 143_771, "GPU-1")
WELL = {"vllm": True, "torch": True, "cuda": {"build": "13.0", "available": True}}


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
    ],
)
def test_each_thing_that_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], said: list[str]
) -> None:
    monkeypatch.setattr(gpu_host, "host_gpus", lambda: ((CARD,), None))
    found = gpu_host.lacking(engine(tmp_path, json.dumps({**WELL, **changes})), card=True)
    assert len(found) == len(said) and all(word in text for word, text in zip(said, found, strict=True))
    [found] = gpu_host.lacking(engine(tmp_path, "{"), card=True)
    assert "does not answer" in found and "ENGINE_PYTHON" in found


def test_the_virtual_gpu_is_asked_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates, shape and configurations stay; what only a card takes is left out."""
    monkeypatch.setenv("ENGINE_PYTHON", sys.executable)
    monkeypatch.setenv("MODEL_FOLDER", str(tmp_path))
    virtual, real = load_campaign(CONFIGS[VIRTUAL]), load_campaign(CONFIGS[GPU])
    assert virtual.engine.kind == "virtual_gpu" and virtual.campaign == "gpu-smoke-virtual"
    assert virtual.connector_ids == ("plain", "noop_connector", "nixl_virtual")
    assert cells_of(virtual, "plain", "a") == cells_of(real, "plain", "a")
    assert real.engine.args["load_format"] == "dummy" and "load_format" not in virtual.engine.args


# Of the command, all but what needs a card; Snakemake is not to be had, as on a host that can fetch nothing.
WITHOUT_SNAKEMAKE = """
import json, sys
from pathlib import Path
sys.modules["snakemake"] = None
from connector_tax.commands import run, sitting, smoke
from connector_tax.run.measure.sitting import Sitting
def sit(config, folder, date, **given):
    print(json.dumps([config.campaign, config.connector_ids, str(folder.root), given["within_s"], given["launch"]]))
    return Sitting((), (), "")
sitting.sit = sit
smoke.lacking = lambda python, card: []
smoke.model_folder = lambda name, python: (name, Path(sys.argv[1]))
smoke.results_folder = lambda: Path(sys.argv[1])
sys.exit(run.COMMAND.call(["--smoke", "--engine-python", sys.executable, *sys.argv[2:]]))
"""


def test_it_measures_in_minutes_without_snakemake(tmp_path: Path) -> None:
    name, connectors = "gpu-smoke-plain-mooncake_both", ["plain", "mooncake_both"]
    more = ["--connectors", "mooncake_both,plain"]
    given = ["--minutes", "6", "--save", str(tmp_path / "out"), "--preflight", "plain", *more]
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_SNAKEMAKE, str(tmp_path), *given],
        env={**os.environ, "CONNECTOR_TAX_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[0]) == [name, connectors, str(tmp_path / name), 360.0, "plain"]
    assert len(list((tmp_path / "out").glob(f"{name}-*.tar.gz"))) == 1


def test_archives_without_minutes_and_unknown_connectors_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ConfigError, match=r"--save: .* Give --minutes"):
        command("run").call(["demo", "--save", str(tmp_path)])
    monkeypatch.setattr(smoke, "lacking", lambda python, card: [])
    monkeypatch.setattr(smoke, "model_folder", lambda name, python: (name, tmp_path))
    for name in ("ENGINE_PYTHON", "MODEL_FOLDER"):
        monkeypatch.setenv(name, "")  # set by the command, and unset behind the test
    with pytest.raises(ConfigError, match="unknown connector 'mooncake'"):
        command("run").call(
            ["--smoke", "--engine-python", sys.executable, "--connectors", "mooncake", "--minutes", "6"]
        )
