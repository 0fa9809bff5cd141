"""What recording costs, as a table: the effect, and each tax with the recorder and without it."""

from typing import Any

from connector_tax.figures.lookup import Aggregate, configs, interval, label_of, rows
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
    order = [c.id for c in configs(aggregate)]
    found = sorted(
        rows(aggregate.get("observer_effect")),
        key=lambda r: order.index(r["config"]) if r.get("config") in order else len(order),
    )
    return [
        {
            "label": label_of(aggregate, str(row.get("config"))),
            "metric": METRIC_WORDS.get(str(row.get("metric")), str(row.get("metric"))),
            "numbers": [_text(row.get(k)) for k in ("effect", "tax", "tax_unrecorded")],
        }
        for row in found
    ]


def _text(value: Any) -> str:
    found = interval(value)
    return "–" if found is None else with_interval(found)
