"""Hooks with a known price per running request, cached block, new block or layer: what the slopes over steps make of them."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from connector_tax.base.records.cell import CellWindow, Shape
from connector_tax.read.ingest.tables import open_steps
from connector_tax.read.stats.step_slopes import (
    LOADS,
    PER_LAYER,
    CellSteps,
    HookSlopes,
    hook_costs,
    launch_steps,
    slopes,
)

BLOCK = 16
STEP_NS = 10_000_000
LAYERS = 48
HOOKS = ["build_connector_meta"]
LAYER_HOOKS = ["wait_for_layer_load"]
# (running, blocks of running, prefill + decode tokens) -> microseconds of build_connector_meta.
Price = Callable[[int, int, int], float]


def cell(
    folder: Path, name: str, shape: Shape, per_step: float, price: Price, *, n: int = 500, seed: int = 1
) -> Any:
    """A cell whose scheduler admits ``per_step`` requests a step on average, each prefilled in one step."""
    rng = np.random.default_rng(seed)
    running: list[int] = []  # tokens computed of each
    lines = [
        json.dumps({"kind": "header", "process": "scheduler", "hooks": HOOKS}),
        json.dumps({"kind": "header", "process": "worker", "hooks": LAYER_HOOKS}),
    ]
    for k in range(n):
        decode = len(running)
        running = [tokens + 1 for tokens in running]
        new = int(rng.poisson(per_step))
        running += [shape.input_tokens] * new
        prefill = new * shape.input_tokens
        blocks = sum(-(-tokens // BLOCK) for tokens in running)
        us = max(0.0, price(len(running), blocks, prefill + decode) + rng.normal(20, 2))
        row: dict[str, Any] = {
            "kind": "step",
            "step_id": k + 1,
            "t_ns": k * STEP_NS,
            "t_update_ns": k * STEP_NS + 9,
        }
        row |= {"prefill_tokens": prefill, "decode_tokens": decode, "num_running": len(running)}
        row |= dict.fromkeys(("schedule_us", "update_us", "round_trip_us"), 10.0)
        row |= {"step_duration_us": 9000.0 + rng.normal(), "build_meta_us": us, "hooks": [int(us * 1e3), 1]}
        calls = LAYERS if new else 0
        layer_ns = int(calls * 500 + (rng.normal(0, 100) if calls else 0))
        worker = {"kind": "worker_step", "pid": 1, "step_id": k + 1, "t_ns": k * STEP_NS + 5}
        worker |= {"start_load_kv_us": 0.0, "get_finished_us": 0.0, "hooks": [layer_ns, calls]}
        lines += [json.dumps(row), json.dumps(worker)]
        # The last token of an answer is sampled, and its KV never computed.
        running = [t for t in running if t < shape.input_tokens + shape.output_tokens - 1]
    path = folder / f"{name}.jsonl"
    path.write_text("\n".join(lines) + "\n")
    window = CellWindow(0, 0, n * STEP_NS, n * STEP_NS, min_completed_reached=True)
    return SimpleNamespace(
        config="own",
        phase="a",
        document=SimpleNamespace(attempt=1, cache=None),
        spec=SimpleNamespace(shape=shape),
        window=window,
        steps=open_steps(path, name, window, folder / f"{name}.parquet"),
    )


def cells(folder: Path, price: Price) -> list[CellSteps]:
    """Two shapes at two rates each, as the check has them."""
    short, long = Shape(256, 16), Shape(1024, 32)
    made = [
        cell(folder, "a", short, 0.1, price, seed=1),
        cell(folder, "b", short, 0.4, price, seed=2),
        cell(folder, "c", long, 0.05, price, seed=3),
        cell(folder, "d", long, 0.3, price, seed=4),
    ]
    return [steps for one in made for steps in launch_steps([one])]


def found(folder: Path, price: Price, hook: str = "scheduler/build_connector_meta") -> HookSlopes:
    return next(e for e in slopes(cells(folder, price), seed=7) if e.hook == hook)


def test_a_microsecond_per_cached_block_is_no_price_per_running_request(tmp_path: Path) -> None:
    entry = found(tmp_path, lambda running, blocks, tokens: 1.0 * blocks)
    low, high = entry.slopes["per_cached_block"].interval(0.95)
    assert entry.slopes["per_cached_block"].point == pytest.approx(1.0, rel=0.02)
    assert low < 1.0 < high
    # 1,000 blocks more cost 1 ms; a request more by itself, a microsecond at most.
    assert abs(entry.slopes["per_running_request"].point) < 1.0


def test_a_price_per_running_request_is_none_per_cached_block(tmp_path: Path) -> None:
    entry = found(tmp_path, lambda running, blocks, tokens: 5.0 * running)
    low, high = entry.slopes["per_running_request"].interval(0.95)
    assert entry.slopes["per_running_request"].point == pytest.approx(5.0, rel=0.05) and high - low < 0.5
    assert abs(entry.slopes["per_cached_block"].point) < 0.01


def test_a_price_per_new_block_is_found(tmp_path: Path) -> None:
    entry = found(tmp_path, lambda running, blocks, tokens: 2.0 * tokens / BLOCK)
    assert entry.slopes["per_new_block"].point == pytest.approx(2.0, rel=0.02)
    # Of the 16 or 64 blocks that a request brings, none is a price of its own.
    assert abs(entry.slopes["per_new_request"].point) < 2.0


def test_a_hook_that_costs_the_same_every_step_grows_with_nothing(tmp_path: Path) -> None:
    """The whole range of each load moves it by less than the noise of one step."""
    entry = found(tmp_path, lambda running, blocks, tokens: 0.0)
    assert all(abs(entry.slopes[name].point) * entry.range[name] < 3.0 for name in LOADS)


def test_only_a_hook_that_is_called_by_layer_has_a_price_of_a_layer(tmp_path: Path) -> None:
    layered = found(tmp_path, lambda *_: 0.0, "worker/wait_for_layer_load").slopes[PER_LAYER]
    assert layered.point == pytest.approx(0.5, rel=0.01)
    other = found(tmp_path, lambda *_: 0.0).slopes[PER_LAYER]
    assert other.point is None and "not called by layer" in other.reason


def test_slopes_that_one_load_cannot_tell_apart_are_not_given(tmp_path: Path) -> None:
    """One request at a time, always the same: nothing moves but the tokens."""
    (one,) = launch_steps([cell(tmp_path, "e", Shape(256, 16), 0.0, lambda *_: 0.0)]) or [None]
    assert one is None  # no step had a token
    steady = cells(tmp_path, lambda *_: 0.0)[0]
    still = CellSteps(
        steady.launch, steady.us, steady.calls, steady.cpu_us, np.tile(steady.at[:1], (steady.n, 1))
    )
    entry = slopes([still], seed=7)[0]
    assert all(entry.slopes[name].point is None and "same" in entry.slopes[name].reason for name in LOADS)


def test_the_mean_of_a_hook_has_an_interval_and_its_calls(tmp_path: Path) -> None:
    steps = cells(tmp_path, lambda *_: 100.0)[1]
    cost = next(h for h in hook_costs(steps, seed=7) if h.hook == "scheduler/build_connector_meta")
    low, high = cost.us_per_step.interval(0.95)
    assert cost.us_per_step.point == pytest.approx(120.0, abs=0.3) and high - low < 2.0
    assert cost.calls_per_step == 1.0 and cost.us_per_call == pytest.approx(cost.us_per_step.point)
