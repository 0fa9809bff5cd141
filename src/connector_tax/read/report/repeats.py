"""What several launches say, as tables: taxes over blocks, the noise floor, what launches differ by, drift."""

import math
from dataclasses import dataclass

from connector_tax.base.documents.aggregate import Aggregate, BlockTax, Bounds, Repeats
from connector_tax.base.records.cell import phase_label
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.statistics.outcomes import unresolved
from connector_tax.base.statistics.texts import digits_apart
from connector_tax.read.figures.questions import Tax, in_order, why_no_number
from connector_tax.read.figures.words import clean, percent, rate, with_interval
from connector_tax.read.report.tax_text import MOODS, NOT_RESOLVED, VERDICT_WORDS

METRIC_WORDS = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90"}


@dataclass(frozen=True, slots=True)
class EqualSpeedText:
    """``note``: whether the host was slower or faster beside this configuration than beside plain."""

    text: str = "–"
    note: str = ""


@dataclass(frozen=True, slots=True)
class BlockRow:
    """``blocks``: its tax block by block; without a tax, why it has none."""

    label: str
    blocks: str
    tax: str = "not available"
    n: str = ""
    verdict: str = ""
    mood: str = "none"
    equal_speed: EqualSpeedText = EqualSpeedText()
    adjusted: str = "–"


@dataclass(frozen=True, slots=True)
class BlocksTable:
    """``equal_speed``: whether it has a column of taxes at equal speed of the host."""

    title: str
    sentences: list[str]
    equal_speed: bool
    rows: list[BlockRow]


def repeats_view(aggregate: Aggregate) -> list[BlocksTable]:
    """One entry per reference rate and latency."""
    return [
        BlocksTable(
            title=f"{METRIC_WORDS.get(entry.metric, entry.metric)} at {entry.reference}, {rate(entry.rate_per_s)}, {entry.blocks} blocks",
            sentences=_sentences(entry, 1 - aggregate.provenance.confidence),
            equal_speed=entry.host_speed_slope is not None,
            rows=[_row(aggregate, entry, tax) for tax in in_order(aggregate, entry.taxes)]
            + _without(aggregate, entry),
        )
        for entry in aggregate.repeats
    ]


def _spread_words(spread: Bounds) -> str:
    """``0.1 % [0.04 %, 0.2 %] (standard deviation) beyond what their requests explain.``"""
    shares = [100 * v for v in (spread.point, spread.low, spread.high)]
    point, low, high = (f"{text} %" for text in digits_apart(shares, lambda _: 1, no_zero=spread.low > 0))
    beyond = "(standard deviation) beyond what their requests explain"
    if spread.high == 0:
        return "no more than their requests explain."
    if low == point:
        return f"up to {high} {beyond}, perhaps by nothing."
    return f"{point} [{low}, {high}] {beyond}."


def failed_sentences(aggregate: Aggregate) -> list[str]:
    """Who has no tax since requests failed in a block of launches, and why."""
    found = []
    for entry in aggregate.failed_blocks:
        name = clean(aggregate.label_of(entry.config), 40)
        who = "No connector has a tax" if entry.config == "plain" else f"{name} has no tax"
        where = f"{entry.reference}, {rate(entry.rate_per_s)}"
        found.append(
            f"{who} of {METRIC_WORDS.get(entry.metric, entry.metric)} at {where} and Phase A's shape: {clean(entry.reason)}."
        )
    return found


def _without(aggregate: Aggregate, entry: Repeats) -> list[BlockRow]:
    """A row of each configuration that was not skipped and has no tax over these blocks, with the reason."""
    here = {tax.config for tax in entry.taxes} | {"plain", PLAIN_AGAIN}
    place = (entry.metric, entry.reference, entry.rate_per_s)
    chosen = {t.config: t for t in aggregate.chosen_taxes if (t.metric, t.reference, t.rate_per_s) == place}
    return [
        BlockRow(aggregate.label_of(c), _why_without(aggregate, entry, c, chosen.get(c)))
        for c in aggregate.config_ids
        if c not in here and aggregate.configs[c].status != "skipped"
    ]


def _why_without(aggregate: Aggregate, entry: Repeats, config: str, chosen: Tax | None) -> str:
    if chosen is None:
        return why_no_number(aggregate, config)
    if not chosen.known:
        reason = chosen.reason or "unavailable"
        failed = {f.reason for f in aggregate.failed_blocks}
        blocks = {block for tax in entry.taxes for block in tax.by_block}
        place = (entry.rate_per_s, chosen.shape)
        own = (
            c for c in aggregate.measured(config=config) if c.recorded and (c.rate_per_s, c.shape) == place
        )
        # Where requests failed more blocks would not help.
        few = 0 if chosen.reason in failed else len({c.phase for c in own} & blocks)
        return (
            f"{few} of these blocks {'has' if few == 1 else 'have'} its cell, and 3 are needed; {reason}"
            if 0 < few < 3
            else reason
        )
    return "too few of these blocks have its cell, so its tax is of one launch"


def _sentences(entry: Repeats, alpha: float) -> list[str]:
    again, least = entry.noise_floor.interval, entry.noise_floor.found_4_of_5
    # Of an aggregate of an earlier version it has no interval, and is too small in two campaigns of three.
    power = (
        f" The tax that {entry.blocks} such blocks find in four of five campaigns is estimated at {with_interval(least.interval)}, if a "
        "connector's launches differ as plain's do."
        if isinstance(least, Bounds)
        else ""
    )
    apart = ", so its second launch is told apart from its first" if again.excludes_zero else ""
    # Not written by earlier versions.
    each = "" if entry.requests is None else f", {entry.requests:,.0f} requests each (median)"
    of = f" in {entry.blocks} pairs of launches{each}"
    found = [f"Plain against itself: {with_interval(again)}{of}{apart}.{power}"]
    # What first and second launches differ by on average is no spread.
    beside = "Beside that, launches" if again.excludes_zero else "Launches"
    if (spread := entry.between_launches) is not None:
        found.append(f"{beside} of plain differ by {_spread_words(spread)}")
    if (drift := entry.drift) is not None:
        word = "drifts" if drift.p_value < alpha else "does not visibly drift"
        found.append(
            f"Plain {word}: {with_interval(drift.change.interval)} from the first of these launches to the last, {drift.hours:.1f} h, on a line "
            f"through the blocks (p = {drift.p_value:.2g})."
        )
    if entry.host_speed_slope is not None:
        slope = entry.host_speed_slope.interval
        ends = (slope.point, entry.host_speed_slope.low, entry.host_speed_slope.high)
        point, low, high = digits_apart(ends, lambda _: 2, no_zero=slope.excludes_zero)
        found.append(
            f"Where a fixed piece of work took the host 10 % longer, the latency differed by {percent(math.expm1(slope.point * math.log(1.1)))} "
            f"(slope {point} [{low}, {high}] on the log scale)."
        )
        if (same := entry.noise_floor.at_equal_host_speed) is not None:
            found.append(f"With that taken out, plain against itself: {with_interval(same.interval)}.")
    return found


def _equal_speed(tax: BlockTax) -> EqualSpeedText:
    found = tax.at_equal_host_speed
    if found is None:
        return EqualSpeedText()
    work = found.work.interval
    note = f"host's work {with_interval(work)}" if work.excludes_zero else ""
    return EqualSpeedText(with_interval(found.interval), note)


def _requests(aggregate: Aggregate, entry: Repeats, config: str) -> str:
    """Of all blocks on both sides."""
    place = (config, entry.metric, entry.reference, entry.rate_per_s)
    counts = (
        f"n {t.n:,} and {t.n_plain:,}"
        for t in aggregate.chosen_taxes
        if (t.config, t.metric, t.reference, t.rate_per_s) == place and t.known
    )
    return next(counts, "")


def _row(aggregate: Aggregate, entry: Repeats, tax: BlockTax) -> BlockRow:
    return BlockRow(
        label=aggregate.label_of(tax.config),
        tax=with_interval(tax.interval),
        n=_requests(aggregate, entry, tax.config),
        verdict=NOT_RESOLVED if unresolved(tax.interval) else VERDICT_WORDS.get(tax.verdict, tax.verdict),
        mood=MOODS.get(tax.verdict, "none"),
        equal_speed=_equal_speed(tax),
        adjusted="–" if tax.adjusted is None else with_interval(tax.adjusted.interval),
        # By name, since a configuration may lack one.
        blocks=", ".join(f"{phase_label(block)} {percent(v)}" for block, v in tax.by_block.items()),
    )
