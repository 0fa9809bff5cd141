"""vLLM's own GPU worker on a device that is a clock; overrides only what touches a GPU.

``execute_model``, ``sample_tokens``, ``initialize_from_config``, the connectors' handshake and ``shutdown``
are vLLM's.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from vllm.platforms import current_platform
from vllm.v1.worker.gpu_worker import Worker, init_worker_distributed_environment
from vllm.v1.worker.worker_base import CompilationTimes

from virtual_gpu.device import ATTENTION, read_device
from virtual_gpu.kv_cache import narrow_bytes, scale_of
from virtual_gpu.platform import let_runner_v2_be_chosen
from virtual_gpu.runner import ClockModelRunner
from virtual_gpu.stand_ins import stand_in_for_the_device
from virtual_gpu.streams import Streams

let_runner_v2_be_chosen()


class VirtualGpuWorker(Worker):
    """A worker in the engine core's process, under vLLM's ``uni`` executor."""

    def init_device(self) -> None:
        self.device = torch.device("cpu")
        init_worker_distributed_environment(
            self.vllm_config,
            self.rank,
            self.distributed_init_method,
            self.local_rank,
            current_platform.dist_backend,
        )
        device = read_device()
        self.model_runner = ClockModelRunner(self.vllm_config, device)
        self.streams = Streams(self.model_runner.clock, device.host_link_bytes_per_s)
        stand_in_for_the_device(self.vllm_config, self.streams, scale_of(self.model_runner.true_specs))

    def _maybe_get_memory_pool_context(self, tag: str) -> AbstractContextManager[None]:
        """Return no context: host memory has no pools that could be put to sleep."""
        return nullcontext()

    def load_model(self, **kwargs: Any) -> None:
        """Do nothing: there are no weights."""

    def determine_available_memory(self) -> int:
        return narrow_bytes(self.model_runner.true_specs, read_device().kv_cache_bytes)

    def get_supported_kv_cache_layouts(self) -> list[str]:
        from vllm.utils.import_utils import resolve_obj_by_qualname
        from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts

        return [
            layout.name for layout in get_supported_kv_cache_layouts([resolve_obj_by_qualname(ATTENTION)])
        ]

    def compile_or_warm_up_model(self) -> Any:
        return CompilationTimes(language_model=0.0, encoder=0.0)

    def supports_draft_weight_updates(self) -> bool:
        return False

    def sleep(self, level: int = 1) -> None:
        raise RuntimeError("the virtual GPU has no weights that could be put to sleep")
