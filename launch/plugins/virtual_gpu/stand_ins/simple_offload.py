"""SimpleCPUOffloadConnector: vLLM's worker with its thread, descriptors and events; copies are the clock's.

The driver's call, which according to vLLM takes some milliseconds of that thread, is left out.
"""

import ctypes
from typing import Any

import numpy as np
import torch

from virtual_gpu.stand_ins.replacing import replace, said_of
from virtual_gpu.streams import Instead, Scale, Stream, Streams


def put_in(streams: Streams, scale: Scale) -> str:
    from vllm.distributed.kv_transfer.kv_connector.v1 import simple_cpu_offload_connector as connector
    from vllm.v1.simple_kv_offload import copy_backend, cuda_mem_ops, worker

    by_number: dict[int, Stream] = {}

    def new(*args: Any, **kwargs: Any) -> Stream:
        stream = streams.new()
        by_number[stream.cuda_stream] = stream
        return stream

    new.priority_range = lambda: (0, -1)  # type: ignore[attr-defined]

    def batch_memcpy(dst: int, src: int, sizes: int, count: int, *rest: Any) -> int:
        """Replace the driver's cuMemcpyBatchAsync; ``sizes`` is the address of ``count`` 64-bit sizes."""
        # Summed by numpy: in Python 25,000 descriptors would hold the GIL, which the driver's call releases.
        copied = np.ctypeslib.as_array((ctypes.c_uint64 * count).from_address(sizes)).sum()
        by_number[rest[-1]].copy(scale.true(int(copied)))
        return 0

    cuda = Instead(torch.cuda, Stream=new, current_stream=streams.current)
    replace(worker, torch=Instead(torch, cuda=cuda, Event=streams.event))
    replace(copy_backend, torch=Instead(torch, Event=streams.event))
    replace(cuda_mem_ops, _batch_memcpy=(batch_memcpy, 1))
    replace(
        connector,
        SimpleCPUOffloadWorker=_with_narrow_capacity(connector.SimpleCPUOffloadWorker, scale),
        SimpleCPUOffloadScheduler=_with_narrow_capacity(connector.SimpleCPUOffloadScheduler, scale),
    )
    return said_of(scale, streams)


def _with_narrow_capacity(made: Any, scale: Scale) -> Any:
    """Give the host's memory as many blocks as it would hold true ones.

    Raises:
        RuntimeError: the connector copies to a disk, which has no stand-in.
    """

    def make(vllm_config: Any, kv_cache_config: Any, cpu_bytes: int, **kwargs: Any) -> Any:
        backend = vllm_config.kv_transfer_config.get_from_extra_config("kv_offload_backend", "cpu")
        if backend != "cpu":
            raise RuntimeError(
                f"the virtual GPU cannot run SimpleCPUOffloadConnector with kv_offload_backend {backend!r}:"
                " set it to 'cpu'"
            )
        narrow = cpu_bytes * scale.narrow_bytes // scale.true_bytes
        return made(vllm_config, kv_cache_config, narrow, **kwargs)

    return make
