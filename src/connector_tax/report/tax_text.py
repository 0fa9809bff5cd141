"""How one tax reads in a table."""

from collections.abc import Mapping
from typing import Any

from connector_tax.figures.lookup import interval, mapping, number
from connector_tax.figures.words import with_interval
from connector_tax.records.cell import is_phase, phase_label

LATENCY_METRICS = ("ttft_p90", "tpot_p90")
VERDICT_WORDS = {"no_tax_found": "no tax found"}

OVERLOADED = {True: "did not keep up", False: ""}
Text = dict[str, Any]


def tax_text(row: Mapping[str, Any] | None) -> Text:
    """Number, interval, sample size and verdict of one tax; why there is none where there is none."""
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
        "overloaded": OVERLOADED[bool(row.get("overloaded"))],
        "verdict": VERDICT_WORDS.get(verdict, verdict.replace("_", " ")),
        "mood": {"tax": "bad", "gain": "good"}.get(verdict, "none"),
    }


def _sizes(row: Mapping[str, Any]) -> str:
    """Requests on both sides for a ratio; for microseconds the steps behind the number."""
    own = f"n {tokens(row.get('n'))}"
    return own if row.get("unit") == "us" else f"{own} and {tokens(row.get('n_plain'))}"


def stands_in(row: Mapping[str, Any]) -> str:
    """Where the number of another launch stands for Phase A's, which does not count; else nothing."""
    phase = str(row.get("phase"))
    return "" if phase == "a" or not is_phase(phase) else f"by phase {phase_label(phase)}'s launch"


def shape_text(cell: Mapping[str, Any]) -> str:
    """Prompt and output tokens, or the name of the conversations; of a closed loop what it held: ``c8_128x256_k50000``."""
    if cell.get("phase") == "c":
        return str(cell.get("cell_id")).partition("_")[2]
    if cell.get("phase") == "d":
        return str(cell.get("cell_id"))
    return f"{tokens(cell.get('input_tokens'))} x {tokens(cell.get('output_tokens'))}"


def tokens(value: Any) -> str:
    """A whole number with thousands marked; ``?`` for what is none."""
    found = number(value)
    return f"{found:,.0f}" if found is not None else "?"
