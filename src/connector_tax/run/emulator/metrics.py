"""``/metrics`` under vLLM's names."""

from collections.abc import Collection
from dataclasses import dataclass

from connector_tax.base.vllm_model.model import EngineModel

LMCACHE = "LMCacheConnectorV1"


@dataclass(slots=True)
class Counters:
    """What the server counts; tokens."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    external_prefix_cache_queries: int = 0
    external_prefix_cache_hits: int = 0
    lmcache_lookups: int = 0


def metrics_text(
    model_name: str, model: EngineModel, counters: Counters, connectors: Collection[str] = ()
) -> str:
    """Prometheus text, LMCache's own counter where it is among ``connectors``; no connector ever finds anything, unless a fault says so, because nothing is transferred."""
    used = 1 - model.free_blocks / model.costs.kv_blocks
    gauges = {
        "num_requests_running": len(model.running),
        "num_requests_waiting": len(model.waiting),
        "kv_cache_usage_perc": used,
    }
    counts = {
        "prefix_cache_queries": counters.prefix_cache_queries,
        "prefix_cache_hits": counters.prefix_cache_hits,
        "external_prefix_cache_queries": counters.external_prefix_cache_queries,
        "external_prefix_cache_hits": counters.external_prefix_cache_hits,
        "num_preemptions": model.preemptions,
        "prompt_tokens": counters.prompt_tokens,
        "generation_tokens": counters.generation_tokens,
    }
    labels = f'{{engine="0",model_name="{model_name}"}}'
    # vLLM's way to say how large its cache is: an information metric whose labels are the settings.
    size = f'block_size="{model.costs.block_size}",num_gpu_blocks="{model.costs.kv_blocks}"'
    lines = ["# TYPE vllm:cache_config_info gauge", f'vllm:cache_config_info{{engine="0",{size}}} 1.0']
    for name, value in gauges.items():
        lines += [f"# TYPE vllm:{name} gauge", f"vllm:{name}{labels} {float(value)}"]
    for name, value in counts.items():
        lines += [f"# TYPE vllm:{name} counter", f"vllm:{name}_total{labels} {float(value)}"]
    if LMCACHE in connectors:
        name = "lmcache:num_lookup_requests"
        lines += [f"# TYPE {name} counter", f"{name}_total{labels} {float(counters.lmcache_lookups)}"]
    return "\n".join(lines) + "\n"
