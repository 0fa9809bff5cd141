"""A clock that ran late: which cells count all the same, and how much of a latency that may be.

Where cores are few a connector's own thread makes the clock late: the engine's thread that waits for a step has to wait for a core as well. On a GPU
with free cores it has not to. How late each result came is on record, so such a cell says something within bounds.
"""

import math
from typing import Any

from connector_tax.stats.cells import CellEstimates
from connector_tax.steptime.device_clock import RAN_LATE

# Of the device's time. A campaign's cells count up to 2 %; the verdict of a check holds what comes of more.
MOST_LATE_SHARE = 0.05


def only_late(document: dict[str, Any]) -> bool:
    """Whether a cell is valid, or has a clock that ran late and no other fault."""
    reasons = document["reasons"]
    return document["verdict"] == "valid" or (
        bool(reasons) and all(reason.startswith(RAN_LATE) for reason in reasons)
    )


def counts(document: dict[str, Any]) -> bool:
    """As ``only_late``, and not by more than ``MOST_LATE_SHARE``."""
    if document["verdict"] == "valid":
        return True
    clock = document["health"].get("device_clock") or {}
    return only_late(document) and clock.get("late_share", math.inf) <= MOST_LATE_SHARE


def late_ratio(
    name: str, own: CellEstimates | None, plains: tuple[CellEstimates | None, CellEstimates | None]
) -> float:
    """How much longer a latency may be beside the connector than beside plain, as a ratio less one, by lateness alone.

    A token of an answer takes a step, so of TPOT it is what the clock lost of the device's time. A first token waits for one step or two, and
    its 90th percentile for a late one: the 99th percentile of lateness over plain's TTFT p90.

    Args:
        name: ``ttft_ms`` or ``tpot_ms``.

    Returns:
        0 where a cell says nothing of a clock.
    """
    found = [_late(name, side) for side in (own, *plains)]
    if any(share is None for share in found):
        return 0.0
    mine, first, second = (share for share in found if share is not None)
    return (1 + mine) / (1 + (first + second) / 2) - 1


def _late(name: str, side: CellEstimates | None) -> float | None:
    clock = None if side is None else side.cell.document["health"].get("device_clock")
    if side is None or not clock:
        return None
    if name == "tpot_ms":
        return float(clock["late_share"])
    ttft_ms = side.latency(name, 90.0).point
    return None if not ttft_ms else float(clock["lateness_us"]["p99"]) / 1e3 / ttft_ms
