"""How many requests of a shape an engine whose steps cost so much can complete per second, and at which rate
it is said to hold them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from connector_tax.base.records.cell import Shape

# Beyond this share of its capacity a configuration is not said to hold a shape: fits are off by some per
# cent, and a queue close to the capacity is long.
HOLDS_BELOW = 0.85
# With random arrivals a queue forms at any load: at half the capacity it is short, at two thirds it is not.
HOLDS_BELOW_RANDOM = 0.5
# Where the engine did not say what it resolved: vLLM's defaults, and memory that never runs out.
DEFAULTS = {
    "scheduler_config.max_num_seqs": 256,
    "scheduler_config.max_num_batched_tokens": 2048,
    "cache_config.num_gpu_blocks": 1 << 40,
    "cache_config.block_size": 16,
}
# 200 arrivals of these are as many give or take 7 %, and TTFT p90 grows by half while the engine keeps up.
RANDOM_ARRIVALS = ("poisson", "gamma")
# 2^-20 of a reference rate is a request in days: something else is wrong then.
SMALLEST_FRACTION = 20


@dataclass(frozen=True, slots=True)
class Costs:
    """Of a step, in microseconds."""

    base_us: float
    per_prefill_token_us: float
    per_decode_seq_us: float
    per_context_token_us: float
    per_prompt_us: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a batch.

    Attributes:
        in_flight: sequences at most, by the engine and by the client's cap.
        kv_tokens: that the KV cache holds.
        batched_tokens: of one step.
    """

    in_flight: int
    kv_tokens: int
    batched_tokens: int

    @classmethod
    def of(cls, settings: Mapping[str, Any], inflight_cap: int) -> "Limits":
        """``settings``: what the engine resolved, by the names of ``DEFAULTS``."""
        found = {name: int(settings.get(name) or default) for name, default in DEFAULTS.items()}
        return cls(
            min(inflight_cap, found["scheduler_config.max_num_seqs"]),
            found["cache_config.num_gpu_blocks"] * found["cache_config.block_size"],
            found["scheduler_config.max_num_batched_tokens"],
        )

    def together(self, shape: Shape) -> int:
        """Sequences of one shape that decode together at most."""
        return max(1, min(self.in_flight, self.kv_tokens // (shape.input_tokens + shape.output_tokens)))


def busy_s(costs: Costs, limits: Limits, shape: Shape) -> tuple[float, float]:
    """Seconds of the engine that one request's prompt and its answer take where as many as can are in
    flight."""
    n = limits.together(shape)
    pieces = math.ceil(shape.input_tokens / limits.batched_tokens)
    looked_back = limits.batched_tokens * pieces * (pieces - 1) / 2
    prompt_us = (
        costs.per_prefill_token_us * shape.input_tokens
        + costs.per_context_token_us * looked_back
        + costs.per_prompt_us
    )
    # A step with a piece of a prompt decodes for everybody else as well.
    steps = max(shape.output_tokens / n, pieces)
    answer_us = steps * costs.base_us + shape.output_tokens * (
        costs.per_decode_seq_us + costs.per_context_token_us * (shape.input_tokens + shape.output_tokens / 2)
    )
    return prompt_us / 1e6, answer_us / 1e6


def rate_under_load(
    load_per_s: float, safe_per_s: float, use: Callable[[float], float | None], most: float
) -> float | None:
    """Return the rate of a shape in Phase B': ref_load or twice Phase B's, the first that plain holds; None
    where it holds neither.

    Args:
        safe_per_s: of Phase B at this shape.
        use: rate -> share of plain's capacity; None where that is not known.
    """
    held = (r for r in (load_per_s, 2 * safe_per_s) if (share := use(r)) is None or share <= most)
    return next(held, None)


def held_up_to(arrival: str) -> float:
    """The share of its capacity up to which a configuration is said to hold a rate."""
    return HOLDS_BELOW_RANDOM if arrival in RANDOM_ARRIVALS else HOLDS_BELOW


def held_fraction(uses: Mapping[str, float | None], allowed: float, most: float) -> float:
    """The highest power of two below 1 at which plain uses no more than ``allowed`` and everyone no more than
    ``most``.

    Args:
        uses: at the reference rate; None where a capacity is not known, which then has no say.
    """
    limits = {c: allowed if c == "plain" else most for c in uses}
    for k in range(1, SMALLEST_FRACTION):
        if all(use is None or use / 2**k <= limits[c] for c, use in uses.items()):
            return float(2.0**-k)
    return float(2.0**-SMALLEST_FRACTION)
