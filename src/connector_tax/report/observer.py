"""What recording costs, as a table: the effect, and each tax with the recorder and without it."""

from typing import Any

from connector_tax.figures.lookup import Aggregate, in_order, interval, label_of, mapping, number, rows
from connector_tax.figures.words import with_interval

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


def _number(value: Any) -> Text:
    """``text`` and ``n``, the requests behind it."""
    found = interval(value)
    if found is None:
        return {"text": "–", "n": ""}
    return {"text": with_interval(found), "n": f"n {number(mapping(value).get('n')) or 0:,.0f}"}
