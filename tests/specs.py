"""Cell specs and taxes for tests that need only a load."""

from connector_tax.base.documents.aggregate import Side
from connector_tax.base.records.cell import CellSpec, Phase
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.read.stats.taxes import Tax


def spec_of(rate_per_s: float, input_tokens: int, output_tokens: int, phase: Phase = "a") -> CellSpec:
    return CellSpec(
        phase=phase,
        rate_per_s=rate_per_s,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        arrival="fixed",
        warmup_s=10.0,
        duration_s=60.0,
        min_completed=200,
        max_cell_s=600.0,
        drain_timeout_s=120.0,
        inflight_cap=256,
        seed=1,
        token_id_low=10,
        token_id_high=99,
    )


def tax_of_shape(estimate: Estimate, rate_per_s: float = 2.0, overloaded: tuple[Side, ...] = ()) -> Tax:
    spec = spec_of(rate_per_s, 256, 16, "b")
    return Tax("x", "ref_safe", "b", spec, "ttft_p90", estimate, 200, 200, overloaded)
