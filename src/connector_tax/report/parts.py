"""What a tax is made of, and which engine settings a connector changes, as tables."""

from typing import Any

from connector_tax.figures.lookup import (
    Aggregate,
    in_order,
    interval,
    is_of_one_launch,
    label_of,
    main_taxes,
    mapping,
    rows,
)
from connector_tax.figures.words import signed, with_interval
from connector_tax.report.tax_text import OF_ONE_LAUNCH

Text = dict[str, Any]
METRIC_WORDS = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90"}
NOOP = "noop_connector"
# The published experiment's stack: the no-op connector's tax, and what a connector adds to it.
TWO_PARTS = {"ttft_p90": "ratio", "step_p50_us": "us"}
PARTS = ("total", "flags", "framework", "implementation")


def decomposition_view(aggregate: Aggregate) -> list[Text]:
    """One row per connector and latency, in the campaign's order."""
    return [
        {
            "label": label_of(aggregate, str(row.get("config"))),
            "metric": METRIC_WORDS.get(str(row.get("metric")), str(row.get("metric"))),
            "kind": str(row.get("kind") or OF_ONE_LAUNCH),
            "parts": [_part(mapping(row.get(part))) for part in PARTS],
        }
        for row in in_order(aggregate, rows(aggregate.get("decomposition")))
    ]


def _part(value: Any) -> Text:
    found = interval(value)
    if found is None:
        return {"text": "not available", "range": str(value.get("reason") or "")}
    head, _, rest = with_interval(found, "ratio").partition(" [")
    return {"text": head, "range": f"[{rest}" if rest else ""}


def two_parts_view(aggregate: Aggregate) -> list[Text]:
    """One row per connector: tax, no-op connector's tax and the rest, of TTFT p90 and of the median step."""
    found = {m: main_taxes(aggregate, metric=m, reference="ref_safe") for m in TWO_PARTS}
    listed = {c: None for taxes in found.values() if NOOP in taxes for c in taxes if c != NOOP}
    return [
        {
            "label": label_of(aggregate, config),
            "numbers": [n for m, unit in TWO_PARTS.items() for n in _two(found[m], config, unit)],
        }
        for config in listed
    ]


def _two(taxes: Any, config: str, unit: str) -> list[str]:
    whole, noop = interval(taxes.get(config)), interval(taxes.get(NOOP))
    kinds = {is_of_one_launch(mapping(taxes.get(c)).get("kind")) for c in (config, NOOP)}
    if whole is None or noop is None or len(kinds) > 1:
        return ["–"] * 3
    return [signed(v, unit) for v in (whole.point, noop.point, whole.point - noop.point)]


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
