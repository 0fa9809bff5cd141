"""How one tax reads in a table."""

import re
from dataclasses import dataclass, replace

from connector_tax.base.documents.aggregate import Cell, Interval, TaxBase, TaxRow
from connector_tax.base.records.cell import phase_label
from connector_tax.base.statistics.outcomes import UNDETERMINED, unresolved
from connector_tax.read.figures.questions import Tax, blocks_of
from connector_tax.read.figures.words import PHASES, launch_of, with_interval

LATENCY_METRICS = ("ttft_p90", "tpot_p90")
STEP_METRICS = ("step_p50_us", "callback_p50_us", "unexplained_us")
# Of a part of a step: by itself it is neither a tax nor a gain.
PART_METRICS = ("callback_p50_us", "unexplained_us")
PART_WORDS = {"tax": "above zero", "gain": "below zero", "no_tax_found": "not told apart from zero"}
OF_ONE_LAUNCH = "of one launch"
NOT_RESOLVED = "not resolved here"
VERDICT_WORDS = {"no_tax_found": "no tax found"}

MOODS = {"tax": "bad", "gain": "good"}


@dataclass(frozen=True, slots=True)
class TaxText:
    """Number, interval, sample size and verdict of one tax.

    Attributes:
        range: the interval; without a number why there is none.
        overloaded: what a reader must know of it.
        put_in: the model's tax, and whether the interval holds it.
    """

    text: str
    range: str
    n: str = ""
    verdict: str = ""
    mood: str = "none"
    overloaded: str = ""
    put_in: str = ""


def without_tax(reason: str | None) -> TaxText:
    return TaxText("not available", reason or "not measured")


def tax_text(tax: TaxBase | None, flagged: str = "") -> TaxText:
    """
    Args:
        flagged: flags of the cells behind it.
    """
    value = None if tax is None else tax.interval
    if tax is None or value is None:
        return without_tax(None if tax is None else tax.reason)
    head, _, rest = with_interval(value, tax.unit).partition(" [")
    late = "did not keep up" if tax.overloaded else ""
    return TaxText(
        text=head,
        range=f"[{rest}" if rest else "",
        n=_sizes(tax),
        verdict=verdict_words(tax),
        mood="none" if tax.metric in PART_METRICS else MOODS.get(tax.verdict, "none"),
        overloaded="; ".join(filter(None, (late, holds(tax), flagged, _why_open(tax, value)))),
    )


def verdict_words(tax: TaxBase) -> str:
    """``tax``, ``no tax found``; what one launch decided says so, since another launch may differ."""
    words = PART_WORDS if tax.metric in PART_METRICS else VERDICT_WORDS
    value = tax.interval
    wide = value is not None and unresolved(value, tax.unit)
    word = NOT_RESOLVED if wide else words.get(tax.verdict, tax.verdict)
    return f"{word}, {OF_ONE_LAUNCH}" if tax.of_one_launch and tax.verdict != "unavailable" else word


def _sizes(tax: TaxBase) -> str:
    """Requests on both sides for a ratio; for microseconds the steps behind the number."""
    return f"n {tax.n:,}" if tax.unit == "us" else f"n {tax.n:,} and {tax.n_plain:,}"


def _why_open(tax: TaxBase, value: Interval) -> str:
    """Nothing where both ends are known."""
    return (tax.reason or "an end is not known") if value.told == UNDETERMINED else ""


def holds(tax: TaxBase) -> str:
    """What work of the connector's own is in its tax; nothing where there is none."""
    return f"holds {tax.holds}" if tax.holds else ""


def phase_name(phase: str) -> str:
    """``B'`` of ``b_prime``, ``R1`` of ``r1``."""
    return PHASES.get(phase, phase_label(phase))


def own_of_phase(phase: str) -> str:
    """``phase B's``; of ``B'`` another way, since it ends in what a genitive begins with."""
    name = phase_name(phase)
    return f"the launch of phase {name}" if name.endswith("'") else f"phase {name}'s"


def stands_in(tax: Tax) -> str:
    """Over how many blocks it was taken, or whose launch stands for Phase A's, which does not count; else nothing."""
    if (blocks := blocks_of(tax)) is not None:
        return f"over {blocks} blocks of launches"
    return "" if tax.phase is None or tax.phase == "a" else f"by {launch_of(phase_name(tax.phase))}"


def milliseconds(value: float) -> str:
    """Four digits, and all of those in front of the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def in_place(text: TaxText, found: Tax, cell: TaxRow) -> TaxText:
    """``text`` of the tax ``found``, with whose tax it is in place of where it is not that of the launch of ``cell``.

    Where it has no number nothing stands in place of anything, and the reason is all there is to say, with the phase whose it is.
    """
    if found.phase == cell.phase:
        return text
    if not found.known:
        if found.phase is None or re.search("phase|block", found.reason or ""):
            return text
        return replace(text, range=f"in phase {phase_name(found.phase)}: {text.range}")
    own = "by phase A's launch" if found.phase == "a" else ""
    note = f"in place of {launch_of(phase_name(cell.phase))}"
    return replace(text, n=", ".join(filter(None, (text.n, own, note))))


def shape_text(cell: Cell) -> str:
    """Prompt and output tokens, or the name of the conversations; of a closed loop what it held: ``c8_128x256_k50000``.

    A cell without the step recorder stands beside another of the same shape, and says so.
    """
    if cell.phase == "c":
        return cell.cell_id.partition("_")[2]
    if cell.phase == "d":
        return cell.cell_id
    return f"{cell.input_tokens:,} x {cell.output_tokens:,}{'' if cell.recorded else ', unrecorded'}"
