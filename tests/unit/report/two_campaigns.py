"""Two days of one invented campaign, to be compared, and changes to either."""

from pathlib import Path
from typing import Any

from whole_aggregate import Aggregate, example

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.read.compare.comparison import Change, Comparison, Side, compare

BOTH = ("ttft_p90", "tpot_p90")


def rows(value: Aggregate, config: str, metric: str, rate: float = 2) -> list[dict[str, Any]]:
    wanted = (config, metric, "a", rate)
    return [
        t for t in value["main_taxes"] if (t["config"], t["metric"], t["phase"], t["rate_per_s"]) == wanted
    ]


def set_tax(value: Aggregate, point: float, low: float | None, high: float | None, metric: str = "ttft_p90", config: str = "mooncake_both") -> None:  # fmt: skip
    (row,) = rows(value, config, metric)
    row |= {"point": point, "low": low, "high": high}


def lose(value: Aggregate, config: str, metric: str, reason: str) -> None:
    (row,) = rows(value, config, metric)
    row |= {"point": None, "low": None, "high": None, "available": False, "reason": reason, "verdict": "unavailable"}  # fmt: skip


def compared(
    a: Aggregate, b: Aggregate, fail_above: float = 0.05, deciding: tuple[str, ...] = BOTH
) -> Comparison:
    return compare(
        Side("A", Path("a"), aggregate_of(a)),
        Side("B", Path("b"), aggregate_of(b)),
        fail_above=fail_above,
        deciding=deciding,
    )


def change_of(found: Comparison, config: str = "mooncake_both", metric: str = "ttft_p90") -> Change:
    return next(c for c in found.changes if (c.config, c.metric) == (config, metric))


def two_days() -> tuple[Aggregate, Aggregate]:
    """Equal in everything but when they were made."""
    a, b = example(), example()
    b["provenance"]["created_utc"] = "2026-11-21T08:00:00Z"
    return a, b


def over_blocks(value: Aggregate, n: int, *configs: str) -> None:
    for tax in value["main_taxes"]:
        if tax["unit"] == "ratio" and (not configs or tax["config"] in configs):
            tax |= {"phase": None, "n_blocks": n}
