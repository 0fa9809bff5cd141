"""A comparison as text that ends with its verdict, and as one JSON object; ``docs/formats.md`` lists the keys."""

import json
from pathlib import Path

import msgspec

from connector_tax.base.documents.aggregate import Metric, Scalar, Unit
from connector_tax.base.files import printable, to_json
from connector_tax.base.records.connector import is_connector
from connector_tax.base.templates import template
from connector_tax.read.compare.comparison import Change, Comparison, InNeither, Number, OnlyIn, Rate, Side
from connector_tax.read.compare.context import Difference, differences, identity, notes
from connector_tax.read.figures.labels import label, labels, launches_text
from connector_tax.read.figures.questions import reference_flags
from connector_tax.read.figures.words import clean, listing, with_interval

TEMPLATE = Path(__file__).with_name("compare.txt.j2")
# In the verdict, of a kind.
MOST_NAMED = 9
METRIC_WORDS: dict[Metric, str] = {
    "ttft_p90": "TTFT p90",
    "tpot_p90": "TPOT p90",
    "step_p50_us": "median step",
    "callback_p50_us": "median of the connector's hooks per step",
}
VERDICTS = {0: "no regression", 1: "regression", 2: "not comparable"}


class SideOfIt(msgspec.Struct, frozen=True):
    path: str
    campaign: str
    date: str
    vllm: Scalar


class ComparisonDocument(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: int = 1
    a: SideOfIt
    b: SideOfIt
    confidence: float
    fail_above: float
    deciding: tuple[Metric, ...]
    rate: Rate
    notes: tuple[str, ...]
    changes: tuple[Change, ...]
    differences: tuple[Difference, ...]
    only_in: tuple[OnlyIn, ...]
    in_neither: tuple[InNeither, ...]
    verdict: str
    exit_code: int
    sentence: str


def comparison_document(comparison: Comparison) -> ComparisonDocument:
    return ComparisonDocument(
        a=side_document(comparison.a),
        b=side_document(comparison.b),
        confidence=comparison.confidence,
        fail_above=comparison.fail_above,
        deciding=comparison.deciding,
        rate=comparison.rate,
        notes=tuple(notes(comparison)),
        changes=comparison.changes,
        differences=tuple(differences(comparison)),
        only_in=comparison.only_in,
        in_neither=comparison.in_neither,
        verdict=VERDICTS[comparison.exit_code],
        exit_code=comparison.exit_code,
        sentence=sentence(comparison),
    )


def side_document(side: Side) -> SideOfIt:
    found = side.aggregate
    # A name that is no UTF-8 would leave a document that nobody can write.
    path = printable(str(side.path))
    return SideOfIt(path, found.campaign, found.date, found.provenance.versions.get("vllm"))


def comparison_json_text(found: Comparison) -> str:
    """The document in ASCII: a terminal takes U+009B, which JSON leaves as it is, for the beginning of a command."""
    return json.dumps(json.loads(to_json(comparison_document(found))), indent=2)


def comparison_text(comparison: Comparison) -> str:
    """Return it for people; the last line is the verdict."""
    tables = {
        metric: [_columns(c) for c in comparison.changes if c.metric == metric] for metric in METRIC_WORDS
    }
    return (
        template(TEMPLATE)
        .render(
            c=comparison,
            document=comparison_document(comparison),
            tables={METRIC_WORDS[metric]: rows for metric, rows in tables.items() if rows},
        )
        .strip("\n")
    )


def _columns(change: Change) -> list[str]:
    marks = ["REGRESSION"] * change.regression + ["decides nothing"] * (not change.decides)
    both = change.a.value and change.b.value and change.reason
    return [
        change.config,
        f"A {number_text(change.a, change.unit)}",
        f"B {number_text(change.b, change.unit)}",
        f"change {change_text(change)}" if change.change is not None else f"({change.reason})" * bool(both),
        ", ".join([change.word, *marks]),
    ]


def number_text(found: Number, unit: Unit) -> str:
    """A tax with its interval and launches, or why there is none."""
    if found.value is None:
        return f"not available ({clean(found.reason or '')})"
    return f"{with_interval(found.value, unit)} {launches_text(found.n_blocks)}{', saturated' * found.overloaded}"


def change_text(change: Change) -> str:
    """Percentages differ by percentage points."""
    return with_interval(change.change, change.unit).replace(" %", " pp") if change.change is not None else ""


def sentence(c: Comparison) -> str:
    """The verdict, on one line, with what its intervals hold and what qualifies them: it gets quoted without the rest."""
    named = {id(x): f"{METRIC_WORDS[x.metric]} of {x.config}" for x in c.changes}
    absent = [x for x in c.in_neither if is_connector(x.config)]
    both = [x for x in absent if len(x.planned_in) == 2]
    lost: dict[str, list[str]] = {}
    for x in c.lost:
        lost.setdefault(x.reason or "", []).append(named[id(x)])
    parts = {
        "risen": [f"{named[id(x)]} by {change_text(x)}" for x in c.regressions],
        "unbounded": [f"{named[id(x)]} by {change_text(x)}" for x in c.unbounded],
        "lost": [f"{listing(names, MOST_NAMED)} ({clean(why)})" for why, names in lost.items()],
        "in_neither": [f"{x.config} ({clean(x.reason)})" for x in both if not x.skipped],
        "skipped": [x.config for x in both if x.skipped],
        "planned_in_one": [f"{x.config} ({x.planned_in[0]})" for x in absent if len(x.planned_in) == 1],
        "only_in_one": [f"{x.config} ({x.side})" for x in c.only_in if is_connector(x.config)],
        "saturated": [
            f"{named[id(x)]} in {side}"
            for x in c.decisive
            for side, found in (("A", x.a), ("B", x.b))
            if found.overloaded
        ],
        "kinds": [
            f"{side} {', '.join(kinds)}"
            for side, found in (("A", [x.a for x in c.decisive]), ("B", [x.b for x in c.decisive]))
            if (kinds := [launches_text(n) for n in sorted({own.n_blocks for own in found})])
        ],
        "flags": [
            f"{side.name} {', '.join(map(clean, flags))}"
            for side in c.sides
            if (flags := reference_flags(side.aggregate))
        ],
    }
    sources = [side.aggregate.measured_on for side in c.sides]
    on = [clean(f"{label('source', source.kind)} {source.device}", 96) for source in sources]
    verdict = label("comparison", VERDICTS[c.exit_code]).format(
        n=len(c.decisive), limit=f"{c.fail_above * 100:g} pp", risen=len(c.regressions), asked=len(c.asked)
    )
    where = on[0] if on[0] == on[1] else f"A on {on[0]}, B on {on[1]}"
    said = [
        f"{labels()['compared'][code]}: {listing(items, MOST_NAMED)}"
        for code, items in parts.items()
        if items
    ]
    why = [] if c.rate.per_s is not None else [c.rate.sentence.rstrip(".")]
    if identity(c.a) == identity(c.b):
        why.append(label("comparison_note", "same_campaign").rstrip("."))
    return f"{verdict} ({where}). {'. '.join([*why, *said])}".rstrip(". ") + "."
