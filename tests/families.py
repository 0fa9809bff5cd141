"""Processes of a test: those of one campaign, whether one is alive, and a wait until something holds."""

import time
from collections.abc import Callable
from pathlib import Path

import psutil


def alive(process: psutil.Process | int) -> bool:
    """Whether a process, by itself or by its number, has not ended. A zombie has, and so has one that ends while it is asked."""
    try:
        asked = psutil.Process(process) if isinstance(process, int) else process
        return asked.is_running() and asked.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def within(seconds: float, condition: Callable[[], object]) -> bool:
    """Whether ``condition`` holds before so many seconds are over."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def family(cache: Path) -> list[psutil.Process]:
    """Every living process that inherited this cache's folder in its environment, whoever its parent is by now."""
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
