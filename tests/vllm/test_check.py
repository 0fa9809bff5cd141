"""One short check of the no-op connector on real vLLM: every part of the answer is there, and the exit code is the verdict's."""

import json
from pathlib import Path

import pytest

from connector_tax.check.command import run_check
from connector_tax.check.request import ASYNC, CheckRequest, entry_by_id, model_folder
from connector_tax.check.verdict import FINE, NOT_JUDGED

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


def test_a_check_of_the_no_op_connector_answers_every_question(
    engine_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy host may lose a cell and then judges nothing; it says so with its own code."""
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    # Three launches, however busy the host is.
    monkeypatch.setattr("connector_tax.check.run.PROMISED_S", 0.0)
    (tmp_path / "small.json").write_text(json.dumps(SHAPE))
    name, model = model_folder(str(tmp_path / "small.json"), engine_python)
    entry, notes = entry_by_id("noop_connector")
    asked = CheckRequest(
        "noop_connector",
        entry,
        notes,
        engine_python,
        "h200",
        name,
        model,
        modes=(ASYNC,),
        load_shares=(0.1,),
        duration_s=1.0,
        growth=False,
    )
    printed = run_check(asked, root=tmp_path / "kept", fail_above=None, explain=True, as_json=True)
    found = json.loads(printed.text)
    assert printed.exit_code == found["exit_code"]
    assert found["exit_code"] == (NOT_JUDGED if "not judged" in found["verdict"] else FINE)
    assert found["device"]["name"] == "NVIDIA H200" and found["engine"]["vllm"].startswith("0.32")
    (mode,) = found["modes"].values()
    assert mode["serves"] and mode["requests"]["answered"] == mode["requests"]["sent"] > 10
    assert mode["engine_settings"] == []  # nothing about the no-op connector asks for other ones
    assert [t["metric"] for t in mode["taxes"]] == ["ttft_p50", "ttft_p90", "tpot_p50", "tpot_p90"]
    assert set(mode["processes"]) == {"plain", "plain_again", "noop_connector"}
    assert "engine_core" in mode["processes"]["plain"]
    hooks = {h["hook"]: h for h in mode["hooks"]}
    if mode["cells_lost"]:
        return
    assert hooks["scheduler/build_connector_meta"]["calls_per_step"] == pytest.approx(1.0, abs=0.05)
    assert hooks["worker/start_load_kv"]["us_per_step"]["point"] > 0
