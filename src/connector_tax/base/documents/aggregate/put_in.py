"""What was put into a campaign on the embedded engine, beside what was found."""

from typing import Annotated

import msgspec

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
