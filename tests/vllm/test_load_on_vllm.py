"""``connector-tax load`` against real vLLM: every form of request is answered, and counted as vLLM counts it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from connector_tax.base.config import load_campaign
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.sampler.sampler import scrape_once

pytestmark = pytest.mark.vllm
ROOT = Path(__file__).parents[2]
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


@pytest.fixture(scope="module")
def server(engine_python: str, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its base URL; with a chat template, which the tiny model has none of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGINE_PYTHON", engine_python)
        patch.setenv("TINY_MODEL", str(tiny_model))
        config = load_campaign(ROOT / "config" / "vllm-cpu.yaml")
        engine = replace(config.engine, args={**config.engine.args, "chat_template": TEMPLATE})
        folder = tmp_path_factory.mktemp("load")
        with running_engine(LaunchRequest(engine, config.connector("plain"), folder, None)) as running:
            running.wait_ready()
            yield running.base_url


def load(server: str, out: Path, *arguments: str) -> dict[str, Any]:
    """The one cell that was measured."""
    command = [sys.executable, "scripts/bench_loop.py", "--base-url", f"{server}/v1", "--out", str(out)]
    command += ["--rate", "8", "--num-prompts", "16", "--token-ids", "10,500", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    # 1, and the flag: on two busy cores the client may be late, which is no matter here.
    assert done.returncode in (0, 1), done.stdout + done.stderr
    (cell,) = json.loads((out / "summary.json").read_text())["cells"]
    cell["flags"] = [flag for flag in cell["flags"] if flag != "client_limited"]
    assert cell["requests"] == {"window": 16, "ok": 16}, done.stdout
    return dict(cell)


def test_prompts_of_token_ids_have_their_length_and_hit_no_cache(server: str, tmp_path: Path) -> None:
    before = scrape_once(server)
    cell = load(server, tmp_path, "--shape", "96,8")
    after = scrape_once(server)
    assert (cell["prompt_tokens_mean"], cell["output_tokens_mean"]) == (96, 8)
    assert after["prompt_tokens"] - before["prompt_tokens"] == 16 * 96
    assert after["generation_tokens"] - before["generation_tokens"] == 16 * 8
    assert cell["prefix_cache"]["hit_tokens"] == 0 and cell["flags"] == []
    assert all(cell["latencies"][name]["p50"]["point"] for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"))


def test_the_same_nonce_hits_the_cache_and_says_so(server: str, tmp_path: Path) -> None:
    # Longer than a block of the cache, which has 128 tokens on the CPU.
    for folder in ("1", "2"):
        cell = load(server, tmp_path / folder, "--shape", "600,4", "--nonce", "5")
    assert cell["flags"] == ["prefix_cache_hits"] and cell["prefix_cache"]["hit_tokens"] > 0


def test_a_chat_has_prompts_of_the_wanted_length(server: str, tmp_path: Path) -> None:
    """A word is one token of this tokenizer."""
    cell = load(server, tmp_path, "--api", "chat", "--shape", "80,8")
    assert (cell["prompt_tokens_mean"], cell["output_tokens_mean"]) == (80, 8)
    assert cell["latencies"]["ttft_ms"]["p50"]["point"] > 0


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_an_answer_in_one_piece_has_an_end_alone(server: str, tmp_path: Path, api: str) -> None:
    cell = load(server, tmp_path, "--api", api, "--no-stream", "--shape", "32,8")
    assert cell["latencies"]["e2e_ms"]["p50"]["point"] > 0
    assert cell["latencies"]["ttft_ms"]["p50"]["point"] is None


def test_the_model_may_end_its_answers(server: str, tmp_path: Path) -> None:
    """Forced to its end token, it ends at once."""
    cell = load(
        *(server, tmp_path, "--honor-eos", "--shape", "32,64"),
        *(
            "--extra-body",
            '{"logit_bias": {"1": 100}, "min_p": 0.1}',
            "--temperature",
            "0.5",
            "--top-p",
            "0.9",
        ),
    )
    assert cell["output_tokens_mean"] < 64


def test_drawn_lengths_are_what_vllm_counts(server: str, tmp_path: Path) -> None:
    before = scrape_once(server)
    cell = load(server, tmp_path, "--input-length", "uniform:16,200", "--output-length", "normal:8,3,2,20")
    after = scrape_once(server)
    assert after["prompt_tokens"] - before["prompt_tokens"] == pytest.approx(16 * cell["prompt_tokens_mean"])
    assert after["generation_tokens"] - before["generation_tokens"] == pytest.approx(
        16 * cell["output_tokens_mean"]
    )


def test_prompts_of_sharegpt_are_answered(server: str, tmp_path: Path) -> None:
    dialogue = [{"from": "human", "value": "t5 t6 t7 t8"}, {"from": "gpt", "value": "x" * 40}]
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps([{"id": str(k), "conversations": dialogue} for k in range(3)]))
    cell = load(server, tmp_path / "out", "--prompts", str(path))
    assert (cell["prompt_tokens_mean"], cell["output_tokens_mean"]) == (4, 10)
