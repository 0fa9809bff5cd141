"""What recording costs, as a table: the effect, and each tax with the recorder and without it."""

from collections.abc import Mapping
from typing import Any

from connector_tax.base.records.connector import is_connector
from connector_tax.read.figures.lookup import (
    Aggregate,
    all_cells,
    configs,
    in_order,
    interval,
    is_recorded,
    label_of,
    mapping,
    number,
    rows,
    usable,
    why_absent,
)
from connector_tax.read.figures.words import with_interval

Text = dict[str, Any]
METRIC_WORDS = {
    "ttft_p50": "TTFT p50",
    "tpot_p50": "TPOT p50",
    "ttft_p90": "TTFT p90",
    "tpot_p90": "TPOT p90",
}


def observer_view(aggregate: Aggregate) -> list[Text]:
    """One row per configuration and latency, plain first."""
    return [
        {
            "label": label_of(aggregate, str(row.get("config"))),
            "metric": METRIC_WORDS.get(str(row.get("metric")), str(row.get("metric"))),
            "numbers": [_number(row.get(k)) for k in ("effect", "tax", "tax_unrecorded")],
        }
        for row in in_order(aggregate, rows(aggregate.get("observer_effect")))
    ]


def observer_lost(aggregate: Aggregate) -> list[str]:
    """Of each configuration without a row, why; nothing in a campaign without unrecorded cells."""
    pairs = [c for c in all_cells(aggregate) if not is_recorded(c)]
    shown = {str(row.get("config")) for row in rows(aggregate.get("observer_effect"))}
    lacking = [
        c.id for c in configs(aggregate) if c.id not in shown and (c.id == "plain" or is_connector(c.id))
    ]
    return [_why_lost(aggregate, c, [p for p in pairs if p.get("config") == c]) for c in lacking if pairs]


def _why_lost(aggregate: Aggregate, config: str, unrecorded: list[Mapping[str, Any]]) -> str:
    """``NIXL (both): r4_256x16_unrecorded, its file is missing``."""
    ids = {str(c.get("cell_id")).removesuffix("_unrecorded") for c in unrecorded}
    lost = [
        c
        for c in all_cells(aggregate, "b")
        if c.get("config") == config
        and str(c.get("cell_id")).removesuffix("_unrecorded") in ids
        and not usable(c)
    ]
    told = [
        f"{c.get('cell_id')}, {'; '.join(map(str, c.get('reasons') or [])) or 'not usable'}" for c in lost
    ]
    return f"{label_of(aggregate, config)}: {'; '.join(told) or why_absent(aggregate, config)}"


def _number(value: Any) -> Text:
    """``text`` and ``n``, the requests behind it."""
    found = interval(value)
    if found is None:
        return {"text": "–", "n": ""}
    return {"text": with_interval(found), "n": f"n {number(mapping(value).get('n')) or 0:,.0f}"}
