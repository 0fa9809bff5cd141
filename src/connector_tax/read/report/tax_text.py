"""How one tax reads in a table."""

from collections.abc import Mapping
from typing import Any

from connector_tax.base.records.cell import is_phase, phase_label
from connector_tax.base.statistics.outcomes import UNDETERMINED
from connector_tax.read.figures.lookup import (
    Interval,
    interval,
    is_of_one_launch,
    is_recorded,
    mapping,
    number,
)
from connector_tax.read.figures.words import PHASES, launch_of, with_interval

LATENCY_METRICS = ("ttft_p90", "tpot_p90")
STEP_METRICS = ("step_p50_us", "callback_p50_us", "unexplained_us")
# Of a part of a step: by itself it is neither a tax nor a gain.
PART_METRICS = ("callback_p50_us", "unexplained_us")
PART_WORDS = {"tax": "above zero", "gain": "below zero", "no_tax_found": "not told apart from zero"}
OF_ONE_LAUNCH = "of one launch"
VERDICT_WORDS = {"no_tax_found": "no tax found"}

OVERLOADED = {True: "did not keep up", False: ""}
Text = dict[str, Any]


def tax_text(row: Mapping[str, Any] | None, flagged: str = "") -> Text:
    """Number, interval, sample size and verdict of one tax; why there is none where there is none.

    Args:
        flagged: flags of the cells behind it.
    """
    value = interval(row)
    if row is None or value is None:
        reason = str(mapping(row).get("reason") or "not measured")
        return {
            "text": "not available",
            "range": reason,
            "n": "",
            "verdict": "",
            "mood": "none",
            "overloaded": "",
        }
    text = with_interval(value, str(row.get("unit")))
    head, _, rest = text.partition(" [")
    verdict = str(row.get("verdict") or "")
    return {
        "text": head,
        "range": f"[{rest}" if rest else "",
        "n": _sizes(row),
        "overloaded": "; ".join(
            filter(
                None, (OVERLOADED[bool(row.get("overloaded"))], holds(row), flagged, _why_open(row, value))
            )
        ),
        "verdict": verdict_words(verdict, row.get("kind"), row.get("metric")),
        "mood": "none" if row.get("metric") in PART_METRICS else MOODS.get(verdict, "none"),
    }


MOODS = {"tax": "bad", "gain": "good"}


def verdict_words(verdict: str, kind: object, metric: object = None) -> str:
    """``tax``, ``no tax found``; what one launch decided says so, since another launch may differ."""
    words = PART_WORDS if metric in PART_METRICS else VERDICT_WORDS
    word = words.get(verdict, verdict.replace("_", " "))
    one_launch = is_of_one_launch(kind) and verdict not in ("", "unavailable")
    return f"{word}, {OF_ONE_LAUNCH}" if one_launch else word


def _sizes(row: Mapping[str, Any]) -> str:
    """Requests on both sides for a ratio; for microseconds the steps behind the number."""
    own = f"n {tokens(row.get('n'))}"
    return own if row.get("unit") == "us" else f"{own} and {tokens(row.get('n_plain'))}"


def _why_open(row: Mapping[str, Any], value: Interval) -> str:
    """Nothing where both ends are known."""
    return str(row.get("reason") or "an end is not known") if value.told == UNDETERMINED else ""


def holds(row: Mapping[str, Any]) -> str:
    """What work of the connector's own is in its tax; nothing where there is none."""
    return f"holds {row['holds']}" if row.get("holds") else ""


def phase_name(phase: str) -> str:
    """``B'`` of ``b_prime``, ``R1`` of ``r1``."""
    return PHASES.get(phase, phase_label(phase))


def stands_in(row: Mapping[str, Any]) -> str:
    """Over how many blocks it was taken, or whose launch stands for Phase A's, which does not count; else nothing."""
    phase, blocks = str(row.get("phase")), number(row.get("blocks"))
    if blocks is not None:
        return f"over {blocks:.0f} blocks of launches"
    return "" if phase == "a" or not is_phase(phase) else f"by {launch_of(phase_name(phase))}"


def in_place(text: Text, found: Mapping[str, Any], cell: Mapping[str, Any]) -> Text:
    """``text`` of the tax ``found``, with whose tax it is in place of where it is not that of the launch of ``cell``.

    Where it has no number nothing stands in place of anything, and the reason is all there is to say.
    """
    phase = str(cell.get("phase"))
    if found.get("phase") == phase or not is_phase(phase) or interval(found) is None:
        return text
    own = "by phase A's launch" if found.get("phase") == "a" else ""
    note = f"in place of {launch_of(phase_name(phase))}"
    return text | {"n": ", ".join(filter(None, (text["n"], own, note)))}


def shape_text(cell: Mapping[str, Any]) -> str:
    """Prompt and output tokens, or the name of the conversations; of a closed loop what it held: ``c8_128x256_k50000``.

    A cell without the step recorder stands beside another of the same shape, and says so.
    """
    if cell.get("phase") == "c":
        return str(cell.get("cell_id")).partition("_")[2]
    if cell.get("phase") == "d":
        return str(cell.get("cell_id"))
    unrecorded = "" if is_recorded(cell) else ", unrecorded"
    return f"{tokens(cell.get('input_tokens'))} x {tokens(cell.get('output_tokens'))}{unrecorded}"


def tokens(value: Any) -> str:
    """A whole number with thousands marked; ``?`` for what is none."""
    found = number(value)
    return f"{found:,.0f}" if found is not None else "?"


def per_s(value: Any) -> str:
    """A rate without its unit."""
    found = number(value)
    return f"{found:g}" if found is not None else "?"
