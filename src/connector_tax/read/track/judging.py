"""A series to its changes of level: on logarithms of latency ratios, so that noise is the same at any tax.

Each kind of tax is judged by itself. The threshold is what plain differs by from itself in the campaigns of the series: pairs of its
launches for taxes of one launch, the noise floor for those over blocks.
"""

import math
from collections.abc import Sequence

import numpy as np

from connector_tax.base.documents.aggregate import LatencyMetric
from connector_tax.base.documents.history import (
    Changed,
    ChangePoint,
    KindClass,
    NoiseSource,
    Point,
    Threshold,
)
from connector_tax.base.records.connector import PLAIN_AGAIN, is_connector
from connector_tax.base.seeds import stream
from connector_tax.base.statistics.change_points import Shift, change_points, noise, noise_limit, shifts
from connector_tax.read.compare.changes import Side
from connector_tax.read.compare.context import differing
from connector_tax.read.figures.questions import phase_a_shape
from connector_tax.read.figures.words import clean
from connector_tax.read.track.series import Key, Many, class_of

KINDS: tuple[KindClass, ...] = ("launch", "blocks")
# From fewer pairs the spread of a thing from itself is hardly known.
LEAST_PAIRS = 3
MOST_DIFFERENCES = 40


def judged(
    many: Many, key: Key, points: Sequence[Point], confidence: float, fail_above: float
) -> tuple[tuple[Threshold, ...], tuple[ChangePoint, ...]]:
    """Thresholds and changes of one series.

    Args:
        confidence: of thresholds and intervals.
        fail_above: a confirmed rise of a connector's latency by more than this ratio is a regression.
    """
    thresholds: list[Threshold] = []
    changes: list[ChangePoint] = []
    for kind in KINDS:
        own = [p for p in points if p.point is not None and class_of(p) == kind]
        values = np.log1p([p.point for p in own if p.point is not None])
        name = (key.config, key.metric, key.reference, f"{key.rate_per_s:g}", kind)
        sides = [many.sides[p.campaign] for p in own]
        threshold = _threshold(sides, key, kind, values, confidence, name)
        if threshold is None or not own:
            continue
        thresholds.append(threshold)
        limit = math.log1p(threshold.ratio)
        found = shifts(values, limit, confidence, stream(0, "shifts", *name))
        changes += [_change(many, key, own, shift, found[-1].after, limit, fail_above) for shift in found]
    return tuple(thresholds), tuple(sorted(changes, key=lambda change: change.first))


def _threshold(
    sides: Sequence[Side],
    key: Key,
    kind: KindClass,
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    confidence: float,
    name: tuple[str, ...],
) -> Threshold | None:
    """None where too few campaigns have a number for one."""

    def of(log_ratio: float, source: NoiseSource, n: int) -> Threshold:
        return Threshold(kind=kind, ratio=math.expm1(log_ratio), source=source, n=n)

    if kind == "blocks":
        floors = [half for side in sides for half in _noise_floor(side, key.metric, key.rate_per_s)]
        if floors:
            return of(math.sqrt(float(np.mean(np.square(floors)))), "noise floor over blocks", len(floors))
    else:
        pairs = [pair for side in sides for pair in launches_of_plain(side, key.metric, key.rate_per_s)]
        if len(pairs) >= LEAST_PAIRS:
            return of(noise_limit(np.array(pairs), confidence), "pairs of launches of plain", len(pairs))
    # The last one may be no noise: it is what is asked about.
    values = values[:-1]
    if values.size <= LEAST_PAIRS:
        return None
    parts = change_points(values, stream(0, "spread", *name))
    spread, freedom = noise(values, parts)
    return of(noise_limit(np.full(freedom, spread), confidence), "spread of the series itself", freedom)


def launches_of_plain(side: Side, metric: LatencyMetric, rate_per_s: float) -> list[float]:
    """Log ratios of plain's second launch to its first, of each phase or block that launched it twice, at a rate of Phase A's shape."""
    aggregate = side.aggregate
    shape = phase_a_shape(aggregate)
    found = {
        (cell.config, cell.phase): cell.latency("ttft_ms" if metric == "ttft_p90" else "tpot_ms").p90.point
        for config in ("plain", PLAIN_AGAIN)
        for cell in aggregate.measured(config=config)
        if (cell.rate_per_s, cell.shape) == (rate_per_s, shape) and cell.recorded
    }
    again = {phase: value for (config, phase), value in found.items() if config == PLAIN_AGAIN}
    return [
        math.log(value / first)
        for phase, value in again.items()
        if value and (first := found.get(("plain", phase)))
    ]


def _noise_floor(side: Side, metric: LatencyMetric, rate_per_s: float) -> list[float]:
    """Half the width of its interval, of logarithms."""
    floors = [
        r.noise_floor for r in side.aggregate.repeats if (r.metric, r.rate_per_s) == (metric, rate_per_s)
    ]
    return [(math.log1p(f.high) - math.log1p(f.low)) / 2 for f in floors if f.low > -1]


def _change(
    many: Many, key: Key, own: Sequence[Point], shift: Shift, last: float, limit: float, fail_above: float
) -> ChangePoint:
    """
    Args:
        last: the level at the end of the series, as a log ratio.
        limit: what is no change, as a log ratio.
    """
    before, after = own[shift.at - 1].campaign, own[shift.at].campaign
    stands = (last - shift.before) * math.copysign(1, shift.point) > limit
    point = math.expm1(shift.point)
    regression = shift.confirmed and stands and point > max(fail_above, 0.0) and is_connector(key.config)
    differences = differing(many.sides[before], many.sides[after], {key.config})
    return ChangePoint(
        first=after,
        last_before=before,
        kind=class_of(own[shift.at]),
        status="confirmed" if shift.confirmed else "suspected",
        point=point,
        low=math.expm1(shift.low),
        high=math.expm1(shift.high),
        before=math.expm1(shift.before),
        after=math.expm1(shift.after),
        standing="stands" if stands else "taken back",
        regression=regression,
        to_confirm=None if shift.confirmed else many.campaigns[after].name,
        differences=tuple(
            Changed(what=clean(d.what), before=clean(d.a), after=clean(d.b))
            for d in differences[:MOST_DIFFERENCES]
        ),
    )
