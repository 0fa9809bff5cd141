"""``aggregate.json`` to what the page shows: formatted text in lists, so that the template only lays out."""

from collections.abc import Callable, Mapping
from typing import Any

from connector_tax.base.records.cell import is_phase, phase_place
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.read.figures.lookup import (
    REFERENCES,
    Aggregate,
    all_cells,
    as_far_as_measured,
    confidence_of,
    confidence_words,
    configs,
    label_of,
    mapping,
    non_monotonic,
    number,
    percentile,
    random_arrivals,
    reference_rate,
    rows,
    saturation_rate,
    source_note,
    usable,
)
from connector_tax.read.figures.words import RANDOM_WORDS
from connector_tax.read.report.attribution import attribution_view
from connector_tax.read.report.conversations import conversations_view
from connector_tax.read.report.device import device_banner, device_view
from connector_tax.read.report.growth import growth_view
from connector_tax.read.report.headline import headline
from connector_tax.read.report.host import host_drift_view, host_view
from connector_tax.read.report.observer import observer_lost, observer_view
from connector_tax.read.report.parts import decomposition_view, settings_view, two_parts_view
from connector_tax.read.report.prior import prior_sentences
from connector_tax.read.report.processes import processes_view
from connector_tax.read.report.provenance import provenance_view
from connector_tax.read.report.qualifiers import (
    PHASE_NAMES,
    flags_view,
    knee_text,
    last_look,
    outputs_view,
    repeatable,
)
from connector_tax.read.report.repeats import failed_sentences, repeats_view
from connector_tax.read.report.tax_tables import (
    about_taxes,
    amplification,
    reference_table,
    repeats_by_phase,
    shape_taxes,
)
from connector_tax.read.report.tax_text import per_s, shape_text, tokens
from connector_tax.read.report.verdict_rows import verdict_row

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
        "taxes": (
            tables := [t for r in _references(aggregate) if (t := reference_table(aggregate, r)) is not None]
        ),
        "about_taxes": about_taxes(aggregate, tables),
        # With blocks their table has both launches, beside the tax that stands.
        "repeats": [] if rows(aggregate.get("repeats")) else repeats_by_phase(aggregate),
        "blocks": repeats_view(aggregate),
        "has_blocks": any(c.get("config") == PLAIN_AGAIN for c in all_cells(aggregate)),
        "failed_blocks": failed_sentences(aggregate),
        "host_drift": host_drift_view(aggregate),
        "amplification": amplification(aggregate) if len(_references(aggregate)) > 1 else [],
        "shape_taxes": shape_taxes(aggregate),
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
        "repeatable": repeatable(aggregate),
        "criteria": [_criterion(c) for c in rows(aggregate.get("criteria"))],
        "configs": _configs(aggregate),
        "arrivals": RANDOM_WORDS if random_arrivals(aggregate) else "",
        "cells": [_cell(aggregate, c) for c in sorted(all_cells(aggregate), key=_cell_place(aggregate))],
        "problems": [
            {k: str(p.get(k) or "") for k in ("where", "what")} for p in rows(aggregate.get("problems"))
        ],
        "provenance": provenance_view(provenance, campaign, config_hash),
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
                "saturation": knee_text(
                    knee, non_monotonic(aggregate, config.id), as_far_as_measured(aggregate, config.id, knee)
                )
                if knee is not None
                else _without_knee(aggregate, config.id, measured),
            }
        )
    return result


def _without_knee(aggregate: Aggregate, config_id: str, measured: bool) -> str:
    """Of a configuration that saturates at no rate; one without a cell of Phase A was asked at none."""
    if config_id in mapping(aggregate.get("saturation")):
        return "at no measured rate"
    return "not known: no usable cell of phase A" if measured else ""


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
        "rate": "closed loop" if cell.get("phase") == "d" else per_s(cell.get("rate_per_s")),
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


def _reproduce(aggregate: Aggregate) -> list[Text]:
    campaign = str(aggregate.get("campaign") or "<campaign>")
    root = f"results/{campaign}"
    return [
        {
            "what": "Numbers, figures and this page from the raw artifacts, on any machine (no GPU, no vLLM):",
            "commands": [
                f".venv/bin/connector-tax analyze --root {root}",
                f".venv/bin/connector-tax figures --root {root}",
                f".venv/bin/connector-tax report --root {root}",
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


def _plain(value: Any, digits: int) -> str:
    found = number(value)
    return f"{found:,.{digits}f}" if found is not None else "–"
