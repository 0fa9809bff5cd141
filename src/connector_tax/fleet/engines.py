"""The fitted engine of one configuration in a fleet, and the search for its profile."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from connector_tax.base.documents.fleet import Policy, Profile
from connector_tax.base.errors import AnalysisError
from connector_tax.base.records.host import EngineCosts
from connector_tax.base.seeds import derive_seed
from connector_tax.base.units import s_to_ns
from connector_tax.base.vllm_model.costs import ConnectorCosts
from connector_tax.base.vllm_model.model import EngineModel
from connector_tax.fleet.instances import EngineInstance
from connector_tax.fleet.outcome import KEPT_UP, figures_of
from connector_tax.fleet.patterns import Pattern
from connector_tax.fleet.simulation import Day, Due, arrivals, simulate

# With one instance the router has no choice, and the engine keeps its own queue.
ALONE = Policy("least_load_push", "fifo")
# Requests per day behind a profile; its interval is over days.
REQUESTS = 300
# Relative width at which the search for the highest rate stops.
WITHIN = 0.01
IDLE_REQUESTS = 20
SLOS_OF_A_WINDOW = 5.0
MOST_PER_S = 1e5
APART_S = 1e4


@dataclass(frozen=True, slots=True)
class FittedEngine:
    """A configuration's engine model.

    Attributes:
        costs: include the connector's cost.
        per_prompt: only the cost of a prompt in the step that begins it.
        outside_s: from arrival to first token outside of steps: server, tokenizer, network.
    """

    costs: EngineCosts
    per_prompt: ConnectorCosts
    outside_s: float
    max_num_batched_tokens: int

    def instance(self, profiles: Mapping[str, Profile], seed: int) -> EngineInstance:
        return EngineInstance(profiles, self._model(seed), s_to_ns(self.outside_s))

    def fits(self, input_tokens: int, output_tokens: int) -> bool:
        """Return whether one such request fits into the KV memory; one that does not would wait forever."""
        return self._model(0).fits(input_tokens, output_tokens)

    def _model(self, seed: int) -> EngineModel:
        return EngineModel(
            self.costs, self.per_prompt, max_num_batched_tokens=self.max_num_batched_tokens, seed=seed
        )

    def alone(self, due: Due, *, begin_s: float, end_s: float, seed: int) -> Day:
        profiles = {pattern.name: Profile(1.0, 1.0) for _, pattern in due}
        instance = self.instance(profiles, derive_seed(seed, "alone"))
        return simulate(due, [instance], ALONE, begin_s=begin_s, end_s=end_s, seed=seed)

    def idle(self, pattern: Pattern, seed: int) -> dict[str, float]:
        """Return the figures of requests that never overlap."""
        due = [(s_to_ns(k * APART_S), pattern) for k in range(IDLE_REQUESTS)]
        span_s = IDLE_REQUESTS * APART_S
        return figures_of(self.alone(due, begin_s=0.0, end_s=span_s, seed=seed), span_s)


def find_profile(engine: FittedEngine, pattern: Pattern, allowed: float, seed: int) -> Profile | None:
    """Find the highest rate that one instance sustains with at most ``allowed`` of requests missing the SLO.

    Arrivals are Poisson; the rate is found to 1 %. In a short window a backlog can end before the SLO is
    missed, so the instance must also keep up, and windows span several SLOs. The pattern must fit.

    Returns:
        None if more than ``allowed`` miss the SLO even without overlap, or at the lowest rate tried.

    Raises:
        AnalysisError: no rate is too high.
    """

    def figures_at(rate_per_s: float) -> dict[str, float] | None:
        span_s = max(REQUESTS / rate_per_s, SLOS_OF_A_WINDOW * pattern.slo_s)
        begin_s = 0.2 * span_s
        due = arrivals([replace(pattern, rate_per_s=rate_per_s)], begin_s + span_s, seed)
        day = engine.alone(due, begin_s=begin_s, end_s=begin_s + span_s, seed=seed)
        figures = figures_of(day, span_s)
        return figures if figures["kept_up"] >= KEPT_UP and figures["violations"] <= allowed else None

    idle = engine.idle(pattern, seed)
    if idle["violations"] > allowed:
        return None
    # At the lowest of these rates one request in 20,000 overlaps another.
    starts = (0.05 / idle["e2e_mean_s"] / 4**exponent for exponent in range(6))
    low, figures = next(
        ((rate, start_figures) for rate in starts if (start_figures := figures_at(rate)) is not None),
        (0.0, None),
    )
    if figures is None:
        return None
    high = 2 * low
    while (next_figures := figures_at(high)) is not None:
        low, high, figures = high, 2 * high, next_figures
        if high > MOST_PER_S:
            raise AnalysisError(
                f"{pattern.name}: no rate up to {MOST_PER_S:g} per second is too much for this engine."
            )
    while high / low > 1 + WITHIN:
        middle = math.sqrt(low * high)
        if (next_figures := figures_at(middle)) is not None:
            low, figures = middle, next_figures
        else:
            high = middle
    return Profile(low, figures["e2e_mean_s"])
