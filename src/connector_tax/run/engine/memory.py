"""Whether the KV memory that ``max_model_len`` asks for fits on the card, worked out before an engine spends minutes on it.

Counted is what must be there: the weights and the KV of one request of full length, of models whose shape is known. Activations and CUDA
graphs come on top, so that it fits here is no promise; that it does not is certain.
Source: vLLM, ``check_enough_kv_cache_memory`` in ``v1/core/kv_cache_utils.py``.
"""

import json
import math

from connector_tax.base.config import EngineConfig
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.vllm_model.shape import model_shape
from connector_tax.run.engine.gpus import Cards, parallel_sizes
from connector_tax.run.engine.model_files import model_folder, weights_bytes

GIB = 2**30
# Of vLLM's own the largest: 0.9 in earlier releases, 0.92 in 0.32.
DEFAULT_UTILIZATION = 0.92
BLOCK_TOKENS = 16
# float32 weights are served in 16 bits unless engine.args.dtype says otherwise.
BYTES = {"float32": 2, "bfloat16": 2, "float16": 2, "half": 2, "auto": 2}
ASKED_BYTES = {**BYTES, "float32": 4, "float": 4}
# Where the engine keeps weights or KV elsewhere, was told the size, or serves another shape, this arithmetic does not hold.
OTHERWISE = (
    *("cpu_offload_gb", "offload_group_size", "kv_cache_memory_bytes", "num_gpu_blocks_override"),
    *("quantization", "quantization_config", "hf_overrides", "hf_config_path"),
)


def memory_utilization(engine: EngineConfig) -> float:
    """vLLM's ``gpu_memory_utilization``, or its default.

    Raises:
        ConfigError: it is no share.
    """
    given = engine.args.get("gpu_memory_utilization") or DEFAULT_UTILIZATION
    try:
        share = float(given)
    except (TypeError, ValueError):
        share = math.nan
    if not 0 < share <= 1:
        raise ConfigError(
            f"engine.args.gpu_memory_utilization: {given!r}: wanted is a number above 0 and at most 1, such as 0.9."
        )
    return share


def too_large(engine: EngineConfig, cards: Cards, longest_tokens: int) -> str | None:
    """Why the engine cannot start on these cards, with what fits; None where it may, or where too little is known.

    Args:
        longest_tokens: of the campaign's longest request, prompt and output.
    """
    folder = model_folder(engine) if engine.kind == "vllm" and cards.gpus else None
    # Further arguments are not read here, and could be any of them.
    if folder is None or engine.extra_args or any(engine.args.get(name) for name in OTHERWISE):
        return None
    if (folder / "hf_quant_config.json").is_file():  # vLLM takes quantised weights from that file as well
        return None
    model = json.loads((folder / "config.json").read_text())
    try:
        shape = model_shape(model, str(folder))
    except ConfigError:
        return None
    width = _element_bytes(model, engine)
    tokens = engine.args.get("max_model_len") or model.get("max_position_embeddings")
    gpu = min(cards.gpus, key=lambda g: g.memory_mib or math.inf)
    if width is None or gpu.memory_mib is None or not isinstance(tokens, int) or tokens <= 0:
        return None
    sizes = parallel_sizes(engine)
    parts = sizes["tensor_parallel_size"] * sizes["pipeline_parallel_size"]
    per_token = shape.kv_values * width / parts
    if engine.args.get("enable_expert_parallel"):
        parts *= sizes["data_parallel_size"]
    stored = 4 if "float32" in (model.get("dtype"), model.get("torch_dtype")) else 2
    served = ASKED_BYTES.get(str(engine.args.get("dtype") or "auto"), 2)
    weights = (weights_bytes(folder) or shape.total * stored) / parts * min(1.0, served / stored)
    utilization = memory_utilization(engine)
    available = gpu.memory_mib * 2**20 * utilization - weights
    if per_token * tokens <= available:
        return None
    fitting = max(0, math.floor(available / per_token / BLOCK_TOKENS) * BLOCK_TOKENS)
    if fitting >= longest_tokens:
        remedy = (
            f"engine.args.max_model_len: {fitting} or less fits, less what activations take; "
            f"the longest request of this campaign has {longest_tokens} tokens."
        )
    else:
        remedy = (
            f"At most {fitting} tokens fit, and the longest request of this campaign has {longest_tokens}: "
            "take a larger card, more of them (tensor_parallel_size), or shorter shapes."
        )
    return (
        f"engine.args.max_model_len: {tokens} tokens need {per_token * tokens / GIB:.1f} GiB of KV memory, and {gpu} has "
        f"{max(available, 0) / GIB:.1f} GiB for it: {gpu.memory_mib / 1024:.1f} GiB x {utilization:g} less {weights / GIB:.1f} GiB of "
        f"weights. vLLM would refuse to start. {remedy}"
    )


def _element_bytes(model: Foreign, engine: EngineConfig) -> int | None:
    """Of the KV cache; None for a type whose size is not known here."""
    cache = str(engine.args.get("kv_cache_dtype") or "auto")
    if cache.startswith("fp8"):
        return 1
    if cache != "auto":
        return ASKED_BYTES.get(cache)
    asked = str(engine.args.get("dtype") or "auto")
    if asked != "auto":
        return ASKED_BYTES.get(asked, 2)
    return BYTES.get(str(model.get("dtype") or model.get("torch_dtype") or "auto"), 2)
