"""The taxes of a campaign as one Markdown table, for a page such as README.md."""

from collections.abc import Callable, Mapping
from typing import Any

from connector_tax.read.figures.lookup import (
    Aggregate,
    chosen_taxes,
    configs,
    in_order,
    interval,
    label_of,
    main_taxes,
    mapping,
    number,
    of_reference_rates,
    rows,
)
from connector_tax.read.figures.words import METRICS, clean, with_interval
from connector_tax.read.report.hooks import cpu_us, wall_us
from connector_tax.read.report.tax_text import OF_ONE_LAUNCH, stands_in, tokens
from connector_tax.read.stats.attribution import BETWEEN_HOOKS

PLAIN = "plain"
LATENCIES = ("TTFT p90", "TPOT p90")
EQUAL_SPEED = "TTFT p90 at equal host speed"
HOOKS = ("hooks of a decode step, µs of wall clock", "µs of CPU")


def tax_table(aggregate: Aggregate, reference: str = "ref_safe") -> str:
    """One row per configuration other than plain, in the campaign's order: taxes at ``reference`` and what a step's hooks take.

    A tax is relative to plain's percentile, with its interval, over how many blocks of launches or of which launch it is, and the requests
    with the connector and without. The last two columns are of decode-only steps of one launch, without hooks that vLLM calls between steps.
    Where the campaign knows the speed of its host, a column has the TTFT tax at equal speed. Why a tax is not known, and what qualifies the reference rates, stands below.
    """
    ttft, tpot = (main_taxes(aggregate, metric=m, reference=reference) for m in ("ttft_p90", "tpot_p90"))
    equal = _at_equal_speed(aggregate, reference)
    steps = {str(e.get("config")): e for e in rows(aggregate.get("attribution"))}
    lines = [
        "| "
        + " | ".join(
            (
                _cell(config.label),
                _tax(ttft.get(config.id)),
                _tax(tpot.get(config.id)),
                *((_tax(equal.get(config.id)),) if equal else ()),
                _sum(_hooks(steps.get(config.id), wall_us)),
                _sum(_hooks(steps.get(config.id), cpu_us)),
            )
        )
        + " |"
        for config in configs(aggregate)
        if config.id != PLAIN
    ]
    names = ("configuration", *LATENCIES, *((EQUAL_SPEED,) if equal else ()), *HOOKS)
    head = (f"| {' | '.join(names)} |", f"|{'---|' * len(names)}")
    below = [*_why_none(aggregate, reference), *filter(None, [of_reference_rates(aggregate)])]
    return "\n".join((*head, *lines, *(("", " ".join(below)) if below else ())))


def _why_none(aggregate: Aggregate, reference: str) -> list[str]:
    """A sentence for each dash of a configuration that was measured."""
    return [
        f"{_cell(label_of(aggregate, str(row.get('config'))))} has no number of {METRICS[str(row.get('metric'))]}: {clean(str(row['reason']))}."
        for row in in_order(aggregate, chosen_taxes(aggregate))
        if row.get("reference") == reference and row.get("metric") in METRICS
        if interval(row) is None and row.get("reason")
    ]


def _at_equal_speed(aggregate: Aggregate, reference: str) -> dict[str, Mapping[str, Any]]:
    """Configuration -> its TTFT tax at equal speed of the host; nothing where the speed is not known."""
    return {
        str(tax.get("config")): {**found, "n": tax.get("n")}
        for entry in rows(aggregate.get("repeats"))
        if (entry.get("metric"), entry.get("reference")) == ("ttft_p90", reference)
        for tax in rows(entry.get("taxes"))
        if (found := mapping(tax.get("at_equal_host_speed")))
    }


def _cell(text: str) -> str:
    return clean(text).replace("|", "\\|")


def _tax(row: Mapping[str, Any] | None) -> str:
    """One at equal speed of the host is over the blocks of its tax, whose requests stand there."""
    found = interval(row)
    if row is None or found is None:
        return "–"
    if "metric" not in row:
        return ", ".join(filter(None, (with_interval(found), _blocks(row.get("n")))))
    whose = _blocks(row.get("blocks")) or ", ".join(filter(None, (OF_ONE_LAUNCH, stands_in(row))))
    return f"{with_interval(found)}, {whose}, n {tokens(row.get('n'))} and {tokens(row.get('n_plain'))}"


def _blocks(n: Any) -> str:
    return "" if number(n) is None else f"over {tokens(n)} blocks"


def _hooks(
    entry: Mapping[str, Any] | None, number_of: Callable[[Mapping[str, Any]], float | None]
) -> list[float | None]:
    """Of each hook in a step."""
    hooks = rows((entry or {}).get("hooks"))
    return [
        number_of(hook) for hook in hooks if str(hook.get("hook")).rsplit("/", 1)[-1] not in BETWEEN_HOOKS
    ]


def _sum(values: list[float | None]) -> str:
    """A sum of which parts are not known is a lower bound."""
    known = [v for v in values if v is not None]
    bound = "≥ " if len(known) < len(values) else ""
    return f"{bound}{sum(known):,.0f}" if known else "–"
