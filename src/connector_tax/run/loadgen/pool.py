"""Worker processes: started, spoken to, watched; one that dies, or does not answer, is replaced before the next cell."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import zmq

from connector_tax.base.errors import EngineError
from connector_tax.run.loadgen.descriptors import Placement
from connector_tax.run.loadgen.messages import (
    Counters,
    ToCoordinator,
    ToWorker,
    decode_for_coordinator,
    encode,
)

STOP_WAIT_S = 2.0
# From a worker's start to its first word: an interpreter and its imports.
UP_WITHIN_S = 60.0
POLL_MS = 50
# Beside it a socket's path has ``/ct-xxxxxxxx/`` and the numbers of worker and generation.
MOST_FOLDER_BYTES = 80


@dataclass(slots=True)
class _Member:
    """One worker process and the line to it."""

    process: "subprocess.Popen[bytes]"
    socket: "zmq.Socket[bytes]"
    up: bool = False


class WorkerPool:
    """``n`` workers, numbered from 0. Use ``worker_pool`` to make one."""

    def __init__(self, n: int, folder: Path, placement: Placement | None) -> None:
        self.n = n
        self._folder = folder
        self.placement = placement
        self.counters = Counters(folder / "counters", n)
        self._context = zmq.Context(io_threads=1)
        self._generation = 0
        self._cell = 0
        self._members = [self._start(index) for index in range(n)]

    def revive(self) -> None:
        """Replace workers that died, wait until all are up; before a cell, never in one.

        Raises:
            EngineError: one does not come up.
        """
        for index in self.dead():
            self._members[index].socket.close()
            self._members[index] = self._start(index)
        deadline_s = time.monotonic() + UP_WITHIN_S
        for index, member in enumerate(self._members):
            while not member.up:
                member.up = bool(member.socket.poll(POLL_MS))
                if member.process.poll() is not None:
                    raise EngineError(f"{self.dead()[index]} before it was up; its words are above.")
                if not member.up and time.monotonic() > deadline_s:
                    self.kill(index)
                    raise EngineError(f"load-generator worker {index} was not up after {UP_WITHIN_S:g} s.")

    def next_cell(self) -> None:
        """What is sent from now on belongs to a new cell; what workers still say of earlier ones is not received."""
        self._cell += 1

    def kill(self, index: int) -> None:
        """End a worker that does not answer; ``revive`` replaces it."""
        self._members[index].process.kill()
        self._members[index].process.wait()

    def kill_all(self) -> None:
        """End every worker at once, whatever it is doing."""
        for index in range(self.n):
            self.kill(index)

    def dead(self) -> dict[int, str]:
        """Workers whose process has ended, and how."""
        ended = {i: m.process.poll() for i, m in enumerate(self._members)}
        return {
            i: f"load-generator worker {i} ended by signal {-code}"
            if code < 0
            else f"load-generator worker {i} ended with exit code {code}"
            for i, code in ended.items()
            if code is not None
        }

    def send(self, index: int, message: ToWorker) -> None:
        # A worker that is gone takes no messages; dead() says so, and the cell goes on without it.
        if self._members[index].process.poll() is None:
            self._members[index].socket.send(encode((self._cell, message)), zmq.NOBLOCK)

    def receive(self, timeout_s: float) -> Iterator[tuple[int, ToCoordinator]]:
        """Everything of this cell that has come, waiting up to ``timeout_s`` for the first."""
        poller = zmq.Poller()
        for member in self._members:
            poller.register(member.socket, zmq.POLLIN)
        poller.poll(max(round(timeout_s * 1000), 0))
        for index, member in enumerate(self._members):
            while True:
                try:
                    cell, message = decode_for_coordinator(member.socket.recv(zmq.NOBLOCK))
                except zmq.Again:
                    break
                if cell == self._cell:
                    yield index, message

    def pid(self, index: int) -> int:
        return self._members[index].process.pid

    def close(self, wait_s: float = STOP_WAIT_S) -> None:
        """End the workers; each ends by itself when its standard input does, or is killed after that time."""
        for member in self._members:
            assert member.process.stdin is not None
            member.process.stdin.close()
        try:
            for member in self._members:
                with suppress(subprocess.TimeoutExpired):
                    member.process.wait(wait_s)
        finally:
            # Also where an interrupt ends the wait: a socket left open would keep the context, and with it this process.
            for member in self._members:
                member.process.kill()  # of one that has ended it does nothing
                member.process.wait()
                member.socket.close(linger=0)
            self._context.term()
            self.counters.close()

    def _start(self, index: int) -> _Member:
        self._generation += 1
        endpoint = f"ipc://{self._folder}/{index}.{self._generation}"
        socket = self._context.socket(zmq.PAIR)
        socket.linger = 0
        socket.bind(endpoint)
        command = [sys.executable, "-m", "connector_tax.run.loadgen.worker", "--endpoint", endpoint]
        command += ["--counters", str(self._folder / "counters"), "--workers", str(self.n)]
        if self.placement is not None and self.placement.workers[index]:
            command += ["--cpus", ",".join(map(str, self.placement.workers[index]))]
        # A group, for Ctrl-C to reach us alone; its end is that of its standard input.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=_environment(), process_group=0)
        return _Member(process, socket)


def _environment() -> dict[str, str]:
    # NumPy's BLAS would start a thread per core, for nothing.
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@contextmanager
def worker_pool(n: int, placement: Placement | None = None) -> Iterator[WorkerPool]:
    """Workers for the time of the body; their sockets lie in a folder that only this user may enter."""
    # mkdtemp makes it 0700. The path of a socket may have 107 bytes, so it is not under results/, and under no TMPDIR that is as long.
    short = len(os.fsencode(tempfile.gettempdir())) <= MOST_FOLDER_BYTES
    with tempfile.TemporaryDirectory(prefix="ct-", dir=None if short else "/tmp") as folder:  # nosec B108  # made by mkdtemp
        pool = WorkerPool(n, Path(folder), placement)
        wait_s = STOP_WAIT_S
        try:
            yield pool
        except KeyboardInterrupt:
            wait_s = 0.0
            raise
        finally:
            pool.close(wait_s)
