"""What is compared, and what it comes to: two campaigns, the rate, each tax in both, and what they decide together."""

from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.documents.aggregate import (
    OF_ONE_LAUNCH,
    Aggregate,
    Interval,
    LatencyMetric,
    Metric,
    Unit,
)
from connector_tax.base.records.connector import is_connector
from connector_tax.base.statistics.outcomes import GAIN, NO_TAX_FOUND, TAX, UNDETERMINED

# What decides.
LATENCIES: tuple[LatencyMetric, ...] = ("ttft_p90", "tpot_p90")


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
        kind: ``of one launch``, ``over n blocks``.
        overloaded: one of the two sides did not keep up, so it holds queueing.
        flags: of the cells behind it.
    """

    value: Interval | None
    reason: str = ""
    kind: str = OF_ONE_LAUNCH
    overloaded: bool = False
    flags: tuple[str, ...] = ()

    @property
    def of_one_launch(self) -> bool:
        return not self.kind.startswith("over")


@dataclass(frozen=True, slots=True)
class Change:
    """One tax in both; ``value`` is B's less A's, None for the reason ``why_not``."""

    config: str
    metric: Metric
    a: Number
    b: Number
    value: Interval | None
    regression: bool
    why_not: str = ""

    @property
    def unit(self) -> Unit:
        return "ratio" if self.metric in LATENCIES else "us"

    @property
    def word(self) -> str:
        if self.value is None:
            return "not available"
        words = {
            TAX: "worse",
            GAIN: "better",
            NO_TAX_FOUND: "not told apart",
            UNDETERMINED: "not known",
        }
        return "worse" if self.regression else words[self.value.told]

    @property
    def decides(self) -> bool:
        """Plain with a connector's settings is no connector: its tax is shown and is no regression."""
        return is_connector(self.config)

    @property
    def is_unbounded(self) -> bool:
        """Whether it may be any amount, in one direction or both."""
        return self.value is not None and None in (self.value.low, self.value.high)


@dataclass(frozen=True, slots=True)
class InNeither:
    """A configuration without a tax in A and in B.

    Attributes:
        skipped: preflight took it out of every campaign that planned it.
        planned_in: the sides that planned it: ``("A", "B")``, ``("A",)`` or ``("B",)``.
    """

    config: str
    reason: str
    skipped: bool
    planned_in: tuple[str, ...]

    @property
    def withholds(self) -> bool:
        """Whether both campaigns asked for a connector's tax, so that nobody can tell whether it rose."""
        return len(self.planned_in) == 2 and not self.skipped and is_connector(self.config)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that is printed.

    Attributes:
        confidence: of every interval in it.
        fail_above: a rise of a tax by more than this ratio is a regression, if the rise is told apart from zero.
        deciding: the metrics that may be one.
        only_in: (A or B, configuration, why it is not in the other).
        in_neither: configurations that A or B planned and that have no tax in either.
        allow_missing: a tax that cannot be compared is no reason to withhold a verdict.
    """

    a: Side
    b: Side
    confidence: float
    fail_above: float
    deciding: tuple[LatencyMetric, ...]
    rate: Rate
    changes: tuple[Change, ...]
    only_in: tuple[tuple[str, str, str], ...]
    in_neither: tuple[InNeither, ...] = ()
    allow_missing: bool = False

    @property
    def asked(self) -> list[Change]:
        """Changes that may be a regression."""
        return [c for c in self.changes if c.metric in self.deciding and c.decides]

    @property
    def decisive(self) -> list[Change]:
        """Changes of which it is known whether they are a regression."""
        return [c for c in self.asked if c.regression or (c.value is not None and not c.is_unbounded)]

    @property
    def lost(self) -> list[Change]:
        return [c for c in self.asked if c.value is None]

    @property
    def unbounded(self) -> list[Change]:
        """Changes that may be a regression and are not known to be one."""
        return [c for c in self.asked if c.is_unbounded and not c.regression]

    @property
    def gone(self) -> bool:
        """Whether B lacks a connector of A: one that no longer starts has no tax."""
        return any(name == self.a.name and is_connector(config) for name, config, _ in self.only_in)

    @property
    def regressions(self) -> list[Change]:
        return [c for c in self.changes if c.regression]

    @property
    def exit_code(self) -> int:
        """0: no regression, 1: at least one, 2: of some tax nobody can tell whether it rose."""
        if self.regressions:
            return 1
        unknown = any(absent.withholds for absent in self.in_neither)
        missing = (self.lost or self.gone or unknown) and not self.allow_missing
        return 2 if not self.decisive or self.unbounded or missing else 0
