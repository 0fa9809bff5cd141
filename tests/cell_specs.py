"""Cell specs for tests: default values, of which each test changes those that it is about."""

from typing import Any

from connector_tax.base.records.cell import CellSpec

VALUES: dict[str, Any] = {
    "phase": "a",
    "rate_per_s": 1.0,
    "input_tokens": 8,
    "output_tokens": 4,
    "arrival": "fixed",
    "warmup_s": 10.0,
    "duration_s": 60.0,
    "min_completed": 3,
    "max_cell_s": 200.0,
    "drain_timeout_s": 5.0,
    "inflight_cap": 2,
    "seed": 1,
    "token_id_low": 10,
    "token_id_high": 100,
}


def cell_spec(**changes: Any) -> CellSpec:
    return CellSpec(**{**VALUES, **changes})
