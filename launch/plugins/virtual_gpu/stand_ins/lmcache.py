"""LMCacheConnectorV1: LMCache's own code down to its GPU connector; kernels and streams are the clock's.

Before it copies, LMCache moves a request's slots to the device, which waits for all launched work. It then
waits for each chunk. The engine's thread does both here. Launches of its copy kernels are left out.
"""

from collections.abc import Callable
from typing import Any

import torch

from virtual_gpu.kv_cache import HEAD_SIZE, HEADS
from virtual_gpu.stand_ins.replacing import replace, said_of
from virtual_gpu.streams import Instead, Scale, Streams

# Settings that select another GPU connector, or one without a CPU store.
UNKNOWN = ("use_layerwise", "enable_blending", "use_gpu_connector_v3", "enable_pd", "enable_async_loading")


def put_in(streams: Streams, scale: Scale) -> str:
    """Install the stand-in.

    Raises:
        RuntimeError: LMCache is configured for a way of copying without a stand-in; names the setting.
    """
    from lmcache.integration.vllm.utils import lmcache_get_or_create_config
    from lmcache.integration.vllm.vllm_service_factory import VllmServiceFactory
    from lmcache.integration.vllm.vllm_v1_adapter import LMCacheConnectorV1Impl
    from lmcache.v1 import cache_engine, gpu_connector
    from lmcache.v1.gpu_connector import gpu_connectors
    from vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector import LMCacheConnectorV1

    settle = _settling(scale)
    settle(lmcache_get_or_create_config())
    apply, begin = LMCacheConnectorV1Impl._apply_extra_config, LMCacheConnectorV1.__init__

    def apply_extra_config(self: Any, config: Any, vllm_config: Any) -> None:
        """Settle again: the connector's own config changes LMCache's after the engine's start."""
        apply(self, config, vllm_config)
        settle(config)

    def begin_with_lmcache(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        if vllm_config.kv_transfer_config.get_from_extra_config("use_native", False):
            raise RuntimeError("the virtual GPU cannot run LMCache with use_native: leave it out")
        begin(self, vllm_config, *args, **kwargs)

    replace(LMCacheConnectorV1Impl, _apply_extra_config=apply_extra_config)
    replace(LMCacheConnectorV1, __init__=begin_with_lmcache)
    store, retrieve = cache_engine.LMCacheEngine.store, cache_engine.LMCacheEngine.retrieve

    def store_after_the_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Wait first: the adapter has just moved the slots to the device, so hashing follows the step."""
        streams.compute.synchronize()
        return store(self, *args, **kwargs)

    def retrieve_after_the_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        streams.compute.synchronize()
        return retrieve(self, *args, **kwargs)

    replace(cache_engine.LMCacheEngine, store=store_after_the_step, retrieve=retrieve_after_the_step)

    def transfer(memory: Any, *args: Any, **kwargs: Any) -> None:
        """Replace the kernel that copies a chunk between host and paged memory; uses the current stream."""
        streams.current().copy(scale.true(memory.nbytes))

    cuda = Instead(torch.cuda, Stream=streams.new, stream=streams.use)
    replace(
        gpu_connectors,
        torch=Instead(torch, cuda=cuda),
        device_ops=Instead(gpu_connectors.device_ops, multi_layer_kv_transfer=transfer),
    )

    class ClockedConnector(gpu_connectors.VLLMPagedMemGPUConnectorV2):
        """A connector without a device buffer between paged memory and host, which are both the host's."""

        def _initialize_pointers(self, kv_caches: Any) -> Any:
            """Set no pointers: there is no kernel."""
            self.page_buffer_size = self.block_size = self.head_size = self.block_stride_elems = 0
            self.engine_kv_format, self.device = None, torch.device("cpu")
            return self.kv_cache_pointers

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
    return f"{said_of(scale, streams)}; the engine's thread waits for each chunk"


def _settling(scale: Scale) -> Callable[[Any], None]:
    """Refuse settings without a stand-in, and give the CPU store as many chunks as true ones would fit.

    Two roles each apply the same settings to one object.
    """
    narrowed: list[float] = []

    def settle(config: Any) -> None:
        # LMCache itself would only warn, and serve without a cache.
        for name in UNKNOWN:
            if getattr(config, name):
                raise RuntimeError(f"the virtual GPU cannot run LMCache with {name}: set it to false")
        if config.max_local_cpu_size not in narrowed:
            config.max_local_cpu_size = config.max_local_cpu_size * scale.narrow_bytes / scale.true_bytes
            narrowed.append(config.max_local_cpu_size)

    return settle
