"""What a tax is made of, and which engine settings a connector changes, as tables."""

from typing import Any

from connector_tax.figures.lookup import Aggregate, configs, interval, label_of, mapping, rows
from connector_tax.figures.words import with_interval

Text = dict[str, Any]
METRIC_WORDS = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90"}
PARTS = ("total", "flags", "framework", "implementation")


def decomposition_view(aggregate: Aggregate) -> list[Text]:
    """One row per connector and latency, in the campaign's order."""
    order = [c.id for c in configs(aggregate)]
    found = sorted(
        rows(aggregate.get("decomposition")),
        key=lambda r: order.index(r["config"]) if r.get("config") in order else len(order),
    )
    return [
        {
            "label": label_of(aggregate, str(row.get("config"))),
            "metric": METRIC_WORDS.get(str(row.get("metric")), str(row.get("metric"))),
            "parts": [_part(mapping(row.get(part))) for part in PARTS],
        }
        for row in found
    ]


def _part(value: Any) -> Text:
    found = interval(value)
    if found is None:
        return {"text": "not available", "range": str(value.get("reason") or "")}
    head, _, rest = with_interval(found, "ratio").partition(" [")
    return {"text": head, "range": f"[{rest}" if rest else ""}


def settings_view(aggregate: Aggregate) -> list[Text]:
    """One row per configuration whose settings were seen; what it changed against plain, or that it changed nothing."""
    found = []
    for config, changes in mapping(aggregate.get("engine_diff")).items():
        if config == "plain" or changes is None:
            continue
        words = [
            f"{name.removeprefix('log.')}: {mapping(change).get('plain')} → {mapping(change).get('own')}"
            for name, change in mapping(changes).items()
        ]
        found.append({"label": label_of(aggregate, config), "changes": words})
    return found
