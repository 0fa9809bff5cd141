"""The taxes of a campaign as one Markdown table, for a page such as README.md."""

from collections.abc import Callable, Mapping
from typing import Any

from connector_tax.figures.lookup import Aggregate, configs, interval, main_taxes, number, rows
from connector_tax.figures.words import clean, with_interval

PLAIN = "plain"
HEAD = (
    "| configuration | TTFT p90 | TPOT p90 | hooks of a decode step, µs of wall clock | µs of CPU |",
    "|---|---|---|---|---|",
)


def tax_table(aggregate: Aggregate, reference: str = "ref_safe") -> str:
    """One row per configuration other than plain, in the campaign's order: taxes at ``reference`` and what a step's hooks take.

    A tax is relative to plain's percentile. Hooks of steps with a prompt are not in the last two columns: they are of decode-only steps.
    """
    ttft, tpot = (main_taxes(aggregate, metric=m, reference=reference) for m in ("ttft_p90", "tpot_p90"))
    steps = {str(e.get("config")): e for e in rows(aggregate.get("attribution"))}
    lines = [
        "| "
        + " | ".join(
            (
                _cell(config.label),
                _tax(ttft.get(config.id)),
                _tax(tpot.get(config.id)),
                _sum(_hooks(steps.get(config.id), _wall_us)),
                _sum(_hooks(steps.get(config.id), _cpu_us)),
            )
        )
        + " |"
        for config in configs(aggregate)
        if config.id != PLAIN
    ]
    return "\n".join((*HEAD, *lines))


def _cell(text: str) -> str:
    return clean(text).replace("|", "\\|")


def _tax(row: Mapping[str, Any] | None) -> str:
    found = interval(row)
    return "–" if found is None else with_interval(found)


def _hooks(
    entry: Mapping[str, Any] | None, number_of: Callable[[Mapping[str, Any]], float | None]
) -> list[float]:
    """Of each hook that it is known of."""
    return [v for hook in rows((entry or {}).get("hooks")) if (v := number_of(hook)) is not None]


def _wall_us(hook: Mapping[str, Any]) -> float | None:
    return number(hook.get("us_per_step"))


def _cpu_us(hook: Mapping[str, Any]) -> float | None:
    """No more than its wall time: reading a thread's CPU time adds up to a microsecond to a hook."""
    cpu, wall = number(hook.get("cpu_us_per_step")), _wall_us(hook)
    return None if cpu is None or wall is None else min(cpu, wall)


def _sum(known: list[float]) -> str:
    return f"{sum(known):,.0f}" if known else "–"
