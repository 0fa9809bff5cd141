"""The patcher killed at every step of its work, run beside itself, refused by the file system: never a torn file, and the
next call always brings the installation to where it was asked to be."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from stand_in_vllm import SOURCES, stand_in

PATCHER = Path(__file__).parents[3] / "patches" / "scheduler_step_timing.py"
# Runs the patcher in a process that ends itself, as kill -9 would, before its n-th call that changes a file.
KILLED = """
import os, runpy, signal, sys
left = [int(sys.argv.pop(1))]
CHANGES = ("os.rename", "os.remove", "os.chmod", "os.truncate")
def hook(event, arguments):
    changes = event in CHANGES or event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if changes and not str(arguments[0]).endswith(".pyc"):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
sys.argv[0] = sys.argv.pop(1)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# As somebody who may read the installation and not change it, also where tests run as root.
UNPRIVILEGED = """
import os, sys
sys.argv = sys.argv[1:]
# All that it imports, for the interpreter may lie where nobody else can look.
import argparse, fcntl, gettext, hashlib, json, locale, random, re, shutil, subprocess, tempfile
from contextlib import contextmanager
from pathlib import Path
code = compile(open(sys.argv[0]).read(), sys.argv[0], "exec")
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
exec(code, {"__name__": "__main__", "__file__": sys.argv[0]})
"""


@pytest.fixture
def vllm() -> Iterator[Path]:
    """A stand-in installation that every user can read."""
    with tempfile.TemporaryDirectory() as name:
        root = stand_in(Path(name) / "vllm")
        Path(name).chmod(0o755)
        yield root
        for folder in [root, *(p for p in root.rglob("*") if p.is_dir())]:
            folder.chmod(0o755)


def tree(root: Path) -> dict[str, str]:
    return {
        str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }


def patch(vllm: Path, *flags: str) -> dict[str, Any]:
    found = subprocess.run([sys.executable, str(PATCHER), "--vllm", str(vllm), *flags], capture_output=True)
    report: dict[str, Any] = json.loads(found.stdout)
    return report


def each_file_is_whole(vllm: Path, patched: dict[str, str], original: dict[str, str]) -> None:
    now = tree(vllm)
    for name in SOURCES:
        assert now[name] in (patched[name], original[name]), name


@pytest.mark.parametrize("flags", [(), ("--revert",)], ids=["applying", "reverting"])
def test_killed_before_every_change_no_file_is_torn_and_the_next_call_works(
    vllm: Path, flags: tuple[str, ...]
) -> None:
    original = tree(vllm)
    patch(vllm)
    patched = tree(vllm)
    kills = 0
    while True:
        patch(vllm, *(() if flags else ("--revert",)))
        command = [sys.executable, "-c", KILLED, str(kills), str(PATCHER), "--vllm", str(vllm), *flags]
        ended = subprocess.run(command, capture_output=True)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
        each_file_is_whole(vllm, patched, original)
        kills += 1
        # Either way on from here, and nothing is left lying about.
        if kills % 2:
            assert patch(vllm)["state"] == "patched"
            assert tree(vllm) == patched
        assert patch(vllm, "--revert")["state"] == "unpatched"
        assert tree(vllm) == original
    assert kills >= 3, "the hook saw the files change"


def test_several_at_once_some_of_them_killed(vllm: Path) -> None:
    original = tree(vllm)
    patch(vllm)
    patched = tree(vllm)
    chance = random.Random(3)
    running = []
    for k in range(12):
        flags = ["--revert"] if k % 2 else []
        command = [sys.executable, str(PATCHER), "--vllm", str(vllm), *flags]
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    for process in running[::3]:
        time.sleep(chance.random() * 0.02)
        process.kill()
    for process in running:
        process.wait()
    each_file_is_whole(vllm, patched, original)
    assert patch(vllm)["state"] == "patched"
    assert tree(vllm) == patched
    assert patch(vllm, "--revert")["state"] == "unpatched"
    assert tree(vllm) == original


def unprivileged(vllm: Path, *flags: str) -> "subprocess.CompletedProcess[bytes]":
    for folder in [vllm, *(p for p in vllm.rglob("*") if p.is_dir())]:
        folder.chmod(0o555)
    # The project itself may lie where nobody else can look.
    copy = shutil.copytree(PATCHER.parent, vllm.parent / "patches", dirs_exist_ok=True)
    command = [sys.executable, "-c", UNPRIVILEGED, str(copy / PATCHER.name), "--vllm", str(vllm), *flags]
    return subprocess.run(command, capture_output=True)


def test_a_read_only_installation_is_left_alone_and_the_next_step_is_named(vllm: Path) -> None:
    original = tree(vllm)
    ended = unprivileged(vllm)
    report = json.loads(ended.stdout)
    assert ended.returncode == 0
    assert (report["state"], report["step_timing_available"]) == ("unpatched", False)
    assert "cannot be written (Permission denied)" in report["reason"]
    assert "own" in report["reason"]
    assert tree(vllm) == original


def test_a_patch_on_a_read_only_installation_serves_and_its_revert_is_heard(vllm: Path) -> None:
    patch(vllm)
    patched = tree(vllm)
    assert json.loads(unprivileged(vllm).stdout)["step_timing_available"]
    ended = unprivileged(vllm, "--revert")
    report = json.loads(ended.stdout)
    assert ended.returncode == 1
    assert report["state"] == "patched"
    assert "Permission denied" in report["reason"]
    assert tree(vllm) == patched
    if os.getuid() == 0:
        assert patch(vllm, "--revert")["state"] == "unpatched"


def test_another_version_of_the_project_finds_its_way_back(vllm: Path, tmp_path: Path) -> None:
    """Applied by one version of the project, brought up to date or taken away by another."""
    original = tree(vllm)
    other = tmp_path / "patches"
    other.mkdir()
    (other / PATCHER.name).write_text(
        PATCHER.read_text().replace("_connector_tax_profile.{install}", "x.{install}")
    )
    (other / "_step_profile.py").write_text(PATCHER.with_name("_step_profile.py").read_text() + "# other\n")
    patch(vllm)
    patched = tree(vllm)
    for _ in range(2):
        by_other = [sys.executable, str(other / PATCHER.name), "--vllm", str(vllm)]
        subprocess.run(by_other, check=True, capture_output=True)
        assert set(tree(vllm)) == set(patched)
        assert all(tree(vllm)[name] != patched[name] for name in SOURCES)
        assert patch(vllm)["state"] == "patched"
        assert tree(vllm) == patched
    subprocess.run(by_other, check=True, capture_output=True)
    assert patch(vllm, "--revert")["state"] == "unpatched"
    assert tree(vllm) == original
