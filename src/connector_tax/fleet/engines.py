"""One configuration's engine for a fleet: step costs, and what a request needs beside its steps."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from connector_tax.enginemodel.costs import ConnectorCosts, EngineCosts
from connector_tax.enginemodel.model import EngineModel
from connector_tax.fleet.instances import EngineInstance
from connector_tax.fleet.outcome import figures_of
from connector_tax.fleet.patterns import Pattern, Profile
from connector_tax.fleet.simulation import Day, Due, Policy, arrivals, simulate
from connector_tax.seeds import derive_seed
from connector_tax.units import s_to_ns

# One instance has no choice; the engine keeps its own line.
ALONE = Policy("least_load_push", "fifo")
# Requests behind a profile on one day; days are what its interval is over.
REQUESTS = 300
# A rate that is found lies within so much of the highest one that would do.
WITHIN = 0.01
IDLE_REQUESTS = 20
APART_S = 1e4


@dataclass(frozen=True, slots=True)
class FittedEngine:
    """What is needed to put a configuration's engine into a fleet.

    Attributes:
        costs: with the connector's cost inside them.
        per_prompt: what a prompt costs in the step that begins it, and nothing else.
        outside_s: from arrival to first token, beside steps: the server, its tokenizer, the wire.
    """

    costs: EngineCosts
    per_prompt: ConnectorCosts
    outside_s: float
    max_num_batched_tokens: int

    def instance(self, profiles: Mapping[str, Profile], seed: int) -> EngineInstance:
        model = EngineModel(
            self.costs, self.per_prompt, max_num_batched_tokens=self.max_num_batched_tokens, seed=seed
        )
        return EngineInstance(profiles, model)

    def alone(self, due: Due, *, begin_s: float, end_s: float, seed: int) -> Day:
        """One instance, nothing else."""
        whole = {pattern.name: Profile(1.0, 1.0) for _, pattern in due}
        instance = self.instance(whole, derive_seed(seed, "alone"))
        return simulate(due, [instance], ALONE, begin_s=begin_s, end_s=end_s, seed=seed)

    def figures(self, day: Day, window_s: float) -> dict[str, float]:
        return figures_of(day, window_s, outside_s=self.outside_s)

    def idle_e2e_s(self, pattern: Pattern, seed: int) -> float:
        """Mean E2E of requests that never meet."""
        due = [(s_to_ns(k * APART_S), pattern) for k in range(IDLE_REQUESTS)]
        span_s = IDLE_REQUESTS * APART_S
        return self.figures(self.alone(due, begin_s=0.0, end_s=span_s, seed=seed), span_s)["e2e_mean_s"]


def find_profile(engine: FittedEngine, pattern: Pattern, allowed: float, seed: int) -> Profile | None:
    """The highest rate at which at most ``allowed`` of Poisson arrivals miss the SLO on one instance, within 1 %.

    Returns:
        None where more than that miss it though they never meet.
    """

    def at(rate_per_s: float) -> dict[str, float]:
        span_s = REQUESTS / rate_per_s
        due = arrivals([replace(pattern, rate_per_s=rate_per_s)], 1.2 * span_s, seed)
        return engine.figures(engine.alone(due, begin_s=0.2 * span_s, end_s=1.2 * span_s, seed=seed), span_s)

    low = 0.05 / engine.idle_e2e_s(pattern, seed)
    if (found := at(low))["violations"] > allowed:
        return None
    high = 2 * low
    while (next_found := at(high))["violations"] <= allowed:
        low, high, found = high, 2 * high, next_found
    while high / low > 1 + WITHIN:
        middle = math.sqrt(low * high)
        if (next_found := at(middle))["violations"] <= allowed:
            low, found = middle, next_found
        else:
            high = middle
    return Profile(low, found["e2e_mean_s"])
