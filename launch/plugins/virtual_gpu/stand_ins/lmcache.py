"""LMCacheConnectorV1: LMCache's own adapter, lookup, chunks, CPU store and its vLLM GPU connector; kernels and streams are the clock's.

LMCache moves a request's slots to the device before it copies, which waits for all that was launched, and then waits for each chunk:
so does the engine's thread here. The launches of its copy kernels are left out.
"""

from typing import Any

import torch

from virtual_gpu.kv_cache import HEAD_SIZE, HEADS
from virtual_gpu.stand_ins.replacing import replace, said_of
from virtual_gpu.streams import Instead, Scale, Streams

# Of LMCache's configuration: what has another GPU connector, or none of a CPU store.
UNKNOWN = ("use_layerwise", "enable_blending", "use_gpu_connector_v3", "enable_pd", "enable_async_loading")


def put_in(streams: Streams, scale: Scale) -> str:
    """Raises:
    RuntimeError: LMCache is configured for a way of copying that has no stand-in; names the setting.
    """
    from lmcache.integration.vllm.utils import lmcache_get_or_create_config
    from lmcache.integration.vllm.vllm_service_factory import VllmServiceFactory
    from lmcache.v1 import gpu_connector
    from lmcache.v1.gpu_connector import gpu_connectors

    config = lmcache_get_or_create_config()
    # LMCache itself would only warn, and serve without a cache.
    for name in UNKNOWN:
        if getattr(config, name):
            raise RuntimeError(f"the virtual GPU cannot run LMCache with {name}: set it to false")
    # As many chunks as the host's memory would hold of true ones.
    config.max_local_cpu_size = config.max_local_cpu_size * scale.narrow_bytes / scale.true_bytes

    def transfer(memory: Any, *args: Any, **kwargs: Any) -> None:
        """In place of the kernel that moves a chunk between host and paged memory: on the stream in use."""
        streams.current().copy(scale.true(memory.nbytes))

    cuda = Instead(torch.cuda, Stream=streams.new, stream=streams.use)
    replace(
        gpu_connectors,
        torch=Instead(torch, cuda=cuda),
        device_ops=Instead(gpu_connectors.device_ops, multi_layer_kv_transfer=transfer),
    )

    class ClockedConnector(gpu_connectors.VLLMPagedMemGPUConnectorV2):
        """Without a buffer on the device between paged memory and host: both are the host's."""

        def _initialize_pointers(self, kv_caches: Any) -> Any:
            """For the kernel, which needs none."""
            self.page_buffer_size = self.block_size = self.head_size = self.block_stride_elems = 0
            self.engine_kv_format, self.device = None, torch.device("cpu")
            return self.kv_cache_pointers

        def batched_from_gpu(self, memory_objs: Any, starts: Any, ends: Any, **kwargs: Any) -> None:
            streams.compute.synchronize()
            super().batched_from_gpu(memory_objs, starts, ends, **kwargs)

        def batched_to_gpu(self, memory_objs: Any, starts: Any, ends: Any, **kwargs: Any) -> None:
            streams.compute.synchronize()
            super().batched_to_gpu(memory_objs, starts, ends, **kwargs)

    def create(config: Any, metadata: Any, engine: Any, layout_hints: Any = None) -> Any:
        return ClockedConnector.from_metadata(
            metadata, use_gpu=False, device=torch.device("cpu"), layout_hints=layout_hints
        )

    replace(gpu_connector, CreateGPUConnector=create)
    described = VllmServiceFactory.get_or_create_metadata

    def narrow_metadata(self: Any) -> Any:
        metadata = described(self)
        metadata.kv_shape = (*metadata.kv_shape[:3], HEADS, HEAD_SIZE)
        return metadata

    replace(VllmServiceFactory, get_or_create_metadata=narrow_metadata)
    return f"chunks that the engine's thread waits for {said_of(scale, streams)}"
