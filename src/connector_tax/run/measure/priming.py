"""Filling an engine's prefix cache to a level before a cell, and saying how full it then is.

vLLM exports no number of cached blocks. But it forgets none while it has room, so what it has computed since its launch is
what it holds, up to its size: both are asked of ``/metrics`` before every cell of Phase D, and nothing is assumed of what
was sent. How many blocks that makes is the analysis's to say.
"""

import time
from collections.abc import Callable

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from connector_tax.base import direct
from connector_tax.base.documents.cell import Cache
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.secrets import excerpt
from connector_tax.base.seeds import derive_seed, stream
from connector_tax.base.units import token_count
from connector_tax.run.engine.process import RunningEngine

# Of one priming prompt, where the engine takes as many.
PROMPT_TOKENS = 2048
TIMEOUT_S = 120.0
# What a cell's document keeps of the engine's counters, as they are when the cell begins.
KEPT = (
    "prompt_tokens",
    "generation_tokens",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "external_prefix_cache_hits",
    "kv_cache_usage",
    "num_preemptions",
)
NOT_FULL = "cache_below_level"

Counters = dict[str, float]


def prime_cache(spec: CellSpec, engine: RunningEngine, counters: Callable[[], Counters]) -> Cache:
    """Send fresh prompts of known length, one token of output each, until ``spec.cached_tokens`` were computed since the launch.

    The first that fails ends it: the cell then says so and how full the cache is, which is what the analysis goes by.

    Args:
        counters: the engine's own, under canonical names; empty once it has died.

    Returns:
        ``cache`` of ``cell.json``.
    """
    assert spec.cached_tokens is not None, "only cells of Phase D have a level"
    start_s = time.monotonic()
    size = cache_size(engine.base_url)
    before = computed_tokens(counters())
    longest = _longest_prompt(engine)
    sent, failed = _send(spec, engine, spec.cached_tokens - (before or 0), longest)
    after = counters()
    computed = computed_tokens(after)
    return Cache(
        wanted_tokens=spec.cached_tokens,
        primed_tokens=sum(sent),
        prompts=len(sent),
        longest_prompt=longest,
        primed_s=time.monotonic() - start_s,
        failed=failed,
        computed_tokens=computed,
        block_size=size.get("block_size"),
        kv_blocks=size.get("num_gpu_blocks"),
        counters={name: after[name] for name in KEPT if name in after},
    )


def cache_flags(cache: Cache) -> list[str]:
    """What qualifies a cell: it begins below the level that was asked for, whatever the reason."""
    return [NOT_FULL] if _held_tokens(cache) < (cache.wanted_tokens or 0) else []


def _held_tokens(cache: Cache) -> float:
    room = cache.kv_blocks * cache.block_size if cache.kv_blocks and cache.block_size else None
    held = (cache.primed_tokens if cache.computed_tokens is None else cache.computed_tokens) or 0
    return held if room is None else min(held, room)


def computed_tokens(counters: Counters) -> int | None:
    """Tokens that the engine has computed since its launch; None where it does not count them."""
    if "prompt_tokens" not in counters or "generation_tokens" not in counters:
        return None
    hits = counters.get("prefix_cache_hits", 0.0)
    return int(counters["prompt_tokens"] + counters["generation_tokens"] - hits)


def cache_size(base_url: str) -> dict[str, int]:
    """``block_size`` and ``num_gpu_blocks``, as ``vllm:cache_config_info`` has them; what it does not tell is absent."""
    try:
        answer = direct.get(f"{base_url}/metrics", timeout_s=TIMEOUT_S)
        answer.raise_for_status()
        return parse_cache_size(answer.text)
    except (httpx.HTTPError, ValueError):
        return {}  # the counters, asked next, tell an engine that has died


def parse_cache_size(text: str) -> dict[str, int]:
    """Of the page of ``/metrics``; labels are text, ``None`` where a release does not know its own."""
    found: dict[str, int] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "vllm:cache_config_info":
                for name in ("block_size", "num_gpu_blocks"):
                    if sample.labels.get(name, "").isdigit():
                        found[name] = int(sample.labels[name])
    return found


def _longest_prompt(engine: RunningEngine) -> int:
    """Tokens of every priming prompt but the last, which is what is left."""
    limit = token_count(engine.request.engine.args.get("max_model_len"))
    return min(PROMPT_TOKENS, limit - 1) if limit else PROMPT_TOKENS


def _send(spec: CellSpec, engine: RunningEngine, missing: int, longest: int) -> tuple[list[int], str | None]:
    """Lengths of the prompts that were answered, and what the first failure was."""
    rng = stream(derive_seed(spec.seed, "priming"))
    sent: list[int] = []
    with direct.Client(base_url=engine.base_url, timeout_s=TIMEOUT_S, headers=engine.headers) as client:
        while missing > 0:
            length = min(longest, missing)
            prompt = rng.integers(spec.token_id_low, spec.token_id_high, length, dtype=np.int64).tolist()
            failed = _ask(client, engine.model, prompt)
            if failed is not None:
                return sent, failed
            sent.append(length)
            missing -= length + 1
    return sent, None


def _ask(client: direct.Client, model: str, prompt: list[int]) -> str | None:
    body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True}
    try:
        answer = client.post("/v1/completions", json=body)
    except httpx.HTTPError as error:
        return f"{type(error).__name__}: {error}"
    return None if answer.status_code == 200 else f"HTTP {answer.status_code}: {excerpt(answer.text, 300)}"
