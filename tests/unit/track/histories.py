"""Campaigns of many nights on disk, made from the example aggregate."""

import copy
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from whole_aggregate import example, over_blocks

from connector_tax.base.documents.history import History, Series

Aggregate = dict[str, Any]
SD = 0.003
# Of the example; fewer make smaller files and fewer pictures.
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


def of_blocks(value: Aggregate, n: int, **of: str) -> None:
    for row in rows(value, **of):
        row |= {"phase": None, "blocks": n, "kind": f"over {n} blocks"}


def noise_floor(value: Aggregate, half: float, metric: str = "tpot_p90") -> None:
    value["repeats"] = [over_blocks(0.0, -half, half, metric=metric)]


def small_example() -> Aggregate:
    """With the configurations that are kept, and what series are made of."""
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


def nights(
    root: Path, taxes: Sequence[float], change: Callable[[int, Aggregate], None] | None = None
) -> Path:
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


def noisy(n: int, seed: int = 1, **steps: float) -> list[float]:
    """Taxes of one launch around 5 %; ``s12=0.02``: 2 % more from the thirteenth on."""
    rng = np.random.default_rng(seed)
    found = rng.normal(0.05, SD, n) - rng.normal(0, SD, n)
    for name, size in steps.items():
        found[int(name[1:]) :] += size
    return [float(v) for v in found]


def of(
    found: History, config: str = "nixl_both", metric: str = "tpot_p90", reference: str = "ref_safe"
) -> list[Series]:
    return [s for s in found.series if (s.config, s.metric, s.reference) == (config, metric, reference)]
