"""The one clock: CLOCK_MONOTONIC in integer nanoseconds.

Wall time is read once per launch, beside a monotonic reading, so that a reader can convert; it is
never subtracted.
"""

import time
from dataclasses import dataclass

now_ns = time.monotonic_ns


def asleep_ns() -> int:
    """How long this host has been suspended since it was booted: CLOCK_MONOTONIC stands still meanwhile, CLOCK_BOOTTIME does not."""
    before = time.monotonic_ns()
    booted = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return booted - (before + time.monotonic_ns()) // 2


@dataclass(frozen=True, slots=True)
class ClockPair:
    """One simultaneous reading of both clocks."""

    monotonic_ns: int
    utc_ns: int


def read_clock_pair() -> ClockPair:
    """Read both clocks within about a microsecond of each other.

    The tightest of five bracketed readings is kept, so one preemption between the two reads does
    not shift wall time by a scheduling quantum.
    """
    best: tuple[int, ClockPair] | None = None
    for _ in range(5):
        before = time.monotonic_ns()
        utc = time.time_ns()
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = (after - before, ClockPair((before + after) // 2, utc))
    assert best is not None
    return best[1]
