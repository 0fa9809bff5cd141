"""A clock that ran late: which cells count all the same, and how much of a latency that may be.

Where cores are few a connector's own thread makes the clock late: the engine's thread that waits for a step has to wait for a core as well. On a GPU
with free cores it has not to. How late each result came is on record, so such a cell says something within bounds.
"""

import math

from connector_tax.base.documents.cell import CellDocument
from connector_tax.base.documents.health import RAN_LATE
from connector_tax.read.stats.cells import CellEstimates

# Of the device's time. A campaign's cells count up to 2 %; the verdict of a check holds what comes of more.
MOST_LATE_SHARE = 0.05


def only_late(document: CellDocument) -> bool:
    """Whether a cell is valid, or has a clock that ran late and no other fault."""
    reasons = document["reasons"]
    return document["verdict"] == "valid" or (
        bool(reasons) and all(reason.startswith(RAN_LATE) for reason in reasons)
    )


def counts(document: CellDocument, *, over_blocks: bool = False) -> bool:
    """As ``only_late``, and not by more than ``MOST_LATE_SHARE``.

    Args:
        over_blocks: whether taxes over blocks decide: what lateness may be is in no interval of theirs, so a late cell does not count.
    """
    if document["verdict"] == "valid" or over_blocks:
        return bool(document["verdict"] == "valid")
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
    clocks = [None if c is None else c.cell.document["health"].get("device_clock") for c in (own, *plains)]
    if not all(clocks):
        return 0.0
    if name == "tpot_ms":
        mine, *others = (float(clock["late_share"]) for clock in clocks if clock)
    else:
        points = [c.latency(name, 90.0).point for c in plains if c is not None]
        if not all(points):
            return 0.0
        plain_us = math.prod(p for p in points if p) ** (1 / len(points)) * 1e3
        mine, *others = (float(clock["lateness_us"]["p99"]) / plain_us for clock in clocks if clock)
    return (1 + mine) / (1 + sum(others) / len(others)) - 1
