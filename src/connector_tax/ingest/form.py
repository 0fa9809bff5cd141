"""Whether a JSON value has the form its reader relies on; the first place where it has not is named."""

from typing import Any

# A form is a type, a tuple of types, a list (an array, every element of its first's form), or a mapping of required keys,
# or of ``...`` to the form of every value. A key with ``?`` behind it may be absent.
Form = Any
NUMBER = (int, float)

CELL: Form = {
    "engine": {"versions": dict, "host": dict, "gpu": list},
    "code": {"loadgen_sha256": str},
    "window": {"t0_ns": int, "window_start_ns": int, "t_stop_ns": int, "drained_ns": int},
    "clock": {"monotonic_ns": int, "utc_ns": int},
    "verdict": str,
    "reasons": [str],
    "flags": [str],
    "health": dict,
    "cpu": dict,
    "spec": dict,
    "files": dict,
}
RECEIPT: Form = {
    "status": str,
    "reason": (str, type(None)),
    "engine": dict,
    "step_timing_available": bool,
    "cells": [{"cell_id": str, "files": dict}],
}
LAUNCHES: Form = [{"attempt": int, "elapsed_s": (*NUMBER, type(None))}]
PREFLIGHT: Form = {"configs": {...: {"decision": str}}}
REFERENCE_RATES: Form = {
    "ref_safe_per_s": NUMBER,
    "ref_load_per_s": NUMBER,
    "b_prime_needed": bool,
    "shapes?": {...: {"rate_per_s": NUMBER}},
    "load_shapes?": {...: {"rate_per_s": NUMBER}},
}
ENGINE_DIFF: Form = {"configs": dict}


def misfit(value: Any, form: Form, place: str = "") -> str | None:
    """``"engine.gpu is no list"``, or None where the form is kept."""
    if isinstance(form, dict):
        if not isinstance(value, dict):
            return f"{place or 'it'} is no object"
        if ... in form:
            form = dict.fromkeys(value, form[...])
        else:
            form = {
                k.removesuffix("?"): f
                for k, f in form.items()
                if k.removesuffix("?") in value or k[-1] != "?"
            }
        found = (
            f"no {_join(place, key)}" if key not in value else misfit(value[key], wanted, _join(place, key))
            for key, wanted in form.items()
        )
        return next((fault for fault in found if fault is not None), None)
    if isinstance(form, list):
        if not isinstance(value, list):
            return f"{place} is no list"
        parts = (misfit(part, form[0], f"{place}[{k}]") for k, part in enumerate(value))
        return next((fault for fault in parts if fault is not None), None)
    # True is an int to Python and none to JSON.
    kept = isinstance(value, form) and (form is bool or not isinstance(value, bool))
    names = [t.__name__ for t in (form if isinstance(form, tuple) else (form,))]
    return None if kept else f"{place} is no {' or '.join(names)}"


def _join(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key
