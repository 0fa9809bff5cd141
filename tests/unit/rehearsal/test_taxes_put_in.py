"""What the cost model itself gives: the same whoever asks, as large as what is written in it, and of the embedded engine alone."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.errors import ConfigError
from connector_tax.run.rehearsal.cell import taxes_put_in

DEMO = load_campaign(PROJECT_ROOT / "config" / "demo.yaml")
RATES = ReferenceRatesFile(ref_safe_per_s=20.0, ref_load_per_s=40.0, b_prime_needed=True)
MODEL = """
engine: {base_us: 2000, per_prefill_token_us: 10, per_decode_seq_us: 0, per_context_token_us: 0, schedule_us: 10, update_us: 10,
         jitter_cv: 0, launch_cv: 0, max_num_seqs: 64, kv_blocks: 10000, block_size: 16}
connectors:
  MooncakeConnector/kv_both: {step_factor: 1.5}
"""


def test_a_step_that_takes_half_as_long_again_is_found_as_that(tmp_path: Path) -> None:
    """At a load at which no request waits for another, and without jitter, TPOT of every request grows by that factor."""
    path = tmp_path / "model.yaml"
    path.write_text(MODEL)
    config = replace(
        DEMO,
        connectors=tuple(c for c in DEMO.connectors if c.id in ("plain", "mooncake_both")),
        engine=replace(DEMO.engine, model_file=str(path), model_sha256=None),
        phase_a_rates_per_s=(1.0, 2.0),
        cell=replace(DEMO.cell, duration_s=10.0, max_cell_s=30.0, min_completed=8),
    )
    rates = ReferenceRatesFile(ref_safe_per_s=1.0, ref_load_per_s=2.0, b_prime_needed=True)
    found = taxes_put_in(config, rates, launches=2)
    assert found == taxes_put_in(config, rates, launches=2)
    assert {(t.config, t.metric, t.rate_per_s) for t in found.taxes} == {
        ("mooncake_both", m, r) for m in ("ttft_p90", "tpot_p90") for r in (1.0, 2.0)
    }
    assert [t.tax for t in found.taxes] == pytest.approx([0.5] * 4, abs=0.01)


def test_another_engine_has_no_model() -> None:
    config = replace(DEMO, engine=replace(DEMO.engine, kind="vllm"))
    with pytest.raises(ConfigError, match=r"engine.kind is vllm. Only the embedded engine"):
        taxes_put_in(config, RATES)
