"""``aggregate.json`` to what the page shows: formatted text in lists, so that the template only lays out."""

from collections.abc import Callable, Mapping
from typing import Any

from connector_tax.figures.lookup import (
    REFERENCES,
    Aggregate,
    all_cells,
    chosen_taxes,
    confidence_of,
    confidence_words,
    configs,
    interval,
    label_of,
    main_taxes,
    mapping,
    non_monotonic,
    number,
    percentile,
    random_arrivals,
    reference_rate,
    rows,
    saturation_rate,
    source_note,
    standing_tax,
    usable,
)
from connector_tax.figures.words import RANDOM_WORDS, rate, with_interval
from connector_tax.records.cell import is_phase, phase_place
from connector_tax.report.attribution import attribution_view
from connector_tax.report.conversations import conversations_view
from connector_tax.report.device import device_banner, device_view
from connector_tax.report.growth import growth_view
from connector_tax.report.headline import headline
from connector_tax.report.host import host_drift_view, host_view
from connector_tax.report.observer import observer_lost, observer_view
from connector_tax.report.parts import decomposition_view, settings_view, two_parts_view
from connector_tax.report.prior import prior_sentences
from connector_tax.report.processes import processes_view
from connector_tax.report.qualifiers import PHASE_NAMES, flags_view, knee_text, last_look, outputs_view
from connector_tax.report.repeats import failed_sentences, repeats_view
from connector_tax.report.tax_text import (
    LATENCY_METRICS,
    OF_ONE_LAUNCH,
    in_place,
    shape_text,
    stands_in,
    tax_text,
    tokens,
)
from connector_tax.report.verdict_rows import verdict_row

TAX_COLUMNS = {
    "ttft_p90": "TTFT p90",
    "tpot_p90": "TPOT p90",
    "step_p50_us": "median step",
    "callback_p50_us": "of it in the connector's hooks",
    "unexplained_us": "of it elsewhere",
}
Text = dict[str, Any]


def page_view(aggregate: Aggregate, campaign: Mapping[str, Any], config_hash: str | None) -> Text:
    """Everything on the page but the figures."""
    provenance = mapping(aggregate.get("provenance"))
    return {
        "campaign": str(aggregate.get("campaign") or "unnamed"),
        "date": str(aggregate.get("date") or ""),
        "banner": _banner(aggregate),
        "headline": headline(aggregate),
        "confidence": confidence_words(aggregate),
        "hypotheses": [
            verdict_row(h, 1 - confidence_of(aggregate)) for h in rows(aggregate.get("hypotheses"))
        ],
        "taxes": [t for r in _references(aggregate) if (t := _tax_table(aggregate, r)) is not None],
        # With blocks their table has both launches, beside the tax that stands.
        "repeats": [] if rows(aggregate.get("repeats")) else _repeats(aggregate),
        "blocks": repeats_view(aggregate),
        "failed_blocks": failed_sentences(aggregate),
        "host_drift": host_drift_view(aggregate),
        "amplification": _amplification(aggregate) if len(_references(aggregate)) > 1 else [],
        "shape_taxes": _shape_taxes(aggregate),
        "attribution": attribution_view(aggregate),
        "decomposition": decomposition_view(aggregate),
        "two_parts": two_parts_view(aggregate),
        "settings": settings_view(aggregate),
        "observer_effect": {"rows": observer_view(aggregate), "lost": observer_lost(aggregate)},
        "processes": processes_view(aggregate),
        "host": host_view(aggregate),
        "device": device_view(aggregate),
        "conversations": conversations_view(aggregate),
        "growth": growth_view(aggregate),
        "prior": prior_sentences(aggregate),
        "flags": flags_view(aggregate),
        "outputs": outputs_view(aggregate),
        "criteria": [_criterion(c) for c in rows(aggregate.get("criteria"))],
        "configs": _configs(aggregate),
        "arrivals": RANDOM_WORDS if random_arrivals(aggregate) else "",
        "cells": [_cell(aggregate, c) for c in sorted(all_cells(aggregate), key=_cell_place(aggregate))],
        "problems": [
            {k: str(p.get(k) or "") for k in ("where", "what")} for p in rows(aggregate.get("problems"))
        ],
        "provenance": _provenance(provenance, campaign, config_hash),
        "reproduce": _reproduce(aggregate),
    }


def _references(aggregate: Aggregate) -> tuple[str, ...]:
    """Both reference rates, or one where they are the same."""
    first, second = (reference_rate(aggregate, r) for r in REFERENCES)
    return REFERENCES[:1] if first is not None and first == second else REFERENCES


def _banner(aggregate: Aggregate) -> list[str]:
    """What must be known before any number is read."""
    if device := device_banner(aggregate):
        return device
    note = source_note(aggregate)
    if note.startswith("Embedded engine"):
        return [
            "These are numbers of the embedded engine, a model of a server whose connector costs are set in a "
            "file. They show that the pipeline works. They say nothing about real connectors."
        ]
    return [f"{note}. A connector may cost a different share of a step there."] if note else []


def _tax_table(aggregate: Aggregate, reference: str) -> Text | None:
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
    named = {*(config for config, _ in told), *(c for found in columns.values() for c in found)}
    order = [c.id for c in configs(aggregate) if c.id in named]
    at = reference_rate(aggregate, reference)
    first = next(iter(next(iter(columns.values())).values()))
    shape = (
        f"{tokens(first.get('input_tokens'))} prompt and {tokens(first.get('output_tokens'))} output tokens"
    )
    return {
        "title": f"At {reference}" + (f", {rate(at)}" if at is not None else "") + f", {shape}",
        "columns": [TAX_COLUMNS[m] for m in columns],
        "rows": [
            {
                "label": label_of(aggregate, c),
                "id": c,
                "taxes": [_main_tax(found.get(c), told.get((c, m))) for m, found in columns.items()],
            }
            for c in order
        ],
    }


def _main_tax(row: Mapping[str, Any] | None, told: Mapping[str, Any] | None) -> Text:
    """The number, and which launch it is of where that is not Phase A's; without one Phase A's reason."""
    if row is None:
        return tax_text(told)
    text, instead = tax_text(row), stands_in(row)
    reason = str((told or {}).get("reason") or "") if row.get("blocks") is None and instead else ""
    return text | {"n": ", ".join(filter(None, (text["n"], instead, reason)))}


def _repeats(aggregate: Aggregate) -> list[Text]:
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
            entry["taxes"][str(metric)] = [tax_text(by_phase["a"]), tax_text(by_phase["b"])]
    order = [c.id for c in configs(aggregate) if c.id in table]
    return [
        {
            "label": table[c]["label"],
            "taxes": [t for m in LATENCY_METRICS for t in table[c]["taxes"].get(m, [])],
        }
        for c in order
    ]


def _amplification(aggregate: Aggregate) -> list[Text]:
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


def _shape_taxes(aggregate: Aggregate) -> list[Text]:
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
            "rate": _rate(key[3]),
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
        return tax_text(row)
    return in_place(_main_tax(found, None), found, row)


def _criterion(value: Mapping[str, Any]) -> Text:
    outcome = str(value.get("outcome") or "undetermined")
    return {
        "number": str(value.get("number") or ""),
        "title": str(value.get("title") or ""),
        "outcome": outcome,
        "sign": {"pass": "✓", "fail": "✗"}.get(outcome, "–"),
        "mood": {"pass": "good", "fail": "bad", "undetermined": "open"}.get(outcome, "none"),
        "evidence": str(value.get("evidence") or ""),
    }


def _configs(aggregate: Aggregate) -> list[Text]:
    raw = mapping(aggregate.get("configs"))
    result = []
    for config in configs(aggregate):
        knee = saturation_rate(aggregate, config.id)
        cells = [c for c in all_cells(aggregate) if c.get("config") == config.id]
        measured = config.status in ("measured", "partial")
        result.append(
            {
                "id": config.id,
                "label": config.label,
                "status": config.status,
                "mood": "good"
                if config.status == "measured"
                else "open"
                if config.status == "partial"
                else "none",
                "reason": config.reason,
                "install": str(mapping(raw.get(config.id)).get("install") or ""),
                "cells": f"{sum(map(usable, cells))} of {len(cells)} usable" if cells else "none",
                "saturation": knee_text(knee, non_monotonic(aggregate, config.id))
                if knee is not None
                else ("none measured" if measured else ""),
            }
        )
    return result


def _cell_place(aggregate: Aggregate) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Sorts cells by configuration, phase, then rate and shape as numbers."""
    order = {c.id: i for i, c in enumerate(configs(aggregate))}

    def place(cell: Mapping[str, Any]) -> tuple[Any, ...]:
        numbers = [number(cell.get(k)) or 0 for k in ("rate_per_s", "input_tokens", "output_tokens")]
        phase = str(cell.get("phase"))
        measured = phase_place(phase) if is_phase(phase) else (len(PHASE_NAMES) + 1, 0)
        return (order.get(str(cell.get("config")), len(order)), *measured, *numbers)

    return place


def _cell(aggregate: Aggregate, cell: Mapping[str, Any]) -> Text:
    fired = [k for k, v in mapping(cell.get("saturation_criteria")).items() if v is True]
    verdict = str(cell.get("verdict") or "")
    lines = number(cell.get("n_metrics_missed")) or 0
    missed = [f"{lines:.0f} samples of /metrics were missed or could not be read"] if lines else []
    return {
        "label": label_of(aggregate, str(cell.get("config"))),
        "phase": PHASE_NAMES.get(str(cell.get("phase")), str(cell.get("phase")).upper()),
        "rate": "closed loop" if cell.get("phase") == "d" else _rate(cell.get("rate_per_s")),
        "shape": shape_text(cell),
        "verdict": verdict if usable(cell) or verdict != "valid" else "not usable",
        "mood": "none" if usable(cell) else "bad",
        "n": " / ".join(tokens(cell.get(k)) for k in ("n_window", "n_ok", "n_dropped", "n_failed")),
        "ttft": [_latency(cell, "ttft_ms", which) for which in ("p50", "p90", "p99")],
        "tpot": [_latency(cell, "tpot_ms", which) for which in ("p50", "p90")],
        "throughput": _plain(cell.get("throughput_ratio"), 3),
        "waiting": _plain(cell.get("waiting_p50"), 1),
        "saturated": ", ".join(f.replace("_", " ") for f in fired),
        "notes": "; ".join(
            [*(str(x) for k in ("reasons", "flags") for x in cell.get(k) or []), *missed, *last_look(cell)]
        ),
    }


def _latency(cell: Mapping[str, Any], quantity: str, which: str) -> Text:
    value = percentile(cell, quantity, which)
    if value is None:
        return {
            "text": "–",
            "range": "",
            "reason": str(mapping(mapping(cell.get(quantity)).get(which)).get("reason") or ""),
        }
    ends = [f"{v:,.4g}" if v is not None else "∞" for v in (value.low, value.high)]
    bare = value.low is None and value.high is None
    return {"text": f"{value.point:,.4g}", "range": "" if bare else f"[{ends[0]}, {ends[1]}]", "reason": ""}


def _provenance(
    provenance: Mapping[str, Any], campaign: Mapping[str, Any], config_hash: str | None
) -> list[tuple[str, str]]:
    """Flat (name, value) pairs; nested names are joined by a dot."""
    found = _flat("", provenance)
    names = {name for name, _ in found}
    extra: list[tuple[str, str]] = []
    if config_hash and "config_hash" not in names:
        extra.append(("config hash", config_hash))
    if "created_utc" not in names and campaign.get("created_utc"):
        extra.append(("created_utc", str(campaign["created_utc"])))
    if not any(n.startswith("order") for n in names):
        extra += _flat("order", campaign.get("order"))
    if campaign.get("thinned"):
        extra += _flat("thinned", campaign["thinned"])
    return [(name.replace("_", " "), value) for name, value in found + extra]


def _flat(name: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [pair for k, v in value.items() for pair in _flat(f"{name}.{k}" if name else str(k), v)]
    if isinstance(value, list):
        text = ", ".join(str(v) for v in value) if value else "none"
        return [(name, text)] if name else []
    return [(name, "unknown" if value is None else str(value))] if name else []


def _reproduce(aggregate: Aggregate) -> list[Text]:
    campaign = str(aggregate.get("campaign") or "<campaign>")
    root = f"results/{campaign}"
    return [
        {
            "what": "Numbers, figures and this page from the raw artifacts, on any machine (no GPU, no vLLM):",
            "commands": [
                f".venv/bin/python scripts/analyze.py --root {root}",
                f".venv/bin/python scripts/plot_connector_tax.py --root {root}",
                f".venv/bin/python scripts/build_report.py --root {root}",
            ],
        },
        {
            "what": f"The whole campaign, with the configuration file it was started from (as resolved: {root}/campaign.json):",
            "commands": [".venv/bin/snakemake --cores 1 --configfile config/<file>.yaml"],
        },
        {
            "what": "One server, exactly as it was launched:",
            "commands": [f"bash {root}/<date>_<configuration>/phase_a/launch.sh"],
        },
    ]


def _rate(value: Any) -> str:
    found = number(value)
    return f"{found:g}" if found is not None else "?"


def _plain(value: Any, digits: int) -> str:
    found = number(value)
    return f"{found:,.{digits}f}" if found is not None else "–"
