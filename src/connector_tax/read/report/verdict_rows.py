"""How one verdict reads in the table of hypotheses."""

from dataclasses import dataclass

from connector_tax.base.documents.aggregate import Answer, Hypothesis
from connector_tax.read.figures.words import hold_together
from connector_tax.read.report.tax_text import OF_ONE_LAUNCH

MOODS = {"supported": "good", "refuted": "bad", "undetermined": "open"}


@dataclass(frozen=True, slots=True)
class PValues:
    text: str
    note: str


@dataclass(frozen=True, slots=True)
class VerdictRow:
    id: str
    title: str
    subject: str
    outcome: str
    mood: str
    label: str
    sentence: str
    at_equal_speed: str
    p: PValues


def verdict_row(value: Hypothesis, alpha: float) -> VerdictRow:
    """One of one launch says so beside its outcome."""
    once = value.outcome in MOODS and value.kind != "over blocks"
    return VerdictRow(
        id=value.id,
        title=value.title,
        subject=value.subject,
        outcome=f"{value.outcome}, {OF_ONE_LAUNCH}" if once else value.outcome,
        mood=MOODS.get(value.outcome, "none"),
        label=value.label or "",
        sentence=hold_together(value.sentence),
        at_equal_speed=hold_together(_at_equal_speed(value.at_equal_host_speed, alpha)),
        p=_p_values(value, alpha),
    )


def _at_equal_speed(value: Answer | None, alpha: float) -> str:
    """The answer at equal speed of the host; empty where there is none."""
    if value is None or not value.sentence:
        return ""
    p = _p_values(value, alpha)
    note = f" ({p.note})" if p.note else ""
    return f"At equal speed of the host: {value.outcome}{note}, p and Holm's p {p.text}. {value.sentence}"


def _p_values(value: Answer, alpha: float) -> PValues:
    """Its own, and adjusted for all verdicts; a decision that does not survive the adjustment says so."""
    if value.p_value is None or value.p_holm is None:
        return PValues("–", "")
    lost = value.outcome in ("supported", "refuted") and value.p_holm > alpha
    return PValues(f"{value.p_value:.2g}, {value.p_holm:.2g}", "not after the correction" if lost else "")
