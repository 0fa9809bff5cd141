"""Processes that work for another one: they end with it, however it ended, and what happened to one of them is one message."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from families import alive, within

from connector_tax.base.errors import AnalysisError
from connector_tax.base.parallel import each_in

READER = """
import os, time
from connector_tax.base.parallel import each_in
def work(item):
    print(os.getpid(), flush=True)
    time.sleep(600)
if __name__ == "__main__":
    with each_in(2) as each:
        list(each(work, [1, 2]))
"""


def test_a_reader_that_is_killed_outright_leaves_none_of_its_processes(tmp_path: Path) -> None:
    """They would wait for work for ever, and ``| tee`` for the end of what they write to: Snakemake's job never ended."""
    script = tmp_path / "reader.py"
    script.write_text(READER)
    reader = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    working = [int(reader.stdout.readline()) for _ in range(2)]
    reader.kill()
    reader.communicate(timeout=20)  # the end of the pipe, which nobody holds any more
    # The pipe ends while the kernel still ends whoever held it.
    assert within(20, lambda: not any(map(alive, working)))


def _end(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_process_that_is_killed_is_one_message() -> None:
    with pytest.raises(AnalysisError, match="one of 2 processes was killed"), each_in(2) as each:
        list(each(_end, range(4)))
