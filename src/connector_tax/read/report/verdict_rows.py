"""How one verdict reads in the table of hypotheses."""

from collections.abc import Mapping
from typing import Any

from connector_tax.read.figures.lookup import mapping, number
from connector_tax.read.report.tax_text import OF_ONE_LAUNCH

Text = dict[str, Any]


def verdict_row(value: Mapping[str, Any], alpha: float) -> Text:
    """One of one launch says so beside its outcome."""
    outcome = str(value.get("outcome") or "undetermined")
    known = {"supported": "good", "refuted": "bad", "undetermined": "open"}
    return {
        "id": str(value.get("id") or ""),
        "title": str(value.get("title") or ""),
        "subject": str(value.get("subject") or ""),
        "outcome": f"{outcome}, {OF_ONE_LAUNCH}"
        if outcome in known and value.get("kind") != "over blocks"
        else outcome,
        "mood": next((m for k, m in known.items() if outcome.startswith(k)), "none"),
        "label": str(value.get("label") or ""),
        "sentence": str(value.get("sentence") or ""),
        "at_equal_speed": _at_equal_speed(mapping(value.get("at_equal_host_speed")), alpha),
        "p": _p_values(value, outcome, alpha),
    }


def _at_equal_speed(value: Mapping[str, Any], alpha: float) -> str:
    """The answer at equal speed of the host; empty where there is none."""
    outcome, sentence = str(value.get("outcome") or ""), value.get("sentence")
    if not outcome or not sentence:
        return ""
    p = _p_values(value, outcome, alpha)
    note = f" ({p['note']})" if p["note"] else ""
    return f"At equal speed of the host: {outcome}{note}, p and Holm's p {p['text']}. {sentence}"


def _p_values(value: Mapping[str, Any], outcome: str, alpha: float) -> Text:
    """Its own, and adjusted for all verdicts; a decision that does not survive the adjustment says so."""
    own, adjusted = number(value.get("p_value")), number(value.get("p_holm"))
    if own is None or adjusted is None:
        return {"text": "–", "note": ""}
    lost = outcome in ("supported", "refuted") and adjusted > alpha
    return {"text": f"{own:.2g}, {adjusted:.2g}", "note": "not with all the others" if lost else ""}
