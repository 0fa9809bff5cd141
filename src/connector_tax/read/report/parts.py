"""What a tax is made of, and which engine settings a connector changes, as tables."""

from collections.abc import Mapping
from typing import Any

from connector_tax.base.records.cell import is_phase
from connector_tax.base.records.connector import is_connector
from connector_tax.read.figures.lookup import (
    Aggregate,
    configs,
    in_order,
    interval,
    label_of,
    main_taxes,
    mapping,
    rows,
)
from connector_tax.read.figures.words import MEASURED, clean, with_interval
from connector_tax.read.report.tax_text import OF_ONE_LAUNCH, phase_name, tokens

Text = dict[str, Any]
METRIC_WORDS = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90", "step_p50_us": "median step"}
PARTS = ("total", "flags", "framework", "implementation")


def decomposition_view(aggregate: Aggregate) -> list[Text]:
    """One row per connector and latency, in the campaign's order."""
    return [
        {
            "label": label_of(aggregate, str(row.get("config"))),
            "metric": METRIC_WORDS.get(str(row.get("metric")), str(row.get("metric"))),
            "kind": (kind := _kind_of(row)),
            "parts": [_part_of(kind, mapping(row.get(part))) for part in PARTS],
        }
        for row in in_order(aggregate, rows(aggregate.get("decomposition")))
    ]


def _kind_of(row: Mapping[str, Any]) -> str:
    """Nothing where the tax has no number."""
    return "" if interval(row.get("total")) is None else str(row.get("kind") or OF_ONE_LAUNCH)


def _part_of(whole: str, part: Mapping[str, Any]) -> Text:
    """One of another kind than ``whole``, the tax, says so."""
    found, kind = _part(part), part.get("kind")
    if interval(part) is not None and kind not in (None, whole):
        found["range"] = f"{found['range']}, {clean(str(kind))}"
    return found


def _part(value: Any, unit: str = "ratio") -> Text:
    found = interval(value)
    if found is None:
        return {"text": "not available", "range": str(value.get("reason") or "")}
    head, _, rest = with_interval(found, unit).partition(" [")
    return {"text": head, "range": f"[{rest}" if rest else ""}


def two_parts_view(aggregate: Aggregate) -> list[Text]:
    """One row per connector and metric: its tax, the no-op connector's, and the rest."""
    return [
        {
            "label": label_of(aggregate, str(row.get("config"))),
            "metric": METRIC_WORDS.get(str(row.get("metric")), str(row.get("metric"))),
            "parts": [
                _part(found := mapping(row.get(part)), str(row.get("unit")))
                | {
                    "n": f"n {tokens(found.get('n'))}, {kind}{launch}"
                    if (kind := found.get("kind")) is not None
                    else ""
                }
                for part, launch in _launches(aggregate, row).items()
            ],
        }
        for row in in_order(aggregate, rows(aggregate.get("two_parts")))
    ]


def _launches(aggregate: Aggregate, row: Mapping[str, Any]) -> Text:
    """By which phase's launch each of the parts is, where one of the two taxes is not by Phase A's."""
    of_metric = main_taxes(aggregate, metric=str(row.get("metric")), reference="ref_safe")
    whole, noop = (mapping(of_metric.get(c)) for c in (str(row.get("config")), "noop_connector"))
    phases = [None if t.get("blocks") is not None else t.get("phase") for t in (whole, noop)]
    own, other = (f"phase {phase_name(p)}'s" if is_phase(p) else "" for p in map(str, phases))
    if set(phases) <= {"a", None}:
        return dict.fromkeys(("total", "framework", "rest"), "")
    rest = f" each, {own} less {other}" if own != other else f", by {own} launch"
    return {
        part: f", by {of} launch" if of else "" for part, of in (("total", own), ("framework", other))
    } | {"rest": rest}


def settings_view(aggregate: Aggregate) -> list[Mapping[str, Any]]:
    """One row per configuration: what it changed against plain, that it changed nothing, or that its settings were not seen.

    Nothing where nobody's were.
    """
    seen = mapping(aggregate.get("engine_diff"))
    if all(changes is None for config, changes in seen.items() if config != "plain"):
        return []
    wanted = [c.id for c in configs(aggregate) if is_connector(c.id) and c.status in MEASURED]
    found = []
    for config in dict.fromkeys((*seen, *wanted)):
        changes = seen.get(config)
        words = [
            f"{name.removeprefix('log.')}: {mapping(change).get('plain')} → {mapping(change).get('own')}"
            for name, change in mapping(changes).items()
        ]
        if config != "plain":
            nothing = "not known" if changes is None else "none"
            found.append(
                {"label": label_of(aggregate, config), "config": config, "changes": words, "nothing": nothing}
            )
    return in_order(aggregate, found)
