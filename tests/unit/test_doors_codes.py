"""A door's exit code 1 is its verdict's alone."""

import subprocess
import sys

import pytest

FAULT = """
from connector_tax.base.door import run_door
def main():
    raise {error}
run_door(main)
"""


@pytest.mark.parametrize("error", ["AttributeError('no such thing')", "OSError(5, 'broken')"])
def test_a_fault_of_the_script_is_a_traceback_and_no_verdict(error: str) -> None:
    ended = subprocess.run([sys.executable, "-c", FAULT.format(error=error)], capture_output=True, text=True)
    assert ended.returncode == 70
    assert "Traceback" in ended.stderr and error.split("(")[0] in ended.stderr
