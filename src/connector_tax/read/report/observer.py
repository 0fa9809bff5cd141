"""What recording costs, as a table: the effect, and each tax with the recorder and without it."""

from dataclasses import dataclass

from connector_tax.base.documents.aggregate import Aggregate, Quantity
from connector_tax.base.records.connector import is_connector
from connector_tax.read.figures.questions import in_order, why_absent
from connector_tax.read.figures.words import with_interval

METRIC_WORDS = {
    "ttft_p50": "TTFT p50",
    "tpot_p50": "TPOT p50",
    "ttft_p90": "TTFT p90",
    "tpot_p90": "TPOT p90",
}


@dataclass(frozen=True, slots=True)
class Number:
    """``n``: the requests behind it."""

    text: str
    n: str


@dataclass(frozen=True, slots=True)
class ObserverRow:
    """``numbers``: the effect, the tax with the recorder and without it."""

    label: str
    metric: str
    numbers: tuple[Number, Number, Number]


@dataclass(frozen=True, slots=True)
class ObserverView:
    """``lost``: of each configuration without a row, why."""

    rows: list[ObserverRow]
    lost: list[str]


def observer_view(aggregate: Aggregate) -> ObserverView:
    """One row per configuration and latency, plain first."""
    found = [
        ObserverRow(
            aggregate.label_of(row.config),
            METRIC_WORDS[row.metric],
            (_number(row.effect), _number(row.tax), _number(row.tax_unrecorded)),
        )
        for row in in_order(aggregate, aggregate.observer_effect)
    ]
    return ObserverView(found, _lost(aggregate))


def _lost(aggregate: Aggregate) -> list[str]:
    """Nothing in a campaign without unrecorded cells."""
    if all(cell.recorded for cell in aggregate.cells):
        return []
    shown = {row.config for row in aggregate.observer_effect}
    asked = (c for c in aggregate.config_ids if c == "plain" or is_connector(c))
    return [_why_lost(aggregate, config) for config in asked if config not in shown]


def _why_lost(aggregate: Aggregate, config: str) -> str:
    """``NIXL (both): r4_256x16_unrecorded, its file is missing``."""
    own = [cell for cell in aggregate.cells if cell.config == config]
    ids = {cell.cell_id.removesuffix("_unrecorded") for cell in own if not cell.recorded}
    lost = [
        f"{cell.cell_id}, {'; '.join(cell.reasons) or 'not usable'}"
        for cell in own
        if cell.phase == "b" and cell.cell_id.removesuffix("_unrecorded") in ids and not cell.usable
    ]
    return f"{aggregate.label_of(config)}: {'; '.join(lost) or why_absent(aggregate, config)}"


def _number(value: Quantity | None) -> Number:
    if value is None or value.interval is None:
        return Number("–", "")
    return Number(with_interval(value.interval), f"n {value.n:,}")
