"""A series to its changes of level: on logarithms of latency ratios, so that noise is the same at any tax.

Each kind of tax is judged by itself. The threshold is what plain differs by from itself in the campaigns of the series: pairs of its
launches for taxes of one launch, the noise floor for those over blocks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

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
from connector_tax.base.statistics.change_points import (
    Shift,
    level_of,
    noise_limit,
    pooled_limit,
    search,
    shifts,
    spread_limit,
)
from connector_tax.base.statistics.laws import student_quantile
from connector_tax.base.statistics.resampling import Floats
from connector_tax.read.compare.changes import Side
from connector_tax.read.compare.context import differing
from connector_tax.read.figures.questions import phase_a_shape
from connector_tax.read.figures.words import clean
from connector_tax.read.track.series import Key, Many, class_of

KINDS: tuple[KindClass, ...] = ("launch", "blocks")
# From fewer pairs the spread of a thing from itself is hardly known.
LEAST_PAIRS = 3
MOST_DIFFERENCES = 40
# No clock of ours tells latencies apart that differ by less; what is below it comes of how numbers are written.
LEAST_RATIO = 1e-6


@dataclass(frozen=True, slots=True)
class _OfKind:
    """
    Attributes:
        limit: what is no change, as a log ratio.
        end: level at the end, a log ratio; of a last campaign that is suspected nothing is in it.
    """

    points: tuple[Point, ...]
    shifts: tuple[Shift, ...]
    limit: float
    end: float


def judged(
    many: Many, key: Key, points: Sequence[Point], confidence: float, fail_above: float
) -> tuple[tuple[Threshold, ...], tuple[ChangePoint, ...]]:
    """Thresholds and changes of one series.

    Args:
        confidence: of thresholds and intervals.
        fail_above: a connector's latency that is up by more than this ratio since a confirmed rise is a regression.
    """
    thresholds: list[Threshold] = []
    kinds: dict[KindClass, _OfKind] = {}
    for kind in KINDS:
        own = tuple(p for p in points if p.point is not None and class_of(p) == kind)
        if not own:
            continue
        values = np.log1p([p.point for p in own if p.point is not None])
        draws = partial(
            stream, 0, "shifts", key.config, key.metric, key.reference, f"{key.rate_per_s:g}", kind
        )
        cuts = search(values, draws)
        threshold = _threshold([many.sides[p.campaign] for p in own], key, kind, values, cuts, confidence)
        thresholds += [threshold] if threshold is not None else []
        limit = LEAST_RATIO if threshold is None else math.log1p(threshold.ratio)
        found = () if threshold is None else tuple(shifts(values, cuts, limit, confidence))
        kinds[kind] = _OfKind(own, found, limit, _end(values, found))
    changes = [
        _change(many, key, own, shift, *_now(kinds, own, shift), fail_above)
        for own in kinds.values()
        for shift in own.shifts
    ]
    return tuple(thresholds), tuple(sorted(changes, key=lambda change: change.first))


def _end(values: Floats, found: Sequence[Shift]) -> float:
    begin = max((s.at for s in found if s.confirmed), default=0)
    end = min((s.at for s in found if not s.confirmed), default=values.size)
    return level_of(values[begin:end])


def _now(kinds: Mapping[KindClass, _OfKind], own: _OfKind, shift: Shift) -> tuple[float, float]:
    """Level that a change is held against, and what is no difference from it.

    Two campaigns of the other kind, behind the last one of this kind, say what the level is now.
    """
    if not shift.confirmed:
        return shift.after, own.limit
    last = own.points[-1].campaign
    for other in kinds.values():
        if other is not own and sum(p.campaign > last for p in other.points) > 1:
            return other.end, max(own.limit, other.limit)
    return own.end, own.limit


def _threshold(
    sides: Sequence[Side],
    key: Key,
    kind: KindClass,
    values: Floats,
    cuts: list[int],
    confidence: float,
) -> Threshold | None:
    """None where too few campaigns have a number for one."""

    def of(found: tuple[float, int], source: NoiseSource) -> Threshold:
        return Threshold(kind=kind, ratio=max(math.expm1(found[0]), LEAST_RATIO), source=source, n=found[1])

    if kind == "blocks":
        floors = [floor for side in sides for floor in _noise_floors(side, key.metric, key.rate_per_s)]
        if floors:
            errors, freedoms = np.array(floors).T
            return of(pooled_limit(errors, freedoms, confidence), "noise floor over blocks")
    else:
        pairs = [pair for side in sides for pair in launches_of_plain(side, key.metric, key.rate_per_s)]
        if len(pairs) >= LEAST_PAIRS:
            return of(noise_limit(np.array(pairs), confidence), "pairs of launches of plain")
    own = spread_limit(values, cuts, confidence)
    return None if own is None else of(own, "spread of the series itself")


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


def _noise_floors(side: Side, metric: LatencyMetric, rate_per_s: float) -> list[tuple[float, float]]:
    """Standard error of the mean log ratio of plain to itself over blocks, and its degrees of freedom."""
    confidence = side.aggregate.provenance.confidence
    found = []
    for r in side.aggregate.repeats:
        floor, freedom = r.noise_floor, r.blocks - 1
        if (r.metric, r.rate_per_s) == (metric, rate_per_s) and floor.low > -1:
            half = (math.log1p(floor.high) - math.log1p(floor.low)) / 2
            found.append((half / float(student_quantile((1 + confidence) / 2, freedom)), float(freedom)))
    return found


def _change(
    many: Many, key: Key, own: _OfKind, shift: Shift, now: float, limit: float, fail_above: float
) -> ChangePoint:
    """
    Args:
        now: the level at the end of the series, as a log ratio.
        limit: what is no change, as a log ratio.
    """
    before, after = own.points[shift.at - 1].campaign, own.points[shift.at].campaign
    stands = (now - shift.before) * math.copysign(1, shift.point) > limit
    point, by_now = math.expm1(shift.point), math.expm1(now - shift.before)
    # Steps that are small each are held together against the limit.
    rose = shift.confirmed and point > 0 and stands and by_now > fail_above
    regression = rose and is_connector(key.config)
    differences = differing(many.sides[before], many.sides[after], {key.config})
    return ChangePoint(
        first=after,
        last_before=before,
        kind=class_of(own.points[shift.at]),
        status="confirmed" if shift.confirmed else "suspected",
        point=point,
        low=math.expm1(shift.low),
        high=math.expm1(shift.high),
        before=math.expm1(shift.before),
        after=math.expm1(shift.after),
        by_now=by_now,
        standing="stands" if stands else "taken back",
        regression=regression,
        to_confirm=None if shift.confirmed else many.campaigns[after].name,
        differences=tuple(
            Changed(what=clean(d.what), before=clean(d.a), after=clean(d.b))
            for d in differences[:MOST_DIFFERENCES]
        ),
    )
