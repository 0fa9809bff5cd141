"""Which cells were sent the same requests at the same times, so that their blocks are drawn together."""

from collections.abc import Sequence

import numpy as np

from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.statistics.pairing import CommonArrivals
from connector_tax.base.statistics.resampling import Ints
from connector_tax.read.ingest import CellData

Seqs = dict[str, Ints]


def common_arrivals(cells: Sequence[CellData], seed: int) -> list[dict[str, CommonArrivals]]:
    """Of each cell: latency -> how its blocks are drawn; nothing where no schedule was fixed beforehand.

    In a closed loop and in a conversation a request leaves when another has ended, so request k of two cells has no more in
    common than any other.
    """
    seqs = [_seqs(cell) for cell in cells]
    ranges: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    for cell, by_name in zip(cells, seqs, strict=True):
        ranges.setdefault(_schedule(cell), []).extend((int(s[0]), int(s[-1]) + 1) for s in by_name.values())
    axes = {
        names: (min(first for first, _ in found), max(last for _, last in found))
        for names, found in ranges.items()
        if found
    }
    return [
        {name: CommonArrivals(seed, _schedule(cell), axes[_schedule(cell)], s) for name, s in by_name.items()}
        for cell, by_name in zip(cells, seqs, strict=True)
    ]


def _schedule(cell: CellData) -> tuple[str, ...]:
    """Cells with the same names had the same arrivals: ``plan.cells`` gives them one seed, whatever the configuration."""
    return (cell.phase, cell.cell_id, cell.spec.arrival, str(cell.spec.seed))


def _seqs(cell: CellData) -> Seqs:
    """Latency -> ``seq`` of the requests in the window that have it."""
    if cell.spec.sessions is not None or cell.spec.rate_per_s == 0:
        return {}
    chosen = in_window(cell.requests, cell.window)
    everyone = np.array([r.seq for r in chosen], dtype=np.int64)
    found = {}
    for name, values in latencies_ms(chosen).items():
        # One-token outputs have no TPOT.
        whole = len(values) == len(chosen)
        seqs = (
            everyone
            if whole
            else np.array([r.seq for r in chosen if latencies_ms([r])[name]], dtype=np.int64)
        )
        if seqs.size:
            found[name] = seqs
    return found
