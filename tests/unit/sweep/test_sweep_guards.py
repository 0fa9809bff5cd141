"""What ``sweep run`` refuses before it starts anything."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from test_sweep_command import project, sweep_of, swept
from test_whose_results import rewritten, started

from connector_tax.base.config import checked
from connector_tax.base.config.sweep import Sweep, load_sweep
from connector_tax.base.documents.preflight import PreflightStatus
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import write_json
from connector_tax.cli import command
from connector_tax.commands import run as run_command
from connector_tax.sweep.guards import refuse_another_release

__all__ = ["project"]


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_command, "snakemake_command", lambda file, cores, *more: ["true"])


def other_sweep(project: Path, **changes: Any) -> None:
    value = yaml.safe_load((project / "sweep.yaml").read_text()) | changes
    (project / "other.yaml").write_text(yaml.safe_dump(value, sort_keys=False))


@pytest.mark.parametrize("action", ["run", "write"])
def test_two_sweeps_cannot_own_one_folder_of_results(project: Path, action: str) -> None:
    """``study`` with ``r1-small`` and ``study-r1`` with ``small`` make one name."""
    assert swept("write") == 0
    own = (project / "sweeps/study/study-r1-small.yaml").read_text()
    other_sweep(project, sweep="study-r1", axes={"gpu": [{"name": "small", "set": {"seed": 99}}]})
    with pytest.raises(
        ConfigError, match=r"study-r1-small .*results/study-r1-small belongs to sweep study, "
    ):
        command("sweep").call(["other.yaml", action])
    assert not (project / "sweeps/study-r1").exists()
    assert (project / "sweeps/study/study-r1-small.yaml").read_text() == own
    assert swept("run") == 0, "the owner goes on"


def test_a_copy_of_a_sweep_that_kept_its_name_measures_over_nothing(project: Path) -> None:
    assert swept("write") == 0
    other_sweep(project, axes={"release": [{"name": "r1", "set": {"seed": 99}}]})
    with pytest.raises(
        ConfigError, match=r"other.yaml: sweep: study is the name of .*/sweep\.yaml, whose campaigns"
    ):
        command("sweep").call(["other.yaml", "run"])
    assert swept("run") == 0, "the owner goes on"
    own = (project / "sweep.yaml").read_text()
    (project / "sweep.yaml").write_text(f"{own}axes: {{}}\n")
    with pytest.raises(ConfigError, match=r"study is the name of .*/sweep\.yaml"):
        command("sweep").call(["other.yaml", "run"])
    (project / "sweep.yaml").unlink()
    assert command("sweep").call(["other.yaml", "run"]) == 0, "it took the other's place"


def test_a_copy_of_a_checkout_has_sweeps_of_its_own(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its results are its own as well; the original's file need not go away for them."""
    assert swept("write") == 0
    copy = tmp_path / "copy"
    shutil.copytree(project, copy)
    for module in (checked, run_command):
        monkeypatch.setattr(module, "PROJECT_ROOT", copy)
    monkeypatch.chdir(copy)
    assert swept("run") == 0
    other_sweep(copy)
    with pytest.raises(ConfigError, match=r"study is the name of .*/copy/sweep\.yaml"):
        command("sweep").call(["other.yaml", "run"])


def test_nothing_is_measured_into_a_link(project: Path) -> None:
    """It may lead to another campaign of the sweep, whose cells would be in the way."""
    results = project / "results"
    started(project, sweep_of(project).cells[0])
    (results / "study-r2-small").symlink_to("study-r1-small")
    with pytest.raises(ConfigError, match=r"results/study-r2-small is a link, perhaps to another campaign's"):
        swept("run")
    assert not (project / "sweeps").exists()


def interpreter(at: Path, vllm: str | None, nixl: str = "0.7.1", sha: str | None = None) -> str:
    """Answers as one that has these versions would."""
    answer = {
        "python": "3.12.4",
        "torch": "2.9.0",
        "vllm": vllm,
        "vllm_git_sha": sha,
        "packages": [],
        "cuda": None,
        "nixl": nixl,
    }
    at.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[3] + {json.dumps(json.dumps(answer))})\n")
    at.chmod(0o755)
    return str(at)


def of_vllm(project: Path, python: str) -> Sweep:
    base = yaml.safe_load((Path(__file__).parents[3] / "config/vllm-cpu.yaml").read_text())
    base["engine"] |= {"python": python, "model": "/models/some"}
    (project / "base.yaml").write_text(yaml.safe_dump(base))
    rewritten(project, axes={"release": [{"name": "r1"}]})
    return load_sweep(project / "sweep.yaml")


def test_an_interpreter_of_another_release_is_refused_by_name(project: Path, tmp_path: Path) -> None:
    first, moved, second = (
        interpreter(tmp_path / n, v) for n, v in (("a", "0.31.0"), ("b", "0.31.0"), ("c", "0.32.0"))
    )
    sweep = of_vllm(project, first)
    folder = started(project, sweep.cells[0])
    folder.preflight_status.parent.mkdir(parents=True, exist_ok=True)
    versions = {"python": "3.12.4", "torch": "2.9.0", "vllm": "0.31.0", "vllm_git_sha": None, "nixl": None}
    folder.preflight_status.write_text(
        json.dumps(
            {
                "schema": 1,
                "step_timing_available": True,
                "step_timing_reason": None,
                "engine": versions,
                "configs": {},
            }
        )
    )
    cells = folder.run("2026-10-01", "plain", "a").cells
    refuse_another_release(of_vllm(project, second), project / "results")  # nothing is measured yet
    (cells / "r1_64x16").mkdir(parents=True)
    (cells / "r1_64x16" / "cell.json").write_text("{}")
    for python in (first, moved, str(tmp_path / "on the cluster alone")):
        refuse_another_release(of_vllm(project, python), project / "results")
    broken = tmp_path / "d"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    for python in (broken, tmp_path):  # its own start says so, where one needs it
        refuse_another_release(of_vllm(project, str(python)), project / "results")
    of_vllm(project, second)
    with pytest.raises(
        ConfigError,
        match=r"study-r1 \(release r1\) was measured with vllm 0.31.0; engine.python .*/c has vllm 0.32.0\. .*another name",
    ):
        swept("run")
    assert not (project / "sweeps").exists()


@pytest.mark.parametrize(
    ("has", "said"),
    [
        ({"nixl": "0.8.0"}, "was measured with nixl 0.7.1; engine.python .* has nixl 0.8.0"),
        ({"vllm": None}, "was measured with vllm 0.31.0; engine.python .* has vllm None"),
        ({"sha": "0123456789"}, ""),
    ],
)
def test_another_release_is_what_a_measuring_job_refuses_too(
    project: Path, tmp_path: Path, has: dict[str, Any], said: str
) -> None:
    """Before anything is started: Snakemake would find nothing to do, or its first job would be refused (``same_engine``)."""
    sweep = of_vllm(project, interpreter(tmp_path / "now", **{"vllm": "0.31.0", **has}))
    folder = started(project, sweep.cells[0])
    versions = {"python": "3.12.4", "torch": "2.9.0", "vllm": "0.31.0", "vllm_git_sha": None, "nixl": "0.7.1"}
    write_json(folder.preflight_status, PreflightStatus(engine=versions, configs={}))
    cell = folder.run("2026-10-01", "plain", "a").cell("r1_64x16")
    write_json(cell.cell_json, {})
    if not said:
        refuse_another_release(sweep, project / "results")
        return
    with pytest.raises(ConfigError, match=said):
        refuse_another_release(sweep, project / "results")


def test_a_cost_model_that_is_not_there_is_told_before_the_first_start(project: Path) -> None:
    release = [{"name": "r1"}, {"name": "r2", "set": {"engine": {"model_file": "no/such.yaml"}}}]
    rewritten(project, axes={"release": release})
    with pytest.raises(
        ConfigError,
        match=r"axes\.release\[1\] \(r2\), set: engine\.model_file: 'no/such\.yaml': no such file",
    ):
        swept("run")
    assert not (project / "sweeps").exists()


@pytest.mark.parametrize(("first", "second"), [(True, 1), ([0], [False])])
def test_true_and_one_are_two_values(project: Path, first: object, second: object) -> None:
    def axis(name: str, value: object) -> list[dict[str, Any]]:
        return [{"name": name, "set": {"engine": {"args": {"foo": value}}}}]

    rewritten(project, axes={"m": axis("a", first), "n": axis("b", second)})
    with pytest.raises(ConfigError, match="sets it as well, to another value"):
        sweep_of(project)
    rewritten(project, axes={"m": axis("a", True), "n": axis("b", True)})
    assert len(sweep_of(project).cells) == 1
