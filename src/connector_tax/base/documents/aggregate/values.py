"""What ``aggregate.json`` is made of: its enumerations, and a number with its interval."""

from typing import Annotated, Literal

import msgspec

AnyReference = Literal["ref_safe", "ref_load", "neither"]
LatencyMetric = Literal["ttft_p90", "tpot_p90"]
# Medians beside the tails that taxes are stated in.
AnyLatencyMetric = Literal["ttft_p50", "ttft_p90", "tpot_p50", "tpot_p90"]
Metric = Literal["ttft_p90", "tpot_p90", "step_p50_us", "callback_p50_us", "unexplained_us"]
Unit = Literal["ratio", "us"]
Verdict = Literal["valid", "invalid"]
Told = Literal["tax", "gain", "no_tax_found", "undetermined"]
TaxVerdict = Literal["tax", "gain", "no_tax_found", "undetermined", "unavailable"]
BlockVerdict = Literal["tax", "gain", "no_tax_found"]
ConfigStatus = Literal["measured", "partial", "skipped", "failed", "missing"]
Outcome = Literal["supported", "refuted", "undetermined", "not testable"]
HypothesisId = Literal["H1", "H2", "H3", "H4", "H5", "H6"]

Count = Annotated[int, msgspec.Meta(ge=0)]
# Over how many blocks of launches a number is taken; 1: of one launch.
NBlocks = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
# Above zero.
Rate = Annotated[float, msgspec.Meta(gt=0)]
# Of a cell: zero in a closed loop.
CellRate = Annotated[float, msgspec.Meta(ge=0)]
# r1, r2, ... are blocks of repeats.
Phase = Annotated[str, msgspec.Meta(pattern=r"^(a|b|b_prime|c|d|r[1-9][0-9]*)$")]
Block = Annotated[str, msgspec.Meta(pattern=r"^(a|b|r[1-9][0-9]*)$")]
# A launch at a reference rate: of a block, or of phase B', which is in none.
Launch = Annotated[str, msgspec.Meta(pattern=r"^(a|b|b_prime|r[1-9][0-9]*)$")]
TaxPhase = Annotated[str, msgspec.Meta(pattern=r"^(a|b|b_prime|c)$")]
# A number as a key.
Digits = Annotated[str, msgspec.Meta(pattern="^[0-9]+$")]
# What JSON holds beside lists and objects.
Scalar = str | int | float | bool | None


def told(low: float | None, high: float | None) -> Told:
    """``tax`` or ``gain`` where the interval excludes zero, ``no_tax_found`` where both ends are known and it holds zero, else ``undetermined``."""
    if low is not None and low > 0:
        return "tax"
    if high is not None and high < 0:
        return "gain"
    return "undetermined" if low is None or high is None else "no_tax_found"


def closed(low: float, high: float) -> BlockVerdict:
    """``told`` of an interval that has both ends."""
    return "tax" if low > 0 else "gain" if high < 0 else "no_tax_found"


class Interval(msgspec.Struct, frozen=True):
    """A number that is known; an end that is None is unbounded, or nobody knows it."""

    point: float
    low: float | None
    high: float | None

    @property
    def told(self) -> Told:
        """What its ends say of zero."""
        return told(self.low, self.high)

    @property
    def excludes_zero(self) -> bool:
        return self.told in ("tax", "gain")


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """Whatever has a number with an interval; point null: unavailable, an end null: unbounded."""

    point: float | None
    low: float | None
    high: float | None

    @property
    def known(self) -> bool:
        return self.point is not None

    @property
    def interval(self) -> Interval | None:
        """None where there is no number."""
        return None if self.point is None else Interval(self.point, self.low, self.high)

    @property
    def told(self) -> Told:
        return told(self.low, self.high)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """A number whose interval has both ends."""

    point: float
    low: float
    high: float

    @property
    def interval(self) -> Interval:
        return Interval(self.point, self.low, self.high)

    @property
    def told(self) -> Told:
        return told(self.low, self.high)


class Quantity(Ends, frozen=True, kw_only=True, omit_defaults=True):
    """
    Attributes:
        n: observations behind it.
        reason: why there is no number, or no end of its interval: a code, or what a file says; absent where all are there.
        subject: whose number is missing, where it is another's.
    """

    n: Count
    reason: str | None = None
    subject: str = ""


class TaxPart(Quantity, frozen=True, kw_only=True):
    """A number that is made of taxes.

    Attributes:
        n_blocks: of the taxes that entered the number, the fewest; null where the number is unavailable, or where nothing was
            measured.
    """

    n_blocks: NBlocks | None
