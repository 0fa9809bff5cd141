"""The taxes of a campaign as one Markdown table, for a page such as README.md."""

from collections import Counter
from collections.abc import Callable, Sequence

from connector_tax.base.documents.aggregate import Aggregate, Attribution, Hook
from connector_tax.base.documents.rates import Reference
from connector_tax.read.figures.questions import Tax, blocks_of, in_order, main_taxes
from connector_tax.read.figures.words import (
    METRICS,
    clean,
    hold_together,
    of_reference_rates,
    with_interval,
)
from connector_tax.read.report.hooks import cpu_us
from connector_tax.read.report.tax_text import OF_ONE_LAUNCH, stands_in
from connector_tax.read.stats.attribution import BETWEEN_HOOKS

PLAIN = "plain"
REQUESTS = "requests with it, and with plain"
EQUAL_SPEED = "TTFT p90 at equal host speed"
HOOKS = ("hooks of a decode step, µs of wall clock", "µs of CPU")


def tax_table(aggregate: Aggregate, reference: Reference = "ref_safe") -> str:
    """One row per configuration other than plain, in the campaign's order: taxes at ``reference`` and what a step's hooks take.

    A tax is relative to plain's percentile, with its interval. The line above the table says over how many blocks of launches, or of which
    launch, most of its taxes are; each other tax says it in its cell. A column has the requests with the connector and without. The last
    two columns are of decode-only steps of one launch, without hooks that vLLM calls between steps. Where the campaign knows the speed of its
    host, a column has the TTFT tax at equal speed. Why a tax is not known, and what qualifies the reference rates, stands below.
    """
    latencies = [main_taxes(aggregate, metric=m, reference=reference) for m in METRICS]
    equal = _at_equal_speed(aggregate, reference)
    steps = {entry.config: entry for entry in aggregate.attribution}
    configs = [c for c in aggregate.config_ids if c != PLAIN]
    known = [tax for found in latencies for c in configs if (tax := _known(found.get(c))) is not None]
    kinds = Counter([*map(_kind, known), *(kind for _, kind in equal.values())])
    # Of as many of each kind, that of the first row stands for the table.
    kind = kinds.most_common(1)[0][0] if kinds else ""
    lines = [
        "| "
        + " | ".join(
            (
                _cell(aggregate.label_of(config)),
                *(_tax(found.get(config), kind) for found in latencies),
                *((_with_kind(*equal[config], kind) if config in equal else "–",) if equal else ()),
                _requests([_known(found.get(config)) for found in latencies]),
                _sum(_hooks(steps.get(config), lambda hook: hook.us_per_step)),
                _sum(_hooks(steps.get(config), cpu_us)),
            )
        )
        + " |"
        for config in configs
    ]
    names = ("configuration", *METRICS.values(), *((EQUAL_SPEED,) if equal else ()), REQUESTS, *HOOKS)
    above = (
        (f"Taxes {kind}{', but for those that say otherwise' if len(kinds) > 1 else ''}:", "")
        if kinds
        else ()
    )
    head = (f"| {' | '.join(names)} |", f"|{'---|' * len(names)}")
    below = [*_why_none(aggregate, reference), *filter(None, [of_reference_rates(aggregate)])]
    return "\n".join((*above, *head, *lines, *(("", " ".join(below)) if below else ())))


def _why_none(aggregate: Aggregate, reference: Reference) -> list[str]:
    """A sentence for each dash of a configuration that was measured."""
    return [
        f"{_cell(aggregate.label_of(tax.config))} has no number of {METRICS[tax.metric]}: {clean(tax.reason)}."
        for tax in in_order(aggregate, aggregate.chosen_taxes)
        if tax.reference == reference and tax.metric in METRICS and not tax.known and tax.reason
    ]


def _at_equal_speed(aggregate: Aggregate, reference: Reference) -> dict[str, tuple[str, str]]:
    """Configuration -> its TTFT tax at equal speed of the host, and over how many blocks; nothing where the speed is not known."""
    return {
        tax.config: (with_interval(found.interval), _over(tax.n))
        for entry in aggregate.repeats
        if (entry.metric, entry.reference) == ("ttft_p90", reference)
        for tax in entry.taxes
        if (found := tax.at_equal_host_speed) is not None
    }


def _cell(text: str) -> str:
    return clean(text).replace("|", "\\|")


def _known(tax: Tax | None) -> Tax | None:
    """None without a number."""
    return None if tax is None or tax.interval is None else tax


def _over(blocks: int) -> str:
    return f"over {blocks:,} blocks of launches"


def _kind(tax: Tax) -> str:
    """``over 4 blocks of launches``; of one launch also which, where it is not Phase A's."""
    blocks = blocks_of(tax)
    return _over(blocks) if blocks is not None else ", ".join(filter(None, (OF_ONE_LAUNCH, stands_in(tax))))


def _tax(tax: Tax | None, usual: str) -> str:
    """With its kind where that is not the ``usual`` one."""
    value = None if tax is None else tax.interval
    return "–" if tax is None or value is None else _with_kind(with_interval(value), _kind(tax), usual)


def _with_kind(text: str, kind: str, usual: str) -> str:
    return hold_together(text) if kind == usual else f"{hold_together(text)}, {kind}"


def _requests(taxes: Sequence[Tax | None]) -> str:
    """``542 and 1,084``, once where both latencies are of as many."""
    found = {METRICS[tax.metric]: f"{tax.n:,} and {tax.n_plain:,}" for tax in taxes if tax is not None}
    if len(set(found.values())) < 2:
        return next(iter(found.values()), "–")
    return "; ".join(f"{n} of {name}" for name, n in found.items())


def _hooks(entry: Attribution | None, number_of: Callable[[Hook], float | None]) -> list[float | None]:
    """Of each hook in a step."""
    hooks = () if entry is None else entry.hooks
    return [number_of(hook) for hook in hooks if hook.hook.rsplit("/", 1)[-1] not in BETWEEN_HOOKS]


def _sum(values: list[float | None]) -> str:
    """A sum of which parts are not known is a lower bound."""
    known = [v for v in values if v is not None]
    bound = "≥ " if len(known) < len(values) else ""
    return f"{bound}{sum(known):,.0f}" if known else "–"
