"""Two campaigns to what changed between them: each tax in A, in B, and the difference with an interval.

A and B are two days, two releases, two GPUs: measured independently, so a difference needs their intervals alone. Taxes are the
ones that stand in either campaign (``main_taxes``). One of one launch and one over blocks of launches are not compared: the
interval of the former does not hold what launches differ by. Plain with a connector's settings is shown and decides nothing.
"""

from collections.abc import Iterator
from pathlib import Path

from connector_tax.base.documents.aggregate import (
    Aggregate,
    Interval,
    LatencyMetric,
    Metric,
    read_aggregate,
)
from connector_tax.base.documents.rates import Reference
from connector_tax.base.errors import ArtifactError, NotComparable
from connector_tax.base.files import read_json
from connector_tax.base.records.connector import PLAIN_AGAIN, is_connector
from connector_tax.base.statistics.mover import Bounded, change
from connector_tax.read.compare.changes import LATENCIES, Change, Comparison, InNeither, Number, Rate, Side
from connector_tax.read.figures.flags import flags_behind
from connector_tax.read.figures.questions import (
    Tax,
    phase_a_shape,
    rated_cells,
    reference_flags,
    reference_rate,
    why_absent,
)
from connector_tax.read.figures.words import rate as rate_text

# Shown beside what decides, where both campaigns recorded steps.
STEPS: tuple[Metric, ...] = ("step_p50_us", "callback_p50_us")
FALLBACK = "fallback_lowest_rate"


def read_side(name: str, path: Path) -> Side:
    """A campaign folder, or an ``aggregate.json`` by itself.

    Raises:
        ArtifactError: missing, not JSON, of another schema, of another form, or it does not say what confidence its intervals have.
    """
    # A link that somebody names is followed; one that lies in a campaign's folder is not.
    file = path.resolve() if path.suffix == ".json" else path / "aggregate.json"
    aggregate = read_aggregate(file)
    # Its readers take an early aggregate's confidence for the usual one; whoever sets two side by side has to know it.
    if "confidence" not in read_json(file)["provenance"]:
        raise ArtifactError(
            f"{path}: provenance.confidence is None, so its intervals cannot be compared. "
            "Make the aggregate again with connector-tax analyze."
        )
    return Side(name, path, aggregate)


def compare(
    a: Side, b: Side, *, fail_above: float, deciding: tuple[LatencyMetric, ...], allow_missing: bool = False
) -> Comparison:
    """B against A.

    Args:
        fail_above: as a ratio; 0.05 is 5 percentage points.
        deciding: of ``LATENCIES``.

    Raises:
        NotComparable: confidence or Phase A's shape is not the same in both.
    """
    confidence = _one_confidence(a, b)
    _one_shape(a, b)
    rate = common_rate(a, b)
    changes: list[Change] = []
    only_in: list[tuple[str, str, str]] = []
    in_neither: list[InNeither] = []
    planned = [{c: side.aggregate.configs[c].status for c in side.aggregate.config_ids} for side in (a, b)]
    ids = [c for c in dict.fromkeys([*planned[0], *planned[1]]) if c not in ("plain", PLAIN_AGAIN)]
    for config in ids:
        there = [side for side in (a, b) if _measured(side.aggregate, config, rate.per_s)]
        if len(there) == 1:
            other = b if there[0] is a else a
            only_in.append((there[0].name, config, why_absent(other.aggregate, config)))
        if not there:
            statuses = {
                side.name: own[config] for side, own in zip((a, b), planned, strict=True) if config in own
            }
            skipped = set(statuses.values()) == {"skipped"}
            in_neither.append(InNeither(config, _why_in_neither(a, b, config), skipped, tuple(statuses)))
        if len(there) == 2 and rate.per_s is not None:
            changes += _changes(a, b, config, rate.per_s, fail_above, deciding)
    return Comparison(
        a,
        b,
        confidence,
        fail_above,
        deciding,
        rate,
        tuple(changes),
        tuple(only_in),
        tuple(in_neither),
        allow_missing,
    )


def _why_in_neither(a: Side, b: Side, config: str) -> str:
    first, second = (why_absent(side.aggregate, config) for side in (a, b))
    return first if first == second else f"in A {first}; in B {second}"


def _one_confidence(a: Side, b: Side) -> float:
    found = [side.aggregate.provenance.confidence for side in (a, b)]
    if found[0] != found[1]:
        raise NotComparable(
            f"analysis.confidence is {found[0]:g} in {a.path} and {found[1]:g} in {b.path}. Analyse one of them again "
            "with the other's."
        )
    return found[0]


def _one_shape(a: Side, b: Side) -> None:
    shapes = [phase_a_shape(side.aggregate) for side in (a, b)]
    if None not in shapes and shapes[0] != shapes[1]:
        words = [f"{i} prompt and {o} output tokens" for i, o in (s for s in shapes if s is not None)]
        raise NotComparable(
            f"Phase A has {words[0]} in {a.path} and {words[1]} in {b.path}. A tax depends on them; compare campaigns "
            "of one shape."
        )


def common_rate(a: Side, b: Side) -> Rate:
    """ref_safe where it is one; else the highest rate that plain has in both, that is healthy in both and at which taxes of both
    can be compared: blocks are launched at a campaign's own reference rates alone.
    """
    safe = (reference_rate(a.aggregate, "ref_safe"), reference_rate(b.aggregate, "ref_safe"))
    for side, value in zip((a, b), safe, strict=True):
        if value is None:
            return Rate(None, safe, f"{side.name} has no reference rates, so it has no tax at one.")
    first, second = (v or 0.0 for v in safe)
    there = "both" if first == second else f"A and {rate_text(second)} in B"
    differ = f"ref_safe is {rate_text(first)} in {there}"
    fallen = [side.name for side in (a, b) if FALLBACK in reference_flags(side.aggregate)]
    if fallen:
        # Also where both fell back to the same rate: nobody knows how much of a tax there is queueing.
        return Rate(
            None,
            safe,
            f"{differ}, and that of {' and '.join(fallen)} is a fallback, so none can be compared.",
        )
    if first == second:
        return Rate(first, safe, f"At ref_safe, {rate_text(first)} in both.")
    measured = [{cell.rate_per_s for cell in rated_cells(side.aggregate, "a", "plain")} for side in (a, b)]
    # Below ref_safe nothing is saturated, by its definition.
    healthy = [r for r in measured[0] & measured[1] if r <= min(first, second)]
    if not healthy:
        return Rate(None, safe, f"{differ}, and plain has no rate in both that is healthy in both.")
    like = [r for r in healthy if _some_alike(a, b, r)]
    chosen = max(like or healthy)
    kinds = " and has taxes of one kind in both" if like and chosen < max(healthy) else ""
    return Rate(
        chosen,
        safe,
        f"{differ}; compared at {rate_text(chosen)}, the highest rate that both measured and that is healthy in both{kinds}.",
    )


def _some_alike(a: Side, b: Side, rate_per_s: float) -> bool:
    """Whether some latency of some configuration can be compared at that rate."""
    return any(
        not _why_not(*(tax_at(side.aggregate, config, metric, rate_per_s) for side in (a, b)))
        for config in a.aggregate.config_ids
        for metric in LATENCIES
        if is_connector(config)
    )


def _changes(
    a: Side, b: Side, config: str, rate_per_s: float, fail_above: float, deciding: tuple[LatencyMetric, ...]
) -> list[Change]:
    found = []
    metrics: tuple[Metric, ...] = (*LATENCIES, *STEPS)
    for metric in metrics:
        if metric == "ttft_p90" and all(_ttft_is_no_tax(side.aggregate, config) for side in (a, b)):
            continue
        first, second = (tax_at(side.aggregate, config, metric, rate_per_s) for side in (a, b))
        why_not = _why_not(first, second)
        timed = all(side.aggregate.step_timing_available for side in (a, b))
        if metric in STEPS and why_not and not (timed and (first.value or second.value)):
            continue  # not every release can be timed; where one was not there is nothing to say
        value = None if why_not else _difference(first.value, second.value)
        rose = value is not None and value.point > fail_above and value.low is not None and value.low > 0
        regression = metric in deciding and rose and is_connector(config)
        found.append(Change(config, metric, first, second, value, regression, why_not))
    return found


def _ttft_is_no_tax(aggregate: Aggregate, config: str) -> bool:
    return config in aggregate.configs and bool(aggregate.configs[config].ttft_is_no_tax)


def _why_not(a: Number, b: Number) -> str:
    """Empty where the two can be compared; else in which campaign there is no number, and why."""
    lost = {name: found.reason for name, found in (("A", a), ("B", b)) if found.value is None}
    if len(lost) == 2 and lost["A"] == lost["B"]:
        return f"in A and in B {lost['A']}"
    if lost:
        return "; ".join(f"in {name} {reason}" for name, reason in lost.items())
    if a.of_one_launch == b.of_one_launch:
        return ""
    return f"A's is {a.kind}, B's {b.kind}: the two are not compared, blocks at this rate in both would do"


def _difference(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else Interval(*change(_bounded(a), _bounded(b)))


def _measured(aggregate: Aggregate, config: str, rate_per_s: float | None) -> bool:
    """Whether it has a tax at that rate, be it one that is unavailable."""
    if rate_per_s is None:
        return bool(rated_cells(aggregate, "a", config))
    return any(True for _ in _standing(aggregate, config, rate_per_s))


def _standing(aggregate: Aggregate, config: str, rate_per_s: float) -> Iterator[Tax]:
    """The taxes that stand at that rate, at the reference rates first; of aggregates of earlier versions there are none elsewhere."""
    return (t for t in aggregate.chosen_taxes if (t.config, t.rate_per_s) == (config, rate_per_s))


def tax_at(aggregate: Aggregate, config: str, metric: Metric, rate_per_s: float) -> Number:
    """The campaign's own tax at that rate."""
    tax = next((t for t in _standing(aggregate, config, rate_per_s) if t.metric == metric), None)
    if tax is None:
        return Number(None, f"no {metric} at {rate_text(rate_per_s)}")
    return Number(
        tax.interval if tax.available else None,
        tax.reason or "not available",
        tax.kind,
        overloaded=bool(tax.overloaded),
        flags=tuple(flags_behind(aggregate, tax)),
    )


def number_of(
    side: Side, config: str, metric: LatencyMetric, reference: Reference, rate_per_s: float
) -> Number:
    """The tax that stands in the campaign at the rate of ``reference``, or why there is none."""
    aggregate = side.aggregate
    if FALLBACK in reference_flags(aggregate):
        return Number(None, f"{reference} is a fallback there, so nobody knows how much of a tax is queueing")
    if not any(t.metric == metric for t in _standing(aggregate, config, rate_per_s)):
        return Number(None, why_absent(aggregate, config))
    found = tax_at(aggregate, config, metric, rate_per_s)
    if found.value is not None and found.value.point <= -1:
        return Number(None, "it is no ratio of latencies", found.kind)
    return found


def _bounded(value: Interval) -> Bounded:
    return value.point, value.low, value.high
