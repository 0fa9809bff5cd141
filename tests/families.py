"""Processes of a test: finds those of one campaign, says whether one is alive, and waits for a condition."""

import time
from collections.abc import Callable
from pathlib import Path

import psutil


def alive(process: psutil.Process | int) -> bool:
    """Return whether a process, given by itself or by its pid, has not ended; a zombie has ended."""
    try:
        asked = psutil.Process(process) if isinstance(process, int) else process
        return asked.is_running() and asked.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two questions
        return False


def within(seconds: float, condition: Callable[[], object]) -> bool:
    """Return whether ``condition`` holds within so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def family(cache: Path) -> list[psutil.Process]:
    """Return every living process that inherited this cache folder in its environment, whoever its parent is."""
    mark = f"CONNECTOR_TAX_CACHE={cache}".encode()
    found = []
    for process in psutil.process_iter():
        try:
            told = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or is another user's
            continue
        if mark in told and alive(process):
            found.append(process)
    return found
