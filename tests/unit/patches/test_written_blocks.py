"""What the version before wrote into vLLM's files is taken out whole and alone, and what was not looked at is not called clean."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stand_in_vllm import SCHEDULER, SOURCES, stand_in, tree, write_blocks

PATCHER = Path(__file__).parents[3] / "patches" / "scheduler_step_timing.py"
# Runs the patcher in a process that ends itself, as kill -9 would, before its n-th call that changes a file.
KILLED = """
import os, runpy, signal, sys
left = [int(sys.argv.pop(1))]
CHANGES = ("os.rename", "os.remove", "os.chmod", "os.truncate")
def hook(event, arguments):
    changes = event in CHANGES or event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if changes and not str(arguments[0]).endswith(".pyc") and "/vllm" in str(arguments[0]):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
sys.argv[0] = sys.argv.pop(1)
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# As somebody who may read the installation and not change it, also where tests run as root.
UNPRIVILEGED = """
import os, sys
sys.argv = sys.argv[1:]
# All that it imports, for the interpreter may lie where nobody else can look.
import argparse, gettext, importlib.util, json, locale, re, shutil, subprocess
from pathlib import Path
sys.path.insert(0, os.path.dirname(sys.argv[0]))
import written_blocks
code = compile(open(sys.argv[0]).read(), sys.argv[0], "exec")
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
exec(code, {"__name__": "__main__", "__file__": sys.argv[0]})
"""


@pytest.fixture
def vllm() -> Iterator[Path]:
    """A stand-in installation that every user can read."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # nobody else sees into pytest's folders
        root = stand_in(Path(name) / "vllm")
        Path(name).chmod(0o755)
        yield root
        for folder in [root, *(p for p in root.rglob("*") if p.is_dir())]:
            folder.chmod(0o755)


def patcher(vllm: Path, *flags: str) -> tuple[int, dict[str, Any]]:
    """Its exit status and what it reports."""
    command = [sys.executable, str(PATCHER), "--vllm", str(vllm), *flags]
    found = subprocess.run(command, capture_output=True)
    return found.returncode, json.loads(found.stdout)


def test_every_byte_is_given_back_with_the_mode(vllm: Path) -> None:
    (vllm / SCHEDULER).chmod(0o640)
    before = tree(vllm)
    write_blocks(vllm)
    code, report = patcher(vllm, "--revert")
    assert (code, report["state"], tree(vllm)) == (0, "unpatched", before)
    assert (vllm / SCHEDULER).stat().st_mode & 0o777 == 0o640


def test_a_patched_vllm_is_not_measured_with(vllm: Path) -> None:
    """The emitter in its files is another version's, and would record in this one's place."""
    write_blocks(vllm)
    code, report = patcher(vllm)
    assert (code, report["state"], report["step_timing_available"]) == (0, "patched", False)
    assert "an earlier version of connector-tax wrote its step timing into" in report["reason"]
    assert "--revert" in report["reason"]


def test_lines_that_somebody_added_around_the_block_stay(vllm: Path) -> None:
    write_blocks(vllm)
    wanted = {}
    for name in SOURCES:
        original = SOURCES[name] if SOURCES[name].endswith("\n") else SOURCES[name] + "\n"
        text = (vllm / name).read_text()
        (vllm / name).write_text("# before\n" + text + "# after = 1\n")
        wanted[name] = "# before\n" + original + "# after = 1\n"
    assert patcher(vllm, "--revert")[0] == 0
    assert {name: (vllm / name).read_text() for name in SOURCES} == wanted


def test_a_block_that_somebody_edited_is_left_alone(vllm: Path) -> None:
    write_blocks(vllm)
    text = (vllm / SCHEDULER).read_text().replace("    pass\n", "    pass  # mine\n")
    (vllm / SCHEDULER).write_text(text)
    before = tree(vllm)
    code, report = patcher(vllm, "--revert")
    assert (code, report["state"]) == (1, "patched")
    assert "its block is not as it was written" in report["reason"]
    assert tree(vllm) == before


def test_a_symbolic_link_stays_one(vllm: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "scheduler.py"
    shutil.move(vllm / SCHEDULER, elsewhere)
    (vllm / SCHEDULER).symlink_to(elsewhere)
    write_blocks(vllm)
    assert patcher(vllm, "--revert")[0] == 0
    assert (vllm / SCHEDULER).is_symlink()
    assert elsewhere.read_text() == SOURCES[SCHEDULER]


def test_killed_before_every_change_no_file_is_torn_and_the_next_call_works(vllm: Path) -> None:
    original = tree(vllm)
    kills = 0
    while True:
        write_blocks(vllm)
        patched = tree(vllm)
        command = [sys.executable, "-c", KILLED, str(kills), str(PATCHER), "--vllm", str(vllm), "--revert"]
        ended = subprocess.run(command, capture_output=True)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
        assert all(tree(vllm)[n] in (patched[n], original[n]) for n in SOURCES)
        kills += 1
        assert patcher(vllm, "--revert")[1]["state"] == "unpatched"
        assert tree(vllm) == original
    assert kills >= 3, "the hook saw the files change"
    assert tree(vllm) == original


def test_without_permission_the_revert_is_heard(vllm: Path) -> None:
    write_blocks(vllm)
    patched = tree(vllm)
    for folder in [vllm, *(p for p in vllm.rglob("*") if p.is_dir())]:
        folder.chmod(0o555)
    # The project itself may lie where nobody else can look.
    copy = shutil.copytree(PATCHER.parent, vllm.parent / "patches", dirs_exist_ok=True)
    command = [
        *(sys.executable, "-c", UNPRIVILEGED, str(copy / PATCHER.name)),
        *("--vllm", str(vllm), "--revert"),
    ]
    ended = subprocess.run(command, capture_output=True)
    report = json.loads(ended.stdout)
    assert (ended.returncode, report["state"]) == (1, "patched")
    assert "cannot be written (Permission denied). Run this as who owns it" in report["reason"]
    assert tree(vllm) == patched


def test_without_anything_to_look_at_nothing_is_called_clean(vllm: Path, tmp_path: Path) -> None:
    """A wrong folder, and a file's place from which a link leads nowhere."""
    code, report = patcher(tmp_path / "nowhere", "--revert")
    assert (code, report["state"]) == (1, None)
    assert "is no vLLM" in report["reason"]
    (vllm / SCHEDULER).unlink()
    (vllm / SCHEDULER).symlink_to(tmp_path / "gone")
    code, report = patcher(vllm, "--revert")
    assert (code, report["state"]) == (1, None)
    assert f"No such file or directory: '{vllm / SCHEDULER}'" in report["reason"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_root_leaves_a_file_to_its_owner(vllm: Path) -> None:
    write_blocks(vllm)
    os.chown(vllm / SCHEDULER, 1000, 1000)
    (vllm / SCHEDULER).chmod(0o600)
    assert patcher(vllm, "--revert")[0] == 0
    state = (vllm / SCHEDULER).stat()
    assert (state.st_uid, state.st_gid, state.st_mode & 0o777) == (1000, 1000, 0o600)


@pytest.mark.parametrize(
    ("python", "reason"),
    [
        ("#!/bin/sh\necho broken >&2\nexit 1\n", "does not run Python code (exit status 1: broken)"),
        ('#!/bin/sh\necho "$3"\n', "has no vllm"),
        (None, "cannot be run"),
    ],
)
def test_what_cannot_be_looked_at_is_not_called_clean(
    tmp_path: Path, python: str | None, reason: str
) -> None:
    path = tmp_path / "python"
    if python is not None:
        path.write_text(python)
        path.chmod(0o755)
    command = [sys.executable, str(PATCHER), "--engine-python", str(path), "--revert"]
    done = subprocess.run(command, capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert (done.returncode, report["state"], report["step_timing_available"]) == (1, None, False)
    assert reason in report["reason"]
