"""What an edit touches: the inputs of the reading rules and the load generator's version, derived from imports."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import SMALL, Campaign, campaign_config

from connector_tax.base import imports
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.imports import closure, sha256_of_code
from connector_tax.run.measure.launch import LOAD_ENTRIES
from connector_tax.workflow import code

READING = ("analyze.py", "plot_connector_tax.py", "build_report.py", "build_manifest.py")
RUNNING = ("run", "base/vllm_model", "check", "load", "fleet")
# Runs a script as Snakemake does and prints which of the project's files it opened or imported.
WATCHED = """
import json, runpy, sys
opened = set()
sys.addaudithook(lambda event, args: opened.add(str(args[0])) if event == "open" else None)
script, sys.argv = sys.argv[1], sys.argv[1:]
runpy.run_path(script, run_name="__main__")
modules = [m.__file__ for n, m in sys.modules.items() if n.startswith("connector_tax") and m.__file__]
print("WATCHED" + json.dumps([*modules, *(o for o in opened if not o.endswith(".pyc"))]))
"""


def of(script: str) -> set[str]:
    """Whose contents a rule's parameter is of."""
    files = closure(f"scripts/{script}")
    assert code(f"scripts/{script}") == sha256_of_code(files)
    return {str(file.relative_to(PROJECT_ROOT)) for file in files}


@pytest.mark.parametrize("script", READING)
def test_no_reading_rule_runs_again_for_an_edit_of_the_running_wing(script: str) -> None:
    found = of(script)
    assert f"scripts/{script}" in found
    assert [f for f in found if f.startswith(tuple(f"src/connector_tax/{room}/" for room in RUNNING))] == []
    assert [f for f in found if f.startswith(("launch/", "patches/", "workflow/rules/", "config/"))] == []


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Campaign(tmp_path_factory.mktemp("results") / "demo", campaign_config(**SMALL))
    made.measure_everything()
    return made.folder.root


@pytest.mark.parametrize("script", READING)
def test_what_a_reading_script_imports_and_opens_is_an_input_of_its_rule(script: str, campaign: Path) -> None:
    """Watched while it runs, so that nothing has to be kept by hand."""
    more = ["--manifest", str(campaign / "MANIFEST.md")] if script == "build_manifest.py" else []
    command = [sys.executable, "-c", WATCHED, f"scripts/{script}", "--root", str(campaign), *more]
    run = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    listed = json.loads(run.stdout.partition("WATCHED")[2])
    touched = {os.path.relpath(Path(PROJECT_ROOT, f).resolve(), PROJECT_ROOT) for f in listed}
    ours = {f for f in touched if f.startswith(("src/", "scripts/", "workflow/", "config/", "launch/"))}
    assert "src/connector_tax/base/files.py" in ours
    assert ours - of(script) == set()


def test_the_timer_is_in_the_load_generators_version() -> None:
    """It decides when a request goes out, and so do the stopping rule and what it rests on."""
    found = {
        str(p.relative_to(imports.PACKAGE)) for p in closure(*LOAD_ENTRIES) if imports.PACKAGE in p.parents
    }
    wanted = {
        "base/timer.py",
        "base/records/request.py",
        "run/workload/stopping.py",
        "base/statistics/interim.py",
        "run/workload/prompts.py",
    }
    assert wanted | {"run/loadgen/worker.py", "run/sampler/sampler.py", "run/loadgen/sse.py"} <= found
    assert not {f for f in found if f.startswith(("run/engine/", "read/"))}


def test_an_edit_gives_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "PROJECT", tmp_path)
    file = tmp_path / "a.py"
    file.write_text("A = 1\n")
    before = sha256_of_code([file])
    assert sha256_of_code([file]) == before
    file.write_text("A = 2\n")
    assert sha256_of_code([file]) != before


def test_every_import_of_ours_is_seen() -> None:
    """Import statements are picked out of the text for speed; a parse of the whole file must find no more."""
    for path in sorted(imports.PACKAGE.rglob("*.py")):
        source = path.read_text()
        found: set[str] = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, "imports name the whole module"
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
        assert {n for n in found if n.startswith("connector_tax")} <= {*imports._imported(source)}, path


def test_what_is_started_by_name_is_followed() -> None:
    """``python -m connector_tax.run.loadgen.worker`` is no import."""
    assert imports.PACKAGE / "run" / "loadgen" / "worker.py" in closure(
        "connector_tax.run.loadgen.coordinator"
    )


def test_an_entry_that_is_nowhere_is_refused() -> None:
    with pytest.raises(FileNotFoundError, match="no such module of ours"):
        closure("connector_tax.nowhere")
    with pytest.raises(FileNotFoundError, match=r"scripts/nowhere\.py: no such file"):
        closure("scripts/nowhere.py")
