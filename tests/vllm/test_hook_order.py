"""The virtual GPU calls a connector's hooks as vLLM's own model runners do: traces of both, step by step, on real vLLM.

One process for each model runner and device, two at a time; each makes its launches one after the other.
"""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from virtual_gpu.hook_order import CASES, read_order

pytestmark = pytest.mark.vllm
ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "launch" / "plugins"
TRACER = Path(__file__).parent / "plugins" / "trace_hooks.py"
RUNNERS = ("v1", "v2")
LAYER_HOOKS = ("wait_for_layer_load", "save_kv_layer")
KINDS = {"prefill", "decode", "mixed", "empty", "prefill with loads"}

Steps = list[tuple[str, list[str]]]


def virtual_gpu(folder: Path) -> Path:
    """A device whose steps take 2 ms."""
    document = {
        "schema": 1,
        "name": "NVIDIA H200",
        "compute_capability": [9, 0],
        "memory_bytes": 150_754_820_096,
        "kv_cache_bytes": 64 << 20,
        "step": {
            "base_us": 2000,
            "per_prefill_token_us": 0,
            "per_decode_seq_us": 0,
            "per_context_token_us": 0,
        },
        "host": {"before_launch_us": 0, "before_launch_per_seq_us": 0, "after_launch_us": 0},
        "clock_log": str(folder / "device_clock.jsonl"),
    }
    path = folder / "virtual_gpu.json"
    path.write_text(json.dumps(document))
    return path


def trace(python: str, model: Path, runner: str, device: str, folder: Path) -> dict[str, Any]:
    paths = [TRACER.parent, PLUGINS]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "VLLM_NO_USAGE_STATS": "1"}
    if device == "virtual":
        paths.append(PLUGINS / "virtual_gpu" / "entry")
        environment["CONNECTOR_TAX_VIRTUAL_GPU"] = str(virtual_gpu(folder))
    environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    done = subprocess.run(
        [python, str(TRACER), str(model), runner, device],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("TRACE ")]
    assert done.returncode == 0 and lines, done.stdout[-2000:] + done.stderr[-6000:]
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("TRACE "))
    return found


@pytest.fixture(scope="module")
def traces(
    engine_python: str, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], dict[str, Any]]:
    asked = [(runner, device) for runner in RUNNERS for device in ("real", "virtual")]
    with ThreadPoolExecutor(2) as pool:
        running = {
            (runner, device): pool.submit(
                trace,
                engine_python,
                tiny_model,
                runner,
                device,
                tmp_path_factory.mktemp(f"{runner}-{device}"),
            )
            for runner, device in asked
        }
        return {case: future.result() for case, future in running.items()}


def steps(launch: dict[str, Any]) -> Steps:
    return [(kind, calls) for kind, calls in launch["steps"]]


def without_layers(calls: list[str]) -> list[str]:
    return [name for name in calls if name not in LAYER_HOOKS]


@pytest.mark.parametrize("runner", RUNNERS)
def test_both_devices_run_the_model_runner_that_is_meant(traces: Any, runner: str) -> None:
    for device, module in (("real", "vllm.v1.worker.cpu"), ("virtual", "virtual_gpu.runner")):
        found = traces[runner, device]
        assert all(found[name]["runner"].startswith(module) for name in found if name != "moved")
        assert [launch["is_v2"] for launch in found.values()] == [runner == "v2"] * len(found)
        assert [found[name]["is_async"] for name in ("sync", "async")] == [False, True]


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("launch", ["sync", "async"])
def test_each_step_calls_the_same_hooks_in_the_same_place(traces: Any, runner: str, launch: str) -> None:
    real, virtual = (steps(traces[runner, device][launch]) for device in ("real", "virtual"))
    assert {kind for kind, _ in real} >= KINDS
    assert virtual == real


@pytest.mark.parametrize("runner", RUNNERS)
def test_what_is_read_from_the_source_is_what_happens(traces: Any, engine_python: str, runner: str) -> None:
    (vllm,) = Path(engine_python).parents[1].glob("lib/python3*/site-packages/vllm")
    read = dict(read_order(vllm, runner.upper()).hooks)
    assert set(read) == set(CASES)
    cases = {
        "eager": ("prefill", "decode", "mixed"),
        "loads that the step needs": ("prefill with loads",),
        "nothing to compute": ("empty",),
    }
    for case, kinds in cases.items():
        found = [calls for kind, calls in steps(traces[runner, "real"]["sync"]) if kind in kinds]
        assert found
        for calls in found:
            # get_transfer_results of vLLM's base class asks get_finished.
            assert [n for n in without_layers(calls) if n != "get_finished"] == list(read[case])


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_step_that_is_one_cuda_graph_runs_no_hooks_of_layers(traces: Any, runner: str) -> None:
    eager, graphs = (steps(traces[runner, "virtual"][name]) for name in ("sync", "graphs"))
    assert "FULL_AND_PIECEWISE" in traces[runner, "virtual"]["graphs"]["cudagraph_mode"]
    assert graphs == [(kind, without_layers(calls) if kind == "decode" else calls) for kind, calls in eager]
    assert any(set(calls) & set(LAYER_HOOKS) for kind, calls in eager if kind == "decode")


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_runner_with_one_hook_before_the_launch_is_found_out(traces: Any, runner: str) -> None:
    real, moved = (
        steps(traces[runner, device][name]) for device, name in (("real", "sync"), ("virtual", "moved"))
    )
    assert [kind for kind, _ in moved] == [kind for kind, _ in real]
    for (kind, expected), (_, found) in zip(real, moved, strict=True):
        assert (found == expected) is (kind == "empty")
        assert sorted(found) == sorted(expected)
