"""Names in vLLM's source that the virtual GPU is built on.

``python -m virtual_gpu.needed VLLM`` prints ``{"reason": ...}``. Preflight asks before it launches an engine,
where a missing name would be a traceback. Standard library only.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

# Oldest and newest release compared: their model runners call a connector's hooks in this device's order.
COMPARED_WITH = ((0, 25), (0, 33))
# File -> functions, classes and their attributes; in parentheses the names of the first parameters.
NEEDED: Mapping[str, tuple[str, ...]] = {
    # The engine core: two calls a step, of which the second returns a result that is waited for.
    "v1/executor/uniproc_executor.py": (
        "UniProcExecutor.execute_model(scheduler_output)",
        "UniProcExecutor.sample_tokens(grammar_output)",
        "UniProcExecutor.collective_rpc",
    ),
    "v1/outputs.py": ("AsyncModelRunnerOutput.get_output", "ModelRunnerOutput", "EMPTY_MODEL_RUNNER_OUTPUT"),
    # The base class of VirtualGpuWorker.
    "v1/worker/gpu_worker.py": (
        "Worker.init_device",
        "Worker.load_model",
        "Worker.determine_available_memory",
        "Worker.initialize_from_config",
        "Worker.compile_or_warm_up_model",
        "Worker.execute_model(scheduler_output)",
        "Worker.sample_tokens(grammar_output)",
        "Worker._maybe_get_memory_pool_context(tag)",
        (
            "init_worker_distributed_environment(vllm_config, rank, distributed_init_method, local_rank,"
            " backend)"
        ),
    ),
    "v1/worker/worker_base.py": ("CompilationTimes",),
    # Connector code that ClockModelRunner calls.
    "v1/worker/kv_connector_model_runner_mixin.py": (
        "KVConnectorModelRunnerMixin.maybe_get_kv_connector_output(scheduler_output)",
        "KVConnectorModelRunnerMixin.kv_connector_no_forward(scheduler_output, vllm_config)",
    ),
    "model_executor/layers/attention/kv_transfer_utils.py": ("maybe_transfer_kv_layer",),
    "distributed/kv_transfer/kv_connector/utils.py": ("copy_kv_blocks",),
    "forward_context.py": ("set_forward_context(attn_metadata, vllm_config)",),
    "v1/kv_cache_interface.py": ("FullAttentionSpec", "SlidingWindowSpec"),
    # The platform.
    "platforms/cpu.py": ("CpuPlatform",),
    "platforms/interface.py": (
        "PlatformEnum.OOT",
        "DeviceCapability",
        "Platform.check_and_update_config(vllm_config)",
        "Platform.get_attn_backend_cls",
        "Platform.support_hybrid_kv_cache",
        "Platform.support_static_graph_mode",
    ),
    "v1/attention/backends/flash_attn.py": ("FlashAttentionBackend",),
}
# Needed in releases that have model runner V2.
NEEDED_FOR_V2: Mapping[str, tuple[str, ...]] = {
    "v1/worker/gpu/kv_connector.py": (
        "get_kv_connector(vllm_config)",
        "ActiveKVConnector.pre_forward(scheduler_output)",
        "ActiveKVConnector.post_forward(finished_req_ids)",
        "ActiveKVConnector.no_forward(scheduler_output)",
    ),
}


def lacks(vllm: Path) -> str | None:
    """Return why the virtual GPU cannot run in a release; None if its source has all that is needed.

    Args:
        vllm: the folder ``vllm`` of an installation or an unpacked wheel.
    """
    needed = dict(NEEDED)
    if (vllm / "v1/worker/gpu/model_runner.py").is_file():
        needed |= NEEDED_FOR_V2
    return missing_in(vllm, needed) or _not_compared(vllm)


def _not_compared(vllm: Path) -> str | None:
    """Return why a release's order of hooks is unknown; None if it was compared with this device's."""
    file = vllm / "_version.py"
    found = re.search(r"version = ['\"](\d+)\.(\d+)", file.read_text()) if file.is_file() else None
    if found and COMPARED_WITH[0] <= (int(found[1]), int(found[2])) <= COMPARED_WITH[1]:
        return None
    first, last = (".".join(map(str, release)) for release in COMPARED_WITH)
    return f"where its model runners call hooks was compared for {first} to {last} only"


def missing_in(vllm: Path, needed: Mapping[str, tuple[str, ...]]) -> str | None:
    """Return what a release lacks of ``needed``, in the form of ``NEEDED``; None if nothing."""
    missing = [words for file, wanted in needed.items() for words in _missing(vllm / file, file, wanted)]
    return "; ".join(missing) or None


def _missing(path: Path, file: str, wanted: tuple[str, ...]) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        yield f"{file} is not there"
        return
    except SyntaxError as error:
        yield f"{file} is not Python of this interpreter ({sys.version.split()[0]}): {error}"
        return
    names = dict(_defined(tree.body))
    for words in wanted:
        name, _, parameters = words.rstrip(")").partition("(")
        expected, found = parameters.split(", ") if parameters else [], names.get(name)
        if found is None:
            yield f"{file} has no {name}"
        elif found[: len(expected)] != expected:
            yield f"{file}: {name} takes ({', '.join(found)}), not ({parameters})"


def _defined(body: list[ast.stmt], owner: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield each name that a module, or a class ``Owner.``, defines or assigns, with its parameters."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield owner + node.name, []
            yield from _defined(node.body, f"{owner}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [a.arg for a in node.args.posonlyargs + node.args.args]
            yield owner + node.name, names[1:] if names[:1] in (["self"], ["cls"]) else names
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((owner + target.id, []) for target in targets if isinstance(target, ast.Name))


def main() -> None:
    print(json.dumps({"reason": lacks(Path(sys.argv[1]))}))


if __name__ == "__main__":
    main()
