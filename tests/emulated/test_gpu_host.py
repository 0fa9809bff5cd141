"""``scripts/gpu_host.sh``: two commands on a host that can fetch nothing, and what came home from them.

On the embedded engine, so that the script works on whatever day a host with a card can be had. The interpreter that unpacks is a virtual
environment's, as it is on such hosts.
"""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import Project

pytestmark = pytest.mark.emulated
NAMES = ("async", "moe", "sync")


def on_embedded_engine(config: dict[str, Any]) -> dict[str, Any]:
    """The same campaign without a card, with cells of a second."""
    engine = {
        "kind": "emulator",
        "model": "dry",
        "served_model_name": "dry",
        "model_file": "config/engine_model_demo.yaml",
        # The embedded engine passes over it; the script looks for it.
        "args": {"attention_backend": config["engine"]["args"]["attention_backend"]},
        "stop_grace_s": config["engine"]["stop_grace_s"],
    }
    cell = {**config["cell"], "warmup_s": 0.2, "duration_s": 1, "min_completed": 10, "max_cell_s": 4}
    return {**config, "engine": engine, "cell": cell, "repeat_requests": 20}


@pytest.fixture
def host(project: Project, tmp_path: Path) -> Iterator[Project]:
    """A checkout with the three campaigns and an engine in two parts, as it travels to the host."""
    package = tmp_path / "kit" / "carried_package.py"
    package.parent.mkdir()
    package.write_text("")
    whole = tmp_path / "kit.tar.xz"
    with tarfile.open(whole, "w:xz") as tar:
        tar.add(package, package.name)
    parts = project.root / "parts"
    parts.mkdir()
    half = whole.stat().st_size // 2
    (parts / "part-00").write_bytes(whole.read_bytes()[:half])
    (parts / "part-01").write_bytes(whole.read_bytes()[half:])
    for name in NAMES:
        path = project.root / "config" / "gpu-host" / f"{name}.yaml"
        path.write_text(yaml.safe_dump(on_embedded_engine(yaml.safe_load(path.read_text()))))
    project.environment |= {
        "GPU_HOST_WORK": str(tmp_path / "work"),
        "GPU_HOST_LAUNCH_S": "4",
        "PYTHON": sys.executable,
    }
    # The environment that reads at home.
    os.symlink(Path(sys.prefix), project.root / ".venv")
    yield project


def gpu_host(project: Project, *arguments: str, out: Path, ends: tuple[int, ...] = (0,)) -> str:
    """Run the script, which has to end with one of ``ends``; return what it printed."""
    environment = {**project.environment, "OUT": str(out)}
    done = subprocess.run(
        ["scripts/gpu_host.sh", *arguments],
        cwd=project.root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode in ends, done.stdout[-5000:]
    return done.stdout


def configs(*named: str) -> list[str]:
    return [f"config/gpu-host/{name}.yaml{limit}" for name, _, limit in (n.partition("|") for n in named)]


def test_what_two_commands_measured_comes_home_as_taxes(host: Project, tmp_path: Path) -> None:
    """The first command has no time for all of its campaign; the second goes on with it after two others."""
    first, second = tmp_path / "first", tmp_path / "second"
    printed = gpu_host(host, "measure", "parts", "40", *configs("async"), out=first, ends=(75,))
    assert "phase A of plain" in printed
    commands = configs("moe|:60", "sync|:60", "async")
    printed = gpu_host(host, "measure", "parts", "180", *commands, out=second, ends=(0, 75))
    measured = host.root / "results"
    measured.rename(tmp_path / "there")
    measured.mkdir()
    printed += gpu_host(host, "home", str(first), str(second), out=tmp_path / "unused")
    for name, connectors in (
        ("async", {"noop_connector", "nixl_both"}),
        ("sync", {"nixl_both"}),
        ("moe", {"nixl_both"}),
    ):
        folder = measured / f"gpu-host-{name}"
        aggregate = json.loads((folder / "aggregate.json").read_text())
        taxes = [tax for tax in aggregate["taxes"] if tax["metric"] == "tpot_p90" and tax["available"]]
        assert connectors <= {tax["config"] for tax in taxes}, printed[-3000:]
        assert all(tax["low"] < tax["point"] < tax["high"] for tax in taxes)
        assert (folder / "report.html").is_file()


def test_plain_that_does_not_start_is_tried_with_other_settings_and_its_logs_come_home(
    host: Project, tmp_path: Path
) -> None:
    """Nothing of the host is kept but what lies in OUT, so the reason has to be in there."""
    path = host.root / "config" / "gpu-host" / "async.yaml"
    config = yaml.safe_load(path.read_text())
    config["engine"]["env"] = {"CONNECTOR_TAX_FAULT": "die_at_start"}
    path.write_text(yaml.safe_dump(config))
    out = tmp_path / "out"
    printed = gpu_host(host, "measure", "parts", "120", *configs("async"), out=out, ends=(2,))
    for variant in ("", "-triton", "-eager"):
        (archive,) = out.glob(f"gpu-host-async{variant}-2*.tar.gz")
        with tarfile.open(archive) as tar:
            log = tar.extractfile("preflight/plain/vllm_stderr.log")
            assert log is not None
            assert "told to die at start" in log.read().decode(), printed[-3000:]
