"""The check as one JSON object, for programs."""

from dataclasses import asdict
from typing import Any

from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.check.confirm_text import confirm_json
from connector_tax.check.experiments import Results
from connector_tax.check.findings import CONFIDENCE, Findings, ModeFindings
from connector_tax.check.text import tax_json
from connector_tax.check.verdict import Verdict, floor_over_loads, judge, looked_at, noise_floor
from connector_tax.read.stats.taxes import LATENCIES

SCHEMA = 1


def check_json(
    findings: Findings,
    verdict: Verdict,
    fail_above: float | None,
    elapsed_s: float,
    results: Results | None = None,
    deciding: tuple[str, ...] = tuple(LATENCIES),
) -> dict[str, Any]:
    """Everything that is printed, and the intervals that are not."""
    request = findings.campaigns.request
    return {
        "schema": SCHEMA,
        "verdict": verdict.line,
        "exit_code": verdict.exit_code,
        "fail_above": fail_above,
        "deciding": list(deciding),
        "confidence": CONFIDENCE,
        "elapsed_s": elapsed_s,
        "connector": {
            "id": request.connector_id,
            "label": request.label,
            "kv_transfer_config": request.entry["kv_transfer_config"],
            "notes": list(request.notes),
        },
        "model": request.model_name,
        "device": findings.device,
        "engine": findings.engine,
        "host": findings.host,
        "load": {
            "rates_per_s": list(findings.campaigns.rates_per_s),
            "lowered_for_the_host": findings.campaigns.lowered,
            "input_tokens": request.input_tokens,
            "output_tokens": request.output_tokens,
            "blocks": request.blocks,
        },
        "modes": {
            mode.mode: _mode(mode, request.connector_id, deciding, looked_at(findings, deciding))
            for mode in findings.modes
        },
        "growth": None
        if findings.growth is None
        else {
            "hooks": [
                {k: v.to_json(CONFIDENCE) if isinstance(v, Estimate) else v for k, v in entry.items()}
                for entry in findings.growth
            ],
            "lost": list(findings.growth_lost),
        },
        "experiments": None if results is None else confirm_json(results),
    }


def _mode(mode: ModeFindings, own_id: str, deciding: tuple[str, ...], looks: int) -> dict[str, Any]:
    return {
        "serves": mode.failure is None and not mode.deaths_of(own_id, own=True),
        "failure": mode.failure,
        "deaths": [asdict(died) for died in mode.deaths],
        "requests": {"answered": mode.answered[0], "sent": mode.answered[1]},
        "cells_lost": list(mode.lost),
        "cells_late": list(mode.late),
        "stand_ins": list(mode.stand_ins),
        "engine_settings": [asdict(change) for change in mode.switched],
        "taxes": [tax_json(tax) for tax in mode.taxes],
        "taxes_over_blocks": [asdict(tax) for tax in mode.over_blocks],
        "noise_floor": {metric: noise_floor(mode.taxes, metric) for metric in LATENCIES},
        "noise_floor_over_loads": {metric: floor_over_loads(mode.taxes, metric) for metric in LATENCIES},
        "judged": [asdict(judged) for judged in judge(mode, looks) if judged.metric in deciding],
        "processes": mode.processes,
        "spinning": list(mode.spinning),
        "slack_us": {c: {f"{rate:g}": s for rate, s in by.items()} for c, by in mode.slack_us.items()},
        "hooks": [
            {k: v.to_json(CONFIDENCE) if isinstance(v, Estimate) else v for k, v in hook.items()}
            for hook in mode.hooks
        ],
    }
