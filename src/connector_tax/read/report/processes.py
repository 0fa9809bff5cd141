"""What each engine process takes of the host, as a table: idle, and loaded at ref_safe."""

from collections.abc import Mapping
from typing import Any

from connector_tax.read.figures.lookup import (
    Aggregate,
    configs,
    label_of,
    mapping,
    number,
    reference_rate,
    rows,
    valid_cells,
)

Text = dict[str, Any]


def processes_view(aggregate: Aggregate) -> list[Text]:
    """One entry per configuration with a Phase A cell at ref_safe, plain first; each with one row per process."""
    at = reference_rate(aggregate, "ref_safe")
    found = []
    for config in configs(aggregate):
        for cell in valid_cells(aggregate, "a", config.id):
            if number(cell.get("rate_per_s")) == at and (lines := _lines(mapping(cell.get("cpu")))):
                found.append({"label": label_of(aggregate, config.id), "rows": lines})
    return found


def _lines(cpu: Mapping[str, Any]) -> list[Text]:
    loaded, idle, rss = (mapping(cpu.get(k)) for k in ("loaded_s", "idle_share", "rss_mib"))
    elapsed_s = number(cpu.get("elapsed_s"))
    names = sorted({*loaded, *idle, *rss})
    shares = {n: s / elapsed_s for n in names if elapsed_s and (s := number(loaded.get(n))) is not None}
    lines = [
        {
            "process": name,
            "idle": _cores(number(idle.get(name))),
            "loaded": _cores(shares.get(name)),
            "rss": _mib(number(rss.get(name))),
            "spinning": [
                f"{s.get('thread')} ({number(s.get('share')) or 0:.0%} of a core)"
                for s in rows(cpu.get("spinning"))
                if s.get("process") == name
            ],
        }
        for name in names
    ]
    if len(names) > 1:
        total = {
            "process": "all",
            "idle": _cores(_sum(idle)),
            "loaded": _cores(sum(shares.values()) if shares else None),
            "rss": _mib(_sum(rss)),
            "spinning": [],
        }
        lines.append(total)
    return lines


def _sum(values: Mapping[str, Any]) -> float | None:
    known = [v for v in map(number, values.values()) if v is not None]
    return sum(known) if known else None


def _cores(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _mib(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
