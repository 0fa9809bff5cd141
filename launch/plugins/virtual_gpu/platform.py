"""vLLM's platform for a device that is a clock: tensors on the CPU, decisions as on CUDA.

Under a platform that says what a GPU's does, vLLM chooses asynchronous scheduling, blocks of 16 tokens, its
model runner V2, CUDA graphs and the hybrid KV-cache manager by itself, and switches them off by itself where
a connector wants that.
"""

from typing import Any

from vllm.platforms.cpu import CpuPlatform
from vllm.platforms.interface import DeviceCapability, PlatformEnum

from virtual_gpu.device import ATTENTION, read_device

BLOCK_SIZE = 16
WORKER = "virtual_gpu.worker.VirtualGpuWorker"


def let_runner_v2_be_chosen() -> None:
    """vLLM runs its model runner V2 only beside Triton, whose kernels a clock does not need."""
    import vllm.config.vllm

    vllm.config.vllm.HAS_TRITON = True


class VirtualGpuPlatform(CpuPlatform):
    """Out of tree, so that nothing in vLLM takes it for a CPU."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"
    dispatch_key = "CPU"
    dist_backend = "gloo"

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return read_device().name

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        return read_device().memory_bytes

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:
        return DeviceCapability(*read_device().compute_capability)

    @classmethod
    def set_device(cls, device: Any) -> None:
        """There is one."""

    @classmethod
    def discover_numa_topology(cls) -> list[list[int]]:
        """None: where a CPU computes, NIXL keeps the engine's main thread to the last core of each; beside a
        GPU it does not."""
        return []

    @classmethod
    def pre_register_and_update(cls, parser: Any = None) -> None:
        let_runner_v2_be_chosen()

    @classmethod
    def apply_config_platform_defaults(cls, vllm_config: Any) -> None:
        """None: vLLM's own are CUDA's."""

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        parallel, cache = vllm_config.parallel_config, vllm_config.cache_config
        if parallel.world_size > 1:
            raise ValueError(
                "the virtual GPU is one device: tensor and pipeline parallelism are not modelled"
            )
        if parallel.worker_cls == "auto":
            parallel.worker_cls = WORKER
        if cache.block_size is None or not cache.user_specified_block_size:
            cache.block_size = BLOCK_SIZE

    @classmethod
    def update_block_size_for_backend(cls, vllm_config: Any) -> None:
        """As it is: ``check_and_update_config`` has chosen."""

    @classmethod
    def get_attn_backend_cls(cls, *args: Any, **kwargs: Any) -> str:
        return ATTENTION

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        return True

    @classmethod
    def support_static_graph_mode(cls) -> bool:
        return True

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return False
