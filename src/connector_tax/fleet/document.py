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
from connector_tax.fleet.run import PLAIN, Found, Setting, mean_profile, ratio_less_one, taxes
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
            writer.writerow({**row, "metric": metric, **row["metrics"][metric]})
    for row in value["taxes"]:
        writer.writerow({**row, "metric": f"tax_{row['metric']}"})
    return out.getvalue()


def lines(value: Mapping[str, Any]) -> list[str]:
    """The same for a person: profiles, then a table for each fleet and policy."""
    found = [
        f"{'what one instance can take':<28} {'pattern':<12} {'req/s':>8} {'E2E s':>8} {'in flight':>9} {'against plain':>26}"
    ]
    for p in value["profiles"]:
        shown = "  misses its SLO even when idle"
        if p["rate_per_s"] is not None:
            tax = _between(p["rate_tax"]) if p["rate_tax"] else ""
            shown = f"{p['rate_per_s']:>8.3g} {p['e2e_s']:>8.3g} {p['capacity']:>9.3g} {tax:>26}"
        found.append(f"{p['config']:<28} {p['pattern']:<12} {shown}")
    found += [f"left out: {config}: {reason}" for config, reason in value["left_out"].items()]
    loads = value["study"]["loads"]
    taxes = {(t["config"], *_key(t), t["load"]): t for t in value["taxes"] if t["metric"] == "e2e_p90_s"}
    by_table: dict[tuple[Any, ...], dict[str, dict[float, Any]]] = {}
    for row in value["fleets"]:
        by_table.setdefault(_key(row), {}).setdefault(row["config"], {})[row["load"]] = row
    for (n, router, queue), rows in by_table.items():
        heads = "".join(f"{f'load {load:g}':>24}" for load in loads)
        found += ["", f"{n} instances, {router}, {queue}", f"  {'share that misses its SLO':<28}{heads}"]
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
    return "" if tax is None else f"{tax['point']:+.0%} [{tax['low']:+.0%}, {tax['high']:+.0%}]"


def _missed(row: Mapping[str, Any]) -> str:
    found = row["metrics"]["violations"]
    return (
        f"{found['point']:.1%} +- {found['high'] - found['point']:.1%}"
        if row["keeps_up"]
        else "does not keep up"
    )


def _between(mean: Mapping[str, Any]) -> str:
    return f"{mean['point']:+.1%} [{mean['low']:+.1%}, {mean['high']:+.1%}]"


def _engine(config: str, found: Calibration) -> dict[str, Any]:
    costs = found.engine.costs
    names = ("base_us", "per_prefill_token_us", "per_decode_seq_us", "per_context_token_us", "jitter_cv")
    return {
        "config": config,
        **_only(asdict(costs), *names),
        "per_prompt_us": found.engine.per_prompt.per_request_us,
        "outside_s": found.engine.outside_s,
        "steps": found.steps,
        "typical_error": found.typical_error,
        "checks": [asdict(c) for c in found.checks],
    }


def _profile(
    config: str, pattern: str, days: Sequence[Profile], plain: Sequence[Profile], confidence: float
) -> dict[str, Any]:
    names = ("rate_per_s", "e2e_s", "capacity", "rate_tax")
    found: dict[str, Any] = {"config": config, "pattern": pattern, **dict.fromkeys(names)}
    if days:
        mean = mean_profile(days)
        found |= {**asdict(mean), "capacity": mean.capacity}
    if days and plain and config != PLAIN:
        own, base = ([d.rate_per_s for d in found] for found in (days, plain))
        found["rate_tax"] = asdict(ratio_less_one(own, base, confidence))
    return found


def _fleet(found: Found, confidence: float) -> dict[str, Any]:
    return {
        "config": found.config,
        **_setting(found.setting),
        "keeps_up": found.kept_up,
        "metrics": {m: asdict(found.mean(m, confidence)) for m in METRICS},
        "violations_by_pattern": {
            name: asdict(Mean.of(days, confidence).within(0.0, 1.0))
            for name, days in found.by_pattern.items()
        },
    }


def _setting(found: Setting) -> dict[str, Any]:
    return {"instances": found.instances, **asdict(found.policy), "load": found.load}


def _only(value: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value[name] for name in names}
