"""A check of the no-op connector on real vLLM."""

import json
from pathlib import Path

import pytest

from connector_tax.check.campaign import AGAIN
from connector_tax.check.document import NOT_JUDGED
from connector_tax.commands.check import COMMAND

pytestmark = pytest.mark.vllm
# Small, so that a launch is short; blocks and clock are those of the same GPU.
SHAPE = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 4,
    "hidden_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 3072,
    "vocab_size": 101000,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "eos_token_id": 1,
}


def test_a_campaign_of_three_lines_has_taxes(
    engine_python: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A busy host may lose a cell and then judges nothing; it says so with its own code."""
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("connector_tax.check.real_time.DURATION_S", 2.0)
    (tmp_path / "small.json").write_text(json.dumps(SHAPE))
    asked = ["--connector", "noop_connector", "--model-config", str(tmp_path / "small.json"), "--json"]
    code = COMMAND.call([*asked, "--engine-python", engine_python])
    found = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == code == (2 if found["verdict"] == NOT_JUDGED else 0)
    assert found["real_time"]["failure"] is None
    if not found["real_time"]["lost"]:
        taxes = {(t["config"], t["metric"]) for t in found["real_time"]["taxes"]}
        assert taxes == {(c, m) for c in ("noop_connector", AGAIN) for m in ("ttft_p90", "tpot_p90")}
