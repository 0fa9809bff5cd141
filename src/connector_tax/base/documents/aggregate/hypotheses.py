"""``hypotheses`` of ``aggregate.json``: what was asked, what the numbers say, and which numbers."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from connector_tax.base.documents.aggregate.intervals import Quantity
from connector_tax.base.documents.aggregate.words import Count, HypothesisId, Outcome

Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]


class VerdictNumbers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a verdict rests on; of each hypothesis its own, nothing where it is not testable.

    Attributes:
        tax_ttft_p90: H1.
        gap, range: H2.
        tax_noop, tax_connector, share: H3.
        tax_stack, sum_of_parts, excess_over_stack, parts, tolerance: H4.
        slope_per_doubling, by_length: H5 and H6.
        rates_per_s: length -> the rates of its cells.
        averaged_over: of the other length, tokens.
        left_out: the other lengths that are in no mean -> why.
    """

    tax_ttft_p90: Quantity | None = None
    gap: Quantity | None = None
    range: tuple[float, float] | None = None
    tax_noop: Quantity | None = None
    tax_connector: Quantity | None = None
    share: Quantity | None = None
    threshold: float | None = None
    tax_stack: Quantity | None = None
    sum_of_parts: Quantity | None = None
    excess_over_stack: Quantity | None = None
    parts: dict[str, Quantity] | None = None
    tolerance: float | None = None
    slope_per_doubling: Quantity | None = None
    by_length: dict[str, Quantity] | None = None
    rates_per_s: dict[str, tuple[float, ...]] | None = None
    averaged_over: tuple[Count, ...] | None = None
    left_out: dict[str, str] | None = None

    def quantities(self) -> Iterator[Quantity]:
        """Its own intervals, without those by part or by length."""
        for name in self.__struct_fields__:
            if isinstance(found := getattr(self, name), Quantity):
                yield found


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        p_value: the smallest p at which the interval of confidence 1 - p still decides so; null where nothing is decided.
        p_holm: adjusted for all verdicts that were tested together.
    """

    outcome: Outcome
    label: str | None
    numbers: VerdictNumbers
    sentence: str
    p_value: Probability | None
    p_holm: Probability | None


class Hypothesis(Answer, frozen=True, kw_only=True):
    """One hypothesis about one subject.

    Attributes:
        kind: whether the intervals that decide hold what launches differ by; null where nothing is decided.
        at_equal_host_speed: what the same question is answered with taxes at equal speed of the host; null where it is not
            asked so, or the speed is not known.
    """

    id: HypothesisId
    title: str
    subject: str
    kind: Literal["of one launch", "over blocks"] | None = None
    at_equal_host_speed: Answer | None = None
