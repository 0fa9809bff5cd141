"""vLLM's platform for a device that is a clock: tensors on the CPU, decisions as on CUDA.

Since the platform answers as a GPU's, vLLM itself chooses asynchronous scheduling, blocks of 16 tokens, model
runner V2, CUDA graphs and the hybrid KV-cache manager, and itself disables them for connectors that need it.
"""

from typing import Any

from vllm.platforms.cpu import CpuPlatform
from vllm.platforms.interface import DeviceCapability, PlatformEnum

from virtual_gpu.device import ATTENTION, read_device

BLOCK_SIZE = 16
WORKER = "virtual_gpu.worker.VirtualGpuWorker"


def let_runner_v2_be_chosen() -> None:
    """Report Triton as present: vLLM requires it for model runner V2; a clock needs no kernels."""
    import vllm.config.vllm

    vllm.config.vllm.HAS_TRITON = True


class VirtualGpuPlatform(CpuPlatform):
    """The platform; out of tree, so that vLLM does not treat it as a CPU."""

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
        """Do nothing: there is one device."""

    @classmethod
    def discover_numa_topology(cls) -> list[list[int]]:
        """Return no nodes: with a CPU's, NIXL keeps the engine's main thread to the last core of each."""
        return []

    @classmethod
    def pre_register_and_update(cls, parser: Any = None) -> None:
        let_runner_v2_be_chosen()

    @classmethod
    def apply_config_platform_defaults(cls, vllm_config: Any) -> None:
        """Keep vLLM's own defaults, which are CUDA's."""

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
        """Keep the block size that ``check_and_update_config`` chose."""

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
