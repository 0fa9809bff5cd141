"""Phase C on the page: what a connector costs where turns share their past and the prefix cache is hit."""

from collections.abc import Mapping
from typing import Any

from connector_tax.read.figures.lookup import (
    Aggregate,
    all_cells,
    in_order,
    label_of,
    number,
    percentile,
    rows,
    usable,
)
from connector_tax.read.report.qualifiers import flagged
from connector_tax.read.report.tax_text import LATENCY_METRICS, tax_text, tokens

Text = dict[str, Any]


def conversations_view(aggregate: Aggregate) -> list[Text]:
    """One row per configuration and session file, plain first; its own numbers, then its taxes."""
    taxes = {
        (row.get("config"), row.get("cell_id"), row.get("metric")): row
        for row in rows(aggregate.get("taxes"))
        if row.get("phase") == "c"
    }
    cells = in_order(aggregate, all_cells(aggregate, "c"), "cell_id")
    return [
        {
            "label": label_of(aggregate, str(cell.get("config"))),
            "sessions": str(cell.get("cell_id")).partition("_")[2],
            "rate": f"{number(cell.get('rate_per_s')) or 0:g}",
            "n": tokens(cell.get("n_window")),
            "hits": _share(cell),
            "ttft": _ms(cell, "ttft_ms"),
            "tpot": _ms(cell, "tpot_ms"),
            "taxes": []
            if cell.get("config") == "plain"
            else [
                _tax(aggregate, cell, taxes.get((cell.get("config"), cell.get("cell_id"), m)))
                for m in LATENCY_METRICS
            ],
        }
        for cell in cells
    ]


def _tax(aggregate: Aggregate, cell: Mapping[str, Any], tax: Mapping[str, Any] | None) -> Text:
    """A cell that was measured and does not count has no tax, for its own reasons."""
    if tax is not None:
        return tax_text(tax, flagged(aggregate, tax))
    reasons = "; ".join(map(str, cell.get("reasons") or [])) or str(cell.get("verdict"))
    return tax_text({"reason": "not measured" if usable(cell) else f"its cell does not count ({reasons})"})


def _share(cell: Mapping[str, Any]) -> str:
    share = number(cell.get("prefix_cache_hit_share"))
    return "unknown" if share is None else f"{share:.0%}"


def _ms(cell: Mapping[str, Any], quantity: str) -> str:
    found = percentile(cell, quantity, "p90")
    if found is None:
        return "–"
    ends = ["∞" if e is None else f"{e:,.4g}" for e in (found.low, found.high)]
    return f"{found.point:,.4g} [{ends[0]}, {ends[1]}]"
