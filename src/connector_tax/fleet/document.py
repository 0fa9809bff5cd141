"""What a study found as ``fleet.json``, ``fleet.csv`` and lines for a person; format in ``docs/formats.md``."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from connector_tax.fleet.calibration import Calibration
from connector_tax.fleet.campaign import Source
from connector_tax.fleet.outcome import METRICS, Mean
from connector_tax.fleet.patterns import Pattern, Profile
from connector_tax.fleet.run import PLAIN, Found, Setting, ratio_less_one, taxes
from connector_tax.fleet.study import Study

SCHEMA = 1


def document(
    study: Study,
    source: Source,
    patterns: Sequence[Pattern],
    profiles: Mapping[str, Mapping[str, Sequence[Profile]]],
    found: Sequence[Found],
) -> dict[str, Any]:
    """``fleet.json``."""
    return {
        "schema_version": SCHEMA,
        "campaign": source.campaign,
        "study": asdict(study),
        "patterns": [
            {**_only(asdict(p), "name", "input_tokens", "output_tokens", "slo_s"), "weight": p.rate_per_s}
            for p in patterns
        ],
        "engines": [_engine(config, c) for config, c in source.calibrations.items()],
        "left_out": dict(source.left_out),
        "notes": list(source.notes),
        "profiles": [
            _profile(config, name, days, profiles.get(PLAIN, {}).get(name, ()), study.confidence)
            for config, own in profiles.items()
            for name, days in own.items()
        ],
        "fleets": [_fleet(f, study.confidence) for f in found],
        "taxes": [
            {"config": t.config, **_setting(t.setting), "metric": t.metric, **asdict(t.mean)}
            for t in taxes(found, study.confidence)
        ],
    }


def table(value: Mapping[str, Any]) -> str:
    """``fleet.csv``: one row per configuration, setting and metric; taxes have ``tax_`` before the metric."""
    out = io.StringIO()
    names = ("config", "instances", "router", "queue", "load", "metric", "point", "low", "high", "days")
    writer = csv.DictWriter(out, names, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in value["fleets"]:
        for metric in METRICS:
            writer.writerow({**row, "metric": metric, **(row["metrics"][metric] or {})})
    for row in value["taxes"]:
        writer.writerow({**row, "metric": f"tax_{row['metric']}"})
    return out.getvalue()


def lines(value: Mapping[str, Any]) -> list[str]:
    """The same for a person: SLOs, models, profiles, then a table for each fleet and policy."""
    found = [f"note: {note}" for note in value["notes"]]
    for p in value["patterns"]:
        found.append(
            f"{p['name']}: {p['input_tokens']} + {p['output_tokens']} tokens, SLO {p['slo_s']:.3g} s (E2E)"
        )
    for e in value["engines"]:
        worst = max(e["checks"], key=lambda c: abs(c["modelled_ms"] / c["measured_ms"] - 1))
        found.append(
            f"model of {e['config']}: {e['typical_error']:.1%} off at the median of {len(e['checks'])} latencies, at most "
            f"{worst['modelled_ms'] / worst['measured_ms'] - 1:+.0%} ({worst['metric']} of {worst['phase']}/{worst['cell_id']})"
        )
    found += [f"left out: {config}: {reason}" for config, reason in value["left_out"].items()]
    heads = f"{'req/s':>18} {'E2E s':>8} {'in flight':>9} {'against plain':>26}"
    found += ["", f"{'what one instance can take':<28} {'pattern':<12} {heads}"]
    for p in value["profiles"]:
        shown = "  cannot keep its SLO"
        if p["rate_per_s"] is not None:
            tax = "" if p["rate_tax"] is None else _relative(p["rate_tax"])
            rate = f"{p['rate_per_s']['point']:.3g}{_half(p['rate_per_s'], '.2g')}"
            shown = f"{rate:>18} {p['e2e_s']['point']:>8.3g} {p['capacity']['point']:>9.3g} {tax:>26}"
        found.append(f"{p['config']:<28} {p['pattern']:<12} {shown}")
    loads = value["study"]["loads"]
    taxes = {(t["config"], *_key(t), t["load"]): t for t in value["taxes"] if t["metric"] == "e2e_p90_s"}
    by_table: dict[tuple[Any, ...], dict[str, dict[float, Any]]] = {}
    for row in value["fleets"]:
        by_table.setdefault(_key(row), {}).setdefault(row["config"], {})[row["load"]] = row
    for (n, router, queue), rows in by_table.items():
        heads = "".join(f"{f'load {load:g}':>24}" for load in loads)
        found += [
            "",
            f"{n} instance{'s' if n > 1 else ''}, {router}, {queue}",
            f"  {'share that misses its SLO':<28}{heads}",
        ]
        found += [
            f"  {config:<28}" + "".join(f"{_missed(own[load]):>24}" for load in loads)
            for config, own in rows.items()
        ]
        if len(rows) > 1:
            found.append(f"  {'tax on E2E p90':<28}")
        for config in rows:
            own_taxes = [taxes.get((config, n, router, queue, load)) for load in loads]
            if config != PLAIN and len(rows) > 1:
                shown = "".join(f"{_relative(t):>24}" for t in own_taxes)
                found.append(f"  {config:<28}{shown}")
    return found


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["instances"], row["router"], row["queue"]


def _relative(tax: Mapping[str, Any] | None) -> str:
    if tax is None:
        return ""
    ends = "" if tax["low"] is None else f" [{tax['low']:+.0%}, {tax['high']:+.0%}]"
    return f"{tax['point']:+.0%}{ends}"


def _missed(row: Mapping[str, Any]) -> str:
    found = row["metrics"]["violations"]
    if found is None:
        return "no request"
    if not row["keeps_up"]:
        return "does not keep up"
    ends = "" if found["low"] is None else f" [{100 * found['low']:.1f}, {100 * found['high']:.1f}]"
    return f"{100 * found['point']:.1f} %{ends}"


def _half(mean: Mapping[str, Any], form: str) -> str:
    return "" if mean["high"] is None else f" +- {mean['high'] - mean['point']:{form}}"


def _engine(config: str, found: Calibration) -> dict[str, Any]:
    costs = found.engine.costs
    names = ("base_us", "per_prefill_token_us", "per_decode_seq_us", "per_context_token_us", "jitter_cv")
    return {
        "config": config,
        **_only(asdict(costs), *names),
        "per_prompt_us": found.engine.per_prompt.per_request_us,
        "outside_s": found.engine.outside_s,
        "steps": found.steps,
        "input_lengths": list(found.input_lengths),
        "most_together": found.most_together,
        "typical_error": found.typical_error,
        "checks": [asdict(c) for c in found.checks],
    }


def _profile(
    config: str, pattern: str, days: Sequence[Profile], plain: Sequence[Profile], confidence: float
) -> dict[str, Any]:
    tax = None
    if days and plain and config != PLAIN:
        tax = ratio_less_one([d.rate_per_s for d in days], [d.rate_per_s for d in plain], confidence)
    return {
        "config": config,
        "pattern": pattern,
        "rate_per_s": _mean(Mean.of([d.rate_per_s for d in days], confidence)),
        "e2e_s": _mean(Mean.of([d.e2e_s for d in days], confidence)),
        "capacity": _mean(Mean.of([d.capacity for d in days], confidence)),
        "rate_tax": _mean(tax),
    }


def _fleet(found: Found, confidence: float) -> dict[str, Any]:
    return {
        "config": found.config,
        **_setting(found.setting),
        "keeps_up": found.kept_up,
        "metrics": {m: _mean(found.mean(m, confidence)) for m in METRICS},
        "violations_by_pattern": {
            name: _mean(Mean.of_shares(days["violations"], days["requests"], confidence))
            for name, days in found.by_pattern.items()
        },
    }


def _setting(found: Setting) -> dict[str, Any]:
    return {"instances": found.instances, **asdict(found.policy), "load": found.load}


def _mean(found: Mean | None) -> dict[str, Any] | None:
    return None if found is None else asdict(found)


def _only(value: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value[name] for name in names}
