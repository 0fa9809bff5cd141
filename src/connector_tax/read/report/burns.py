"""Test connectors on a virtual GPU: what follows from their burns, beside what was found."""

from dataclasses import dataclass

from connector_tax.base.documents.aggregate import Aggregate, BurnMetric, BurnRow
from connector_tax.read.figures.questions import confidence_words, in_order
from connector_tax.read.figures.words import clean, with_interval

WORDS: dict[BurnMetric, str] = {
    "hooks_p50_us": "hooks per step (median)",
    "step_p50_us": "median step",
    "tpot_p50_us": "TPOT p50",
    "tpot_p90_us": "TPOT p90",
    "ttft_p90_us": "TTFT p90",
}


@dataclass(frozen=True, slots=True)
class BurnText:
    """``n``: the blocks of launches behind what was found; empty where nothing was."""

    label: str
    rate: str
    number: str
    put_in: str
    found: str
    n: str
    verdict: str
    mood: str


@dataclass(frozen=True, slots=True)
class BurnsView:
    """``summary``: which one burns nothing, and how many intervals hold what was put in."""

    summary: str
    rows: list[BurnText]


def burns_view(aggregate: Aggregate) -> BurnsView | None:
    """None where no burn is known."""
    found = aggregate.burns
    if found is None:
        return None
    held = (
        f"{found.held} of {found.asked} intervals of {confidence_words(aggregate)} hold what was put in."
        if found.asked
        else "No number was both put in and found."
    )
    return BurnsView(
        summary=f"Without a burn: {clean(aggregate.label_of(found.base))}. {held}",
        rows=[_text(aggregate, row) for row in in_order(aggregate, found.rows)],
    )


def _text(aggregate: Aggregate, row: BurnRow) -> BurnText:
    found = row.found.interval
    verdict, mood = {
        True: ("inside", "good"),
        False: ("outside the interval", "bad"),
        None: ("", "none"),
    }[row.held]
    return BurnText(
        label=clean(aggregate.label_of(row.config)),
        rate=f"{row.rate_per_s:g}",
        number=WORDS[row.metric],
        put_in=f"none: {row.reason}" if row.put_in_us is None else f"{row.put_in_us:,.6g} µs",
        found=f"not available: {row.found.reason}" if found is None else with_interval(found, "us"),
        n="" if found is None else str(row.found.kind),
        verdict=verdict,
        mood=mood,
    )
