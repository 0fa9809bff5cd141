"""Campaigns of a sweep one after another, with stand-ins for Snakemake that are real processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from connector_tax.sweep import code_text, run_all

# Ends in order on SIGTERM, and says so; has a child of its own that it does not signal, as Snakemake has its jobs.
CAMPAIGN = """
import pathlib, signal, subprocess, sys, time
def end(signum, frame):
    time.sleep(0.3)
    pathlib.Path(sys.argv[1] + "-" + sys.argv[2]).write_text(str(signum))
    sys.exit(1)
signal.signal(signal.SIGTERM, end); signal.signal(signal.SIGINT, end)
if sys.argv[2] == "snakemake":
    child = subprocess.Popen([sys.executable, __file__, sys.argv[1], "job"])
    try:
        child.wait()
    finally:
        child.wait()
else:
    pathlib.Path(sys.argv[1] + "-started").write_text("")
    time.sleep(60)
"""
SWEEP = """
import json, pathlib, sys
from connector_tax.sweep import run_all
commands = json.loads(sys.argv[1])
found = run_all(commands, pathlib.Path.cwd(), lambda what: print(what, flush=True))
print(json.dumps([found.codes, found.interrupted, found.at]), flush=True)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def said_of(tmp_path: Path, **commands: list[str]) -> tuple[dict[str, int], list[str]]:
    said: list[str] = []
    found = run_all(commands, tmp_path, said.append)
    assert found.interrupted is None
    return found.codes, said


def test_a_campaign_that_fails_stops_no_other(tmp_path: Path) -> None:
    codes, said = said_of(
        tmp_path, a=python("pass"), b=python("import sys; sys.exit(3)"), c=python("open('made', 'w')")
    )
    assert codes == {"a": 0, "b": 3, "c": 0}
    assert said == [
        "campaign 1 of 3: a",
        "campaign 2 of 3: b",
        "campaign b failed: exit code 3",
        "campaign 3 of 3: c",
    ]
    assert (tmp_path / "made").exists(), "they run in the folder that is given"


def test_one_that_is_killed_is_a_failure_like_any_other(tmp_path: Path) -> None:
    codes, said = said_of(tmp_path, a=python("import os; os.kill(os.getpid(), 9)"), b=python("pass"))
    assert codes == {"a": -signal.SIGKILL, "b": 0}
    assert "campaign a failed: ended by SIGKILL" in said
    assert code_text(-15) == "ended by SIGTERM"


def test_the_next_one_begins_when_all_that_the_last_one_started_is_gone(tmp_path: Path) -> None:
    """A job that outlives its Snakemake still has the card."""
    slow = "import time; time.sleep(0.7); open('gone', 'w')"
    codes, _ = said_of(
        tmp_path,
        a=python(f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {slow!r}])"),
        b=python("import os, sys; sys.exit(not os.path.exists('gone'))"),
    )
    assert codes == {"a": 0, "b": 0}


def test_what_does_not_end_is_named_and_no_longer_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connector_tax.sweep.MOST_ENDING_S", 0.3)
    code = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(5)']);"
        "open('pid', 'w').write(str(p.pid))"
    )
    codes, said = said_of(tmp_path, a=python(code), b=python("pass"))
    assert codes == {"a": 0, "b": 0}
    pid = (tmp_path / "pid").read_text()
    assert any(s.startswith("still at work 0.3 s after") and f"process {pid}." in s for s in said)
    os.kill(int(pid), signal.SIGKILL)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_sweep_ends_all_of_the_campaign_in_order_and_starts_no_other(
    tmp_path: Path, signum: signal.Signals
) -> None:
    """Three times, as people press Ctrl-C."""
    running = started(tmp_path)
    for _ in range(3):
        running.send_signal(signum)
        time.sleep(0.05)
    out, _ = running.communicate(timeout=30)
    assert out.splitlines()[-1] == f'[{{}}, {int(signum)}, "a"]'
    assert (tmp_path / "a-job").read_text() == (tmp_path / "a-snakemake").read_text() == str(int(signum))
    assert not (tmp_path / "b-started").exists()


def test_a_sweep_that_is_killed_outright_takes_its_snakemake_with_it(tmp_path: Path) -> None:
    running = started(tmp_path)
    [snakemake] = psutil.Process(running.pid).children()
    jobs = snakemake.children()
    running.kill()
    running.wait()
    gone, alive = psutil.wait_procs([snakemake], timeout=20)
    assert gone and not alive
    # Real jobs notice by themselves; the stand-in does not.
    for job in jobs:
        job.kill()


def started(tmp_path: Path) -> "subprocess.Popen[str]":
    import json

    script = tmp_path / "campaign.py"
    script.write_text(CAMPAIGN)
    commands = {name: [sys.executable, str(script), name, "snakemake"] for name in ("a", "b")}
    running = subprocess.Popen(
        [*python(SWEEP), json.dumps(commands)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stdout=subprocess.PIPE,
        text=True,
        # A shell in the background has it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 30
    while not (tmp_path / "a-started").exists():
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    return running
