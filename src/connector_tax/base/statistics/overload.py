"""When a cell is overloaded: the engine completes less than is sent, and what waits for it grows.

The load generator, the rehearsal and the analysis ask this module, so they cannot disagree.
"""

from collections.abc import Sequence

import numpy as np

# The first two saturation criteria of the published experiment.
MIN_THROUGHPUT_RATIO = 0.95
MAX_WAITING = 1.0
# Two samples a third; fewer say nothing of a trend. There is one a second.
FEWEST_SAMPLES = 6
# Random arrivals sent before a window is judged: chance alone puts one in flight more or less into a few.
FEWEST_RANDOM = 50


def queue_grows(waiting: Sequence[float]) -> bool:
    """Return whether more than one request waits at the end, and more than at the beginning, by the medians
    of the last and the first third.

    Args:
        waiting: samples of the window so far, in time order.
    """
    if len(waiting) < FEWEST_SAMPLES:
        return False
    third = len(waiting) // 3
    first, last = float(np.median(waiting[:third])), float(np.median(waiting[-third:]))
    return last > MAX_WAITING and last > first


def queue_stands(waiting: Sequence[float]) -> bool:
    """Return whether more than one request waited at the median of all samples."""
    return len(waiting) >= FEWEST_SAMPLES and float(np.median(waiting)) > MAX_WAITING


def queue_not_told(waiting: Sequence[float]) -> bool:
    """Return whether something waited, in too few samples for a trend."""
    return 0 < len(waiting) < FEWEST_SAMPLES and max(waiting) > MAX_WAITING
