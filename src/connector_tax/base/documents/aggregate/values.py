"""Building blocks of ``aggregate.json``: its enumerations, and a number with its interval."""

from typing import Annotated, Literal

import msgspec

AnyReference = Literal["ref_safe", "ref_load", "neither"]
LatencyMetric = Literal["ttft_p90", "tpot_p90"]
# Medians beside the tails that taxes are stated in.
AnyLatencyMetric = Literal["ttft_p50", "ttft_p90", "tpot_p50", "tpot_p90"]
Metric = Literal["ttft_p90", "tpot_p90", "step_p50_us", "callback_p50_us", "unexplained_us"]
Unit = Literal["ratio", "us"]
Verdict = Literal["valid", "invalid"]
Effect = Literal["tax", "gain", "no_tax_found", "undetermined"]
TaxVerdict = Literal["tax", "gain", "no_tax_found", "undetermined", "unavailable"]
BlockVerdict = Literal["tax", "gain", "no_tax_found"]
ConfigStatus = Literal["measured", "partial", "skipped", "failed", "missing"]
Outcome = Literal["supported", "refuted", "undetermined", "not testable"]
HypothesisId = Literal["H1", "H2", "H3", "H4", "H5", "H6"]

# Conclusions beside a hypothesis's outcome; the replay is the published experiment's.
Conclusion = Literal[
    "coupling",
    "prior_kept",
    "prior_revised",
    "prior_open",
    "larger_than_replay",
    "smaller_than_replay",
    "inverted",
    "framework_dominates",
    "implementation_dominates",
    "mixed",
    "no_tax_to_split",
    "gain_to_split",
    "tax_to_split_unknown",
    "additive",
    "interference",
    "shared_cost",
    "no_tax_of_stack",
    "gain_of_stack",
    "tax_of_stack_unknown",
    "monotonic",
    "falling",
    "does_not_rise",
    "not_monotonic",
    "lengths_missing",
]
ProblemCode = Literal[
    # Files of a campaign.
    "other_date",
    "unreadable",
    "launches_untimed",
    "of_other_run",
    "run_failed",
    "cells_missing",
    # Cells.
    "not_planned",
    "cell_gone",
    "cell_left_out",
    "no_request_completed",
    "line_torn",
    "invalid",
    "file_changed",
    "file_missing",
    "file_unreadable",
    "line_no_request",
    "line_without_time",
    "request_twice",
    "request_missing",
    "turn_twice",
    "of_other_campaign",
    "launched_otherwise",
    "loaded_otherwise",
    "not_comparable",
    "off_log",
    "off_counter",
    "off_counter_stopped",
    "off_hooks_missing",
    "off_hooks_idle",
    # Shortcomings of the numbers.
    "mixed_versions",
    "mixed_hosts",
    "mixed_load_generators",
    "no_cell_in_block",
    "few_blocks",
    "hooks_unknown",
    "scheduler_without_hooks",
    "worker_without_hooks",
    "worker_without_rows",
    "no_worker",
    "no_plain",
    "rates_kept",
    "rates_remade",
    "rates_changed",
    "no_say_in_rates",
    # Configurations.
    "skipped",
    "phase_failed",
    "phase_unfinished",
    "phase_missing",
    "no_usable_cell",
    "cells_left_out",
    "run_skipped",
    "not_measured",
    # Step records.
    "no_step_records",
    "step_timing_off",
    "step_timing_refused",
    # Artifacts and time.
    "no_receipt",
    "no_reason",
    "runs_checked",
    "time_spent",
    "preflight_took",
    "preflight_untimed",
    "phase_took",
    "runs_untimed",
    "nothing_launched",
]

Count = Annotated[int, msgspec.Meta(ge=0)]
# Blocks of launches behind a number; 1: of one launch.
NBlocks = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
# Above zero.
Rate = Annotated[float, msgspec.Meta(gt=0)]
# A cell's rate: zero in a closed loop.
CellRate = Annotated[float, msgspec.Meta(ge=0)]
# r1, r2, ... are blocks of repeats.
Phase = Annotated[str, msgspec.Meta(pattern=r"^(a|b|b_prime|c|d|r[1-9][0-9]*)$")]
Block = Annotated[str, msgspec.Meta(pattern=r"^(a|b|r[1-9][0-9]*)$")]
# A launch at a reference rate: of a block, or of phase B', which is in no block.
Launch = Annotated[str, msgspec.Meta(pattern=r"^(a|b|b_prime|r[1-9][0-9]*)$")]
TaxPhase = Annotated[str, msgspec.Meta(pattern=r"^(a|b|b_prime|c)$")]
# A number as a key.
Digits = Annotated[str, msgspec.Meta(pattern="^[0-9]+$")]
# JSON values other than lists and objects.
Scalar = str | int | float | bool | None


def effect_of(low: float | None, high: float | None) -> Effect:
    """Return ``tax`` or ``gain`` if the interval excludes zero.

    Return ``no_tax_found`` if both ends are known and it contains zero, else ``undetermined``.
    """
    if low is not None and low > 0:
        return "tax"
    if high is not None and high < 0:
        return "gain"
    return "undetermined" if low is None or high is None else "no_tax_found"


def closed(low: float, high: float) -> BlockVerdict:
    """Return the effect of an interval with both ends."""
    return "tax" if low > 0 else "gain" if high < 0 else "no_tax_found"


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that is missing or that a reader of the report must know; for a criterion, its evidence.

    Attributes:
        code: its text is under ``problem`` in ``labels.yaml``.
        subject: a file, a configuration, a phase or a cell.
        names: listed in the text.
        numbers: values in the text, by name; ``_s``: seconds.
        detail: words of others: an engine, a file, the operating system.
        because: its cause.
    """

    code: ProblemCode
    subject: str = ""
    names: tuple[str, ...] = ()
    numbers: dict[str, float] = {}
    detail: str = ""
    because: "Problem | None" = None


class Interval(msgspec.Struct, frozen=True):
    """A known number; an end that is None is unbounded or unknown."""

    point: float
    low: float | None
    high: float | None

    @property
    def effect(self) -> Effect:
        return effect_of(self.low, self.high)

    @property
    def excludes_zero(self) -> bool:
        return self.effect in ("tax", "gain")


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """A number with an interval; point null: unavailable, an end null: unbounded."""

    point: float | None
    low: float | None
    high: float | None

    @property
    def known(self) -> bool:
        return self.point is not None

    @property
    def interval(self) -> Interval | None:
        return None if self.point is None else Interval(self.point, self.low, self.high)

    @property
    def effect(self) -> Effect:
        return effect_of(self.low, self.high)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """A number whose interval has both ends."""

    point: float
    low: float
    high: float

    @property
    def interval(self) -> Interval:
        return Interval(self.point, self.low, self.high)

    @property
    def effect(self) -> Effect:
        return effect_of(self.low, self.high)


class Quantity(Ends, frozen=True, kw_only=True, omit_defaults=True):
    """A number with its interval and observations.

    Attributes:
        n: observations behind it.
        reason: the code of why there is no number, or no end of its interval; absent if all are there.
        subject: whose number is missing, if it is another's.
    """

    n: Count
    reason: str | None = None
    subject: str = ""


class TaxPart(Quantity, frozen=True, kw_only=True):
    """A number computed from taxes.

    Attributes:
        n_blocks: the fewest blocks of the taxes in it; null if the number is unavailable, or nothing was
            measured.
    """

    n_blocks: NBlocks | None
