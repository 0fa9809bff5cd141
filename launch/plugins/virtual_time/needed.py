"""Names in vLLM's source that this package drives, checked before vLLM is imported."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from virtual_gpu.needed import lacks, missing_in

NEEDED: Mapping[str, tuple[str, ...]] = {
    "v1/engine/core.py": (
        "EngineCore.preprocess_add_request(request)",
        "EngineCore.add_request(request, request_wave)",
        "EngineCore.step()",
        "EngineCore.step_with_batch_queue()",
        "EngineCore.post_step(model_executed)",
        "EngineCore.reset_prefix_cache",
    ),
    "v1/engine/__init__.py": ("EngineCoreRequest.request_id", "EngineCoreRequest.prompt_token_ids"),
    "v1/core/sched/interface.py": ("SchedulerInterface.has_requests()",),
    "v1/core/sched/scheduler.py": ("Scheduler.schedule", "Scheduler.update_from_output"),
    "v1/executor/abstract.py": ("Executor.get_class(vllm_config)",),
    "engine/arg_utils.py": ("EngineArgs.create_engine_config",),
    "sampling_params.py": ("SamplingParams.max_tokens", "SamplingParams.ignore_eos"),
    "distributed/kv_transfer/kv_connector/factory.py": ("KVConnectorFactory.create_connector",),
}


def lacking() -> str | None:
    """Return why this interpreter's vLLM cannot be driven; None if its source has all that is needed."""
    found = importlib.util.find_spec("vllm")
    if found is None or not found.submodule_search_locations:
        return "there is no vLLM in this interpreter"
    folder = Path(found.submodule_search_locations[0])
    return missing_in(folder, NEEDED) or lacks(folder)
