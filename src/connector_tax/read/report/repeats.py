"""What several launches say, as tables: taxes over blocks, the noise floor, what launches differ by, drift."""

import math
from collections.abc import Mapping
from typing import Any

from connector_tax.base.records.cell import phase_label
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.statistics.texts import digits_apart
from connector_tax.read.figures.lookup import (
    Aggregate,
    Interval,
    chosen_taxes,
    confidence_of,
    configs,
    in_order,
    interval,
    label_of,
    mapping,
    number,
    rows,
    why_no_number,
)
from connector_tax.read.figures.words import clean, percent, rate, with_interval
from connector_tax.read.report.tax_text import VERDICT_WORDS

Text = dict[str, Any]
METRIC_WORDS = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90"}


def repeats_view(aggregate: Aggregate) -> list[Text]:
    """One entry per reference rate and latency."""
    return [
        {
            "title": f"{METRIC_WORDS.get(str(entry.get('metric')), str(entry.get('metric')))} at {entry.get('reference')}, "
            f"{rate(number(entry.get('rate_per_s')) or 0.0)}, {number(entry.get('blocks')) or 0:.0f} blocks",
            "sentences": _sentences(entry, 1 - confidence_of(aggregate)),
            "equal_speed": interval(entry.get("host_speed_slope")) is not None,
            "rows": [_row(aggregate, tax) for tax in in_order(aggregate, rows(entry.get("taxes")))]
            + _without(aggregate, entry),
        }
        for entry in rows(aggregate.get("repeats"))
    ]


def _spread_words(spread: Interval) -> str:
    """``0.1% [0.04%, 0.2%] (standard deviation) beyond what their requests explain.``"""
    known = [100 * v for v in (spread.point, spread.low, spread.high) if v is not None]
    texts = digits_apart(known, lambda _: 1, no_zero=(spread.low or 0.0) > 0)
    point, low, high = (f"{text}%" for text in texts)
    beyond = "(standard deviation) beyond what their requests explain"
    if spread.high == 0:
        return "no more than their requests explain."
    if low == point:
        return f"up to {high} {beyond}, perhaps by nothing."
    return f"{point} [{low}, {high}] {beyond}."


def failed_sentences(aggregate: Aggregate) -> list[str]:
    """Who has no tax since requests failed in a block of launches, and why."""
    found = []
    for entry in rows(aggregate.get("failed_blocks")):
        metric, config = str(entry.get("metric")), str(entry.get("config"))
        name = clean(label_of(aggregate, config), 40)
        who = "No connector has a tax" if config == "plain" else f"{name} has no tax"
        where = f"{entry.get('reference')}, {rate(number(entry.get('rate_per_s')) or 0.0)}"
        found.append(
            f"{who} of {METRIC_WORDS.get(metric, metric)} at {where}: {clean(str(entry.get('reason')))}."
        )
    return found


def _without(aggregate: Aggregate, entry: Mapping[str, Any]) -> list[Text]:
    """A row of each configuration that was not skipped and has no tax over these blocks, with the reason."""
    here = {str(tax.get("config")) for tax in rows(entry.get("taxes"))}
    keys = ("metric", "reference", "rate_per_s")
    chosen = {
        str(t.get("config")): t
        for t in chosen_taxes(aggregate)
        if all(t.get(k) == entry.get(k) for k in keys)
    }
    lacking = [
        c for c in configs(aggregate) if c.id not in here | {"plain", PLAIN_AGAIN} and c.status != "skipped"
    ]
    return [
        {
            "label": c.label,
            "tax": "not available",
            "verdict": "",
            "mood": "none",
            "equal_speed": {"text": "–", "note": ""},
            "adjusted": "–",
            "blocks": _why_without(aggregate, c.id, chosen.get(c.id)),
        }
        for c in lacking
    ]


def _why_without(aggregate: Aggregate, config: str, chosen: Mapping[str, Any] | None) -> str:
    if chosen is None:
        return why_no_number(aggregate, config)
    if interval(chosen) is None:
        return str(chosen.get("reason") or "unavailable")
    return "too few of these blocks have its cell, so its tax is of one launch"


def _sentences(entry: Mapping[str, Any], alpha: float) -> list[str]:
    found = []
    again = interval(entry.get("noise_floor"))
    if again is not None:
        least = interval(mapping(entry.get("noise_floor")).get("found_4_of_5"))
        blocks = number(entry.get("blocks")) or 0
        # Of an aggregate of an earlier version it has no interval, and is too small in two campaigns of three.
        power = (
            f" The tax that {blocks:.0f} such blocks find in four of five campaigns is estimated at {with_interval(least)}, if a connector's "
            "launches differ as plain's do."
            if least is not None and None not in (least.low, least.high)
            else ""
        )
        apart = ", so its second launch is told apart from its first" if again.excludes_zero else ""
        found.append(f"Plain against itself: {with_interval(again)}{apart}.{power}")
    spread = interval(entry.get("between_launches"))
    # What first and second launches differ by on average is no spread.
    beside = "Beside that, launches" if again is not None and again.excludes_zero else "Launches"
    if spread is not None:
        found.append(f"{beside} of plain differ by {_spread_words(spread)}")
    drift = interval(mapping(entry.get("drift")).get("change"))
    if drift is not None:
        p_value = number(mapping(entry.get("drift")).get("p_value"))
        hours = number(mapping(entry.get("drift")).get("hours")) or 0.0
        word = "drifts" if p_value is not None and p_value < alpha else "does not visibly drift"
        found.append(
            f"Plain {word}: {with_interval(drift)} from its first launch to its last, {hours:.1f} h, on a line through the blocks (p = {p_value:.2g})."
        )
    slope = interval(entry.get("host_speed_slope"))
    if slope is not None:
        same = interval(mapping(entry.get("noise_floor")).get("at_equal_host_speed"))
        known = [slope.point, *(end for end in (slope.low, slope.high) if end is not None)]
        texts = iter(digits_apart(known, lambda _: 2, no_zero=slope.excludes_zero))
        point, *ends = ("?" if v is None else next(texts) for v in (slope.point, slope.low, slope.high))
        found.append(
            f"Where a fixed piece of work took the host 10 % longer, the latency differed by {percent(math.expm1(slope.point * math.log(1.1)))} "
            f"(slope {point} [{', '.join(ends)}] on the log scale)."
        )
        if same is not None:
            found.append(f"With that taken out, plain against itself: {with_interval(same)}.")
    return found


def _equal_speed(tax: Mapping[str, Any]) -> Text:
    """The tax at equal speed of the host, and whether the host was slower or faster beside this configuration than beside plain."""
    found = mapping(tax.get("at_equal_host_speed"))
    value, work = interval(found), interval(found.get("work"))
    note = f"host's work {with_interval(work)}" if work is not None and work.excludes_zero else ""
    return {"text": "–" if value is None else with_interval(value), "note": note}


def _row(aggregate: Aggregate, tax: Mapping[str, Any]) -> Text:
    value, adjusted = interval(tax), interval(tax.get("adjusted"))
    verdict = str(tax.get("verdict") or "")
    return {
        "label": label_of(aggregate, str(tax.get("config"))),
        "tax": "–" if value is None else with_interval(value),
        "verdict": VERDICT_WORDS.get(verdict, verdict),
        "mood": {"tax": "bad", "gain": "good"}.get(verdict, "none"),
        "equal_speed": _equal_speed(tax),
        "adjusted": "–" if adjusted is None else with_interval(adjusted),
        # By name, since a configuration may lack one.
        "blocks": ", ".join(
            f"{phase_label(block)} {percent(v)}"
            for block, v in mapping(tax.get("by_block")).items()
            if number(v) is not None
        ),
    }
