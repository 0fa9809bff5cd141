"""The forms of what the analysis reads; ``connector_tax.forms`` holds values against them."""

from connector_tax.forms import NUMBER, Form, within
from connector_tax.units import MOST_NS

# Monotonic and wall time alike; what is subtracted from one another stays in 64 bits.
_TIME: Form = within(0, MOST_NS, int)

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
REFERENCE_RATES: Form = {"ref_safe_per_s": NUMBER, "ref_load_per_s": NUMBER, "b_prime_needed": bool}
ENGINE_DIFF: Form = {"configs": dict}
