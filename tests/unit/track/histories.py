"""Campaigns of many nights on disk, made from the example aggregate."""

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from whole_aggregate import example

Aggregate = dict[str, Any]
Change = Callable[[int, Aggregate], None]
# Of the example; fewer make smaller files.
KEPT = ("plain", "noop_connector", "nixl_both")


def rows(value: Aggregate, config: str = "nixl_both", metric: str = "tpot_p90") -> list[Aggregate]:
    return [
        t
        for t in value["main_taxes"]
        if (t["config"], t["metric"]) == (config, metric) and t["reference"] != "neither"
    ]


def set_tax(value: Aggregate, point: float, **of: str) -> None:
    for row in rows(value, **of):
        row |= {"point": point, "low": point - 0.01, "high": point + 0.01}


def lose(value: Aggregate, reason: str, **of: str) -> None:
    lost = {"point": None, "low": None, "high": None, "available": False, "verdict": "unavailable"}
    for row in rows(value, **of):
        row |= {**lost, "reason": reason}


def small_example() -> Aggregate:
    """With the configurations that are kept, and what taxes are compared by."""
    value = example()
    value["configs"] = {config: value["configs"][config] for config in KEPT}
    for name in ("cells", "main_taxes"):
        value[name] = [row for row in value[name] if row["config"] in KEPT]
    empty = (
        "taxes",
        "attribution",
        "decomposition",
        "two_parts",
        "amplification",
        "hypotheses",
        "power",
        "outputs",
    )
    return {**value, **{name: [] for name in empty if name in value}}


def nights(root: Path, taxes: Sequence[float], change: Change | None = None) -> Path:
    """One campaign a night; TPOT p90 of nixl_both is as given, that of every other connector the same each night.

    Args:
        change: of the night's number and its aggregate.
    """
    base = small_example()
    for k, tax in enumerate(taxes):
        value = copy.deepcopy(base)
        value["campaign"] = f"night-{k:02d}"
        value["date"] = f"2026-10-{k + 1:02d}"
        value["provenance"]["created_utc"] = f"2026-10-{k + 1:02d}T02:00:00Z"
        set_tax(value, tax)
        if change is not None:
            change(k, value)
        folder = root / f"night-{k:02d}"
        folder.mkdir(parents=True)
        (folder / "aggregate.json").write_text(json.dumps(value))
    return root
