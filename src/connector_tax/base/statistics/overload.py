"""Decides whether a cell is overloaded: the engine completes less than is sent, and its queue grows.

The load generator, the rehearsal and the analysis share this module, so they cannot disagree.
"""

from collections.abc import Sequence

import numpy as np

# The first two saturation criteria of the published experiment.
MIN_THROUGHPUT_RATIO = 0.95
MAX_WAITING = 1.0
# Two samples per third, at one sample per second; fewer show no trend.
FEWEST_SAMPLES = 6
# Least number of random arrivals before a window is judged: below it chance alone moves the number in flight.
FEWEST_RANDOM = 50


def queue_grows(waiting: Sequence[float]) -> bool:
    """Return whether the queue grows.

    The last third's median is above one, and above the first third's.

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
