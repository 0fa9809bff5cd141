"""Writes a study's result as ``fleet.json``, ``fleet.csv`` and text; see ``docs/formats.md``."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import asdict as fields_of

from connector_tax.base.documents.fleet import (
    EngineRow,
    Fleet,
    FleetRow,
    Mean,
    PatternRow,
    Profile,
    ProfileRow,
    Study,
)
from connector_tax.base.templates import template
from connector_tax.fleet.calibration import Calibration
from connector_tax.fleet.campaign import Source
from connector_tax.fleet.policies import Pattern
from connector_tax.fleet.run import PLAIN, Found, ratio_less_one, taxes
from connector_tax.fleet.simulation import METRICS, mean_of, mean_of_shares

TEMPLATE = Path(__file__).with_name("fleet.txt.j2")


def document(
    study: Study,
    source: Source,
    patterns: Sequence[Pattern],
    profiles: Mapping[str, Mapping[str, Sequence[Profile]]],
    outcomes: Sequence[Found],
) -> Fleet:
    return Fleet(
        campaign=source.campaign,
        study=study,
        patterns=tuple(
            PatternRow(p.name, p.input_tokens, p.output_tokens, p.slo_s, weight=p.rate_per_s)
            for p in patterns
        ),
        engines=tuple(_engine(config, c) for config, c in source.calibrations.items()),
        left_out=dict(source.left_out),
        notes=source.notes,
        profiles=tuple(
            _profile(config, name, days, profiles.get(PLAIN, {}).get(name, ()), study.confidence)
            for config, days_by_pattern in profiles.items()
            for name, days in days_by_pattern.items()
        ),
        fleets=tuple(_fleet(outcome, study.confidence) for outcome in outcomes),
        taxes=tuple(taxes(outcomes, study.confidence)),
    )


def table(fleet: Fleet) -> str:
    """Return ``fleet.csv``: one row per configuration, setting and metric; taxes are ``tax_<metric>``."""
    out = io.StringIO()
    names = ("config", "instances", "router", "queue", "load", "metric", "point", "low", "high", "days")
    writer = csv.DictWriter(out, names, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in fleet.fleets:
        for metric in METRICS:
            mean = row.metrics[metric]
            writer.writerow({**fields_of(row), "metric": metric, **({} if mean is None else fields_of(mean))})
    for tax in fleet.taxes:
        writer.writerow({**fields_of(tax), "metric": f"tax_{tax.metric}"})
    return out.getvalue()


def text(fleet: Fleet) -> str:
    """Return the result as text: SLOs, models, profiles, then one row per fleet and configuration."""
    on_e2e = {(t.config, t.fleet, t.load): t.mean for t in fleet.taxes if t.metric == "e2e_p90_s"}
    capacities = [
        [p.config, p.pattern, _text(p.rate_per_s), _text(p.e2e_s), _text(p.capacity), _text(p.rate_tax, 100)]
        for p in fleet.profiles
    ]
    rows = []
    for row in fleet.fleets:
        missed = "no request" if row.missed is None else _text(row.missed, 100)
        tax = _text(on_e2e.get((row.config, row.fleet, row.load)), 100)
        setting = (str(row.instances), row.router, row.queue, f"{row.load:g}", row.config)
        rows.append([*setting, missed if row.keeps_up else "does not keep up", tax])
    models = [(e, max(e.checks, key=lambda c: abs(c.error))) for e in fleet.engines]
    return template(TEMPLATE).render(fleet=fleet, models=models, capacities=capacities, rows=rows)


def _text(mean: Mean | None, scale: float = 1.0) -> str:
    if mean is None:
        return "-"
    low, high = mean.low, mean.high
    ends = "" if low is None or high is None else f" [{low * scale:.3g}, {high * scale:.3g}]"
    return f"{mean.point * scale:.3g}{ends}"


def _engine(config: str, calibration: Calibration) -> EngineRow:
    costs = calibration.engine.costs
    return EngineRow(
        config,
        base_us=costs.base_us,
        per_prefill_token_us=costs.per_prefill_token_us,
        per_decode_seq_us=costs.per_decode_seq_us,
        per_context_token_us=costs.per_context_token_us,
        jitter_cv=costs.jitter_cv,
        per_prompt_us=calibration.engine.per_prompt.per_request_us,
        outside_s=calibration.engine.outside_s,
        steps=calibration.steps,
        input_lengths=calibration.input_lengths,
        most_together=calibration.most_together,
        typical_error=calibration.typical_error,
        checks=calibration.checks,
    )


def _profile(
    config: str, pattern: str, days: Sequence[Profile], plain: Sequence[Profile], confidence: float
) -> ProfileRow:
    tax = None
    if days and plain and config != PLAIN:
        tax = ratio_less_one([day.rate_per_s for day in days], [day.rate_per_s for day in plain], confidence)
    return ProfileRow(
        config,
        pattern,
        rate_per_s=mean_of([day.rate_per_s for day in days], confidence),
        e2e_s=mean_of([day.e2e_s for day in days], confidence),
        capacity=mean_of([day.capacity for day in days], confidence),
        rate_tax=tax,
    )


def _fleet(outcome: Found, confidence: float) -> FleetRow:
    return FleetRow(
        outcome.config,
        *outcome.setting.flat,
        keeps_up=outcome.kept_up,
        metrics={metric: outcome.mean(metric, confidence) for metric in METRICS},
        violations_by_pattern={
            name: mean_of_shares(days["violations"], days["requests"], confidence)
            for name, days in outcome.by_pattern.items()
        },
    )
