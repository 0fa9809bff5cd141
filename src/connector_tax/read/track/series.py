"""Campaigns to series: one per configuration, latency and reference rate, and per key of what has to be alike."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from pathlib import Path

from msgspec.structs import replace

from connector_tax.base.documents.aggregate import LatencyMetric
from connector_tax.base.documents.history import Campaign, Environment, KindClass, Point, Threshold
from connector_tax.base.documents.rates import REFERENCES, Reference
from connector_tax.base.opening import printable
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.statistics.change_points import LEAST_BEFORE
from connector_tax.read.compare.changes import LATENCIES, Number, Side
from connector_tax.read.compare.comparison import FALLBACK, tax_at
from connector_tax.read.compare.context import has_to_be_alike
from connector_tax.read.figures.questions import reference_flags, reference_rate, why_absent
from connector_tax.read.track.sources import NOWHERE, Place, when


@dataclass(frozen=True, slots=True)
class Key:
    """What makes two points members of one series."""

    config: str
    metric: LatencyMetric
    reference: Reference
    environment: int
    rate_per_s: float


@dataclass(frozen=True, slots=True)
class Many:
    """Campaigns in order of time, with what each has to have alike."""

    sides: tuple[Side, ...]
    campaigns: tuple[Campaign, ...]
    environments: tuple[Environment, ...]


def many_of(sides: Sequence[Side], places: Mapping[Path, Place] | None = None) -> Many:
    """
    Args:
        places: of campaigns of a sweep: their axes keep series apart, whether anything that is measured tells of them or not.
    """
    known = places or {}
    facts = [{**known.get(side.path, NOWHERE).facts, **has_to_be_alike(side)} for side in sides]
    apart = list({tuple(sorted(own.items())): own for own in facts}.values())
    names = list(dict.fromkeys(name for own in apart for name in own))
    differ = [name for name in names if len({own.get(name) for own in apart}) > 1]
    environments = tuple(
        Environment(index=k, facts=own, differs={name: own.get(name, "-") for name in differ})
        for k, own in enumerate(apart)
    )
    campaigns = tuple(
        Campaign(
            index=k,
            path=printable(str(side.path)),
            name=side.aggregate.campaign,
            when=when(side),
            environment=apart.index(own),
            versions=side.aggregate.provenance.versions,
        )
        for k, (side, own) in enumerate(zip(sides, facts, strict=True))
    )
    return Many(tuple(sides), campaigns, environments)


def series_of(many: Many) -> tuple[dict[Key, list[Point]], list[Campaign]]:
    """Every series with its points in order of time, and campaigns that are in none.

    A campaign without a number has a point in each series that it would have been in: of its environment and rate, or, where it has no
    reference rate to go by, of its environment and the rate that was last in use. A series may have no number at all.
    """
    own = [tuple(_keys(side, c.environment)) for c, side in zip(many.campaigns, many.sides, strict=True)]
    rates = [[_rate(side, reference) for reference in REFERENCES] for side in many.sides]
    found: dict[Key, list[Point]] = {}
    first: dict[Key, int] = {}
    for k, keys in enumerate(own):
        for key in keys:
            first.setdefault(key, k)
    for key in [*first, *_of_fallbacks(many, first)]:
        for campaign, side in zip(many.campaigns, many.sides, strict=True):
            k = campaign.index
            if campaign.environment != key.environment:
                continue
            rate = rates[k][REFERENCES.index(key.reference)]
            if key in own[k] or key not in first:
                found.setdefault(key, []).append(_point(_tax(side, key), k))
            elif rate == key.rate_per_s or (rate is None and key == _in_use(first, key, k)):
                found.setdefault(key, []).append(_point(Number(None, _why_none(side, key, rate)), k))
    inside = {p.campaign for points in found.values() for p in points}
    return {key: _marked(points) for key, points in found.items()}, [
        c for c in many.campaigns if c.index not in inside
    ]


def class_of(point: Point) -> KindClass:
    return "blocks" if point.kind.startswith("over") else "launch"


def can_be_judged(points: Sequence[Point], thresholds: Sequence[Threshold]) -> bool:
    """Whether a change of the newest kind of tax could be seen: one campaign, and those that it is held against."""
    kinds = [class_of(p) for p in points if p.point is not None and not p.unlike]
    return len(kinds) > LEAST_BEFORE and any(t.kind == kinds[-1] for t in thresholds)


def _rate(side: Side, reference: Reference) -> float | None:
    """None, too, for a fallback: nobody knows how much of a tax at it is queueing."""
    fallback = FALLBACK in reference_flags(side.aggregate)
    return None if fallback else reference_rate(side.aggregate, reference)


def _keys(side: Side, environment: int) -> Iterator[Key]:
    rates: set[float] = set()
    for reference in REFERENCES:
        rate = _rate(side, reference)
        # Two references at one rate are one tax.
        if rate is not None and rate not in rates:
            rates.add(rate)
            yield from _keys_at(side, environment, reference, rate)


def _keys_at(side: Side, environment: int, reference: Reference, rate: float) -> Iterator[Key]:
    for config, state in side.aggregate.configs.items():
        for metric in LATENCIES:
            no_tax = metric == "ttft_p90" and state.ttft_is_no_tax
            if config not in ("plain", PLAIN_AGAIN) and not no_tax:
                yield Key(config, metric, reference, environment, rate)


def _of_fallbacks(many: Many, first: Mapping[Key, int]) -> list[Key]:
    """Of environments in which every reference rate is a fallback: series without a number, since the campaigns are there."""
    known = {key.environment for key in first}
    found: dict[Key, None] = {}
    for campaign, side in zip(many.campaigns, many.sides, strict=True):
        for reference in REFERENCES:
            rate = reference_rate(side.aggregate, reference)
            if campaign.environment not in known and rate is not None:
                keys = _keys_at(side, campaign.environment, reference, rate)
                found |= dict.fromkeys(keys)
    return list(found)


def _in_use(first: Mapping[Key, int], key: Key, campaign: int) -> Key:
    """The series of that tax which the last campaign before began, else the first one after."""
    same = [k for k in first if replaced(k, rate_per_s=key.rate_per_s) == key]
    before = [k for k in same if first[k] <= campaign]
    return max(before, key=first.__getitem__) if before else min(same, key=first.__getitem__)


def _why_none(side: Side, key: Key, rate: float | None) -> str:
    aggregate = side.aggregate
    if FALLBACK in reference_flags(aggregate):
        return _of_fallback(key.reference)
    if rate is None:
        return f"it has no {key.reference}"
    if key.config not in aggregate.configs:
        return f"{key.config} is not in it"
    if key.metric == "ttft_p90" and aggregate.configs[key.config].ttft_is_no_tax:
        return "its TTFT is no tax there"
    return f"{key.reference} is the rate of {REFERENCES[0]} there, where this tax stands"


def _of_fallback(reference: Reference) -> str:
    return f"{reference} is a fallback there, so nobody knows how much of a tax is queueing"


def _point(found: Number, campaign: int) -> Point:
    value = found.value
    return Point(
        campaign=campaign,
        point=None if value is None else value.point,
        low=None if value is None else value.low,
        high=None if value is None else value.high,
        reason=found.reason if value is None else None,
        kind=found.kind,
        unlike=False,
        overloaded=found.overloaded,
        flags=found.flags,
    )


def _tax(side: Side, key: Key) -> Number:
    return number_of(side, key.config, key.metric, key.reference, key.rate_per_s)


def number_of(
    side: Side, config: str, metric: LatencyMetric, reference: Reference, rate_per_s: float
) -> Number:
    """The tax that stands in the campaign at the rate of ``reference``, or why there is none."""
    aggregate = side.aggregate
    if FALLBACK in reference_flags(aggregate):
        return Number(None, _of_fallback(reference))
    if not any(
        (t.config, t.metric, t.rate_per_s) == (config, metric, rate_per_s) for t in aggregate.chosen_taxes
    ):
        return Number(None, why_absent(aggregate, config))
    found = tax_at(aggregate, config, metric, rate_per_s)
    if found.value is not None and found.value.point <= -1:
        return Number(None, "it is no ratio of latencies", found.kind)
    return found


def _marked(points: list[Point]) -> list[Point]:
    """With those that are of another kind than the newest that has a number."""
    newest = next((class_of(p) for p in reversed(points) if p.point is not None), None)
    return [replace(p, unlike=True) if p.point is not None and class_of(p) != newest else p for p in points]
