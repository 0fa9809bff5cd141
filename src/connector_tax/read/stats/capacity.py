"""How many requests of a shape an engine can complete per second, from what was measured at another shape.

A shape of Phase B is measured at a reference rate only if the engine holds it there. What a request takes of the engine is its
prompt, once, and its share of as many steps as its answer has tokens; the share is smaller the more sequences decode together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from connector_tax.base.capacity import Limits, busy_s
from connector_tax.base.documents.rates import KnownFrom
from connector_tax.base.records.cell import Shape
from connector_tax.base.statistics.cell import effective_throughput_per_s
from connector_tax.base.units import token_count
from connector_tax.read.ingest import CampaignData, CellData
from connector_tax.read.ingest.step_costs import StepCosts, costs_of_cells

# With fewer steps five coefficients say little.
FEWEST_STEPS = 200


@dataclass(frozen=True, slots=True)
class Capacity:
    """One configuration's capacity by shape.

    Attributes:
        by: ``step records``, ``probe`` or ``nothing``: what it is known from.
        prompt_s: prompt length -> seconds that one prompt takes on the idle engine, as preflight saw it.
        costs: of a step; None without step records.
        decode_s: seconds of the engine per output token at ``shape``, where only that is known.
    """

    by: KnownFrom
    limits: Limits
    shape: Shape
    prompt_s: Mapping[int, float]
    costs: StepCosts | None = None
    decode_s: float | None = None

    def request_s(self, shape: Shape) -> float | None:
        """Seconds of the engine that one request takes where as many as can are in flight; None where nothing is known."""
        measured_s = self.prompt_s.get(shape.input_tokens)
        if self.costs is not None:
            prompt_s, answer_s = busy_s(self.costs, self.limits, shape)
            # Attention over a long prompt grows faster than its length, which prompts of one length do not show.
            return max(prompt_s, measured_s or 0.0) + answer_s
        if self.decode_s is None or measured_s is None:
            return None
        longer = max(1.0, _tokens(shape) / _tokens(self.shape))
        return measured_s + shape.output_tokens * self.decode_s * longer

    def per_s(self, shape: Shape) -> float | None:
        taken_s = self.request_s(shape)
        return None if not taken_s else 1 / taken_s


def _tokens(shape: Shape) -> float:
    return shape.input_tokens + shape.output_tokens / 2


def capacity_of(cells: Sequence[CellData], data: CampaignData, shape: Shape) -> Capacity:
    """What is known of one configuration.

    Args:
        cells: its usable cells of Phase A, all of ``shape``.
    """
    settings = data.settings_of("plain")
    arguments = data.config.engine.args
    batched, sequences = (token_count(arguments.get(n)) for n in ("max_num_batched_tokens", "max_num_seqs"))
    if sequences:
        settings = {**settings, "scheduler_config.max_num_seqs": sequences}
    limits = Limits.of(settings, data.config.cell.inflight_cap)
    if batched:
        limits = replace(limits, batched_tokens=batched)
    prompt_s = _prompt_s(data)
    costs = costs_of_cells(cells, limits.batched_tokens, FEWEST_STEPS)
    if costs is not None:
        return Capacity("step records", limits, shape, prompt_s, costs=costs)
    most_per_s = max((effective_throughput_per_s(c.requests, c.window) for c in cells), default=0.0)
    own_s = prompt_s.get(shape.input_tokens)
    if most_per_s <= 0 or own_s is None:
        return Capacity("nothing", limits, shape, prompt_s)
    # What a request takes of an engine that completes that many, less its prompt. It may complete more: then this is too much,
    # and shapes are measured at lower rates than they could be.
    decode_s = max(0.0, 1 / most_per_s - own_s) / shape.output_tokens
    return Capacity("probe", limits, shape, prompt_s, decode_s=decode_s)


def _prompt_s(data: CampaignData) -> dict[int, float]:
    """Of plain, as preflight measured it; empty where it did not."""
    plain = data.decisions.get("plain")
    return {int(length): s for length, s in ((plain.prompt_s if plain is not None else None) or {}).items()}
