"""A campaign's tables to ``aggregate.json`` and ``aggregate.csv``: every number the report prints."""

import csv
import io
from typing import Any

import numpy as np

from connector_tax.errors import AnalysisError
from connector_tax.ingest import CampaignData, CellData, Problem, RunData
from connector_tax.intervals.bootstrap import Estimate, combine
from connector_tax.intervals.looks import look_factor
from connector_tax.plan import document_hash
from connector_tax.processes import Each
from connector_tax.records.cell import is_repeat
from connector_tax.records.connector import PLAIN_AGAIN
from connector_tax.seeds import stream
from connector_tax.stats.attribution import attribute
from connector_tax.stats.cells import CellEstimates, cell_json, estimate_cells
from connector_tax.stats.criteria import judge_criteria
from connector_tax.stats.decomposition import decompose
from connector_tax.stats.host import host_flags
from connector_tax.stats.hypotheses import Evidence, judge_hypotheses
from connector_tax.stats.observer import observer_effect
from connector_tax.stats.outputs import compare_outputs
from connector_tax.stats.power import outlook
from connector_tax.stats.reference import saturation_by_config, select_reference_rates
from connector_tax.stats.repeats import MIN_BLOCKS, headline_taxes, host_drift, repeats
from connector_tax.stats.taxes import METRICS, Tax, difference, taxes_of

SCHEMA_VERSION = 1
HOST_COLUMNS = ("steal_share", "cpu_mhz_p50", "cpu_mhz_min")
GPU_COLUMNS = ("sm_mhz_p50", "mem_mhz_p50", "temperature_c_max", "power_w_mean", "utilisation_mean")
REFERENCE_OF_PHASE = {"b": "ref_safe", "b_prime": "ref_load", "c": "ref_safe"}


def aggregate(data: CampaignData, each: Each = map) -> dict[str, Any]:
    """Everything the figures and the report need; the same whatever ``each`` goes over the cells with."""
    config = data.document["config"]
    settings = config["analysis"]
    confidence = float(settings["confidence"])
    saturation = saturation_by_config(data)
    rates, doubts = _reference_rates(data)
    usable = [c for c in data.cells() if c.usable]
    estimates = {
        (e.cell.config, e.cell.phase, e.cell.cell_id): e
        for e in estimate_cells(usable, config["seed"], settings["bootstrap_draws"], each)
    }
    taxes = _taxes(estimates, rates)
    headline = _at_ref_safe(estimates, rates)
    changed = (data.engine_diff or {}).get("configs", {})
    absent = _absent(data)
    outputs, output_problems = compare_outputs(data)
    blocks = repeats(estimates, rates, confidence)
    rng = stream(config["seed"], "repeats")
    repeated = headline_taxes(estimates, rates, "ttft_p90", settings["bootstrap_draws"], rng)
    verdicts = judge_hypotheses(_evidence(taxes, repeated, absent, config, confidence))
    return {
        "schema_version": SCHEMA_VERSION,
        "campaign": data.document["campaign"],
        "date": data.document["date"],
        "provenance": _provenance(data),
        "step_timing_available": any(e.cell.steps is not None for e in estimates.values()),
        "step_timing_reason": (data.preflight or {}).get("step_timing_reason"),
        "configs": _configs(data, absent),
        "cells": [_cell_entry(c, estimates, saturation, confidence) for c in data.cells()],
        "saturation": {i: s.to_json() for i, s in saturation.items()},
        "reference_rates": rates,
        "taxes": [t.to_json(confidence) for t in taxes],
        "attribution": _attribution(headline, config["seed"], confidence),
        "engine_diff": changed,
        "decomposition": decompose(headline, changed, confidence),
        "repeats": blocks,
        "host_drift": host_drift(estimates, rates, confidence),
        "power": outlook(taxes, blocks, confidence),
        "observer_effect": observer_effect(estimates, confidence),
        "amplification": _amplification(taxes, confidence),
        "hypotheses": [v.to_json() for v in verdicts],
        "outputs": outputs,
        "criteria": judge_criteria(data, verdicts),
        "problems": [
            {"where": p.where, "what": p.what}
            for p in (*data.problems, *doubts, *output_problems, *_missing_repeats(data, absent))
        ],
    }


def _cell_entry(
    cell: CellData, estimates: dict[tuple[str, str, str], CellEstimates], saturation: Any, confidence: float
) -> dict[str, Any]:
    found = estimates.get((cell.config, cell.phase, cell.cell_id))
    if found is None:
        return {
            "config": cell.config,
            "phase": cell.phase,
            "cell_id": cell.cell_id,
            "rate_per_s": cell.spec.rate_per_s,
            "input_tokens": cell.spec.input_tokens,
            "output_tokens": cell.spec.output_tokens,
            "usable": False,
            "verdict": cell.document["verdict"],
            "reasons": [*cell.document["reasons"], *cell.left_out],
            "flags": [*cell.document["flags"], *host_flags(cell.samples.host)],
        }
    return cell_json(found, saturation.get(cell.config), confidence)


def _reference_rates(data: CampaignData) -> tuple[dict[str, Any] | None, list[Problem]]:
    """The rates on disk, since Phase B ran at them; worked out again where there are none.

    If Phase A as it is now gives other rates, cells were left out or added since: that is said.
    """
    try:
        now = select_reference_rates(data)
    except AnalysisError as error:
        return data.reference_rates, [Problem("phase A", str(error))]
    found = data.reference_rates
    if found is None:
        return now, []
    names = ("ref_safe_per_s", "ref_load_per_s")
    changed = [f"{n} is {found.get(n)} and would be {now[n]}" for n in names if found.get(n) != now[n]]
    if changed:
        what = f"Phase A as it is now gives other rates: {'; '.join(changed)}. Taxes use those of the file"
        return found, [Problem("reference_rates.json", what)]
    return found, []


def _taxes(estimates: dict[tuple[str, str, str], CellEstimates], rates: dict[str, Any] | None) -> list[Tax]:
    """Phase A cells at the reference rates, then every cell of the other phases."""
    if rates is None:
        return []
    found: list[Tax] = []
    for (config, phase, cell_id), own in estimates.items():
        if config == "plain" or own.cell.spec.recorded is False or is_repeat(phase):
            continue
        plain = estimates.get(("plain", phase, cell_id))
        if phase == "a":
            references = [
                r for r in ("ref_safe", "ref_load") if rates[f"{r}_per_s"] == own.cell.spec.rate_per_s
            ]
        else:
            references = [REFERENCE_OF_PHASE[phase]]
        for reference in references:
            found += taxes_of(own, plain, reference)
    return found


def _at_ref_safe(
    estimates: dict[tuple[str, str, str], CellEstimates], rates: dict[str, Any] | None
) -> dict[str, CellEstimates]:
    """Configuration -> its Phase A cell at ref_safe."""
    return {
        config: own
        for (config, phase, _), own in estimates.items()
        if phase == "a" and rates is not None and own.cell.spec.rate_per_s == rates["ref_safe_per_s"]
    }


def _attribution(cells: dict[str, CellEstimates], seed: int, confidence: float) -> list[dict[str, Any]]:
    """Of each configuration's cell, against plain's."""
    plain = cells.get("plain")
    if plain is None or plain.cell.steps is None:
        return []
    base = plain.cell.steps.load()
    found = []
    for config, own in cells.items():
        if config == "plain" or own.cell.steps is None:
            continue
        entry = attribute(
            own.cell.steps.load(),
            base,
            seed=seed,
            name=config,
            confidence=confidence,
            factor=look_factor(own.cell.spec),
        )
        if entry is not None:
            found.append({"config": config, "cell_id": own.cell.cell_id, **entry})
    return found


def _amplification(taxes: list[Tax], confidence: float) -> list[dict[str, Any]]:
    """Tax at ref_load minus tax at ref_safe, from the headline cells."""
    found = {(t.config, t.reference, t.metric): t.estimate for t in taxes if t.headline}
    rows = []
    for config, reference, metric in found:
        load = found.get((config, "ref_load", metric))
        if reference == "ref_safe" and load is not None:
            gap = difference(load, found[config, "ref_safe", metric], of_second="at ref_safe")
            rows.append(
                {
                    "config": config,
                    "metric": metric,
                    "available": gap.point is not None,
                    **gap.to_json(confidence),
                }
            )
    return rows


def _missing_repeats(data: CampaignData, absent: dict[str, str]) -> list[Problem]:
    """Blocks that were asked for and lack a launch; what is skipped everywhere is no loss of a block."""
    config = data.document["config"]
    asked = int(config.get("repeats") or 0)
    wanted = {PLAIN_AGAIN, *(c["id"] for c in config["connectors"])} - set(absent)
    found: list[Problem] = []
    for block in (f"r{k}" for k in range(1, asked + 1)):
        here = {c.config for c in data.cells() if c.phase == block and c.usable}
        if wanted - here:
            found.append(Problem(f"phase {block}", f"no usable cell of {', '.join(sorted(wanted - here))}"))
    whole = asked - len(found)
    if asked and whole < MIN_BLOCKS:
        what = f"{whole} of {asked} blocks are whole, {MIN_BLOCKS} are needed: taxes are those of one launch"
        found.append(Problem("repeats", what))
    return found


def _evidence(
    taxes: list[Tax],
    repeated: dict[str, Estimate],
    absent: dict[str, str],
    config: dict[str, Any],
    confidence: float,
) -> Evidence:
    """Taxes of several launches stand in for those of one where there are enough of them."""
    safe = [t for t in taxes if t.reference == "ref_safe"]
    shapes = [t for t in safe if t.phase == "b"]
    return Evidence(
        headline={t.config: t.estimate for t in safe if t.headline and t.metric == "ttft_p90"} | repeated,
        by_input=_by_length([t for t in shapes if t.metric == "ttft_p90"], "input_tokens"),
        by_output=_by_length([t for t in shapes if t.metric == "tpot_p90"], "output_tokens"),
        absent=absent,
        stacks=_stacks(config),
        confidence=confidence,
        members=frozenset(c["id"] for c in config["connectors"]),
    )


def _by_length(taxes: list[Tax], attribute: str) -> dict[str, dict[int, Estimate]]:
    """config -> length -> mean tax over the other length; only where every one of them is available."""
    grouped: dict[str, dict[int, list[Estimate]]] = {}
    for tax in taxes:
        grouped.setdefault(tax.config, {}).setdefault(getattr(tax, attribute), []).append(tax.estimate)
    return {c: {k: _mean(es) for k, es in by.items()} for c, by in grouped.items()}


def _mean(estimates: list[Estimate]) -> Estimate:
    points = [e.point for e in estimates if e.point is not None]
    if len(points) < len(estimates):
        return next(e for e in estimates if e.point is None)
    replicates, n = combine(*estimates)
    return Estimate(sum(points) / len(points), np.mean(replicates, axis=0), n)


def _stacks(config: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """MultiConnector configurations whose children were measured by themselves, too."""
    by_kv = {str(c["kv_transfer_config"]): c["id"] for c in config["connectors"] if c["kv_transfer_config"]}
    found = {}
    for connector in config["connectors"]:
        kv = connector["kv_transfer_config"] or {}
        children = kv.get("kv_connector_extra_config", {}).get("connectors", [])
        parts = [by_kv.get(str(child)) for child in children]
        if parts and all(parts):
            found[connector["id"]] = tuple(p for p in parts if p)
    return found


def _absent(data: CampaignData) -> dict[str, str]:
    """config -> why it has no numbers; configurations with numbers are not in it."""
    reasons = {}
    measured = {c.config for c in data.cells() if c.usable}
    for connector in data.document["config"]["connectors"]:
        i = connector["id"]
        if i in measured:
            continue
        decision = (data.preflight or {}).get("configs", {}).get(i)
        receipts = [r.receipt for r in data.runs if r.folder.connector_id == i and r.receipt is not None]
        if decision is not None and decision["decision"] == "skip":
            reasons[i] = f"skipped: {decision['reason']}"
        elif any(c.config == i for c in data.cells()):
            reasons[i] = "no usable cell"
        else:
            reasons[i] = next((r.reason for r in receipts if r.reason), None) or "not measured yet"
    return reasons


def _configs(data: CampaignData, absent: dict[str, str]) -> dict[str, Any]:
    decisions = (data.preflight or {}).get("configs", {})
    out = {}
    for connector in data.document["config"]["connectors"]:
        i = connector["id"]
        runs: dict[str, RunData] = {r.folder.phase: r for r in data.runs if r.folder.connector_id == i}
        status, reason = _status(runs, decisions.get(i, {}), absent.get(i))
        out[i] = {
            "label": connector["label"],
            "status": status,
            "reason": reason,
            "install": decisions.get(i, {}).get("install"),
            "note": connector["note"],
        }
    return out


def _status(runs: dict[str, RunData], decision: dict[str, Any], absent: str | None) -> tuple[str, str | None]:
    """Word and reason; ``measured`` says that Phases A and B have ended and left usable cells."""
    receipts = {phase: run.receipt for phase, run in runs.items()}
    if decision.get("decision") == "skip":
        return "skipped", absent
    failed = [r.reason for r in receipts.values() if r is not None and r.status == "failed"]
    if failed:
        return "failed", failed[0]
    if not any(run.cells for run in runs.values()):
        return ("failed" if any(receipts.values()) else "missing"), absent
    unfinished = [p for p in ("a", "b", *runs) if receipts.get(p) is None]
    if unfinished:
        return "partial", f"phase {unfinished[0]} has not ended"
    if absent is not None:
        return "failed", absent
    lost = [c for run in runs.values() for c in run.cells if not c.usable]
    if lost:
        return "partial", f"{len(lost)} cells left out, the first is {lost[0].phase}/{lost[0].cell_id}"
    return "measured", None


def _provenance(data: CampaignData) -> dict[str, Any]:
    cells = data.cells()
    newest = max(cells, key=lambda c: c.document["clock"]["utc_ns"]).document if cells else {}
    engine = newest.get("engine", {})
    config = data.document["config"]
    return {
        "engine_kind": config["engine"]["kind"],
        "model": config["engine"]["model"],
        "engine_args": config["engine"]["args"],
        "versions": engine.get("versions", {}),
        "gpu": engine.get("gpu", []),
        "host": engine.get("host", {}),
        "code": newest.get("code", {}),
        "config_hash": document_hash(data.document),
        "order": data.document["order"],
        "seed": config["seed"],
        "created_utc": data.document["created_utc"],
        "confidence": config["analysis"]["confidence"],
        "bootstrap_draws": config["analysis"]["bootstrap_draws"],
    }


def aggregate_csv(value: dict[str, Any]) -> str:
    """One row per cell, flat; empty where a number is unavailable."""
    rows = [_flat(cell, value["taxes"]) for cell in value["cells"]]
    columns = list(dict.fromkeys(k for row in rows for k in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _flat(cell: dict[str, Any], taxes: list[dict[str, Any]]) -> dict[str, Any]:
    row = {k: v for k, v in cell.items() if isinstance(v, str | int | float | bool) or v is None}
    row.pop("host", None)
    row["flags"] = ";".join(cell["flags"])
    row["reasons"] = ";".join(cell["reasons"])
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        for q, numbers in cell.get(name, {}).items():
            row[f"{name[:-3]}_{q}_ms"] = numbers["point"]
            row[f"{name[:-3]}_{q}_low_ms"] = numbers["low"]
            row[f"{name[:-3]}_{q}_high_ms"] = numbers["high"]
    if cell.get("step", {}).get("available"):
        for name in ("step_duration_us", "connector_total_us"):
            row[f"{name[:-3]}_p50_us"] = cell["step"][name]["p50"]["point"]
    host = cell.get("host") or {}
    row |= {f"host_{name}": host.get(name) for name in HOST_COLUMNS}
    row |= {f"gpu_{name}": (host.get("gpu") or {}).get(name) for name in GPU_COLUMNS}
    for metric in METRICS:
        same = [
            t
            for t in taxes
            if (t["config"], t["phase"], t["cell_id"], t["metric"])
            == (cell["config"], cell["phase"], cell["cell_id"], metric)
        ]
        if same:
            row[f"tax_{metric}"] = same[0]["point"]
            row[f"tax_{metric}_low"] = same[0]["low"]
            row[f"tax_{metric}_high"] = same[0]["high"]
    return row
