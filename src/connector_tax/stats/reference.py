"""Phase A to the two rates at which taxes are taken."""

from typing import Any

from connector_tax.errors import AnalysisError
from connector_tax.ingest import CampaignData
from connector_tax.stats.saturation import Saturation, judge_saturation, rate_point

SCHEMA = 1


def saturation_by_config(data: CampaignData) -> dict[str, Saturation]:
    """Every configuration with usable Phase A cells, in the campaign's order."""
    points: dict[str, list[Any]] = {c["id"]: [] for c in data.document["config"]["connectors"]}
    for cell in data.cells():
        if cell.phase == "a" and cell.usable and cell.config in points:
            points[cell.config].append(rate_point(cell))
    return {config: judge_saturation(found) for config, found in points.items() if found}


def select_reference_rates(data: CampaignData) -> dict[str, Any]:
    """``reference_rates.json``; no time of writing, so the same input gives the same bytes.

    Over the configurations that completed Phase A: one that failed there has no say in the rates of the others. ``ref_safe`` is the highest rate below every configuration's saturation rate, ``ref_load`` the
    highest at which plain is not saturated. Where there is none, the lowest measured rate stands in
    and ``fallback_lowest_rate`` says so.

    Raises:
        AnalysisError: plain has no usable Phase A cell.
    """
    failed = {
        r.folder.connector_id
        for r in data.runs
        if r.folder.phase == "a" and r.receipt is not None and r.receipt.status == "failed"
    }
    by_config = {c: s for c, s in saturation_by_config(data).items() if c not in failed}
    if "plain" not in by_config:
        raise AnalysisError(
            f"{data.document['campaign']}: plain has no usable Phase A cell, so there is no baseline and no reference rate. "
            "See its run folder for why; remove its bad cells and start again to have them measured."
        )
    rates = sorted(by_config["plain"].criteria)
    flags: list[str] = []
    limit = min((s.saturation_rate_per_s or float("inf") for s in by_config.values()), default=float("inf"))
    common = [r for r in rates if all(r in s.criteria for s in by_config.values())]
    safe = [r for r in common if r < limit]
    plain_limit = by_config["plain"].saturation_rate_per_s or float("inf")
    load = [r for r in rates if r < plain_limit]
    if not safe:
        flags.append("fallback_lowest_rate")
    if not load:
        flags.append("fallback_lowest_rate_load")
    ref_safe = max(safe, default=min(common or rates))
    ref_load = max(load, default=min(rates))
    return {
        "schema": SCHEMA,
        "ref_safe_per_s": ref_safe,
        "ref_load_per_s": ref_load,
        "b_prime_needed": ref_load != ref_safe,
        "flags": flags,
        "participating": list(by_config),
        "saturation": {config: s.to_json() for config, s in by_config.items()},
    }
