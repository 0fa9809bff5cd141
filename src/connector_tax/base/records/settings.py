"""What is told of an engine's settings and is none: it follows from the others and from the memory that is left."""

# A connector that holds GPU memory leaves fewer KV blocks, and no flag of vLLM's was switched by that.
CONSEQUENCES = frozenset({"cache_config.num_gpu_blocks", "log.kv_cache_tokens"})
