"""What Figure 5 says of the taxes over prompt and output length."""

from connector_tax.base.documents.aggregate import Aggregate, Interval
from connector_tax.base.records.connector import is_connector
from connector_tax.base.statistics.outcomes import GAIN, TAX, UNDETERMINED
from connector_tax.read.figures.questions import Tax, blocks_of, confidence_words, reference_rate
from connector_tax.read.figures.words import (
    PHASES,
    clean,
    counted_sides,
    launch_of,
    left_out,
    listing,
    of_reference_rates,
    rate,
    with_interval,
)

OWN = "of Phase B's own launch"
# Prompt and output tokens -> the tax there.
Grid = dict[tuple[int, int], Tax]


def rates_of(grids: dict[str, Grid]) -> list[float]:
    """Those that occur, in order."""
    return sorted({tax.rate_per_s for grid in grids.values() for tax in grid.values()})


def title_of(aggregate: Aggregate, grids: dict[str, Grid]) -> str:
    """How many taxes and gains of connectors are told apart from zero; of those the largest tax and where, else the largest gain."""
    own = {c: grid for c, grid in grids.items() if is_connector(c)}
    found = [(v, tax) for grid in own.values() for tax in grid.values() if (v := tax.interval) is not None]
    clear = [f for f in found if f[0].told == TAX]
    lower = [f for f in found if f[0].told == GAIN]
    if not found:
        return "No connector has a TTFT tax at any shape"
    unknown = sum(v.told == UNDETERMINED for v, _ in found)
    not_known = f"; of {unknown} it is not known" if unknown else ""
    if not clear and not lower:
        return f"At no shape is a connector's TTFT tax told apart from zero ({len(found)} cells{not_known})"
    if not clear:
        lowest = _place(aggregate, grids, *min(lower, key=lambda f: f[0].point))
        return f"The TTFT tax is below zero in {len(lower)} of {len(found)} cells and above it in none; the lowest is {lowest}{not_known}"
    largest = _place(aggregate, grids, *max(clear, key=lambda f: f[0].point))
    below = f" and below it in {len(lower)}" if lower else ""
    which = "the tax above zero" if len(clear) == 1 else "the largest of these taxes"
    return f"The TTFT tax is above zero in {len(clear)} of {len(found)} cells{below}; {which} is {largest}{not_known}"


def _place(aggregate: Aggregate, grids: dict[str, Grid], value: Interval, tax: Tax) -> str:
    """A tax, whose it is and where."""
    queueing = ", where a side did not keep up" if tax.overloaded else ""
    at = f" at {rate(tax.rate_per_s)}" if len(rates_of(grids)) > 1 else ""
    kind = f" {tax.kind}" if blocks_of(tax) is not None else ""
    return (
        f"{with_interval(value)}{kind}, {clean(aggregate.label_of(tax.config), 40)} at {tax.input_tokens:,} prompt and "
        f"{tax.output_tokens:,} output tokens{at}{queueing}"
    )


def caption_of(aggregate: Aggregate, grids: dict[str, Grid], missing: list[str], others: list[str]) -> str:
    found = [tax for grid in grids.values() for tax in grid.values()]
    queued = sum(bool(tax.overloaded) for tax in found)
    return " ".join(
        [
            f"Tax of TTFT p90 against plain {_where(aggregate, grids)}, phase B.",
            _instead(grids),
            f"In brackets the {confidence_words(aggregate)} interval in percent, {_launches(grids)}; hatched where it covers zero{_dotted(found)}.",
            f"{counted_sides(found, 'cell')}.",
            f"In {queued} of the {len(found)} cells drawn plain or the connector did not keep up: those taxes hold queueing."
            if queued
            else "",
            f"Not available: {listing(missing)}." if missing else "",
            of_reference_rates(aggregate),
            *others,
            left_out(aggregate, "b", grids, [*found, *_without_number(aggregate)]),
        ]
    ).replace("  ", " ")


def _without_number(aggregate: Aggregate) -> list[Tax]:
    """The main taxes that would stand at a shape of Phase B if they had a number."""
    shapes = {tax.shape for tax in aggregate.taxes if tax.phase == "b"}
    return [
        tax
        for tax in aggregate.chosen_taxes
        if (tax.metric, tax.reference) == ("ttft_p90", "ref_safe") and not tax.known and tax.shape in shapes
    ]


def _instead(grids: dict[str, Grid]) -> str:
    """At Phase A's shape, where not all taxes are of Phase B's launch: whose each is."""
    whose: dict[tuple[int, int], dict[str, list[str]]] = {}
    for config, grid in grids.items():
        for shape, tax in grid.items():
            whose.setdefault(shape, {}).setdefault(_launch_of(tax), []).append(config)
    sentences = []
    for shape, found in whose.items():
        if set(found) != {OWN}:
            told = "; ".join(f"{words} for {listing(found[words], 9)}" for words in sorted(found))
            sentences.append(f"At {shape[0]} x {shape[1]} tokens, Phase A's shape, the tax is {told}.")
    return " ".join(sentences)


def _launch_of(tax: Tax) -> str:
    if (blocks := blocks_of(tax)) is not None:
        return f"over {blocks} blocks of launches"
    phase = str(tax.phase)
    return OWN if phase == "b" else f"of {launch_of(PHASES.get(phase, phase.upper()), 'Phase')}"


def _dotted(found: list[Tax]) -> str:
    is_open = any(tax.known and tax.told == UNDETERMINED for tax in found)
    return ", dotted where an open end leaves it open which" if is_open else ""


def _launches(grids: dict[str, Grid]) -> str:
    """Of how many launches the cells are; those over blocks say so themselves."""
    taxes = [tax for grid in grids.values() for tax in grid.values()]
    several = {tax.shape for tax in taxes if blocks_of(tax) is not None}
    if not several:
        return "of one launch each"
    return (
        f"at {listing([f'{i} x {o} tokens' for i, o in sorted(several)])} over as many blocks of launches as the cell names, else of "
        "one launch each"
    )


def _where(aggregate: Aggregate, grids: dict[str, Grid]) -> str:
    at, rates = reference_rate(aggregate, "ref_safe"), rates_of(grids)
    safe = f"ref_safe{f' ({rate(at)})' if at is not None else ''}"
    if len(rates) < 2:
        # Phase B ran at the rates of its day; where they were worked out anew since, ref_safe may be another.
        other = rates and at is not None and rates != [at]
        return f"at {rate(rates[0])}, and not at {safe}" if other else f"at {safe}"
    if at is not None and rates[-1] > at:
        return f"at the rate in each cell, {rates[0]:g} to {rate(rates[-1])}, and not at {safe} in all"
    return (
        f"at the rate in each cell, {rates[0]:g} to {rate(rates[-1])}: {safe} where the capacity estimate says that every configuration holds the shape, else a lower "
        "one, the same for all configurations"
    )
