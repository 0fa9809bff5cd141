"""Requests for checks whose engines are never launched."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from virtual_gpus import model_in

from connector_tax.check.request import GIVEN, METRICS, CheckRequest, entry_of_json
from connector_tax.virtual_time import Bounds, HookCpu, Interval, Tax, VirtualTime

__all__ = ["NOOP", "interval", "model_in", "request", "virtual_time"]

NOOP = '{"kv_connector": "NoOpConnector", "kv_role": "kv_both", "kv_connector_module_path": "noop_connector"}'


def request(folder: Path, text: str = NOOP, **changes: Any) -> CheckRequest:
    entry, notes = entry_of_json(text)
    model = model_in(folder / "model")
    python = changes.pop("engine_python", "/bin/true")
    gpu = changes.pop("gpu", "h200")
    return CheckRequest(GIVEN, entry, notes, python, gpu, "Qwen", model, **changes)


def interval(point: float, half: float | None = 0.001) -> Interval:
    return Interval(point, None, None) if half is None else Interval(point, point - half, point + half)


def virtual_time(
    tax: float = 0.01,
    others: float = 0.02,
    half: float | None = 0.001,
    *,
    scheduling: str = "async",
    waits: str = "",
) -> VirtualTime:
    """A connector whose every latency has this tax; of which one hook waits for what takes no time there."""

    def us(value: float) -> Interval:
        return interval(value, half and 1.0)

    def bounds(charged: float, with_others: float, make: Any) -> Bounds:
        return Bounds(make(charged), make(with_others))

    return VirtualTime(
        scheduling=scheduling,
        starts=3,
        requests=4800,
        steps=9000,
        rate_per_s=24.0,
        input_tokens=256,
        output_tokens=16,
        taxes=tuple(
            Tax(
                m,
                10.0,
                10.0 * (1 + tax),
                bounds(tax, others, lambda v: interval(v, half)),
                bounds(tax * 1e4, others * 1e4, us),
            )
            for m in METRICS
        ),
        engine_us_per_step={"plain": us(139.0), "connector": us(174.0)},
        others_us_per_step={"plain": 0.0, "connector": 5.0},
        waits_per_step={"plain": 0.0, "connector": 2.0},
        step_us=bounds(35.0, 40.0, us),
        hooks=tuple(
            HookCpu("worker", name, 1.0, us(20.0), 21.0, name != waits)
            for name in ("start_load_kv", "get_finished")
        ),
        null_hook_us=0.7,
        work_ratio=interval(0.0, half),
        wide_work_ratio=interval(0.0, half),
        cpu_s=10.0,
        wall_s=20.0,
    )
