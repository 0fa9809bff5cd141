"""``put_in.json``: the taxes that the model of the embedded engine itself gives, from many launches in virtual time."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from connector_tax.base.records.bounds import Rate
from connector_tax.base.records.record import Record

PutInMetric = Literal["ttft_p90", "tpot_p90"]


class PutInTax(Record, frozen=True, kw_only=True):
    """
    Attributes:
        tax: percentile with the connector over plain's, less one; None where it falls on requests that did not finish.
    """

    config: str
    metric: PutInMetric
    rate_per_s: Rate
    input_tokens: Annotated[int, Meta(ge=1)]
    output_tokens: Annotated[int, Meta(ge=1)]
    tax: float | None


class PutInFile(Record, frozen=True, kw_only=True):
    """
    Attributes:
        launches: of each configuration, whose requests are taken together.
        model_file, model_sha256: the cost model, as the campaign names it, and its bytes.
    """

    REMEDY: ClassVar[str] = "Remove it and make it again with scripts/put_in.py."

    schema: Literal[1] = 1
    campaign: str
    launches: Annotated[int, Meta(ge=1)]
    model_file: str
    model_sha256: str
    taxes: tuple[PutInTax, ...]
