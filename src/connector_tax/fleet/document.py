"""What a study found as ``fleet.json``, ``fleet.csv`` and lines for a person; format in ``docs/formats.md``."""

import csv
import io
from collections.abc import Mapping, Sequence

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
    TaxRow,
)
from connector_tax.fleet.calibration import Calibration
from connector_tax.fleet.campaign import Source
from connector_tax.fleet.outcome import METRICS, mean_of, mean_of_shares
from connector_tax.fleet.patterns import Pattern
from connector_tax.fleet.run import PLAIN, Found, Setting, ratio_less_one, taxes


def document(
    study: Study,
    source: Source,
    patterns: Sequence[Pattern],
    profiles: Mapping[str, Mapping[str, Sequence[Profile]]],
    found: Sequence[Found],
) -> Fleet:
    """``fleet.json``."""
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
            for config, own in profiles.items()
            for name, days in own.items()
        ),
        fleets=tuple(_fleet(f, study.confidence) for f in found),
        taxes=tuple(
            TaxRow(t.config, *_setting(t.setting), t.metric, **fields_of(t.mean))
            for t in taxes(found, study.confidence)
        ),
    )


def table(fleet: Fleet) -> str:
    """``fleet.csv``: one row per configuration, setting and metric; taxes have ``tax_`` before the metric."""
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


def lines(fleet: Fleet) -> list[str]:
    """The same for a person: SLOs, models, profiles, then a table for each fleet and policy."""
    found = [f"note: {note}" for note in fleet.notes]
    for p in fleet.patterns:
        found.append(f"{p.name}: {p.input_tokens} + {p.output_tokens} tokens, SLO {p.slo_s:.3g} s (E2E)")
    for e in fleet.engines:
        worst = max(e.checks, key=lambda c: abs(c.error))
        found.append(
            f"model of {e.config}: {e.typical_error:.1%} off at the median of {len(e.checks)} latencies, at most "
            f"{worst.error:+.0%} ({worst.metric} of {worst.phase}/{worst.cell_id})"
        )
    found += [f"left out: {config}: {reason}" for config, reason in fleet.left_out.items()]
    heads = f"{'req/s':>18} {'E2E s':>8} {'in flight':>9} {'against plain':>26}"
    found += ["", f"{'what one instance can take':<28} {'pattern':<12} {heads}"]
    found += [f"{p.config:<28} {p.pattern:<12} {_capacity_text(p)}" for p in fleet.profiles]
    loads = fleet.study.loads
    on_e2e = {(t.config, t.fleet, t.load): t.mean for t in fleet.taxes if t.metric == "e2e_p90_s"}
    by_table: dict[tuple[int, str, str], dict[str, dict[float, FleetRow]]] = {}
    for row in fleet.fleets:
        by_table.setdefault(row.fleet, {}).setdefault(row.config, {})[row.load] = row
    for (n, router, queue), rows in by_table.items():
        heads = "".join(f"{f'load {load:g}':>24}" for load in loads)
        found += [
            "",
            f"{n} instance{'s' if n > 1 else ''}, {router}, {queue}",
            f"  {'share that misses its SLO':<28}{heads}",
        ]
        found += [
            f"  {config:<28}" + "".join(f"{_missed_text(own[load]):>24}" for load in loads)
            for config, own in rows.items()
        ]
        if len(rows) > 1:
            found.append(f"  {'tax on E2E p90':<28}")
        for config in rows:
            own_taxes = [on_e2e.get((config, (n, router, queue), load)) for load in loads]
            if config != PLAIN and len(rows) > 1:
                shown = "".join(f"{_relative(t):>24}" for t in own_taxes)
                found.append(f"  {config:<28}{shown}")
    return found


def _capacity_text(profile: ProfileRow) -> str:
    rate, e2e_s, capacity = profile.rate_per_s, profile.e2e_s, profile.capacity
    if rate is None or e2e_s is None or capacity is None:
        return "  cannot keep its SLO"
    half_width = "" if rate.high is None else f" +- {rate.high - rate.point:.2g}"
    shown = f"{rate.point:.3g}{half_width}"
    return f"{shown:>18} {e2e_s.point:>8.3g} {capacity.point:>9.3g} {_relative(profile.rate_tax):>26}"


def _relative(tax: Mean | None) -> str:
    if tax is None:
        return ""
    ends = "" if tax.low is None else f" [{tax.low:+.0%}, {tax.high:+.0%}]"
    return f"{tax.point:+.0%}{ends}"


def _missed_text(row: FleetRow) -> str:
    missed = row.missed
    if missed is None:
        return "no request"
    if not row.keeps_up:
        return "does not keep up"
    low, high = missed.low, missed.high
    ends = "" if low is None or high is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{100 * missed.point:.1f} %{ends}"


def _engine(config: str, found: Calibration) -> EngineRow:
    costs = found.engine.costs
    return EngineRow(
        config,
        base_us=costs.base_us,
        per_prefill_token_us=costs.per_prefill_token_us,
        per_decode_seq_us=costs.per_decode_seq_us,
        per_context_token_us=costs.per_context_token_us,
        jitter_cv=costs.jitter_cv,
        per_prompt_us=found.engine.per_prompt.per_request_us,
        outside_s=found.engine.outside_s,
        steps=found.steps,
        input_lengths=found.input_lengths,
        most_together=found.most_together,
        typical_error=found.typical_error,
        checks=found.checks,
    )


def _profile(
    config: str, pattern: str, days: Sequence[Profile], plain: Sequence[Profile], confidence: float
) -> ProfileRow:
    tax = None
    if days and plain and config != PLAIN:
        tax = ratio_less_one([d.rate_per_s for d in days], [d.rate_per_s for d in plain], confidence)
    return ProfileRow(
        config,
        pattern,
        rate_per_s=mean_of([d.rate_per_s for d in days], confidence),
        e2e_s=mean_of([d.e2e_s for d in days], confidence),
        capacity=mean_of([d.capacity for d in days], confidence),
        rate_tax=tax,
    )


def _fleet(found: Found, confidence: float) -> FleetRow:
    return FleetRow(
        found.config,
        *_setting(found.setting),
        keeps_up=found.kept_up,
        metrics={m: found.mean(m, confidence) for m in METRICS},
        violations_by_pattern={
            name: mean_of_shares(days["violations"], days["requests"], confidence)
            for name, days in found.by_pattern.items()
        },
    )


def _setting(found: Setting) -> tuple[int, str, str, float]:
    return found.instances, found.policy.router, found.policy.queue, found.load
