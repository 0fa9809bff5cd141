"""What was put into a campaign, beside what was found: by the embedded engine's model, and by test connectors on a virtual GPU."""

from typing import Annotated, Literal

import msgspec

from connector_tax.base.documents.aggregate.intervals import QuantityOfKind
from connector_tax.base.documents.aggregate.words import Count, LatencyMetric, Rate
from connector_tax.base.documents.rates import Reference


class PutInRow(msgspec.Struct, frozen=True, kw_only=True):
    """One tax of the model beside the one that stands for it in ``main_taxes``.

    Attributes:
        tax: the model's; null where its percentile falls on requests that did not finish.
        held: whether the interval of the one that was found holds it; null where either is missing or the interval is open.
    """

    config: str
    metric: LatencyMetric
    reference: Reference
    rate_per_s: Rate
    tax: float | None
    held: bool | None


class PutIn(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        launches: of each configuration, in virtual time.
        asked: taxes that were both put in and found, each once where both reference rates are one.
        held: those of them that the interval holds.
    """

    launches: Annotated[int, msgspec.Meta(ge=1)]
    asked: Count
    held: Count
    taxes: tuple[PutInRow, ...]


# Hooks of a step, a step, and latencies; all in microseconds.
BurnMetric = Literal["hooks_p50_us", "step_p50_us", "tpot_p50_us", "tpot_p90_us", "ttft_p90_us"]


class BurnRow(msgspec.Struct, frozen=True, kw_only=True):
    """One number of a test connector less that of the test connector that burns nothing.

    Attributes:
        put_in_us: what follows from the burn; null where nothing does, and ``reason`` says why.
        held: whether the interval of ``found`` holds it; null where either is missing.
    """

    config: str
    metric: BurnMetric
    reference: Reference
    rate_per_s: Rate
    put_in_us: float | None
    reason: str | None
    found: QuantityOfKind
    held: bool | None


class Burns(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        base: the test connector that burns nothing.
        asked: numbers that were both put in and found.
        held: those of them that the interval holds.
    """

    base: str
    asked: Count
    held: Count
    rows: tuple[BurnRow, ...]
