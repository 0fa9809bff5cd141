"""Formats a comparison as text that ends with its verdict, and as one JSON object (``docs/formats.md`` lists
the keys); and lists other differences between the campaigns that qualify their taxes.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from connector_tax.base.documents.aggregate import Metric, Scalar, Unit
from connector_tax.base.documents.identity import kinds_of
from connector_tax.base.documents.rates import REFERENCES
from connector_tax.base.files import printable, to_json
from connector_tax.base.records.connector import is_connector
from connector_tax.base.templates import template
from connector_tax.read.compare.comparison import (
    Change,
    Comparison,
    Number,
    Side,
    flags_at,
)
from connector_tax.read.figures.words import (
    clean,
    label,
    labels,
    launches_text,
    listing,
    on_embedded_engine,
    phase_a_shape,
    reference_flags,
    reference_rate,
    source_note,
    virtual_name,
    with_interval,
)

# Conditions of taxes other than connector, versions and rate, by their names in ``provenance``.
_ALIKE = (
    *("engine_kind", "model", "arrival", "confidence", "host.cpu", "host.cores"),
    *(
        "settings.cell.gamma_shape",
        "settings.cell.duration_s",
        "settings.cell.warmup_s",
        "settings.cell.inflight_cap",
    ),
    *("settings.engine.extra_args", "settings.engine.model_file", "settings.engine.model_sha256"),
    *("settings.engine.pin_cpus", "settings.engine.step_timing"),
)
_ALIKE_BENEATH = ("engine_args.", "settings.engine.env.")
# Identify the campaign and its order, and are not compared.
_UNASKED = ("config_hash", "created_utc", "order", "cards")
# The same host reports a few MiB more or less after a reboot.
PASSING = {"host.memory_mib"}


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between the campaigns; ``-`` if one does not say."""

    what: str
    a: str
    b: str


def differences(comparison: Comparison) -> list[Difference]:
    """Return differences in ``provenance`` (by its names), reference rates and flags."""
    configs = {c.config for c in comparison.changes}
    first, second = (_facts(side, configs) | _flags(side, comparison) for side in comparison.sides)
    pairs = [Difference(n, first.get(n, "-"), second.get(n, "-")) for n in dict.fromkeys([*first, *second])]
    return [d for d in pairs if d.a != d.b and d.what not in PASSING]


def _flags(side: Side, comparison: Comparison) -> dict[str, str]:
    """Return the flags of the reference rates, and of the cells behind the taxes that are compared."""
    rate_per_s = comparison.rate.per_s
    cell_flags = {
        f for c in comparison.changes for f in flags_at(side.aggregate, c.config, c.metric, rate_per_s)
    }
    return {
        "flags of the reference rates": _text(reference_flags(side.aggregate)),
        "flags of the cells": _text(sorted(cell_flags)),
    }


def has_to_be_alike(side: Side) -> dict[str, str]:
    """Return conditions of taxes other than connector, versions and rate; they define a series."""
    provenance, shape = side.aggregate.provenance, phase_a_shape(side.aggregate)
    return {
        "device": _device_of_series(side),
        "shape of Phase A": "-" if shape is None else f"{shape[0]} prompt and {shape[1]} output tokens",
        # Neighbours on a host share cores, memory and buses, and cards of one kind differ.
        "engines side by side": str(provenance.engines_at_once),
        "cards, or places without one": str(len(provenance.cards or ()) or 1),
        "comparisons across cards": "some" if provenance.mixed_cards else "none",
        # Null and empty values count as absent.
        **{
            name: text
            for name, text in _facts(side, ()).items()
            if (name in _ALIKE or name.startswith(_ALIKE_BENEATH)) and text not in ("-", "none")
        },
    }


def _device_of_series(side: Side) -> str:
    """Name the device; cards count by model, since another card of the same kind is the same device."""
    if on_embedded_engine(side.aggregate):
        return "the embedded engine"
    if (clock := side.aggregate.provenance.clock) is not None:
        return f"virtual {virtual_name(clock)}"
    cards = Counter(kinds_of(side.aggregate.provenance.gpu))
    return ", ".join(f"{n} x {card}" for card, n in sorted(cards.items())) or "no GPU"


def _facts(side: Side, configs: Collection[str]) -> dict[str, str]:
    """Return the facts that are compared, by name.

    Args:
        configs: connectors whose launch settings are included.
    """
    provenance: dict[str, Any] = msgspec.to_builtins(side.aggregate.provenance)
    connector_settings = provenance["settings"].get("connectors") or {}
    provenance["settings"] |= {
        "connectors": {c: settings for c, settings in connector_settings.items() if c in configs}
    }
    if (clock := side.aggregate.provenance.clock) is not None:
        provenance["virtual_gpu"] = virtual_name(clock)
    facts = _flat({name: value for name, value in provenance.items() if name not in _UNASKED})
    facts["step times"] = "recorded" if side.aggregate.step_timing_available else "not recorded"
    return facts | {f"{r}, req/s": _text(reference_rate(side.aggregate, r)) for r in REFERENCES}


def _flat(value: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    facts: dict[str, str] = {}
    for key, inner in value.items():
        name = f"{prefix}{key}"
        facts |= _flat(inner, f"{name}.") if isinstance(inner, Mapping) else {name: _text(inner)}
    return facts


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return "-" if value is None else str(value)


def notes(comparison: Comparison) -> list[str]:
    """Return the notes that qualify every number."""
    a, b = (side.aggregate.provenance for side in comparison.sides)
    side_notes = []
    for side in comparison.sides:
        flags = reference_flags(side.aggregate)
        texts = [source_note(side.aggregate), *(f"{flag}: {label('rate_flag', flag)}" for flag in flags)]
        side_notes += [f"{side.name}: {text}" for text in texts if text]
    clocks = [None if (clock := p.clock) is None else clock.sha256 for p in (a, b)]
    codes = {
        "same_campaign": identity(comparison.a) == identity(comparison.b),
        "two_engines": a.measured_on.kind != b.measured_on.kind or clocks[0] != clocks[1],
        "one_launch": any(n.known and n.n_blocks == 1 for c in comparison.changes for n in (c.a, c.b)),
    }
    return [*(label("comparison_note", code) for code, holds in codes.items() if holds), *side_notes]


def identity(side: Side) -> tuple[object, ...]:
    """Return what identifies a campaign's launches, the same for two copies of one campaign.

    Two hosts may start campaigns of one name in the same second, and not every campaign records its start.
    """
    aggregate, provenance = side.aggregate, side.aggregate.provenance
    host = {f"host {name}": value for name, value in provenance.host.items()}
    return (
        aggregate.campaign,
        aggregate.date,
        provenance.config_hash,
        provenance.created_utc,
        provenance.seed,
        provenance.engine_kind,
        provenance.gpu,
        *(
            tuple(sorted((n, _text(v)) for n, v in facts.items() if n not in PASSING))
            for facts in (host, provenance.versions)
        ),
    )


TEMPLATE = Path(__file__).with_name("compare.txt.j2")
# Longest list of one kind in the verdict.
MOST_NAMED = 9
METRIC_WORDS: dict[Metric, str] = {
    "ttft_p90": "TTFT p90",
    "tpot_p90": "TPOT p90",
    "step_p50_us": "median step",
    "callback_p50_us": "median of the connector's hooks per step",
}
VERDICTS = {0: "no regression", 1: "regression", 2: "not comparable"}


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "a": side_document(comparison.a),
        "b": side_document(comparison.b),
        "confidence": comparison.confidence,
        "fail_above": comparison.fail_above,
        "deciding": comparison.deciding,
        "rate": comparison.rate,
        "notes": notes(comparison),
        "changes": comparison.changes,
        "differences": differences(comparison),
        "only_in": comparison.only_in,
        "in_neither": comparison.in_neither,
        "verdict": VERDICTS[comparison.exit_code],
        "exit_code": comparison.exit_code,
        "sentence": sentence(comparison),
    }


def side_document(side: Side) -> dict[str, Scalar]:
    aggregate = side.aggregate
    # A path that is not UTF-8 would make the document unwritable.
    path, vllm = printable(str(side.path)), aggregate.provenance.versions.get("vllm")
    return {"path": path, "campaign": aggregate.campaign, "date": aggregate.date, "vllm": vllm}


def comparison_json_text(comparison: Comparison) -> str:
    """Return the document in ASCII, since terminals take an unescaped U+009B as the start of a command."""
    return json.dumps(json.loads(to_json(msgspec.to_builtins(comparison_document(comparison)))), indent=2)


def comparison_text(comparison: Comparison) -> str:
    """Return the comparison as text; the last line is the verdict."""
    tables = {
        words: rows
        for metric, words in METRIC_WORDS.items()
        if (rows := [_columns(c) for c in comparison.changes if c.metric == metric])
    }
    document = comparison_document(comparison)
    return template(TEMPLATE).render(c=comparison, document=document, tables=tables).strip("\n")


def _columns(change: Change) -> list[str]:
    marks = ["REGRESSION"] * change.regression + ["decides nothing"] * (not change.decides)
    both_known = change.a.known and change.b.known and change.reason
    return [
        change.config,
        f"A {number_text(change.a, change.unit)}",
        f"B {number_text(change.b, change.unit)}",
        f"change {change_text(change)}"
        if change.change is not None
        else f"({change.reason})" * bool(both_known),
        ", ".join([change.word, *marks]),
    ]


def number_text(number: Number, unit: Unit) -> str:
    """Format a tax with its interval and launches, or why there is none."""
    if (value := number.interval) is None:
        return f"not available ({clean(number.reason or '')})"
    return f"{with_interval(value, unit)} {launches_text(number.n_blocks)}{', saturated' * number.overloaded}"


def change_text(change: Change) -> str:
    """Format a change; percentages change by percentage points."""
    return with_interval(change.change, change.unit).replace(" %", " pp") if change.change is not None else ""


def sentence(c: Comparison) -> str:
    """Return the verdict on one line, with what qualifies it, since it is quoted alone."""
    tax_labels = {id(x): f"{METRIC_WORDS[x.metric]} of {x.config}" for x in c.changes}
    absent = [x for x in c.in_neither if is_connector(x.config)]
    absent_in_both = [x for x in absent if len(x.planned_in) == 2]
    missing: dict[str, list[str]] = {}
    for x in c.missing:
        missing.setdefault(x.reason or "", []).append(tax_labels[id(x)])
    parts = {
        "risen": [f"{tax_labels[id(x)]} by {change_text(x)}" for x in c.regressions],
        "unbounded": [f"{tax_labels[id(x)]} by {change_text(x)}" for x in c.unbounded],
        "lost": [f"{listing(names, MOST_NAMED)} ({clean(why)})" for why, names in missing.items()],
        "in_neither": [f"{x.config} ({clean(x.reason)})" for x in absent_in_both if not x.skipped],
        "skipped": [x.config for x in absent_in_both if x.skipped],
        "planned_in_one": [f"{x.config} ({x.planned_in[0]})" for x in absent if len(x.planned_in) == 1],
        "only_in_one": [f"{x.config} ({x.side})" for x in c.only_in if is_connector(x.config)],
        "saturated": [
            f"{tax_labels[id(x)]} in {side}"
            for x in c.decisive
            for side, found in (("A", x.a), ("B", x.b))
            if found.overloaded
        ],
        "kinds": [
            f"{side} {', '.join(kinds)}"
            for side, found in (("A", [x.a for x in c.decisive]), ("B", [x.b for x in c.decisive]))
            if (kinds := [launches_text(n) for n in sorted({number.n_blocks for number in found})])
        ],
        "flags": [
            f"{side.name} {', '.join(map(clean, flags))}"
            for side in c.sides
            if (flags := reference_flags(side.aggregate))
        ],
    }
    sources = [side.aggregate.measured_on for side in c.sides]
    devices = [clean(f"{label('source', source.kind)} {source.device}", 96) for source in sources]
    verdict = label("comparison", VERDICTS[c.exit_code]).format(
        n=len(c.decisive), limit=f"{c.fail_above * 100:g} pp", risen=len(c.regressions), asked=len(c.asked)
    )
    device_text = devices[0] if devices[0] == devices[1] else f"A on {devices[0]}, B on {devices[1]}"
    sentences = [] if c.rate.per_s is not None else [c.rate.sentence.rstrip(".")]
    if identity(c.a) == identity(c.b):
        sentences.append(label("comparison_note", "same_campaign").rstrip("."))
    for code, items in parts.items():
        if items:
            sentences.append(f"{labels()['compared'][code]}: {listing(items, MOST_NAMED)}")
    return f"{verdict} ({device_text}). {'. '.join(sentences)}".rstrip(". ") + "."
