"""Words and claims of the figures for parts of the typed aggregate, while the figures themselves still read JSON."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from connector_tax.base.documents.aggregate import Aggregate, Interval, TaxBase
from connector_tax.base.statistics.texts import usual_decimals
from connector_tax.read.figures import claims, words


def with_interval(value: Interval, unit: str = "ratio") -> str:
    return words.with_interval(cast(Any, value), unit)


def interval_texts(
    value: Interval, unit: str = "ratio", decimals: Callable[[float], int] = usual_decimals
) -> tuple[str, str, str]:
    return words.interval_texts(cast(Any, value), unit, decimals)


def hooks_words(share: Interval, whole: str) -> str:
    return words.hooks_words(cast(Any, share), whole)


def launches_behind(chosen: Sequence[TaxBase]) -> str:
    return words.launches_behind([_as_json(tax) for tax in chosen])


def of_reference_rates(aggregate: Aggregate) -> str:
    return words.of_reference_rates(_as_json(aggregate))


def without_number(aggregate: Aggregate, *, metric: str, reference: str) -> dict[str, str]:
    return claims.without_number(_as_json(aggregate), metric=metric, reference=reference)


def told_apart(aggregate: Aggregate, found: Mapping[str, Interval], *, without: Sequence[str] = ()) -> str:
    return claims.told_apart(_as_json(aggregate), cast(Any, found), without=without)


def _as_json(value: msgspec.Struct) -> Any:
    """With lists in place of tuples, as readers of JSON expect."""
    return msgspec.json.decode(msgspec.json.encode(value))
