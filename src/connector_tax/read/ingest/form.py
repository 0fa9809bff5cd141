"""The forms of what the analysis reads; ``connector_tax.base.forms`` holds values against them.

A form says of every value that statistics compute with what it is and how large it can be. Whoever wrote the file may have
written anything, and what is no number here would otherwise end the analysis of everything else.
"""

import re
from typing import Any

from connector_tax.base.forms import Form, anything, misfit, named, optional, within
from connector_tax.base.opening import is_bare
from connector_tax.base.units import MOST_NS, MOST_TOKENS, token_count

# Monotonic and wall time alike; what is subtracted from one another stays in 64 bits.
_TIME: Form = within(0, MOST_NS, int)
_SECONDS: Form = within(0, 1e9)
_TOKENS: Form = within(0, MOST_TOKENS)
_WHOLE_TOKENS: Form = within(0, MOST_TOKENS, int)
_LENGTH: Form = within(1, 1e9, int)
_LENGTH_OR_0: Form = within(0, 1e9, int)
# The lowest is a millionth, and a shape is measured at a millionth of that at least (``read/stats/reference.py``).
_RATE: Form = within(1e-13, 1e9)
_TEXT_OR_NULL = (str, type(None))


def _is_count(value: Any) -> bool:
    try:
        token_count(value)
    except ValueError:
        return False
    return True


_SHAPE: Form = {"input_tokens": _LENGTH, "output_tokens": _LENGTH}

CELL: Form = {
    "engine": {"versions": dict, "host": dict, "gpu": list},
    "code": {"loadgen_sha256": str},
    "window": dict.fromkeys(("t0_ns", "window_start_ns", "t_stop_ns", "drained_ns"), _TIME),
    "clock": {"monotonic_ns": _TIME, "utc_ns": _TIME},
    "verdict": str,
    "reasons": [str],
    "flags": [str],
    "health": dict,
    "cpu": dict,
    # Conversations have lengths of their own, and 0 here.
    "spec": {"rate_per_s": within(0, 1e9), "input_tokens": _LENGTH_OR_0, "output_tokens": _LENGTH_OR_0},
    "files": {...: {"sha256": str}},
}
# Keys that not every cell has.
CELL_MORE: Form = {
    "attempt": optional(within(1, 1e6, int)),
    "launch": optional(dict),
    "prefix_cache_hits_delta": optional(within(-1e15, 1e15)),
    "cache": optional(dict),
    "left_out_streams": optional([str]),
}
CACHE: Form = {
    "block_size": optional(within(1, 1e6, int)),
    "kv_blocks": optional(_TOKENS),
    "computed_tokens": optional(_TOKENS),
    **dict.fromkeys(("prompts", "primed_tokens", "longest_prompt"), optional(_WHOLE_TOKENS)),
    "counters": optional({...: within(-1e15, 1e15)}),
}
_SPAN_US: Form = within(-1e15, 1e15)
_COST_US: Form = within(0, 1e9)
# In ``health`` of a cell on a virtual GPU, and in ``engine``.
DEVICE_CLOCK: Form = {
    "steps": within(0, 1e12, int),
    "lateness_us": dict.fromkeys(("p50", "p99", "max"), _SPAN_US),
    "late_share": within(-1e12, 1e12),
    "device_busy_share": within(-1e12, 1e12),
    "slack_us": dict.fromkeys(("p10", "p50"), _SPAN_US),
}
VIRTUAL_GPU: Form = {
    "profile": str,
    "sha256": str,
    "name": str,
    "memory_bytes": within(0, 1e18, int),
    "kv_cache_bytes": within(0, 1e18, int),
    "step": dict.fromkeys(
        ("base_us", "per_prefill_token_us", "per_decode_seq_us", "per_context_token_us"), _COST_US
    ),
    "host": dict.fromkeys(("before_launch_us", "before_launch_per_seq_us", "after_launch_us"), _COST_US),
}
RECEIPT: Form = {
    "status": str,
    "reason": _TEXT_OR_NULL,
    "campaign": str,
    "connector": str,
    "phase": str,
    "engine": dict,
    "step_timing_available": bool,
    "cells": [{"cell_id": named(is_bare, "no bare name"), "files": dict}],
}
LAUNCHES: Form = [{"attempt": within(1, 1e6, int), "elapsed_s": optional(_SECONDS)}]
PREFLIGHT: Form = {"configs": {...: {"decision": str}}}
PREFLIGHT_MORE: Form = {"step_timing_reason": _TEXT_OR_NULL, "elapsed_s": optional(_SECONDS)}
_A_LENGTH = named(lambda text: re.fullmatch("[0-9]{1,10}", text) is not None, "no number of tokens")
DECISION_MORE: Form = {
    "reason": _TEXT_OR_NULL,
    "install": _TEXT_OR_NULL,
    "prompt_s": optional({...: _SECONDS}),
}
REFERENCE_RATES: Form = {"ref_safe_per_s": _RATE, "ref_load_per_s": _RATE, "b_prime_needed": bool}
RATES_MORE: Form = {
    "flags": [str],
    "shapes": {...: {"rate_per_s": _RATE}},
    "load_shapes": {...: {"rate_per_s": _RATE}},
}
ENGINE_DIFF: Form = {"configs": {...: optional({...: {"plain": anything, "own": anything}})}}
DIFF_MORE: Form = {"plain": optional(dict)}

# Of a campaign that another version wrote at least this, which the statistics ask for.
CAMPAIGN: Form = {
    "created_utc": str,
    "order": {...: [str]},
    "config": {
        "seed": within(0, 2**63 - 1, int),
        "engine": {"kind": str, "model": str, "args": dict},
        "connectors": [{"id": str, "label": str, "kv_transfer_config": optional(dict)}],
        "phase_a_shape": _SHAPE,
        "phase_b_input_tokens": [_LENGTH],
        "phase_b_output_tokens": [_LENGTH],
        "phase_b_prime": {"configs": [str], "shapes": [_SHAPE]},
        "cell": {"arrival": str, "inflight_cap": within(1, 1e6, int)},
        "analysis": {
            "bootstrap_draws": within(1, 100_000, int),
            "confidence": within(0.5, 1),
            "time_budget_h": within(0, 1e6),
        },
    },
}
CAMPAIGN_MORE: Form = {"phase_a_rates_per_s": optional([_RATE])}
# What an engine was asked for that statistics compute with, in the words that its command line takes: -1, ``auto``, ``32k``.
_COUNT: Form = named(_is_count, "no number of tokens")
_ARGUMENTS: Form = dict.fromkeys(("max_num_seqs", "max_num_batched_tokens", "max_model_len"), _COUNT)
# What it made of them: settings of these names are numbers wherever they stand.
_LIMITS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_gpu_blocks", "block_size")


def fault_of(value: Any, form: Form, more: Form) -> str | None:
    """Where ``value`` has not ``form``, or one of the keys in ``more`` that it has not that form; None where all is well."""
    if fault := misfit(value, form):
        return fault
    return misfit(value, {key: wanted for key, wanted in more.items() if key in value})


def fault_of_cell(document: Any) -> str | None:
    if fault := fault_of(document, CELL, CELL_MORE):
        return fault
    if fault := fault_of(document["health"], {}, {"device_clock": DEVICE_CLOCK, "stand_ins": [str]}):
        return _within("health", fault)
    if fault := fault_of(document["engine"], {}, {"virtual_gpu": VIRTUAL_GPU}):
        return _within("engine", fault)
    cache = document.get("cache")
    return None if cache is None else _within("cache", fault_of(cache, {}, CACHE))


def fault_of_preflight(document: Any) -> str | None:
    if fault := fault_of(document, PREFLIGHT, PREFLIGHT_MORE):
        return fault
    for name, decision in document["configs"].items():
        fault = fault_of(decision, {}, DECISION_MORE)
        lengths = {} if fault else decision.get("prompt_s") or {}
        fault = fault or misfit(list(lengths), [_A_LENGTH], "prompt_s")
        if fault:
            return f"configs.{name}.{fault}"
    return None


def fault_of_rates(document: Any) -> str | None:
    if fault := fault_of(document, REFERENCE_RATES, RATES_MORE):
        return fault
    shapes = [*document.get("shapes", ()), *document.get("load_shapes", ())]
    wrong = [s for s in shapes if not re.fullmatch("[1-9][0-9]{0,9}x[1-9][0-9]{0,9}", s)]
    return f"{wrong[0]!r} is no shape" if wrong else None


def fault_of_diff(document: Any) -> str | None:
    if fault := fault_of(document, ENGINE_DIFF, DIFF_MORE):
        return fault
    told = {"plain": document.get("plain") or {}}
    for config, changes in document["configs"].items():
        told[f"configs.{config}"] = {name: both["own"] for name, both in (changes or {}).items()}
    faults = (_fault_of_limits(settings, place) for place, settings in told.items())
    return next((fault for fault in faults if fault is not None), None)


def fault_of_campaign(document: Any) -> str | None:
    """Beyond its names, which whoever opens the file has checked."""
    if fault := misfit(document, CAMPAIGN):
        return fault
    config, args = document["config"], document["config"]["engine"]["args"]
    fault = fault_of(args, {}, _ARGUMENTS)
    return _within("config.engine.args", fault) or _within("config", fault_of(config, {}, CAMPAIGN_MORE))


def _fault_of_limits(settings: dict[str, Any], place: str) -> str | None:
    wanted = {k: optional(_WHOLE_TOKENS) for k in settings if k.rpartition(".")[2] in _LIMITS}
    return misfit(settings, wanted, place)


def _within(place: str, fault: str | None) -> str | None:
    return None if fault is None else f"{place}.{fault}"
