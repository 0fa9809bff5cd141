"""The taxes of a campaign as one Markdown table, for a page such as README.md."""

from collections.abc import Callable

from connector_tax.base.documents.aggregate import Aggregate, Attribution, Hook
from connector_tax.base.documents.rates import Reference
from connector_tax.read.figures.questions import Tax, blocks_of, in_order, main_taxes
from connector_tax.read.figures.words import METRICS, clean, of_reference_rates, with_interval
from connector_tax.read.report.hooks import cpu_us
from connector_tax.read.report.tax_text import OF_ONE_LAUNCH, stands_in
from connector_tax.read.stats.attribution import BETWEEN_HOOKS

PLAIN = "plain"
LATENCIES = ("TTFT p90", "TPOT p90")
EQUAL_SPEED = "TTFT p90 at equal host speed"
HOOKS = ("hooks of a decode step, µs of wall clock", "µs of CPU")


def tax_table(aggregate: Aggregate, reference: Reference = "ref_safe") -> str:
    """One row per configuration other than plain, in the campaign's order: taxes at ``reference`` and what a step's hooks take.

    A tax is relative to plain's percentile, with its interval, over how many blocks of launches or of which launch it is, and the requests
    with the connector and without. The last two columns are of decode-only steps of one launch, without hooks that vLLM calls between steps.
    Where the campaign knows the speed of its host, a column has the TTFT tax at equal speed. Why a tax is not known, and what qualifies the reference rates, stands below.
    """
    ttft, tpot = (main_taxes(aggregate, metric=m, reference=reference) for m in ("ttft_p90", "tpot_p90"))
    equal = _at_equal_speed(aggregate, reference)
    steps = {entry.config: entry for entry in aggregate.attribution}
    lines = [
        "| "
        + " | ".join(
            (
                _cell(aggregate.label_of(config)),
                _tax(ttft.get(config)),
                _tax(tpot.get(config)),
                *((equal.get(config, "–"),) if equal else ()),
                _sum(_hooks(steps.get(config), lambda hook: hook.us_per_step)),
                _sum(_hooks(steps.get(config), cpu_us)),
            )
        )
        + " |"
        for config in aggregate.config_ids
        if config != PLAIN
    ]
    names = ("configuration", *LATENCIES, *((EQUAL_SPEED,) if equal else ()), *HOOKS)
    head = (f"| {' | '.join(names)} |", f"|{'---|' * len(names)}")
    below = [*_why_none(aggregate, reference), *filter(None, [of_reference_rates(aggregate)])]
    return "\n".join((*head, *lines, *(("", " ".join(below)) if below else ())))


def _why_none(aggregate: Aggregate, reference: Reference) -> list[str]:
    """A sentence for each dash of a configuration that was measured."""
    return [
        f"{_cell(aggregate.label_of(tax.config))} has no number of {METRICS[tax.metric]}: {clean(tax.reason)}."
        for tax in in_order(aggregate, aggregate.chosen_taxes)
        if tax.reference == reference and tax.metric in METRICS and not tax.known and tax.reason
    ]


def _at_equal_speed(aggregate: Aggregate, reference: Reference) -> dict[str, str]:
    """Configuration -> its TTFT tax at equal speed of the host; nothing where the speed is not known."""
    return {
        tax.config: f"{with_interval(found.interval)}, over {tax.n:,} blocks"
        for entry in aggregate.repeats
        if (entry.metric, entry.reference) == ("ttft_p90", reference)
        for tax in entry.taxes
        if (found := tax.at_equal_host_speed) is not None
    }


def _cell(text: str) -> str:
    return clean(text).replace("|", "\\|")


def _tax(tax: Tax | None) -> str:
    value = None if tax is None else tax.interval
    if tax is None or value is None:
        return "–"
    blocks = blocks_of(tax)
    whose = f"over {blocks} blocks" if blocks else ", ".join(filter(None, (OF_ONE_LAUNCH, stands_in(tax))))
    return f"{with_interval(value)}, {whose}, n {tax.n:,} and {tax.n_plain:,}"


def _hooks(entry: Attribution | None, number_of: Callable[[Hook], float | None]) -> list[float | None]:
    """Of each hook in a step."""
    hooks = () if entry is None else entry.hooks
    return [number_of(hook) for hook in hooks if hook.hook.rsplit("/", 1)[-1] not in BETWEEN_HOOKS]


def _sum(values: list[float | None]) -> str:
    """A sum of which parts are not known is a lower bound."""
    known = [v for v in values if v is not None]
    bound = "≥ " if len(known) < len(values) else ""
    return f"{bound}{sum(known):,.0f}" if known else "–"
