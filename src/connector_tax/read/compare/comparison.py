"""Computes changes between two campaigns: each tax in A, in B, and the difference with an interval.

A and B are two days, two releases or two GPUs, measured independently, so their intervals suffice for a
difference. Taxes are each campaign's main ones (``main_taxes``). A tax of one launch and one over blocks are
not compared: the former's interval lacks the spread between launches. Plain with a connector's settings is
shown and decides nothing.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from connector_tax.base.documents.aggregate import (
    Aggregate,
    Ends,
    Interval,
    LatencyMetric,
    Metric,
    TaxRow,
    Unit,
    read_aggregate,
)
from connector_tax.base.documents.rates import Reference
from connector_tax.base.errors import NotComparable
from connector_tax.base.records.connector import PLAIN_AGAIN, is_connector
from connector_tax.base.statistics.decisions import (
    GAIN,
    NO_TAX_FOUND,
    TAX,
    UNDETERMINED,
    independent_difference,
)
from connector_tax.read.figures.words import (
    blocks_of,
    label,
    launches_text,
    listing,
    phase_a_shape,
    rated_cells,
    reason_text,
    reference_flags,
    reference_rate,
    why_absent,
)
from connector_tax.read.figures.words import rate as rate_text


def flags_behind(aggregate: Aggregate, tax: TaxRow) -> set[str]:
    """Return the flags of the usable cells behind a tax: of its launch, or of its blocks.

    Plain's second launches exist only in blocks.
    """
    over_blocks = blocks_of(tax) is not None
    phases = _own_blocks(aggregate, tax) if over_blocks else {tax.phase}
    sides = {tax.config}
    if tax.metric != "callback_p50_us":  # plain has no hooks
        sides |= {"plain", PLAIN_AGAIN} if over_blocks else {"plain"}
    return {
        flag
        for cell in aggregate.measured()
        if cell.phase in phases and cell.cell_id == tax.cell_id and cell.config in sides
        for flag in cell.flags
    }


def _own_blocks(aggregate: Aggregate, tax: TaxRow) -> set[str]:
    """Return the blocks in which the configuration and plain have a number; equal rates share one entry."""
    for entry in aggregate.repeats:
        if (entry.rate_per_s, entry.metric) == (tax.rate_per_s, tax.metric):
            return {block for row in entry.taxes if row.config == tax.config for block in row.by_block}
    return set()


# The deciding latencies; steps are shown beside them if both campaigns recorded them.
LATENCIES: tuple[LatencyMetric, ...] = ("ttft_p90", "tpot_p90")
STEPS: tuple[Metric, ...] = ("step_p50_us", "callback_p50_us")
FALLBACK = "fallback_lowest_rate"
WORDS = {TAX: "worse", GAIN: "better", NO_TAX_FOUND: "not told apart", UNDETERMINED: "not known"}


@dataclass(frozen=True, slots=True)
class Side:
    """Either of the two campaigns; ``name`` is A or B."""

    name: str
    path: Path
    aggregate: Aggregate


class Rate(msgspec.Struct, frozen=True):
    """The rate of the comparison; ``per_s`` is null if there is none, and ``sentence`` says why."""

    per_s: float | None
    a_ref_safe_per_s: float | None
    b_ref_safe_per_s: float | None
    sentence: str


class Number(Ends, frozen=True, kw_only=True):
    """A tax of one campaign, a ratio minus one or microseconds; ``reason`` is null if there is a number."""

    reason: str | None
    n_blocks: int = 1
    overloaded: bool = False


def no_number(reason: str) -> Number:
    return Number(point=None, low=None, high=None, reason=reason)


class Change(msgspec.Struct, frozen=True):
    """A tax in both campaigns; ``change`` is B's minus A's, or null with a ``reason``."""

    config: str
    metric: Metric
    unit: Unit
    a: Number
    b: Number
    change: Interval | None
    reason: str | None
    word: str
    regression: bool

    @property
    def decides(self) -> bool:
        """Return whether the tax is a connector's; plain with a connector's settings cannot regress."""
        return is_connector(self.config)

    @property
    def is_unbounded(self) -> bool:
        """Return whether the change is unbounded in at least one direction."""
        return self.change is not None and None in (self.change.low, self.change.high)


class OnlyIn(msgspec.Struct, frozen=True):
    """A configuration that one side has, and why the other does not."""

    side: str
    config: str
    reason: str


class InNeither(msgspec.Struct, frozen=True):
    """A configuration without a tax in A and in B.

    Attributes:
        skipped: preflight skipped it in every campaign that planned it.
        planned_in: the sides that planned it.
    """

    config: str
    reason: str
    skipped: bool
    planned_in: tuple[str, ...]

    @property
    def withholds(self) -> bool:
        """Return whether both planned this connector's tax, so that a rise cannot be excluded."""
        return len(self.planned_in) == 2 and not self.skipped and is_connector(self.config)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison, with the rules that decide it.

    Attributes:
        confidence: of every interval in it.
        fail_above: a significant rise of a tax by more than this ratio is a regression.
        deciding: the metrics that may regress.
        allow_missing: a tax that cannot be compared does not prevent a verdict.
    """

    a: Side
    b: Side
    confidence: float
    fail_above: float
    deciding: tuple[LatencyMetric, ...]
    rate: Rate
    changes: tuple[Change, ...]
    only_in: tuple[OnlyIn, ...]
    in_neither: tuple[InNeither, ...] = ()
    allow_missing: bool = False

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.a, self.b

    @property
    def asked(self) -> list[Change]:
        """Return changes that may be a regression."""
        return [c for c in self.changes if c.metric in self.deciding and c.decides]

    @property
    def decisive(self) -> list[Change]:
        """Return changes known to be a regression or none."""
        return [c for c in self.asked if c.regression or (c.change is not None and not c.is_unbounded)]

    @property
    def missing(self) -> list[Change]:
        """Return changes that may be a regression and cannot be computed."""
        return [c for c in self.asked if c.change is None]

    @property
    def unbounded(self) -> list[Change]:
        """Return unbounded changes that may be a regression but are not known to be one."""
        return [c for c in self.asked if c.is_unbounded and not c.regression]

    @property
    def gone(self) -> bool:
        """Return whether B lacks a connector of A, as one that no longer starts."""
        return any(x.side == self.a.name and is_connector(x.config) for x in self.only_in)

    @property
    def regressions(self) -> list[Change]:
        return [c for c in self.changes if c.regression]

    @property
    def exit_code(self) -> int:
        """Return 0: no regression, 1: at least one, 2: for some tax a rise cannot be excluded."""
        if self.regressions:
            return 1
        unknown = any(absent.withholds for absent in self.in_neither)
        missing = (self.missing or self.gone or unknown) and not self.allow_missing
        return 2 if not self.decisive or self.unbounded or missing else 0


def read_side(name: str, path: Path) -> Side:
    """Read a campaign folder, or an ``aggregate.json`` by itself.

    Raises:
        ArtifactError: missing, not JSON, of another schema, or of another form.
    """
    # A link given as the path is followed, one inside a campaign's folder is not.
    file = path.resolve() if path.suffix == ".json" else path / "aggregate.json"
    return Side(name, path, read_aggregate(file))


def compare(
    a: Side, b: Side, *, fail_above: float, deciding: tuple[LatencyMetric, ...], allow_missing: bool = False
) -> Comparison:
    """Compare B with A.

    Args:
        fail_above: as a ratio; 0.05 is 5 percentage points.
        deciding: of ``LATENCIES``.

    Raises:
        NotComparable: confidence or Phase A's shape is not the same in both.
    """
    confidence = a.aggregate.provenance.confidence
    _refuse_unlike(a, b)
    rate = common_rate(a, b)
    changes: list[Change] = []
    only_in: list[OnlyIn] = []
    in_neither: list[InNeither] = []
    statuses_by_config = [
        {c: side.aggregate.configs[c].status for c in side.aggregate.config_ids} for side in (a, b)
    ]
    ids = [
        c
        for c in dict.fromkeys([*statuses_by_config[0], *statuses_by_config[1]])
        if c not in ("plain", PLAIN_AGAIN)
    ]
    for config in ids:
        measured_sides = [side for side in (a, b) if _measured(side.aggregate, config, rate.per_s)]
        if len(measured_sides) == 1:
            other = b if measured_sides[0] is a else a
            only_in.append(OnlyIn(measured_sides[0].name, config, why_absent(other.aggregate, config)))
        if not measured_sides:
            statuses = {
                side.name: statuses_of_side[config]
                for side, statuses_of_side in zip((a, b), statuses_by_config, strict=True)
                if config in statuses_of_side
            }
            skipped = set(statuses.values()) == {"skipped"}
            first, second = (why_absent(side.aggregate, config) for side in (a, b))
            reason = first if first == second else f"in A {first}; in B {second}"
            in_neither.append(InNeither(config, reason, skipped, tuple(statuses)))
        if len(measured_sides) == 2 and rate.per_s is not None:
            changes += _changes(a, b, config, rate.per_s, fail_above, deciding)
    parts = (tuple(changes), tuple(only_in), tuple(in_neither), allow_missing)
    return Comparison(a, b, confidence, fail_above, deciding, rate, *parts)


def _refuse_unlike(a: Side, b: Side) -> None:
    first, second = (side.aggregate.provenance.confidence for side in (a, b))
    if first != second:
        raise NotComparable(
            f"analysis.confidence is {first:g} in {a.path} and {second:g} in {b.path}. Analyse one of"
            " them again with the other's."
        )
    shapes = [phase_a_shape(side.aggregate) for side in (a, b)]
    if None not in shapes and shapes[0] != shapes[1]:
        words = [f"{i} prompt and {o} output tokens" for i, o in (s for s in shapes if s is not None)]
        raise NotComparable(
            f"Phase A has {words[0]} in {a.path} and {words[1]} in {b.path}. A tax depends on them; compare"
            " campaigns of one shape."
        )


def common_rate(a: Side, b: Side) -> Rate:
    """Return the rate at which to compare.

    It is ref_safe if both share it; else the highest common rate of plain that is healthy in both and has
    comparable taxes: blocks run only at a campaign's own reference rates.
    """
    first, second = (reference_rate(side.aggregate, "ref_safe") for side in (a, b))

    def rate_of(code: str, per_s: float | None = None, sides: list[str] | None = None) -> Rate:
        rates = ["-" if r is None else rate_text(r) for r in (first, second, per_s)]
        sentence = label("comparison_rate", code).format(*rates, sides=listing(sides or []))
        return Rate(per_s, first, second, sentence)

    if first is None or second is None:
        return rate_of("missing", sides=[s.name for s, r in ((a, first), (b, second)) if r is None])
    if fallback_sides := [side.name for side in (a, b) if FALLBACK in reference_flags(side.aggregate)]:
        # Also if both fell back to the same rate: the share of queueing in the taxes is unknown.
        return rate_of("fallback", sides=fallback_sides)
    if first == second:
        return rate_of("equal", first)
    measured = [{cell.rate_per_s for cell in rated_cells(side.aggregate, "a", "plain")} for side in (a, b)]
    # Below ref_safe nothing is saturated, by definition.
    healthy = [r for r in measured[0] & measured[1] if r <= min(first, second)]
    if not healthy:
        return rate_of("none", None)
    return rate_of("highest", max([r for r in healthy if _some_alike(a, b, r)] or healthy))


def _some_alike(a: Side, b: Side, rate_per_s: float) -> bool:
    """Return whether any latency of any configuration can be compared at that rate."""
    return any(
        not _why_not(*(tax_at(side.aggregate, config, metric, rate_per_s) for side in (a, b)))
        for config in a.aggregate.config_ids
        for metric in LATENCIES
        if is_connector(config)
    )


def _changes(
    a: Side, b: Side, config: str, rate_per_s: float, fail_above: float, deciding: tuple[LatencyMetric, ...]
) -> list[Change]:
    changes = []
    metrics: tuple[Metric, ...] = (*LATENCIES, *STEPS)
    states = [side.aggregate.configs.get(config) for side in (a, b)]
    for metric in metrics:
        if metric == "ttft_p90" and all(state and state.ttft_is_no_tax for state in states):
            continue
        first, second = (tax_at(side.aggregate, config, metric, rate_per_s) for side in (a, b))
        why_not = _why_not(first, second)
        both_timed = all(side.aggregate.step_timing_available for side in (a, b))
        if metric in STEPS and why_not and not (both_timed and (first.known or second.known)):
            continue  # not every release can be timed
        change = None if why_not else _difference(first, second)
        rose = change is not None and change.point > fail_above and change.low is not None and change.low > 0
        regression = metric in deciding and rose and is_connector(config)
        unit: Unit = "ratio" if metric in LATENCIES else "us"
        word = word_of(change, regression)
        changes.append(Change(config, metric, unit, first, second, change, why_not or None, word, regression))
    return changes


def word_of(change: Interval | None, regression: bool) -> str:
    if change is None:
        return "not available"
    return "worse" if regression else WORDS[change.effect]


def _why_not(a: Number, b: Number) -> str:
    """Return which campaign lacks a number, and why; empty if the two can be compared."""
    missing = [f"in {name} {found.reason}" for name, found in (("A", a), ("B", b)) if not found.known]
    if missing or (a.n_blocks == 1) == (b.n_blocks == 1):
        return "; ".join(missing)
    return f"{launches_text(a.n_blocks)} in A, {launches_text(b.n_blocks)} in B"


def _difference(a: Number, b: Number) -> Interval | None:
    first, second = a.interval, b.interval
    if first is None or second is None:
        return None
    return Interval(
        *independent_difference((first.point, first.low, first.high), (second.point, second.low, second.high))
    )


def _measured(aggregate: Aggregate, config: str, rate_per_s: float | None) -> bool:
    """Return whether the configuration has a tax at that rate, even an unavailable one."""
    rows = rated_cells(aggregate, "a", config) if rate_per_s is None else _at(aggregate, config, rate_per_s)
    return bool(rows)


def _at(aggregate: Aggregate, config: str, rate_per_s: float | None) -> list[TaxRow]:
    """Return the main taxes at that rate, reference rates first."""
    return [t for t in aggregate.main_taxes if (t.config, t.rate_per_s) == (config, rate_per_s)]


def tax_at(aggregate: Aggregate, config: str, metric: Metric, rate_per_s: float) -> Number:
    """Return the campaign's own tax at that rate."""
    tax = next((t for t in _at(aggregate, config, rate_per_s) if t.metric == metric), None)
    if tax is None:
        return no_number(f"no {metric} at {rate_text(rate_per_s)}")
    return Number(
        point=tax.point,
        low=tax.low,
        high=tax.high,
        reason=None if tax.known else reason_text(tax.reason, tax.subject) or "not available",
        n_blocks=tax.n_blocks,
        overloaded=bool(tax.overloaded),
    )


def flags_at(aggregate: Aggregate, config: str, metric: Metric, rate_per_s: float | None) -> list[str]:
    """Return the flags of the cells behind the campaign's own tax at that rate."""
    taxes = [tax for tax in _at(aggregate, config, rate_per_s) if tax.metric == metric]
    return sorted({flag for tax in taxes for flag in flags_behind(aggregate, tax)})


def number_of(
    side: Side, config: str, metric: LatencyMetric, reference: Reference, rate_per_s: float
) -> Number:
    """Return the campaign's main tax at the rate of ``reference``, or why there is none."""
    aggregate = side.aggregate
    if FALLBACK in reference_flags(aggregate):
        return no_number(f"{reference} is a fallback")
    if not any(t.metric == metric for t in _at(aggregate, config, rate_per_s)):
        return no_number(why_absent(aggregate, config))
    return tax_at(aggregate, config, metric, rate_per_s)
