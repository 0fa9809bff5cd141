"""A door's exit code 1 is its verdict's alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FAULT = """
from connector_tax.base.entrypoint import run_entrypoint
def main():
    raise {error}
run_entrypoint(main)
"""


@pytest.mark.parametrize("error", ["AttributeError('no such thing')", "OSError(5, 'broken')"])
def test_a_fault_of_the_script_is_a_traceback_and_no_verdict(error: str) -> None:
    ended = subprocess.run([sys.executable, "-c", FAULT.format(error=error)], capture_output=True, text=True)
    assert ended.returncode == 70
    assert "Traceback" in ended.stderr and error.split("(")[0] in ended.stderr


@pytest.mark.parametrize("number", [1, 13])
def test_what_this_user_may_not_do_is_one_message(number: int) -> None:
    error = f"OSError({number}, 'Not you', 'results/x')"
    ended = subprocess.run([sys.executable, "-c", FAULT.format(error=error)], capture_output=True, text=True)
    assert ended.returncode == 2
    assert (
        ended.stderr.startswith("error: results/x: Not you. Fix its permissions")
        and ended.stderr.count("\n") == 1
    )


@pytest.mark.parametrize(
    ("lies", "made", "said"),
    [
        ("file", "Path(p).mkdir(exist_ok=True)", "steps: cannot write (File exists): a file lies there"),
        # A new file, and no folder.
        ("file", "open(p, 'x')", "steps: cannot write (File exists): a file lies there"),
        ("file", "Path(p, 'x').mkdir()", "steps/x: cannot write (Not a directory): {0}/steps is no folder"),
        ("folder", "Path(p).mkdir()", "steps: cannot write (File exists): a folder lies there"),
        ("folder", "open(p, 'w')", "steps: cannot write (Is a directory): a folder lies there"),
        ("link", "Path(p).mkdir(exist_ok=True)", "steps: cannot write (File exists): a link lies there"),
    ],
)
def test_what_lies_in_the_way_is_one_message(tmp_path: Path, lies: str, made: str, said: str) -> None:
    place = tmp_path / "steps"
    {"file": place.touch, "folder": place.mkdir, "link": lambda: place.symlink_to("nowhere")}[lies]()
    script = f"""
from pathlib import Path
from connector_tax.base.entrypoint import run_entrypoint
p = {str(place)!r}
run_entrypoint(lambda: {made})
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: {tmp_path}/{said.format(tmp_path)}. Move it away")
    assert ended.stderr.count("\n") == 1
    assert os.path.lexists(place)


FULL = """
from pathlib import Path
from connector_tax.base.entrypoint import run_entrypoint
def main():
    for _ in range(3):
        print("x" * {n})
    Path({path!r}).write_text("went on")
    raise SystemExit({code})
run_entrypoint(main)
"""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device")
@pytest.mark.parametrize(("n", "code", "expected"), [(9, 0, 2), (200_000, 0, 2), (9, 1, 2), (9, 70, 70)])
def test_what_cannot_be_said_ends_nothing_and_is_one_message(
    tmp_path: Path, n: int, code: int, expected: int
) -> None:
    script = FULL.format(n=n, path=str(tmp_path / "file"), code=code)
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, "-c", script], stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == expected
    assert (tmp_path / "file").read_text() == "went on"
    assert ("error: standard output cannot be written" in ended.stderr) == (expected == 2)
    assert "Traceback" not in ended.stderr and ended.stderr.count("\n") <= 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_words_that_an_output_has_no_letters_for_are_escaped(encoding: str) -> None:
    """A server's error may be in any script; a traceback would lose the rates that are still to come."""
    script = "from connector_tax.base.entrypoint import run_entrypoint\nrun_entrypoint(lambda: print('\u043d\u0435\u0442 ok'))\n"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout == b"\\u043d\\u0435\\u0442 ok\n"


CHILD = """
import subprocess, sys
from connector_tax.base.entrypoint import run_entrypoint
CODE = "import os; os.fstat(0), os.fstat(1), os.fstat(2)"
def main():
    sys.exit(subprocess.run([sys.executable, "-c", CODE], stdin=subprocess.PIPE).returncode)
run_entrypoint(main)
"""


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_child_of_a_process_without_standard_files_has_some(closed: str) -> None:
    """A socket of libuv in their place would end it."""
    command = f'"$0" -c "$1" {closed}'
    assert subprocess.run(["bash", "-c", command, sys.executable, CHILD]).returncode == 0
