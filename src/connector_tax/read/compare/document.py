"""What ``connector-tax compare --json`` prints, as types; ``docs/formats.md`` lists the keys."""

from typing import Literal

import msgspec

from connector_tax.base.documents.aggregate import Interval, Metric, Unit
from connector_tax.base.documents.aggregate.words import Scalar
from connector_tax.read.compare.changes import InNeither
from connector_tax.read.compare.context import Difference

SCHEMA = 1


class SideOfIt(msgspec.Struct, frozen=True):
    path: str
    campaign: str
    date: str
    vllm: Scalar


class RateOfIt(msgspec.Struct, frozen=True):
    """``per_s`` is null where nothing can be compared."""

    per_s: float | None
    a_ref_safe_per_s: float | None
    b_ref_safe_per_s: float | None
    sentence: str


class TaxOfSide(msgspec.Struct, frozen=True):
    """One tax of one campaign; ``reason`` is null where there is a number."""

    point: float | None
    low: float | None
    high: float | None
    reason: str | None
    source: Literal["launch", "blocks"]
    kind: str
    overloaded: bool


class ChangeOfTax(msgspec.Struct, frozen=True):
    """One tax in both; ``change`` is B's less A's, null for ``reason``."""

    config: str
    metric: Metric
    unit: Unit
    a: TaxOfSide
    b: TaxOfSide
    change: Interval | None
    reason: str | None
    word: str
    regression: bool


class OnlyIn(msgspec.Struct, frozen=True):
    """A configuration that one side has, and why the other does not."""

    side: str
    config: str
    reason: str


class ComparisonDocument(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: int = SCHEMA
    a: SideOfIt
    b: SideOfIt
    confidence: float
    fail_above: float
    deciding: tuple[Metric, ...]
    rate: RateOfIt
    notes: tuple[str, ...]
    changes: tuple[ChangeOfTax, ...]
    differences: tuple[Difference, ...]
    only_in: tuple[OnlyIn, ...]
    in_neither: tuple[InNeither, ...]
    verdict: str
    exit_code: int
    sentence: str
