"""A cell of a campaign, where a test asks for no more of it than its load."""

from connector_tax.base.records.cell import CellSpec, Phase


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
