"""A command under a supervisor of its own: started with a mark, recorded, and ended with everything that it launched."""

import subprocess
import sys
from pathlib import Path
from typing import IO

from connector_tax.base.artifacts.supervisor import record_supervisor
from connector_tax.base.config.model import Runtime
from connector_tax.run.engine.leftovers import end_leftovers
from connector_tax.run.engine.marks import VARIABLE, new_mark
from connector_tax.run.engine.supervisor import LIFELINE

Supervisor = subprocess.Popen[bytes]
# What the supervisor itself takes at most, beyond the grace that it gives.
KILL_S = 10.0


def start_supervised(
    command: list[str],
    *,
    folder: Path,
    environment: dict[str, str],
    grace_s: float,
    stdout: IO[bytes] | None = None,
    stderr: IO[bytes] | None = None,
    cards: tuple[str, ...] = (),
    mark: str | None = None,
    container: Runtime | None = None,
) -> Supervisor:
    """Start ``command``; it is ended when this process ends, however that happens.

    Args:
        folder: gets the record by which a later start finds what a killed supervisor left.
        grace_s: from SIGTERM to SIGKILL, when it is ended.
        stdout, stderr: None: this process's own.
        cards: by their names, for the record.
        mark: the launch's, where the command knows it already.
        container: by which runtime the command runs one of its own; it then ends with its standard input.
    """
    mark = mark or new_mark()
    supervisor = subprocess.Popen(
        [
            *(sys.executable, "-m", "connector_tax.run.engine.supervisor", str(grace_s)),
            *([LIFELINE] if container is not None else []),
            *command,
        ],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        env={**environment, VARIABLE: mark},
        # A group, for Ctrl-C to reach us alone; not a session: see docs/decisions/0024.
        process_group=0,
    )
    try:
        record_supervisor(folder, supervisor.pid, mark, cards, container)
    except BaseException:
        # Of what is recorded nowhere no later start could know.
        assert supervisor.stdin is not None
        supervisor.stdin.close()
        supervisor.wait()
        raise
    return supervisor


def stop_supervised(supervisor: Supervisor, folder: Path, *, grace_s: float) -> None:
    """Close the lifeline, on which the supervisor ends everything and itself; then look for what is left all the same.

    Raises:
        EngineError: something does not end.
    """
    assert supervisor.stdin is not None
    supervisor.stdin.close()
    try:
        supervisor.wait(grace_s + KILL_S)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()
    end_leftovers(folder, grace_s=0.0)
