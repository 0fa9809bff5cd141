"""Writes aggregate_example.json: invented numbers in the exact form of an ``aggregate.json``.

Eight configurations as on a GPU host: one skipped, one partial, the rest measured. Run it by hand
after a change of the format; the file it writes is what the tests read.
"""

import json
import math
from pathlib import Path
from typing import Any

from connector_tax.base.documents.aggregate import aggregate_of, written

RATES = [0.5, 1, 2, 4, 8, 16, 32]
INPUTS, OUTPUTS = [512, 4096, 32768], [64, 256, 1024]
REF = {"ref_safe": 2, "ref_load": 4}
PRIORITY = ["plain", "mooncake_both", "nixl_both", "lmcache_only"]
SAID = "mooncake_consumer: /v1/completions gave no answer within 30 s. See preflight/verify_mooncake_consumer.log"
SKIPPED = {"code": "skipped", "detail": SAID}
DIED = {"code": "invalid", "detail": "engine died in it"}
LEFT_OUT = {"code": "cells_left_out", "subject": "b/r2_32768x1024", "numbers": {"cells": 1}, "because": DIED}
# id -> label, status, reason, tax of TTFT and TPOT at ref_safe, extra microseconds per step, in hooks
CONFIGS: dict[str, tuple[str, str, dict[str, Any] | None, float, float, float, float]] = {
    "plain": ("plain vLLM", "measured", None, 0, 0, 0, 0),
    "noop_connector": ("no-op connector", "measured", None, 0.02, 0.012, 120, 35),
    "mooncake_producer": ("Mooncake (producer)", "partial", LEFT_OUT, 0.11, 0.06, 700, 500),
    "mooncake_consumer": ("Mooncake (consumer)", "skipped", SKIPPED, 0, 0, 0, 0),
    "mooncake_both": ("Mooncake (both)", "measured", None, 0.31, 0.17, 1900, 1450),
    "nixl_both": ("NIXL (both)", "measured", None, 0.24, 0.12, 1300, 820),
    "lmcache_only": ("LMCache", "measured", None, 0.09, 0.05, 520, 400),
    "multi_mooncake_lmcache": ("Mooncake + LMCache", "measured", None, 0.44, 0.23, 2500, 1900),
}
CAPACITY = {"plain": 7.4, "mooncake_both": 5.2, "multi_mooncake_lmcache": 4.9, "nixl_both": 5.5}

# A GPU host whose CPUs tell no clock.
GPU = {"sm_mhz_p50": 1980.0, "mem_mhz_p50": 2619.0, "temperature_c_max": 61.0, "power_w_mean": 412.5,
       "utilisation_mean": 0.93, "clock_reasons": {"gpu_idle": 0.02}, "n_failed": 0, "errors": []}  # fmt: skip
HOST = {"n": 60, "steal_share": 0.0004, "cpu_mhz_p50": None, "cpu_mhz_min": None, "gpu": GPU}


def triple(point: float, relative: float = 0.06, n: int = 200) -> dict[str, Any]:
    return {
        "point": round(point, 4),
        "low": round(point * (1 - relative), 4),
        "high": round(point * (1 + relative), 4),
        "n": n,
    }


def lost(reason: str, n: int = 200) -> dict[str, Any]:
    return {"point": None, "low": None, "high": None, "n": n, "reason": reason}


def step(config: str, tokens: float) -> dict[str, Any]:
    extra, hooks = CONFIGS[config][5:7]
    p50 = 14_500 + tokens * 0.4 + extra
    quantiles = [round(p50 * math.exp(0.22 * 1.6 * (2 * (i + 0.5) / 200 - 1) ** 3)) for i in range(200)]
    value: dict[str, Any] = {
        "available": True,
        "n_steps": 5200,
        "n_empty": 3,
        "n_unjoined": 0,
        "torn": False,
        "step_duration_us": {"p50": triple(p50, 0.012, 5200), "p90": triple(p50 * 1.3, 0.02, 5200)},
        "round_trip_us": {"p50": triple(p50 - hooks, 0.012, 5200), "p90": triple(p50 * 1.2, 0.02, 5200)},
        "by_kind": {
            "decode_only": of_kind(p50 * 0.98, 4400),
            "mixed": of_kind(p50 * 1.2, 800),
            "prefill_only": {"n": 0, "p50": lost("no_observations", 0), "p90": lost("no_observations", 0)},
        },
        "cdf": {"step_duration_us": quantiles},
    }
    shares = {
        "build_meta_us": 0.6,
        "get_finished_us": 0.3,
        "start_load_kv_us": 0.1,
        "connector_total_us": 1.0,
    }
    for name, share in shares.items():
        value[name] = {
            "p50": triple(hooks * share, 0.03, 5200),
            "p90": triple(hooks * share * 1.4, 0.05, 5200),
        }
    return value


def of_kind(p50: float, n: int) -> dict[str, Any]:
    return {"n": n, "p50": triple(p50, 0.01, n), "p90": triple(p50 * 1.1, 0.02, n)}


def cell(config: str, phase: str, rate: float, tokens_in: int, tokens_out: int) -> dict[str, Any]:
    tax_ttft, tax_tpot = CONFIGS[config][3:5]
    load = rate * (tokens_in / 4096) ** 0.5 / CAPACITY.get(config, 7.0)
    queue = 1 / (1 - load) if load < 0.93 else 14 + 30 * load
    ttft = 60 + 0.09 * tokens_in
    p90 = ttft * (0.7 + 0.3 * queue) * (1 + tax_ttft * (tokens_in / 4096) ** 0.15)
    tpot = (18 + 3.5 * min(queue, 9)) * (1 + tax_tpot * (tokens_out / 256) ** 0.1)
    effective = rate * (0.995 if load < 0.95 else 0.95 / load)
    n = max(200, int(rate * 60))
    waiting = 0.0 if load < 0.9 else min(200.0, 12 * load)
    fired = {
        "throughput": effective / rate < 0.95,
        "waiting": waiting > 1,
        **({"ttft_growth": None if rate == 0.5 else queue > 2.6} if phase == "a" else {}),
    }
    overloaded = rate >= 16 and phase == "a"
    dropped = n // 4 if overloaded else 0
    return {
        "config": config,
        "phase": phase,
        "cell_id": f"r{rate:g}_{tokens_in}x{tokens_out}",
        "rate_per_s": rate,
        "input_tokens": tokens_in,
        "output_tokens": tokens_out,
        "usable": True,
        "verdict": "valid",
        "reasons": [],
        "flags": ["client_limited"] if rate == 32 and config == "plain" else [],
        "n_window": n,
        "n_ok": n - dropped,
        "n_dropped": dropped,
        "n_failed": 0,
        "statuses": {"dropped": dropped, "ok": n - dropped} if dropped else {"ok": n},
        "window_s": n / rate,
        "ttft_ms": {
            "p50": triple(p90 * 0.7),
            "p90": lost("requests_failed") if rate == 32 else triple(p90),
            "p99": lost("requests_failed") if overloaded else triple(p90 * 1.5, 0.2),
        },
        "tpot_ms": {
            "p50": triple(tpot * 0.9, 0.02),
            "p90": triple(tpot, 0.025),
            "p99": triple(tpot * 1.2, 0.06),
        },
        "e2e_ms": {
            "p50": triple(p90 + tpot * tokens_out * 0.9),
            "p90": triple(p90 + tpot * tokens_out),
            "p99": triple(p90 * 1.5 + tpot * tokens_out),
        },
        "ttft_from_send_ms": {
            "p50": triple(p90 * 0.699),
            "p90": triple(p90 * 0.999),
            "p99": triple(p90 * 1.499),
        },
        "requested_throughput_per_s": rate,
        "effective_throughput_per_s": round(effective, 3),
        "throughput_ratio": round(effective / rate, 4),
        "waiting_p50": waiting,
        "n_waiting": 60,
        "running_p50": round(min(rate * 6, 256), 1),
        "saturation_criteria": fired,
        "saturated": any(fired.values()),
        "n_metrics_missed": 0,
        "host": HOST,
        "prefix_cache_hit_share": 0.0,
        "step": step(config, rate * 900),
        "cpu": {
            "loaded_s": {"engine_core": 61.5, "api_server": 22.0},
            "elapsed_s": 120.0,
            "idle_share": {"engine_core": 1.0 if config == "nixl_both" else 0.01, "api_server": 0.01},
            "spinning": [{"process": "engine_core", "thread": "nixl_worker", "share": 0.99}]
            if config == "nixl_both"
            else [],
            "rss_mib": {"engine_core": 2048.0, "api_server": 512.0},
        },
        "health": {},
    }


def left_out(one: dict[str, Any], reason: dict[str, Any]) -> dict[str, Any]:
    """The same cell, as the analysis lists one that it does not use."""
    kept = ("config", "phase", "cell_id", "rate_per_s", "input_tokens", "output_tokens", "flags")
    return {k: one[k] for k in kept} | {"usable": False, "verdict": "invalid", "reasons": [reason]}


def taxes(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    at = {(c["config"], c["phase"], c["cell_id"]): c for c in cells if c["usable"]}
    for (config, phase, cell_id), one in at.items():
        plain = at[("plain", phase, cell_id)]
        reference = next((k for k, v in REF.items() if v == one["rate_per_s"]), None)
        if config == "plain" or reference is None:
            continue
        names = ("config", "phase", "cell_id", "rate_per_s", "input_tokens", "output_tokens")
        base = {k: one[k] for k in names}
        base |= {"reference": reference, "n": one["n_window"], "overloaded": [], "n_blocks": 1, "subject": ""}
        for metric, key in [("ttft_p90", "ttft_ms"), ("tpot_p90", "tpot_ms")]:
            point = one[key]["p90"]["point"] / plain[key]["p90"]["point"] - 1
            half = 0.045 if metric == "ttft_p90" else 0.018
            own = {"n_plain": plain["n_window"], "metric": metric, "unit": "ratio"}
            found.append(base | own | outcome(point, half))
        step_us, plain_us = (c["step"]["step_duration_us"]["p50"]["point"] for c in (one, plain))
        steps, hooks = step_us - plain_us, one["step"]["connector_total_us"]["p50"]["point"]
        for metric, value, half, n_plain in [
            ("step_p50_us", steps, 90, 5200),
            ("callback_p50_us", hooks, 25, 0),
            ("unexplained_us", steps - hooks, 95, 5200),
        ]:
            found.append(base | {"n_plain": n_plain, "metric": metric, "unit": "us"} | outcome(value, half))
    return found


def main_taxes(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Phase A's, of one launch each."""
    return [dict(tax) for tax in found if tax["phase"] == "a"]


def outcome(point: float, half: float) -> dict[str, Any]:
    verdict = "tax" if point > half else "gain" if point < -half else "no_tax_found"
    ends = {"point": round(point, 4), "low": round(point - half, 4), "high": round(point + half, 4)}
    return ends | {"reason": None, "verdict": verdict}


def saturation(cells: list[dict[str, Any]], ran: list[str]) -> dict[str, Any]:
    result = {}
    for config in ran:
        own = [c for c in cells if c["config"] == config and c["phase"] == "a"]
        fired = {c["rate_per_s"]: [k for k, v in c["saturation_criteria"].items() if v] for c in own}
        result[config] = {
            "saturation_rate_per_s": min((r for r, names in fired.items() if names), default=None),
            "fired": {f"{r:g}": names for r, names in fired.items()},
            "criteria": {
                f"{c['rate_per_s']:g}": {k: c[k] for k in ("throughput_ratio", "waiting_p50")}
                | {"ttft_growth": None if c["rate_per_s"] == 0.5 else 1.1}
                for c in own
            },
            "non_monotonic": [],
        }
    return result


def span(point: float, half: float) -> dict[str, Any]:
    return {"point": round(point, 4), "low": round(point - half, 4), "high": round(point + half, 4), "n": 200}


def once(point: float, half: float) -> dict[str, Any]:
    return {**span(point, half), "n_blocks": 1}


# id, subject, outcome, conclusions, numbers, p and Holm's p
HYPOTHESES: list[tuple[Any, ...]] = [
    ("H1", "mooncake_both", "supported", ["prior_kept"],
     {"tax_ttft_p90": span(0.31, 0.045), "threshold": 0.1},
     0.001, 0.005),
    ("H2", "mooncake_both", "undetermined", [],
     {"gap": span(0.07, 0.059), "range": [0.05, 0.1]},
     0.6, 0.6),
    ("H3", "mooncake_both", "supported", ["implementation_dominates"],
     {"tax_noop": span(0.02, 0.02), "tax_connector": span(0.31, 0.045), "share": span(0.06, 0.06), "threshold": 0.5},
     0.001, 0.005),
    ("H4", "multi_mooncake_lmcache", "supported", ["additive"],
     {"tax_stack": span(0.44, 0.045), "sum_of_parts": span(0.4, 0.06), "excess_over_stack": span(0.09, 0.15),
      "parts": {"mooncake_both": span(0.31, 0.045), "lmcache_only": span(0.09, 0.045)}, "tolerance": 0.3},
     0.002, 0.006),
    ("H5", "mooncake_both", "supported", ["monotonic"],
     {"slope_per_doubling": span(0.03, 0.01), "by_length": {"512": span(0.22, 0.045), "32768": span(0.42, 0.045)},
      "rates_per_s": {"512": [2], "32768": [2]}, "averaged_over": [64, 256, 1024], "left_out": {}},
     0.004, 0.008),
    ("H6", "mooncake_both", "not testable", [], {}, None, None),
]  # fmt: skip
HYPOTHESIS_KEYS = ("id", "subject", "outcome", "conclusions", "numbers", "p_value", "p_holm")


def decomposition() -> list[dict[str, Any]]:
    """LMCache switches the hybrid KV-cache manager off and has its matched baseline; the others switch nothing."""
    found = []
    noop = CONFIGS["noop_connector"]
    for config, (_, status, _, ttft, tpot, _, _) in CONFIGS.items():
        if status == "skipped" or config in ("plain", "noop_connector"):
            continue
        for metric, total, framework in (("ttft_p90", ttft, noop[3]), ("tpot_p90", tpot, noop[4])):
            flags = 0.03 if config == "lmcache_only" else 0.0
            found.append(
                {
                    "config": config,
                    "metric": metric,
                    "settings": ["disable_hybrid_kv_cache_manager"] if flags else [],
                    "parts": 3,
                    "total": once(total, 0.045),
                    "flags": once(flags, 0.02) if flags else {**span(0.0, 0.0), "n": 0, "n_blocks": None},
                    "framework": once(framework, 0.02),
                    "implementation": once(total - flags - framework, 0.05),
                }
            )
    return found


def attribution() -> list[dict[str, Any]]:
    found = []
    for config, (_, status, _, _, _, extra, hooks) in CONFIGS.items():
        if status == "skipped" or config == "plain":
            continue
        rest = extra - hooks
        parts = {"scheduler_hooks": hooks * 0.3, "worker_hooks": hooks * 0.7, "schedule": rest * 0.2, "update": -rest * 0.05,
                 "round_trip": rest * 0.85}  # fmt: skip
        found.append(
            {
                "config": config,
                "cell_id": "r2_4096x256",
                "n_steps": 8123,
                "n_plain_steps": 8090,
                "tokens_per_step": 12.4,
                "step_us": 14_500.0 + extra,
                "plain_step_us": 14_500.0,
                "difference_us": span(extra, 25),
                "parts": [{"part": k, **span(v, 10)} for k, v in parts.items()],
                "hooks": [
                    {
                        "hook": "worker/get_finished",
                        "calls_per_step": 1.0,
                        "us_per_step": hooks * 0.7,
                        "us_per_call": hooks * 0.7,
                        "us_per_token": hooks * 0.7 / 12.4,
                        "cpu_us_per_step": hooks * 0.2,
                        "n_cpu_steps": 507,
                    }
                ],
                "in_hooks_share": span(hooks / extra, 0.02),
                "hooks_us": None,
                "hooks_cpu_us": None,
            }
        )
    return found


def main() -> None:
    ran = [k for k, v in CONFIGS.items() if v[1] != "skipped"]
    cells = [cell(c, "a", r, 4096, 256) for c in ran for r in RATES]
    cells += [cell(c, "b", 2, i, o) for c in ran for i in INPUTS for o in OUTPUTS]
    cells += [cell(c, "b_prime", 4, i, 256) for c in PRIORITY for i in INPUTS]
    died = ("mooncake_producer", "b", "r2_32768x1024")
    cells = [left_out(c, DIED) if (c["config"], c["phase"], c["cell_id"]) == died else c for c in cells]
    sat = saturation(cells, ran)
    aggregate = {
        "schema_version": 1,
        "campaign": "example",
        "date": "2026-11-20",
        "provenance": {
            "engine_kind": "vllm",
            "model": "example/model-7b",
            "engine_args": {"max_model_len": 40960, "enable_prefix_caching": True},
            "arrival": "fixed",
            "order": {"a": ran, "b": ran, "b_prime": PRIORITY},
            "seed": 20260526,
            "created_utc": "2026-11-20T08:00:00Z",
            "confidence": 0.95,
            "bootstrap_draws": 2000,
            "versions": {"vllm": "0.32.0", "vllm_git_sha": "0123abc4", "python": "3.12.4", "torch": "2.9.1",
                         "mooncake": "0.3.7", "nixl": "0.7.1", "lmcache": "0.5.6"},
            "gpu": ["GPU 0: NVIDIA H20 (UUID: GPU-00000000-1111-2222-3333-444444444444)"],
            "host": {"kernel": "6.8.0", "cpu": "Xeon 8469C", "cores": 96, "memory_mib": 1031000},
            "config_hash": "c0ffee00c0ffee00",
            "code": {"connector_tax": "0.1.0", "loadgen_sha256": "ab" * 32},
            "settings": {"cell": {"min_completed": 200}, "engine": {"pin_cpus": True}, "connectors": {c: {} for c in ran}},
        },
        # Worked out from what a test changes.
        "source": None,
        "connectors": [],
        "step_timing_available": True,
        "step_timing_reason": None,
        "configs": {
            k: {"label": v[0], "status": v[1], "reason": v[2], "install": None, "note": "",
                "ttft_is_no_tax": None, "copies_kv": None} for k, v in CONFIGS.items()
        },
        "cells": cells,
        "saturation": sat,
        "reference_rates": {"schema": 1, "ref_safe_per_s": 2, "ref_load_per_s": 4, "b_prime_needed": True,
                            "flags": [], "participating": ran, "saturation": sat},
        "taxes": taxes(cells),
        "main_taxes": main_taxes(taxes(cells)),
        "decomposition": decomposition(),
        "two_parts": [],
        "attribution": attribution(),
        "engine_diff": {**{c: {} for c in ran},
                        "lmcache_only": {"disable_hybrid_kv_cache_manager": {"plain": False, "own": True}}},
        "repeats": [],
        "host_drift": [],
        "power": [{"config": c, "metric": m, "power": 0.8, "one_launch": 0.06, "by_blocks": None}
                  for c in ran[1:] for m in ("ttft_p90", "tpot_p90")],
        "observer_effect": [],
        "growth": [],
        "outputs": [],
        "amplification": [{"config": c, "metric": m, "input_tokens": 4096, "output_tokens": 256, "n_blocks": 1, **span(0.12, 0.09)}
                          for c in ran[1:] for m in ("ttft_p90", "tpot_p90")],
        "hypotheses": [
            dict(zip(HYPOTHESIS_KEYS, h, strict=True))
            | {"n_blocks": None if h[2] == "not testable" else 1, "at_equal_host_speed": None}
            | {"missing": [{"reason": "one_length", "subject": h[1]}] if h[2] == "not testable" else []}
            for h in HYPOTHESES
        ],
        "criteria": [
            *({"number": n, "outcome": o} for n, o in enumerate(("reported", "reported", "met", "met", "undetermined"), 1)),
            {"number": 6, "outcome": "met", "evidence": [{"code": "runs_checked", "numbers": {"checked": 14, "failed": 0}}]},
            {"number": 7, "outcome": "met", "evidence": [
                {"code": "time_spent", "numbers": {"time_s": 17460}}, {"code": "preflight_took", "numbers": {"time_s": 600}},
                *({"code": "phase_took", "subject": p, "numbers": {"time_s": s}} for p, s in (("a", 9000), ("b", 7860), ("c", 300))),
            ]},
        ],
        "problems": [{"code": "no_request_completed", "subject": "2026-11-20_mooncake_producer/phase_b/cells/r2_32768x1024"}],
    }  # fmt: skip
    # In the form in which it is written, with what the types add.
    text = json.dumps(written(aggregate_of(aggregate)), separators=(",", ":"), allow_nan=False) + "\n"
    Path(__file__).with_name("aggregate_example.json").write_text(text)


if __name__ == "__main__":
    main()
