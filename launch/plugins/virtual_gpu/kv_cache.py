"""The device's KV cache: the GPU's layers and blocks, with heads narrow enough for a host's memory.

Schedulers and connectors see layers, blocks and block size; only the bytes of a block differ.
"""

import ctypes
import mmap
from dataclasses import replace
from typing import Any

import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

from virtual_gpu.device import ATTENTION
from virtual_gpu.streams import Scale

HEADS = 1
HEAD_SIZE = 8
TWO_BYTES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "half": torch.float16}
PAGE, MADV_DONTNEED = mmap.PAGESIZE, 4
FULL, SLIDING = "full_attention", "sliding_attention"


def true_specs(vllm_config: Any) -> dict[str, Any]:
    """Return layer -> vLLM's KV-cache spec, from the model's own configuration.

    Raises:
        RuntimeError: layers of another kind; names them.
    """
    model, cache = vllm_config.model_config, vllm_config.cache_config
    if model.use_mla:
        raise RuntimeError(
            "the virtual GPU knows full and sliding attention; this model has latent attention (MLA)"
        )
    text = model.hf_text_config
    layers = model.get_num_layers(vllm_config.parallel_config)
    kinds = getattr(text, "layer_types", None) or [FULL] * layers
    unknown = sorted(set(kinds) - {FULL, SLIDING})
    if unknown:
        raise RuntimeError(
            f"the virtual GPU knows full and sliding attention; this model has {', '.join(unknown)}"
        )
    shape = {
        "block_size": cache.block_size,
        "num_kv_heads": model.get_num_kv_heads(vllm_config.parallel_config),
        "head_size": model.get_head_size(),
        "dtype": _cache_dtype(cache.cache_dtype, model.dtype),
    }
    window = getattr(text, "sliding_window", None)
    return {
        f"model.layers.{i}.self_attn.attn": SlidingWindowSpec(**shape, sliding_window=window)
        if kinds[i] == SLIDING and window
        else FullAttentionSpec(**shape)
        for i in range(layers)
    }


def _cache_dtype(name: str, of_the_model: torch.dtype) -> torch.dtype:
    """Return the torch type of the KV cache.

    Raises:
        RuntimeError: a type of another size; names it.
    """
    if name == "auto":
        return of_the_model
    if name in TWO_BYTES:
        return TWO_BYTES[name]
    if name.startswith("fp8"):
        return torch.uint8  # as vLLM keeps it
    raise RuntimeError(
        f"the virtual GPU knows KV caches of auto, fp8, {', '.join(TWO_BYTES)}; this one is of {name}"
    )


def narrow(specs: dict[str, Any]) -> dict[str, Any]:
    """Return the same layers with one small head."""
    return {
        name: replace(spec, num_kv_heads=HEADS, head_size=HEAD_SIZE, head_size_v=HEAD_SIZE)
        for name, spec in specs.items()
    }


def scale_of(specs: dict[str, Any]) -> Scale:
    """Return the bytes of a block over all layers, true and narrow."""
    true = sum(spec.page_size_bytes for spec in specs.values())
    return Scale(true, sum(spec.page_size_bytes for spec in narrow(specs).values()))


def narrow_bytes(specs: dict[str, Any], kv_cache_bytes: int) -> int:
    """Return the memory that holds as many narrow blocks as ``kv_cache_bytes`` holds true ones."""
    scale = scale_of(specs)
    return kv_cache_bytes // scale.true_bytes * scale.narrow_bytes


def allocate(kv_cache_config: Any, vllm_config: Any) -> dict[str, torch.Tensor]:
    """Return layer -> its tensor, laid out by vLLM if this release has a function for it.

    The zeros are returned to the kernel, which provides a page on first use: no model writes any, and a GPU's
    blocks take 1 GB here.
    """
    caches = _allocate(kv_cache_config, vllm_config)
    for start, n_bytes in {
        (c.untyped_storage().data_ptr(), c.untyped_storage().nbytes()) for c in caches.values()
    }:
        first, last = -(-start // PAGE), (start + n_bytes) // PAGE
        if last > first:
            ctypes.CDLL(None).madvise(
                ctypes.c_void_p(first * PAGE), ctypes.c_size_t((last - first) * PAGE), MADV_DONTNEED
            )
    return caches


def _allocate(kv_cache_config: Any, vllm_config: Any) -> dict[str, torch.Tensor]:
    try:
        from vllm.v1.worker.utils import allocate_kv_cache
    except ImportError:  # before 0.29
        from vllm.utils.import_utils import resolve_obj_by_qualname

        backend = resolve_obj_by_qualname(ATTENTION)
        return allocate_by_place(kv_cache_config, backend, vllm_config.cache_config.cache_dtype)
    layout = vllm_config.cache_config.get_resolved_kv_cache_layout()
    return allocate_kv_cache(kv_cache_config, torch.device("cpu"), layout)


def allocate_by_place(kv_cache_config: Any, backend: Any, cache_dtype: str) -> dict[str, torch.Tensor]:
    """Allocate as model runners before 0.29 do: one buffer per place, shared by its layers.

    Args:
        backend: the attention backend, which gives the cache's shape and its dimensions' order in memory.

    Raises:
        RuntimeError: several layers are packed into one buffer, each with a part of every block.
    """
    specs = {
        name: getattr(group.kv_cache_spec, "kv_cache_specs", {}).get(name, group.kv_cache_spec)
        for group in kv_cache_config.kv_cache_groups
        for name in group.layer_names
    }
    caches = {}
    for place in kv_cache_config.kv_cache_tensors:
        if getattr(place, "block_stride", 0):
            raise RuntimeError("the virtual GPU cannot lay out KV caches that are packed block by block")
        memory = torch.zeros(place.size, dtype=torch.int8)
        for name in place.shared_by:
            spec = specs[name]
            shape = backend.get_kv_cache_shape(
                place.size // spec.page_size_bytes,
                spec.block_size,
                spec.num_kv_heads,
                spec.head_size,
                cache_dtype_str=cache_dtype,
            )
            order = backend.get_kv_cache_stride_order()
            in_memory = memory.view(spec.dtype).view([shape[i] for i in order])
            caches[name] = in_memory.permute([order.index(i) for i in range(len(order))])
    return caches
