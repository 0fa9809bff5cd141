"""Checks on real vLLM: of the no-op connector the whole command, of others what they lack."""

import json
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from connector_tax.check.campaign import write_campaign
from connector_tax.check.request import GIVEN, CheckRequest, early_fault, entry_of_json, model_folder
from connector_tax.commands.check import COMMAND
from connector_tax.virtual_time import measure_many

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


def checked(
    python: str, folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, dict[str, Any]]:
    (folder / "small.json").write_text(json.dumps(SHAPE))
    asked = ["--engine-python", python, "--model-config", str(folder / "small.json"), "--json"]
    code = COMMAND.call([*asked, *arguments])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture(autouse=True)
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("connector_tax.check.command.measure_many", partial(measure_many, starts=2))
    signals = (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    before = {signum: signal.getsignal(signum) for signum in signals}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


def test_a_check_of_the_no_op_connector_answers_every_question(
    engine_python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = checked(engine_python, tmp_path, capsys, "--connector", "noop_connector")
    parts = found["found"]
    assert code == 0 and found["verdict"]["code"] == "measured"
    assert parts["fault"] is None and parts["launched"]["failure"] is None
    assert parts["launched"]["answered"] == parts["launched"]["sent"] >= 10
    assert parts["launched"]["created"] == ["NoOpConnector"] and parts["launched"]["versions"][
        "vllm"
    ].startswith("0.32")
    assert parts["switched"] == []  # nothing about the no-op connector asks for other settings
    (result,) = parts["virtual_time"]
    assert {"ttft_p50", "ttft_p90", "tpot_p50", "tpot_p90"} <= {t["metric"] for t in result["taxes"]}
    assert 0 < result["step_us"]["charged"]["point"] < 1000
    hooks = {f"{h['side']}/{h['hook']}": h for h in result["hooks"]}
    assert hooks["scheduler/build_connector_meta"]["calls_per_step"] == pytest.approx(1.0, abs=0.05)
    assert all(h["in_virtual_time"] for h in hooks.values())


@pytest.mark.parametrize(
    ("config", "code", "subject"),
    [
        ({"kv_connector": "Nixel", "kv_role": "kv_both"}, "unknown_class", "Nixel"),
        ({"kv_connector": "FlexKVConnectorV1", "kv_role": "kv_both"}, "no_package", "flexkv"),
        (
            {
                "kv_connector": "MultiConnector",
                "kv_role": "kv_both",
                # NIXL loads, so it is not the one that is named.
                "kv_connector_extra_config": {
                    "connectors": [
                        {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
                        {"kv_connector": "NoOp", "kv_role": "kv_both"},
                    ]
                },
            },
            "unknown_class",
            "NoOp",
        ),
    ],
)
def test_vllms_own_factory_says_what_is_missing(
    engine_python: str, config: dict[str, Any], code: str, subject: str, tmp_path: Path
) -> None:
    entry, notes = entry_of_json(json.dumps(config))
    (tmp_path / "small.json").write_text(json.dumps(SHAPE))
    name, model = model_folder(str(tmp_path / "small.json"), engine_python)
    asked = CheckRequest(GIVEN, entry, notes, engine_python, "h200", name, model)
    fault = early_fault(asked, write_campaign(asked, tmp_path, "early", duration_s=1.0))
    assert fault is not None and (fault.code, fault.subject) == (code, subject)
