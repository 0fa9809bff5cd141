"""Replaces GPU parts that connectors require; each stand-in is named in the engine's and the clock's log.

A connector's own code runs. Only the device's part is replaced: streams, events, and copies between device
and host. A copy takes as long as its GPU bytes need over the host link, and nothing is copied. Threads that
wait for a copy on a GPU wait here.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch

from virtual_gpu.stand_ins import example, lmcache, offloading, simple_offload
from virtual_gpu.streams import Scale, Streams

PutIn = Callable[[Streams, Scale], str]
# By the connector's name in vLLM's configuration.
COPYING: dict[str, PutIn] = {
    "LMCacheConnectorV1": lmcache.put_in,
    "OffloadingConnector": offloading.put_in,
    "SimpleCPUOffloadConnector": simple_offload.put_in,
    "ExampleConnector": example.put_in,
}


def stand_in_for_the_device(vllm_config: Any, streams: Streams, scale: Scale) -> None:
    """Install what vLLM's shutdown and this launch's connectors need.

    Raises:
        RuntimeError: a connector differs from what the stand-in knows, or the host link's speed is unknown.
    """
    # vLLM empties the device's allocator when it ends; its CPU worker replaces these as well.
    torch.accelerator.empty_cache = _nothing
    torch.accelerator.empty_host_cache = _nothing
    configured = repr(vllm_config.kv_transfer_config)
    said = {}
    if "'MooncakeConnector'" in configured:
        torch.accelerator.current_device_index = lambda: 0
        said["MooncakeConnector"] = "torch.accelerator.current_device_index() is 0"
    for name, put_in in COPYING.items():
        if f"'{name}'" in configured:
            said[name] = _put_in(name, put_in, streams, scale)
    for name, words in said.items():
        print(f"connector-tax: virtual GPU: stand-in for {name}: {words}", file=sys.stderr, flush=True)
    if said:
        streams.clock.note(
            {"kind": "stand_ins", "stand_ins": [f"{name}: {words}" for name, words in said.items()]}
        )


def _put_in(name: str, put_in: PutIn, streams: Streams, scale: Scale) -> str:
    if not streams.host_link_bytes_per_s:
        raise RuntimeError(
            f"the virtual GPU cannot run {name}: it copies between device and host, and host_link_bytes_per_s"
            " is not given"
        )
    try:
        return put_in(streams, scale)
    except (ImportError, AttributeError) as error:
        raise RuntimeError(
            f"the virtual GPU cannot run {name}: its stand-in knows another release of it ({error})"
        ) from error


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing: there is no device memory to free."""
