"""Two campaigns to what changed between them: each tax in A, in B, and the difference with an interval.

A and B are two days, two releases, two GPUs: measured independently, so a difference needs their intervals alone. Taxes are
those of Phase A at ref_safe; over blocks of launches where both have them; at another rate than a campaign's own they are
made of its cells' percentiles.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector_tax.errors import ArtifactError, NotComparable
from connector_tax.figures.draw_all import read_aggregate_file
from connector_tax.figures.lookup import (
    Aggregate,
    Interval,
    configs,
    interval,
    mapping,
    number,
    percentile,
    phase_a_shape,
    reference_flags,
    reference_rate,
    rows,
    valid_cells,
    why_absent,
)
from connector_tax.figures.words import rate as rate_text
from connector_tax.stats.mover import Bounded, change, ratio_less_one

# What decides, where it lies in a cell, and what is shown beside it where both campaigns recorded steps.
LATENCIES = {"ttft_p90": "ttft_ms", "tpot_p90": "tpot_ms"}
STEPS = {"step_p50_us": "step_duration_us", "callback_p50_us": "connector_total_us"}
FALLBACK = "fallback_lowest_rate"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two campaigns; ``name`` is A or B."""

    name: str
    path: Path
    aggregate: Aggregate


@dataclass(frozen=True, slots=True)
class Rate:
    """Where taxes are compared; ``per_s`` is None where there is no such rate, and ``sentence`` says why."""

    per_s: float | None
    ref_safe_per_s: tuple[float | None, float | None]
    sentence: str


@dataclass(frozen=True, slots=True)
class Number:
    """One tax of one campaign.

    Attributes:
        value: a ratio less one, or microseconds; None where it is unavailable, for ``reason``.
        source: ``launch``, the campaign's tax in Phase A; ``blocks``, that over blocks of launches; ``cells``, worked out
            here from two cells' percentiles.
        overloaded: one of the two sides did not keep up, so it holds queueing.
    """

    value: Interval | None
    reason: str = ""
    source: str = "launch"
    overloaded: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One tax in both; ``value`` is B's less A's, None where either is unavailable."""

    config: str
    metric: str
    a: Number
    b: Number
    value: Interval | None
    regression: bool

    @property
    def unit(self) -> str:
        return "ratio" if self.metric in LATENCIES else "us"

    @property
    def word(self) -> str:
        if self.value is None:
            return "not available"
        if self.value.covers_zero:
            return "not told apart"
        return "worse" if self.value.point > 0 else "better"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that is printed.

    Attributes:
        confidence: of every interval in it.
        fail_above: a rise of a tax by more than this ratio is a regression, if the rise is told apart from zero.
        deciding: the metrics that may be one.
        only_in: (A or B, configuration, why it is not in the other).
        allow_missing: what A has and B has not is no reason to withhold a verdict.
    """

    a: Side
    b: Side
    confidence: float
    fail_above: float
    deciding: tuple[str, ...]
    rate: Rate
    changes: tuple[Change, ...]
    only_in: tuple[tuple[str, str, str], ...]
    allow_missing: bool = False

    @property
    def decisive(self) -> list[Change]:
        """Changes that could have been a regression."""
        return [c for c in self.changes if c.metric in self.deciding and c.value is not None]

    @property
    def lost(self) -> list[Change]:
        return [c for c in self.changes if c.metric in self.deciding and c.value is None]

    @property
    def gone(self) -> bool:
        """Whether A has a tax that B has not: it may be the one that rose, and a connector that no longer starts has none."""
        return any(name == self.a.name for name, _, _ in self.only_in) or any(
            c.a.value is not None and c.b.value is None for c in self.lost
        )

    @property
    def regressions(self) -> list[Change]:
        return [c for c in self.changes if c.regression]

    @property
    def exit_code(self) -> int:
        """0: no regression, 1: at least one, 2: nothing could be compared, or a tax of A is gone."""
        if self.regressions:
            return 1
        return 2 if not self.decisive or (self.gone and not self.allow_missing) else 0


def read_side(name: str, path: Path) -> Side:
    """A campaign folder, or an ``aggregate.json`` by itself.

    Raises:
        ArtifactError: missing, not JSON, or of another schema.
    """
    # A link that somebody names is followed; one that lies in a campaign's folder is not.
    file = path.resolve() if path.suffix == ".json" else path / "aggregate.json"
    return Side(name, path, read_aggregate_file(file))


def compare(
    a: Side, b: Side, *, fail_above: float, deciding: tuple[str, ...], allow_missing: bool = False
) -> Comparison:
    """B against A.

    Args:
        fail_above: as a ratio; 0.05 is 5 percentage points.
        deciding: of ``LATENCIES``.

    Raises:
        ArtifactError: one does not say what confidence its intervals have.
        NotComparable: confidence or Phase A's shape is not the same in both.
    """
    confidence = _one_confidence(a, b)
    _one_shape(a, b)
    rate = common_rate(a, b)
    changes: list[Change] = []
    only_in: list[tuple[str, str, str]] = []
    ids = dict.fromkeys(c.id for side in (a, b) for c in configs(side.aggregate) if c.id != "plain")
    for config in ids:
        there = [side for side in (a, b) if _measured(side.aggregate, config, rate.per_s)]
        if len(there) == 1:
            other = b if there[0] is a else a
            only_in.append((there[0].name, config, why_absent(other.aggregate, config)))
        if len(there) == 2 and rate.per_s is not None:
            changes += _changes(a, b, config, rate.per_s, fail_above, deciding)
    return Comparison(
        a, b, confidence, fail_above, deciding, rate, tuple(changes), tuple(only_in), allow_missing
    )


def _one_confidence(a: Side, b: Side) -> float:
    found = []
    for side in (a, b):
        value = number(mapping(side.aggregate.get("provenance")).get("confidence"))
        if value is None or not 0 < value < 1:
            raise ArtifactError(
                f"{side.path}: provenance.confidence is {value}, so its intervals cannot be compared. "
                "Make the aggregate again with scripts/analyze.py."
            )
        found.append(value)
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
    """ref_safe where it is one; else the highest rate that plain has in both and that is healthy in both."""
    safe = (reference_rate(a.aggregate, "ref_safe"), reference_rate(b.aggregate, "ref_safe"))
    for side, value in zip((a, b), safe, strict=True):
        if value is None:
            return Rate(None, safe, f"{side.name} has no reference rates, so it has no tax at one.")
    first, second = (float(v or 0.0) for v in safe)
    if first == second:
        return Rate(first, safe, f"At ref_safe, {rate_text(first)} in both.")
    differ = f"ref_safe is {rate_text(first)} in A and {rate_text(second)} in B"
    fallen = [side.name for side in (a, b) if FALLBACK in reference_flags(side.aggregate)]
    if fallen:
        return Rate(
            None,
            safe,
            f"{differ}, and no rate of {' and '.join(fallen)} is healthy, so none can be compared.",
        )
    measured = [
        {float(c["rate_per_s"]) for c in valid_cells(side.aggregate, "a", "plain")} for side in (a, b)
    ]
    # Below ref_safe nothing is saturated, by its definition.
    healthy = [r for r in measured[0] & measured[1] if r <= min(first, second)]
    if not healthy:
        return Rate(None, safe, f"{differ}, and plain has no rate in both that is healthy in both.")
    chosen = max(healthy)
    return Rate(
        chosen,
        safe,
        f"{differ}; compared at {rate_text(chosen)}, the highest rate that both measured and that is healthy in both.",
    )


def _changes(
    a: Side, b: Side, config: str, rate_per_s: float, fail_above: float, deciding: tuple[str, ...]
) -> list[Change]:
    found = []
    for metric in (*LATENCIES, *STEPS):
        first, second = (over_blocks(side.aggregate, config, metric, rate_per_s) for side in (a, b))
        if first is None or second is None:
            first, second = (tax_at(side.aggregate, config, metric, rate_per_s) for side in (a, b))
        known = first.value is not None and second.value is not None
        if metric in STEPS and not known:
            continue  # not every release can be timed; where one was not there is nothing to say
        value = _difference(first.value, second.value)
        rose = value is not None and value.point > fail_above and value.low is not None and value.low > 0
        found.append(Change(config, metric, first, second, value, metric in deciding and rose))
    return found


def _difference(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else Interval(*change(_bounded(a), _bounded(b)))


def _measured(aggregate: Aggregate, config: str, rate_per_s: float | None) -> bool:
    """Whether it has a tax at that rate, be it one that is unavailable."""
    if rate_per_s is None:
        return bool(valid_cells(aggregate, "a", config))
    return _row(aggregate, config, None, rate_per_s) is not None or bool(_cell(aggregate, config, rate_per_s))


def over_blocks(aggregate: Aggregate, config: str, metric: str, rate_per_s: float) -> Number | None:
    """The tax over blocks of launches at that rate; None where there is none."""
    for entry in rows(aggregate.get("repeats")):
        if (entry.get("metric"), number(entry.get("rate_per_s"))) == (metric, rate_per_s):
            for tax in rows(entry.get("taxes")):
                value = interval(tax)
                if tax.get("config") == config and value is not None:
                    return Number(value, source="blocks")
    return None


def tax_at(aggregate: Aggregate, config: str, metric: str, rate_per_s: float) -> Number:
    """The campaign's own tax in Phase A at that rate; where it has none, that of its cells."""
    row = _row(aggregate, config, metric, rate_per_s)
    if row is None:
        return _of_cells(aggregate, config, metric, rate_per_s)
    value = interval(row) if row.get("available", True) else None
    return Number(value, str(row.get("reason") or "not available"), overloaded=bool(row.get("overloaded")))


def _row(
    aggregate: Aggregate, config: str, metric: str | None, rate_per_s: float
) -> Mapping[str, Any] | None:
    return next(
        (
            t
            for t in rows(aggregate.get("taxes"))
            if (t.get("phase"), t.get("config"), number(t.get("rate_per_s"))) == ("a", config, rate_per_s)
            and metric in (None, t.get("metric"))
        ),
        None,
    )


def _cell(aggregate: Aggregate, config: str, rate_per_s: float) -> Mapping[str, Any]:
    """Phase A's; an empty one where there is none."""
    cells = valid_cells(aggregate, "a", config)
    return next((c for c in cells if c["rate_per_s"] == rate_per_s), {})


def _of_cells(aggregate: Aggregate, config: str, metric: str, rate_per_s: float) -> Number:
    """From the intervals alone, as if the cells had no schedule in common: too wide rather than too narrow."""
    why_not = mapping(mapping(aggregate.get("configs")).get(config)).get("ttft_is_no_tax")
    if why_not and metric == "ttft_p90":
        return Number(None, reason=f"its TTFT is no tax: {why_not}")
    sides = {name: _cell(aggregate, name, rate_per_s) for name in (config, "plain")}
    numbers = {name: _percentile(cell, metric) for name, cell in sides.items()}
    if metric == "callback_p50_us":  # plain has no hooks
        del numbers["plain"]
    for name, value in numbers.items():
        if value is None:
            return Number(None, f"{name} has no {metric} at {rate_text(rate_per_s)}")
    own, *plain = (_bounded(v) for v in numbers.values() if v is not None)
    if not plain:
        return Number(Interval(*own), source="cells")
    if metric in STEPS:
        return Number(Interval(*change(plain[0], own)), source="cells")
    if any(v is not None and v <= 0 for v in (*own, *plain[0])):
        return Number(None, "a latency is not above zero, so there is no ratio")
    return Number(Interval(*ratio_less_one(own, plain[0])), source="cells")


def _percentile(cell: Mapping[str, Any], metric: str) -> Interval | None:
    if metric in LATENCIES:
        return percentile(cell, LATENCIES[metric], "p90")
    return percentile(mapping(cell.get("step")), STEPS[metric], "p50")


def _bounded(value: Interval) -> Bounded:
    return value.point, value.low, value.high
