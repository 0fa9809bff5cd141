"""A number with its interval, as ``aggregate.json`` has it: what may be null, and what an interval tells."""

from typing import Literal

import msgspec

Told = Literal["tax", "gain", "no_tax_found", "undetermined"]
# Of one launch, or over so many blocks of launches: ``of one launch``, ``over 5 blocks``.
Kind = str
OF_ONE_LAUNCH: Kind = "of one launch"


def told(low: float | None, high: float | None) -> Told:
    """``tax`` or ``gain`` where the interval excludes zero, ``no_tax_found`` where both ends are known and it holds zero, else ``undetermined``."""
    if low is not None and low > 0:
        return "tax"
    if high is not None and high < 0:
        return "gain"
    return "undetermined" if low is None or high is None else "no_tax_found"


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
        reason: why there is no number, or no end of its interval; absent where all are there.
    """

    n: int
    reason: str | None = None


class QuantityOfKind(Ends, frozen=True, kw_only=True, omit_defaults=True):
    """
    Attributes:
        n: observations behind it.
        reason: why there is no number, or no end of its interval; absent where all are there.
        kind: of the taxes that entered the number, over the fewest blocks of them; null where the number is unavailable, or
            where nothing was measured.
    """

    n: int
    reason: str | None = None
    kind: Kind | None
