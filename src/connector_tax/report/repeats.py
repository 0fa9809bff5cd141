"""What several launches say, as tables: taxes over blocks, the noise floor, what launches differ by, drift."""

from collections.abc import Mapping
from typing import Any

from connector_tax.figures.lookup import Aggregate, in_order, interval, label_of, mapping, number, rows
from connector_tax.figures.words import percent, rate, with_interval
from connector_tax.records.cell import phase_label
from connector_tax.report.tax_text import VERDICT_WORDS

Text = dict[str, Any]
METRIC_WORDS = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90"}


def repeats_view(aggregate: Aggregate) -> list[Text]:
    """One entry per reference rate and latency."""
    return [
        {
            "title": f"{METRIC_WORDS.get(str(entry.get('metric')), str(entry.get('metric')))} at {entry.get('reference')}, "
            f"{rate(number(entry.get('rate_per_s')) or 0.0)}, {number(entry.get('blocks')) or 0:.0f} blocks",
            "sentences": _sentences(entry),
            "rows": [_row(aggregate, tax) for tax in in_order(aggregate, rows(entry.get("taxes")))],
        }
        for entry in rows(aggregate.get("repeats"))
    ]


def _sentences(entry: Mapping[str, Any]) -> list[str]:
    found = []
    again = interval(entry.get("noise_floor"))
    if again is not None:
        half = number(mapping(entry.get("noise_floor")).get("half_width")) or 0.0
        found.append(
            f"Plain against itself: {with_interval(again)}. A tax below {half:.1%} would drown in that."
        )
    spread = number(entry.get("between_launch_sd"))
    if spread is not None:
        found.append(
            f"Launches of plain differ by {spread:.1%} (standard deviation) beyond what their requests explain."
        )
    drift = interval(mapping(entry.get("drift")).get("change"))
    if drift is not None:
        p_value = number(mapping(entry.get("drift")).get("p_value"))
        hours = number(mapping(entry.get("drift")).get("hours")) or 0.0
        word = "drifts" if p_value is not None and p_value < 0.05 else "does not visibly drift"
        found.append(
            f"Plain {word}: {with_interval(drift)} from its first launch to its last, {hours:.1f} h (p = {p_value:.2g})."
        )
    return found


def _row(aggregate: Aggregate, tax: Mapping[str, Any]) -> Text:
    value, adjusted = interval(tax), interval(tax.get("adjusted"))
    verdict = str(tax.get("verdict") or "")
    return {
        "label": label_of(aggregate, str(tax.get("config"))),
        "tax": "–" if value is None else with_interval(value),
        "verdict": VERDICT_WORDS.get(verdict, verdict),
        "mood": {"tax": "bad", "gain": "good"}.get(verdict, "none"),
        "adjusted": "–" if adjusted is None else with_interval(adjusted),
        # By name, since a configuration may lack one.
        "blocks": ", ".join(
            f"{phase_label(block)} {percent(v)}"
            for block, v in mapping(tax.get("by_block")).items()
            if number(v) is not None
        ),
    }
