"""What connectors insist on that a host without a GPU does not have. Each stand-in is named in the engine's log.

They answer questions about the device; no byte is copied, and no measurement rests on them.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch


def stand_in_for_the_device(vllm_config: Any) -> None:
    """Put in what vLLM's shutdown and this launch's connectors need."""
    # vLLM empties the device's allocator when it ends; its CPU worker replaces these as well.
    torch.accelerator.empty_cache = _nothing
    torch.accelerator.empty_host_cache = _nothing
    for word, put_in in STAND_INS.items():
        if word in repr(vllm_config.kv_transfer_config):
            said = f"connector-tax: virtual GPU: stand-in for {word}: {put_in()}"
            print(said, file=sys.stderr, flush=True)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """There is no device memory to give back."""


def _accelerator() -> str:
    torch.accelerator.current_device_index = lambda: 0
    return "torch.accelerator.current_device_index() is 0"


STAND_INS: dict[str, Callable[[], str]] = {"MooncakeConnector": _accelerator}
