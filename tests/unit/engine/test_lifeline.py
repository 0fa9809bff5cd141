"""A measuring script outlives the shell that started it; Snakemake's jobs do not outlive Snakemake."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from families import alive, within

ROOT = Path(__file__).parents[3]
# Writes ``up``, then ``answer`` as soon as there is ``ask``; ``cleaned`` stands for what its ``finally`` blocks remove.
DOOR = """
import pathlib, sys, time
folder, door, *sys.argv[1:] = sys.argv[1:]
folder = pathlib.Path(folder)
def wait(*args, **options):
    try:
        (folder / "up").touch()
        while True:
            if (folder / "ask").exists():
                (folder / "answer").touch()
            time.sleep(0.02)
    finally:
        (folder / "cleaned").touch()
if door == "check":
    from connector_tax.commands import check
    check._request, check.run_check = lambda *asked: None, wait
    check.COMMAND.main()
else:
    sys.path.insert(0, "scripts")
    script = __import__(door)
    script.run_preflight = script.measure_run = wait
    script.run_job(script.__doc__, script._arguments, getattr(script, f"_{door}"))
"""
ARGUMENTS = {
    "check": ["--connector", "noop_connector", "--engine-python", "x"],
    "preflight": ["--campaign-file", "x"],
    "measure": ["--campaign-file", "x", "--connector", "plain", "--phase", "a"],
}
# The shell ends once the script has done what it does about its parent.
SHELL = '"$@" >/dev/null 2>&1 & echo $!; while [ ! -e "$UP" ]; do sleep 0.02; done'


def _door(folder: Path, name: str, *more: str) -> list[str]:
    return [sys.executable, "-c", DOOR, str(folder), name, *ARGUMENTS[name], *more]


def _from_a_shell(folder: Path, command: list[str]) -> int:
    """The process id of ``command``, whose shell has ended."""
    environment = {**os.environ, "UP": str(folder / "up")}
    ended = subprocess.run(
        ["sh", "-c", SHELL, "sh", *command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
        timeout=120,
    )
    return int(ended.stdout)


@pytest.mark.parametrize("name", ["check", "measure"])
def test_a_script_started_with_nohup_goes_on_after_its_shell(tmp_path: Path, name: str) -> None:
    pid = _from_a_shell(tmp_path, ["nohup", *_door(tmp_path, name)])
    try:
        os.kill(pid, signal.SIGHUP)
        (tmp_path / "ask").touch()
        assert within(60, lambda: (tmp_path / "answer").exists() or not alive(pid))
        assert (tmp_path / "answer").exists(), "it ended with the shell"
        assert not (tmp_path / "cleaned").exists()
    finally:
        if alive(pid):
            os.kill(pid, signal.SIGTERM)
    assert within(60, lambda: (tmp_path / "cleaned").exists())


def test_a_job_of_snakemake_ends_with_it(tmp_path: Path) -> None:
    """Nobody sends it a signal, under ``nohup`` neither."""
    pid = _from_a_shell(
        tmp_path, ["nohup", *_door(tmp_path, "preflight", "--end-with-parent", str(os.getpid()))]
    )
    assert within(60, lambda: (tmp_path / "cleaned").exists())
    assert within(60, lambda: not alive(pid))


def test_a_job_whose_snakemake_died_before_it_could_look_measures_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    command = _door(tmp_path, "measure", "--end-with-parent", str(gone.pid))
    assert subprocess.run(command, cwd=ROOT, timeout=60).returncode == 143
    assert not (tmp_path / "up").exists()


def _as_in_a_terminal() -> None:
    """Also where the tests themselves run in the background or under ``nohup``."""
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_check_that_is_told_to_end_cleans_up(tmp_path: Path, how: signal.Signals) -> None:
    with subprocess.Popen(
        _door(tmp_path, "check"), cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=_as_in_a_terminal
    ) as door:
        assert within(60, lambda: (tmp_path / "up").exists())
        door.send_signal(how)
        _, said = door.communicate()
    assert (tmp_path / "cleaned").exists()
    assert door.returncode == 128 + how
    assert "Traceback" not in said


def test_a_job_that_is_told_to_end_says_so_in_its_log(tmp_path: Path) -> None:
    """What a start that was ended by its group, or by ``scancel``, repeats at its end; there is nothing else in it that says why."""
    log = tmp_path / "measure.log"
    command = _door(tmp_path, "measure", "--log", str(log))
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, preexec_fn=_as_in_a_terminal) as door:
        assert within(60, lambda: (tmp_path / "up").exists())
        door.send_signal(signal.SIGHUP)
        door.communicate()
    assert door.returncode == 128 + signal.SIGHUP
    assert log.read_text() == "interrupted; what was finished is kept\n"
