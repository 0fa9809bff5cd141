"""launch/*.sh by hand: with whatever Python sees the checkout, the engine of one configuration or its preflight."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.run.measure import by_hand, preflight

LAUNCH = PROJECT_ROOT / "launch"


@pytest.mark.parametrize("named", ["PYTHON", ".venv", "ENGINE_PYTHON", "PATH"])
def test_any_python_that_sees_the_checkout_does(tmp_path: Path, named: str) -> None:
    """One that is named, the checkout's own, the engine's, or the first on the path; it finds the checkout's package."""
    shutil.copytree(LAUNCH, tmp_path / "launch")
    place = {
        "PYTHON": tmp_path / "conda/bin/python",
        "PATH": tmp_path / "bin/python3",
        ".venv": tmp_path / ".venv/bin/python",
        "ENGINE_PYTHON": tmp_path / "engine/bin/python",
    }
    python = place[named]
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$* $PYTHONPATH" >> "$CALLS"\n')
    python.chmod(0o755)
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls")}
    if named.endswith("PYTHON"):
        environment[named] = str(python)
    for script, *asked in (("verify_noop_connector.sh",), ("launch_plain.sh", "a b")):
        command = ["bash", str(tmp_path / "launch" / script), *asked]
        subprocess.run(command, env=environment, cwd="/", check=True)
        told = (tmp_path / "calls").read_text().splitlines()
        words = " ".join([script.removesuffix(".sh").replace("_", " ", 1), *asked])
        assert told[-1] == f"-m connector_tax.run.measure.by_hand {words} {tmp_path}/src"


def launched(*words: str, **given: str) -> "subprocess.CompletedProcess[str]":
    around = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "ENGINE_PYTHON": "echo", **given}
    command = ["bash", str(LAUNCH / "common.sh"), *words]
    return subprocess.run(command, env=around, capture_output=True, text=True)


def test_where_no_python_has_the_packages_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to("/bin/false")
    around = {"PATH": f"{tmp_path}/bin:/bin"}
    shutil.copytree(LAUNCH, tmp_path / "launch")
    command = ["bash", str(tmp_path / "launch" / "launch_plain.sh")]
    done = subprocess.run(command, env=around, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("error: no Python here has the packages")
    assert len(done.stderr.splitlines()) == 1


def test_arguments_and_variables_go_before_the_config(tmp_path: Path) -> None:
    given = {"MODEL": "org/m", "PORT": "9", "HOST": "0.0.0.0", "KV_TRANSFER_CONFIG": '{"kv_connector": "X"}'}
    shown = launched("launch", "nixl_both", "--seed", "1 2", **given).stdout
    start = '-m vllm_serve serve org/m --kv-transfer-config={"kv_connector": "X"} --served-model-name org/m '
    assert shown == f"{start}--host 0.0.0.0 --port 9 --seed 1 2\n"


def test_what_is_missing_by_hand_is_one_message() -> None:
    for words, given, message in (
        (("launch", "plain"), {}, "MODEL is not set. Set it to a model directory or hub id."),
        (("launch", "plain"), {"MODEL": "m", "ENGINE_PYTHON": "/nowhere"}, "/nowhere: no such program. Give"),
        (("verify", "x"), {}, "'x' is none of "),
        ((), {}, "launch|verify CONFIGURATION"),
    ):
        done = launched(*words, **given)
        assert done.returncode == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1


def test_preflight_by_hand_begins_the_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, str]] = []
    monkeypatch.setattr(preflight, "run_preflight", lambda *given: asked.append(given))
    monkeypatch.setenv("CONFIG", str(PROJECT_ROOT / "config" / "demo.yaml"))
    monkeypatch.setattr(by_hand, "PROJECT_ROOT", tmp_path)
    monkeypatch.setattr(by_hand, "end_in_order", lambda: None)
    monkeypatch.setattr(sys, "argv", ["by_hand", "verify", "nixl_both"])
    by_hand.main()
    assert asked == [(tmp_path / "results" / "demo" / "campaign.json", "nixl_both")]
    assert asked[0][0].is_file()
