"""Estimates how many requests per second an engine can complete, and up to which rate it keeps up."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from connector_tax.base.records.cell import Shape

# Above this share of its capacity a configuration is not expected to keep up: fits are off by a few per cent,
# and queues near the capacity are long.
HOLDS_BELOW = 0.85
# With random arrivals a queue forms at any load: it is short at half the capacity, not at two thirds.
HOLDS_BELOW_RANDOM = 0.5
# vLLM's defaults and unlimited memory, for settings that the engine did not report.
DEFAULTS = {
    "scheduler_config.max_num_seqs": 256,
    "scheduler_config.max_num_batched_tokens": 2048,
    "cache_config.num_gpu_blocks": 1 << 40,
    "cache_config.block_size": 16,
}
# Over 200 such arrivals the rate varies by about 7 %, and TTFT p90 grows by half while the engine keeps up.
RANDOM_ARRIVALS = ("poisson", "gamma")
# 2^-20 of a reference rate is one request in days: then something else is wrong.
SMALLEST_FRACTION = 20


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a scheduler step, in microseconds."""

    base_us: float
    per_prefill_token_us: float
    per_decode_seq_us: float
    per_context_token_us: float
    per_prompt_us: float


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a batch; ``in_flight`` is the lower of the engine's and the client's limit."""

    in_flight: int
    kv_tokens: int
    batched_tokens: int

    @classmethod
    def of(cls, settings: Mapping[str, Any], inflight_cap: int) -> "Limits":
        """Return the limits from ``settings`` as the engine resolved them, named as in ``DEFAULTS``."""
        resolved = {name: int(settings.get(name) or default) for name, default in DEFAULTS.items()}
        return cls(
            min(inflight_cap, resolved["scheduler_config.max_num_seqs"]),
            resolved["cache_config.num_gpu_blocks"] * resolved["cache_config.block_size"],
            resolved["scheduler_config.max_num_batched_tokens"],
        )

    def together(self, shape: Shape) -> int:
        """Return how many sequences of ``shape`` can decode together."""
        return max(1, min(self.in_flight, self.kv_tokens // (shape.input_tokens + shape.output_tokens)))


def busy_s(costs: Costs, limits: Limits, shape: Shape) -> tuple[float, float]:
    """Return the engine's seconds for one request's prompt and for its answer, at the fullest batch."""
    n_together = limits.together(shape)
    n_chunks = math.ceil(shape.input_tokens / limits.batched_tokens)
    attended_tokens = limits.batched_tokens * n_chunks * (n_chunks - 1) / 2
    prompt_us = (
        costs.per_prefill_token_us * shape.input_tokens
        + costs.per_context_token_us * attended_tokens
        + costs.per_prompt_us
    )
    # A step with a prompt chunk also decodes for all others.
    steps = max(shape.output_tokens / n_together, n_chunks)
    answer_us = steps * costs.base_us + shape.output_tokens * (
        costs.per_decode_seq_us + costs.per_context_token_us * (shape.input_tokens + shape.output_tokens / 2)
    )
    return prompt_us / 1e6, answer_us / 1e6


def rate_under_load(
    load_per_s: float, safe_per_s: float, use: Callable[[float], float | None], max_use: float
) -> float | None:
    """Return a shape's rate in Phase B': ref_load, else twice Phase B's rate; None if plain holds neither.

    Args:
        safe_per_s: the shape's rate in Phase B.
        use: rate -> share of plain's capacity; None if unknown.
    """
    held_rates = (
        rate for rate in (load_per_s, 2 * safe_per_s) if (share := use(rate)) is None or share <= max_use
    )
    return next(held_rates, None)


def held_up_to(arrival: str) -> float:
    """Return the share of its capacity up to which a configuration is expected to keep up."""
    return HOLDS_BELOW_RANDOM if arrival in RANDOM_ARRIVALS else HOLDS_BELOW


def held_fraction(uses: Mapping[str, float | None], allowed: float, max_use: float) -> float:
    """Return the highest 2**-k below 1 at which plain uses at most ``allowed``, the others ``max_use``.

    Args:
        uses: share of capacity at the reference rate; None if unknown, which sets no limit.
    """
    limits = {connector_id: allowed if connector_id == "plain" else max_use for connector_id in uses}
    for exponent in range(1, SMALLEST_FRACTION):
        if all(
            use is None or use / 2**exponent <= limits[connector_id] for connector_id, use in uses.items()
        ):
            return float(2.0**-exponent)
    return float(2.0**-SMALLEST_FRACTION)
