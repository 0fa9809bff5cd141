"""OffloadingConnector: vLLM's own worker with its chunks, descriptors and events; copies are the clock's.

vLLM passes the descriptors to the driver in one call, whose own host time is left out.
"""

from dataclasses import replace as replaced
from typing import Any

import torch

from virtual_gpu.stand_ins.replacing import replace, said_of
from virtual_gpu.streams import Instead, Scale, Streams


class OnDevice(torch.Tensor):
    """A tensor that claims to be on the device, for checks before a copy."""

    is_cuda = True


def put_in(streams: Streams, scale: Scale) -> str:
    from vllm.v1.kv_offload.cpu import gpu_worker, spec

    def swap_blocks(src: Any, dst: Any, sizes: Any, *, is_src_access_order_any: bool) -> None:
        """Replace the driver's copy: queue it on the current stream."""
        streams.current().copy(scale.true(int(sizes.numpy().sum())))

    platform = Instead(
        gpu_worker.current_platform,
        Stream=streams.new,
        current_stream=streams.current,
        stream=streams.use,
        is_cuda_alike=lambda: True,
    )
    replace(
        gpu_worker,
        torch=Instead(torch, Event=streams.event),
        current_platform=platform,
        _select_swap_blocks_fn=lambda *args, **kwargs: swap_blocks,
    )
    replace(spec, current_platform=platform)
    _take_for_on_device(gpu_worker.SingleDirectionOffloadingHandler)
    _as_many_chunks(spec.CPUOffloadingSpec, scale)
    return said_of(scale, streams)


def _take_for_on_device(handler: Any) -> None:
    """Let a handler's one check see tensors on the device; afterwards it needs only their addresses."""
    make = handler.__init__

    def init(self: Any, gpu_tensors: list[Any], *args: Any, **kwargs: Any) -> None:
        make(self, [t.as_subclass(OnDevice) for t in gpu_tensors], *args, **kwargs)
        if self.gpu_to_cpu:
            self.src_tensors = list(gpu_tensors)
        else:
            self.dst_tensors = list(gpu_tensors)

    handler.__init__ = init


def _as_many_chunks(spec: Any, scale: Scale) -> None:
    """Give the host's memory as many chunks as it would hold true ones, by vLLM's own arithmetic."""
    make = spec.__init__

    def init(self: Any, config: Any) -> None:
        narrow = config.worker_kv_bytes_per_block
        make(self, replaced(config, worker_kv_bytes_per_block=scale.true(narrow)))
        chunks = self.num_chunks
        make(self, config)
        self.num_chunks = chunks

    spec.__init__ = init
