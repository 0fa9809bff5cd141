"""Percentiles over every request scheduled in the window.

A request that failed, was dropped or did not finish counts as +infinity. A percentile that falls on one is
unavailable (None); it is never computed from the successful requests alone.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

PERCENTILES = (50, 90, 99)


def percentile(values: ArrayLike, q: float) -> float | None:
    """Return the ``q``-th percentile, or None if it is not finite or there are no values.

    Linear interpolation between order statistics (Hyndman & Fan 1996, type 7, numpy's default). An
    interpolation that touches +infinity is unavailable: half of infinity is not a latency.
    """
    array: NDArray[np.float64] = np.sort(np.asarray(values, dtype=np.float64))
    if array.size == 0:
        return None
    position = (array.size - 1) * q / 100
    low = int(np.floor(position))
    weight = position - low
    high = low + 1 if weight else low
    if not (np.isfinite(array[low]) and np.isfinite(array[high])):
        return None
    return float(array[low] + weight * (array[high] - array[low]))
