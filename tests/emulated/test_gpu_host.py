"""``scripts/gpu_host.sh``: two commands on a host that can fetch nothing, and what came home from them.

On the embedded engine, so that the script works on whatever day a host with a card can be had. The interpreter that unpacks is a virtual
environment's, as it is on such hosts.
"""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
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
    """A checkout with the three campaigns and an engine in two parts, as it travels to a host without ``free``, into a batch job that says nothing of its end."""
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
    lacking = tmp_path / "bin" / "free"
    lacking.parent.mkdir()
    lacking.write_text("#!/bin/sh\nexit 127\n")
    lacking.chmod(0o755)
    project.environment |= {
        "GPU_HOST_WORK": str(tmp_path / "work"),
        "GPU_HOST_LAUNCH_S": "4",
        "PYTHON": sys.executable,
        "SLURM_JOB_ID": "7",
        "PATH": f"{lacking.parent}:{os.environ['PATH']}",
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


def change_engine(project: Project, name: str = "async", *, alone: bool = False, **changes: Any) -> None:
    """Set these keys of ``engine`` in a campaign.

    Args:
        alone: whether plain is measured alone, and once.
    """
    path = project.root / "config" / "gpu-host" / f"{name}.yaml"
    config = yaml.safe_load(path.read_text())
    config["engine"] |= changes
    if alone:
        config |= {"connectors": ["plain"], "repeats": 0}
    path.write_text(yaml.safe_dump(config))


def packed(folder: Path, name: str) -> list[str]:
    """Names in the one archive of that campaign."""
    (archive,) = folder.glob(f"{name}-2*.tar.gz")
    with tarfile.open(archive) as tar:
        return tar.getnames()


def configs(*named: str) -> list[str]:
    return [f"config/gpu-host/{name}.yaml{limit}" for name, _, limit in (n.partition("|") for n in named)]


def test_what_two_commands_measured_comes_home_as_taxes(host: Project, tmp_path: Path) -> None:
    """The first command has no time for all of its campaign; the second goes on with it after another."""
    first, second = tmp_path / "first call", tmp_path / "second call"
    printed = gpu_host(host, "measure", "parts", "40", *configs("async"), out=first, ends=(75,))
    assert "phase A of plain" in printed
    commands = configs("moe|:60", "async")
    printed = gpu_host(host, "measure", "parts", "180", *commands, out=second, ends=(0, 75))
    # What the first command brought may be lost: the second brings it as well.
    assert {"preflight/preflight_status.json"} < set(packed(second, "gpu-host-async"))
    measured = host.root / "results"
    measured.rename(tmp_path / "there")
    measured.mkdir()
    printed += gpu_host(host, "home", str(first), str(second), out=tmp_path / "unused")
    for name, connectors in (("async", {"noop_connector", "nixl_both"}), ("moe", {"nixl_both"})):
        folder = measured / f"gpu-host-{name}"
        aggregate = json.loads((folder / "aggregate.json").read_text())
        taxes = [
            tax for tax in aggregate["taxes"] if tax["metric"] == "tpot_p90" and tax["point"] is not None
        ]
        assert connectors <= {tax["config"] for tax in taxes}, printed[-3000:]
        assert all(tax["low"] < tax["point"] < tax["high"] for tax in taxes)
        assert (folder / "report.html").is_file()
        # Plain was launched for a trial once, and measured at once in the other campaign.
        preflight = json.loads((folder / "preflight" / "preflight_status.json").read_text())
        assert bool(preflight["configs"]["plain"]["checked"]) is (name == "async")


def test_plain_that_does_not_start_is_tried_with_other_settings_and_its_logs_come_home(
    host: Project, tmp_path: Path
) -> None:
    """Nothing of the host is kept but what lies in OUT, so the reason has to be in there."""
    change_engine(host, env={"CONNECTOR_TAX_FAULT": "die_at_start"})
    out = tmp_path / "out"
    printed = gpu_host(host, "measure", "parts", "120", *configs("async"), out=out, ends=(2,))
    for variant in ("", "-triton", "-eager"):
        (archive,) = out.glob(f"gpu-host-async{variant}-2*.tar.gz")
        with tarfile.open(archive) as tar:
            log = tar.extractfile("preflight/plain/vllm_stderr.log")
            assert log is not None
            assert "told to die at start" in log.read().decode(), printed[-3000:]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_told_to_end_it_brings_home_what_is_measured(
    host: Project, tmp_path: Path, signum: signal.Signals
) -> None:
    """As ``timeout`` tells it, the whole process group at once; or the script alone is killed. No other settings are tried then."""
    out = tmp_path / "out"
    command = ["scripts/gpu_host.sh", "measure", "parts", "120", *configs("async")]
    environment = {**host.environment, "OUT": str(out)}
    with subprocess.Popen(command, cwd=host.root, env=environment, start_new_session=True) as process:
        deadline_s = time.monotonic() + 90
        while not list(host.root.glob("results/*/*_plain/phase_a/cells/[!.]*/cell.json")):
            assert process.poll() is None and time.monotonic() < deadline_s
            time.sleep(0.1)
        if signum == signal.SIGKILL:
            process.kill()
            while not list(out.glob("*.tar.gz")):
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
        else:
            os.killpg(process.pid, signum)
        assert process.wait(30) in (143, -signal.SIGKILL)
    assert any(name.endswith("/cell.json") for name in packed(out, "gpu-host-async"))
    assert [p.name for p in out.glob("*.yaml")] == ["async-as_is.yaml"]
