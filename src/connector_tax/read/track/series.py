"""Campaigns to series: one per configuration, latency and reference rate, and per key of what has to be alike."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from connector_tax.base.documents.aggregate import LatencyMetric
from connector_tax.base.documents.history import Campaign, Environment, KindClass, Point
from connector_tax.base.documents.rates import REFERENCES, Reference
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.read.compare.changes import LATENCIES, Number, Side
from connector_tax.read.compare.comparison import FALLBACK, tax_at
from connector_tax.read.compare.context import has_to_be_alike
from connector_tax.read.figures.questions import reference_flags, reference_rate, why_absent
from connector_tax.read.track.sources import when


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


def many_of(sides: Sequence[Side]) -> Many:
    facts = [has_to_be_alike(side) for side in sides]
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
            path=str(side.path),
            name=side.aggregate.campaign,
            when=when(side),
            environment=apart.index(own),
            versions=side.aggregate.provenance.versions,
        )
        for k, (side, own) in enumerate(zip(sides, facts, strict=True))
    )
    return Many(tuple(sides), campaigns, environments)


def series_of(many: Many) -> dict[Key, list[Point]]:
    """Every series with its points in order of time; one in which no campaign has a number is a series, too."""
    found: dict[Key, list[Point]] = {}
    for campaign, side in zip(many.campaigns, many.sides, strict=True):
        for key in _keys(side, campaign.environment):
            found.setdefault(key, []).append(_point(side, campaign.index, key))
    return {key: _marked(points) for key, points in found.items()}


def class_of(point: Point) -> KindClass:
    return "blocks" if point.kind.startswith("over") else "launch"


def _keys(side: Side, environment: int) -> Iterator[Key]:
    aggregate = side.aggregate
    for reference in REFERENCES:
        rate = reference_rate(aggregate, reference)
        for config, state in aggregate.configs.items():
            for metric in LATENCIES:
                no_tax = metric == "ttft_p90" and state.ttft_is_no_tax
                if rate is not None and config not in ("plain", PLAIN_AGAIN) and not no_tax:
                    yield Key(config, metric, reference, environment, rate)


def _point(side: Side, index: int, key: Key) -> Point:
    found = _tax(side, key)
    value = found.value
    return Point(
        campaign=index,
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
    aggregate = side.aggregate
    if FALLBACK in reference_flags(aggregate):
        return Number(
            None, f"{key.reference} is a fallback there, so nobody knows how much of a tax is queueing"
        )
    if not any(
        (t.config, t.metric, t.rate_per_s) == (key.config, key.metric, key.rate_per_s)
        for t in aggregate.chosen_taxes
    ):
        return Number(None, why_absent(aggregate, key.config))
    found = tax_at(aggregate, key.config, key.metric, key.rate_per_s)
    if found.value is not None and found.value.point <= -1:
        return Number(None, "it is no ratio of latencies", found.kind)
    return found


def _marked(points: list[Point]) -> list[Point]:
    """With those that are of another kind than the newest that has a number."""
    newest = next((class_of(p) for p in reversed(points) if p.point is not None), None)
    return [replace(p, unlike=True) if p.point is not None and class_of(p) != newest else p for p in points]
