"""Waiting until the cards are as free as before the launch; without one there is nothing to wait for."""

import time

from connector_tax.base.errors import EngineError
from connector_tax.run.engine.gpus import Gpu, memory_used_mib

RELEASE_POLL_S = 0.5

MemoryBefore = dict[Gpu, int]


def memory_before(gpus: tuple[Gpu, ...]) -> MemoryBefore:
    """MiB in use on each card right now; a card that does not tell is left out."""
    used = {gpu: memory_used_mib(gpu) for gpu in gpus}
    return {gpu: mib for gpu, mib in used.items() if mib is not None}


def wait_released(before: MemoryBefore, *, tolerance_mib: int, timeout_s: float) -> None:
    """Wait until memory in use is back to ``before`` within ``tolerance_mib``, on every card.

    Raises:
        EngineError: it is not after ``timeout_s``; the next launch would meet a smaller card.
    """
    deadline = time.monotonic() + timeout_s
    for gpu, before_mib in before.items():
        while True:
            used_mib = memory_used_mib(gpu)
            if used_mib is None or used_mib <= before_mib + tolerance_mib:
                break
            if time.monotonic() > deadline:
                raise EngineError(
                    f"{gpu}: {used_mib} MiB in use {timeout_s:g} s after the engine ended, {before_mib} MiB before it "
                    "started. See nvidia-smi for who holds it; end that process, then start again."
                )
            time.sleep(RELEASE_POLL_S)
