"""Tables of taxes: at the reference rates, by phase, at every shape, and what load adds."""

from collections.abc import Mapping
from typing import Any

from connector_tax.read.figures.lookup import (
    Aggregate,
    chosen_taxes,
    confidence_words,
    configs,
    interval,
    label_of,
    main_taxes,
    number,
    reference_rate,
    rows,
    standing_tax,
)
from connector_tax.read.figures.words import rate, with_interval
from connector_tax.read.report.qualifiers import flagged
from connector_tax.read.report.tax_text import (
    LATENCY_METRICS,
    OF_ONE_LAUNCH,
    STEP_METRICS,
    in_place,
    per_s,
    stands_in,
    tax_text,
    tokens,
)

TAX_COLUMNS = {
    "ttft_p90": "TTFT p90",
    "tpot_p90": "TPOT p90",
    "step_p50_us": "median step",
    "callback_p50_us": "of it in the connector's hooks",
    "unexplained_us": "of it elsewhere",
}
# The same where no column has the whole of which they are parts.
WITHOUT_STEP = {
    "callback_p50_us": "in the connector's hooks, per step (median)",
    "unexplained_us": "elsewhere in a step",
}
MEANINGS = {
    "ttft_p90": "TTFT is the time to the first token from the intended send",
    "tpot_p90": "TPOT the time per output token after the first",
}
Text = dict[str, Any]


def reference_table(aggregate: Aggregate, reference: str) -> Text | None:
    """One row per connector at one reference rate; None where no tax is available there."""
    columns = {m: main_taxes(aggregate, metric=m, reference=reference) for m in TAX_COLUMNS}
    columns = {m: found for m, found in columns.items() if found}
    if not columns:
        return None
    # Those with a reason in place of a number stand there with it; the one that stands for all launches comes last.
    told = {
        (str(t.get("config")), str(t.get("metric"))): t
        for t in (*rows(aggregate.get("taxes")), *chosen_taxes(aggregate))
        if t.get("reference") == reference and t.get("phase") == "a"
    }
    names = _column_names(columns)
    named = {*(config for config, _ in told), *(c for found in columns.values() for c in found)}
    order = [c.id for c in configs(aggregate) if c.id in named]
    at = reference_rate(aggregate, reference)
    first = next(iter(next(iter(columns.values())).values()))
    shape = (
        f"{tokens(first.get('input_tokens'))} prompt and {tokens(first.get('output_tokens'))} output tokens"
    )
    return {
        "reference": reference,
        "title": f"At {reference}" + (f", {rate(at)}" if at is not None else "") + f", {shape}",
        "metrics": list(columns),
        "columns": names,
        "rows": [
            {
                "label": label_of(aggregate, c),
                "id": c,
                "note": _whose(
                    [n for n, found in zip(names, columns.values(), strict=True) if c in found],
                    [found[c] for found in columns.values() if c in found],
                    [told.get((c, m), {}) for m, found in columns.items() if c in found],
                ),
                "taxes": [
                    _main_tax(aggregate, found.get(c), told.get((c, m))) for m, found in columns.items()
                ],
            }
            for c in order
        ],
    }


def _column_names(columns: Mapping[str, Any]) -> list[str]:
    """The last two are parts of the median step, where that has a column."""
    apart = {} if "step_p50_us" in columns else WITHOUT_STEP
    return [apart.get(m, TAX_COLUMNS[m]) for m in columns]


def _whose(names: list[str], own: list[Mapping[str, Any]], told: list[Mapping[str, Any]]) -> str:
    """Once per row: whose launch stands in for Phase A's, in which columns where not in all, and why.

    Args:
        names: of the columns in which it has a number.
        own: the taxes of one configuration there.
        told: of each, what Phase A's cell says.
    """
    found: dict[str, list[str]] = {}
    for name, row, of_phase_a in zip(names, own, told, strict=True):
        if row.get("blocks") is None and (instead := stands_in(row)):
            reason = str(of_phase_a.get("reason") or "")
            found.setdefault(f"{instead}, since {reason}" if reason else instead, []).append(name)
    # What goes without a reason, as hooks that plain has none of do, follows the others of its row.
    for note in list(found):
        if others := [o for o in found if o.startswith(f"{note}, since ")]:
            found[others[0]] += found.pop(note)
    return "; ".join(
        note if len(columns) == len(own) else f"{', '.join(sorted(columns, key=names.index))} {note}"
        for note, columns in found.items()
    )


def about_taxes(aggregate: Aggregate, tables: list[Text]) -> list[str]:
    """What the tables at the reference rates hold, of the columns that they have."""
    metrics = {m for table in tables for m in table["metrics"]}
    against = metrics - {"callback_p50_us"}
    confidence = confidence_words(aggregate)
    steps = "steps" if against & set(STEP_METRICS) or "callback_p50_us" in metrics else ""
    both = "requests with the connector and without" if metrics & set(LATENCY_METRICS) else ""
    counts = ", or ".join(filter(None, (both, f"{steps} where a step is timed" if both and steps else steps)))
    head = (
        "Against plain at the same rate and shape"
        if against
        else "A connector's own hooks; plain has no number here"
    )
    found = [f"{head}, with {confidence} intervals in brackets; n counts {counts}."] if metrics else []
    meant = [words for m, words in MEANINGS.items() if m in metrics]
    if meant:
        found += [f"{', '.join(meant)}; p90 is the value that 90 of 100 requests stay within."]
        found += [
            "Where the engine, with the connector or without, did not keep up with the rate, the tax holds queueing as well."
        ]
    if "step_p50_us" in metrics:
        safe = any(t["reference"] == "ref_safe" and "step_p50_us" in t["metrics"] for t in tables)
        found.append(
            "Near saturation the median step is no longer a decoding one but one with prompts, also where the engine keeps up"
            + (": read its column at ref_safe." if safe else ".")
        )
    if "unexplained_us" in metrics:
        found.append(
            "What of the median step lies elsewhere is no tax by itself: below zero, other parts of the step take less than plain's."
        )
    return found


def _main_tax(
    aggregate: Aggregate, row: Mapping[str, Any] | None, told: Mapping[str, Any] | None = None
) -> Text:
    """The number, and which launch it is of where that is not Phase A's; without one Phase A's reason."""
    if row is None:
        return tax_text(told)
    text = tax_text(row, flagged(aggregate, row))
    return text | {"n": ", ".join(filter(None, (text["n"], stands_in(row))))}


def repeats_by_phase(aggregate: Aggregate) -> list[Text]:
    """Taxes at ref_safe that two launches measured: Phase A's, and the same rate and shape in Phase B."""
    found: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = {}
    for row in rows(aggregate.get("taxes")):
        if row.get("reference") == "ref_safe" and row.get("metric") in LATENCY_METRICS:
            key = tuple(
                row.get(k) for k in ("config", "rate_per_s", "input_tokens", "output_tokens", "metric")
            )
            found.setdefault(key, {})[str(row.get("phase"))] = row
    table: dict[str, Text] = {}
    for (config, *_, metric), by_phase in found.items():
        if {"a", "b"} <= by_phase.keys():
            entry = table.setdefault(str(config), {"label": label_of(aggregate, str(config)), "taxes": {}})
            entry["taxes"][str(metric)] = [
                _as_it_counts(aggregate, t) for t in (by_phase["a"], by_phase["b"])
            ]
    order = [c.id for c in configs(aggregate) if c.id in table]
    return [
        {
            "label": table[c]["label"],
            "taxes": [t for m in LATENCY_METRICS for t in table[c]["taxes"].get(m, [])],
        }
        for c in order
    ]


def _as_it_counts(aggregate: Aggregate, row: Mapping[str, Any]) -> Text:
    """A launch's tax as text; where no tax stands for its rate, since another launch failed, its verdict is none either."""
    text = tax_text(row, flagged(aggregate, row))
    keys = ("config", "metric", "reference")
    place = [row.get(k) for k in keys]
    chosen = next((t for t in chosen_taxes(aggregate) if [t.get(k) for k in keys] == place), None)
    if chosen is None or interval(chosen) is not None or interval(row) is None:
        return text
    return text | {"verdict": "of one launch; no tax stands for this rate", "mood": "none"}


def amplification(aggregate: Aggregate) -> list[Text]:
    order = [c.id for c in configs(aggregate)]
    found: dict[str, dict[str, str]] = {}
    for row in rows(aggregate.get("amplification")):
        metric, value = str(row.get("metric")), interval(row)
        if metric not in LATENCY_METRICS:
            continue
        # A difference of two percentages is in percentage points.
        text = (
            f"{with_interval(value).replace(' %', ' pp')}, {row.get('kind') or OF_ONE_LAUNCH}"
            if value
            else f"not available: {row.get('reason') or 'unknown'}"
        )
        found.setdefault(str(row.get("config")), {})[metric] = text
    return [
        {"label": label_of(aggregate, c), "ttft": v.get("ttft_p90", ""), "tpot": v.get("tpot_p90", "")}
        for c, v in sorted(
            found.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)
        )
    ]


def shape_taxes(aggregate: Aggregate) -> list[Text]:
    """The latency taxes at Phase B's and B's shapes, one row each; the unavailable ones with their reason."""
    order = [c.id for c in configs(aggregate)]
    found: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = {}
    for row in rows(aggregate.get("taxes")):
        if row.get("phase") in ("b", "b_prime") and row.get("metric") in LATENCY_METRICS:
            config = str(row.get("config"))
            place = (
                order.index(config) if config in order else len(order),
                config,
                str(row.get("reference")),
            )
            key = (
                *place,
                *(number(row.get(k)) or 0 for k in ("rate_per_s", "input_tokens", "output_tokens")),
            )
            found.setdefault(key, {})[str(row.get("metric"))] = row
    return [
        {
            "label": label_of(aggregate, key[1]),
            "reference": key[2],
            "rate": per_s(key[3]),
            "shape": f"{tokens(key[4])} x {tokens(key[5])}",
            "taxes": [_shape_tax(aggregate, taxes.get(m)) for m in LATENCY_METRICS],
        }
        for key, taxes in sorted(
            found.items(), key=lambda item: (item[0][0], item[0][1], item[0][2] != "ref_safe", *item[0][3:])
        )
    ]


def _shape_tax(aggregate: Aggregate, row: Mapping[str, Any] | None) -> Text:
    """The tax that stands at its rate and shape: at Phase A's shape it may be over blocks, or of Phase A's launch, and says so."""
    if row is None or (found := standing_tax(aggregate, row)) is row:
        return tax_text(row, "" if row is None else flagged(aggregate, row))
    return in_place(_main_tax(aggregate, found), found, row)
