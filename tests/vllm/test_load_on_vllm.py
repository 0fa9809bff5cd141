"""One launch of real vLLM: every form of request is answered and counted as vLLM counts it, and a worker that is killed is named."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from connector_tax.base.config import load_campaign
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.target import target_of
from connector_tax.run.engine.ports import family, listeners
from connector_tax.run.engine.process import LaunchRequest, RunningEngine, running_engine
from connector_tax.run.engine.supervised import Marked
from connector_tax.run.loadgen.cell import measure_cell
from connector_tax.run.measure.checks import ask
from connector_tax.run.sampler.sampler import scrape_once

pytestmark = pytest.mark.vllm
ROOT = Path(__file__).parents[2]
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


@pytest.fixture(scope="module")
def engine(
    engine_python: str, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningEngine]:
    """Plain vLLM, with a chat template, which the tiny model has none of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGINE_PYTHON", engine_python)
        patch.setenv("TINY_MODEL", str(tiny_model))
        config = load_campaign(ROOT / "config" / "vllm-cpu.yaml")
        own = replace(config.engine, args={**config.engine.args, "chat_template": TEMPLATE})
        folder = tmp_path_factory.mktemp("load")
        with running_engine(LaunchRequest(own, config.connector("plain"), folder, None)) as running:
            running.wait_ready()
            yield running


@pytest.fixture
def server(engine: RunningEngine) -> str:
    """Its base URL."""
    return engine.base_url


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


# A word is one token of this tokenizer, and an answer that is forced to its end token ends at once.
END_AT_ONCE = ["--honor-eos", "--extra-body", '{"logit_bias": {"1": 100}, "min_p": 0.1}']


@pytest.mark.parametrize(
    ("arguments", "prompt_tokens", "output_tokens"),
    [
        (["--shape", "96,8"], 96, 8),
        (["--shape", "80,8", "--api", "chat"], 80, 8),
        (["--shape", "32,8", "--no-stream"], 32, 8),
        (["--shape", "32,8", "--api", "chat", "--no-stream"], 32, 8),
        (["--shape", "32,64", "--temperature", "0.5", "--top-p", "0.9", *END_AT_ONCE], 32, None),
        (["--input-length", "uniform:16,200", "--output-length", "normal:8,3,2,20"], None, None),
    ],
)
def test_a_form_of_request_is_answered_and_counted_as_vllm_counts_it(
    server: str, tmp_path: Path, arguments: list[str], prompt_tokens: int | None, output_tokens: int | None
) -> None:
    before = scrape_once(server)
    cell = load(server, tmp_path, *arguments)
    after = scrape_once(server)
    found = cell["prompt_tokens_mean"], cell["output_tokens_mean"]
    for mean, name in zip(found, ("prompt_tokens", "generation_tokens"), strict=True):
        # A chat's template and words are counted before the load, by requests of their own.
        assert "chat" in arguments or after[name] - before[name] == pytest.approx(16 * mean)
    assert found[0] == (prompt_tokens or found[0]) and found[1] == (output_tokens or found[1]) < 64
    assert "chat" in arguments or (cell["prefix_cache"]["hit_tokens"] == 0 and cell["flags"] == [])
    for name in ("ttft_ms", "tpot_ms", "itl_ms"):
        if "--honor-eos" not in arguments:
            point = cell["latencies"].get(name, {"p50": {"point": None}})["p50"]["point"]
            assert (point is None) == ("--no-stream" in arguments), name
    assert cell["latencies"]["e2e_ms"]["p50"]["point"] > 0


def test_the_same_nonce_hits_the_cache_and_says_so(server: str, tmp_path: Path) -> None:
    # Longer than a block of the cache, which has 128 tokens on the CPU.
    for folder in ("1", "2"):
        cell = load(server, tmp_path / folder, "--shape", "600,4", "--nonce", "5")
    assert cell["flags"] == ["prefix_cache_hits"] and cell["prefix_cache"]["hit_tokens"] > 0


def test_conversations_hit_the_prefix_cache_as_agents_do(engine: RunningEngine, tmp_path: Path) -> None:
    """vLLM streams token ids, histories are made of them, and the second turn finds the first in the cache."""
    follow_up = {"new_tokens": 16, "output_tokens": 8, "after": [0], "history": 0, "wait_s": 0.1}
    session = {"turns": [{"new_tokens": 128, "output_tokens": 8}, follow_up]}
    (tmp_path / "chat.jsonl").write_text(json.dumps(session) + "\n")
    spec = CellSpec(
        *("a", 4.0, 0, 0, "fixed", 0.5, 2.0, 4, 30.0, 30.0, 64, 1, 10, 500),
        sessions=str(tmp_path / "chat.jsonl"),
    )
    before = scrape_once(engine.base_url)["prefix_cache_hits"]
    outcome = measure_cell(spec, target_of(engine.base_url, engine.model), should_abort=engine.death)
    hits = scrape_once(engine.base_url)["prefix_cache_hits"] - before
    assert {r.status for r in outcome.requests} == {"ok"}, outcome.requests[0]
    figures = outcome.health.sessions
    assert figures.dependent_turns >= 4
    assert figures.early == 0
    # A block has 128 tokens on the CPU: the first turn's whole prompt.
    assert hits >= 128 * figures.dependent_turns


def test_the_engine_is_reached_by_this_host_alone_and_known_by_its_logs(engine: RunningEngine) -> None:
    """The API listens on loopback and nothing on every address; what hides its environment is known by its logs."""
    ours = family(engine.supervisor.pid)
    found = [x for x in listeners() if x.pid in ours]
    assert {x.address for x in found if x.port == engine.port} == {"127.0.0.1"}
    assert not {x.address for x in found} & {"0.0.0.0", "::"}, found
    # One scheduling group with the client, where the kernel makes one per session.
    assert {os.getsid(pid) for pid in ours} == {os.getsid(0)}
    processes = engine.processes()
    titled = {processes[role].pid for role in ("engine_core", "worker")}
    assert titled <= Marked("the mark of another launch", engine.request.folder).living().ticks.keys()


def test_an_answer_of_500_after_a_killed_worker_names_the_signal(engine: RunningEngine) -> None:
    """The last of this launch. vLLM's own answer is "See stack trace (above)", of a trace that says `cancelled`."""
    config = load_campaign(ROOT / "config" / "vllm-cpu.yaml")
    with ThreadPoolExecutor(1) as pool:
        assert ask(engine, config, 16, output_tokens=2, timeout_s=60).fault is None
        answer = pool.submit(ask, engine, config, 16, output_tokens=4000, timeout_s=120)
        # /metrics may be answered only once all 4,000 tokens are out (about 8 s): what tells is the worker's own work.
        worker = engine.processes()["worker"]
        start_s = worker.cpu_times().user
        while worker.cpu_times().user < start_s + 0.5:
            assert not answer.done(), answer.result()
            time.sleep(0.05)
        worker.send_signal(signal.SIGILL)
        fault = answer.result().fault
        # vLLM asks for the exit code the moment the worker's sentinel fires; the kernel may not have it yet ("None").
        told = "exit code: -4" in engine.log_text()
    assert fault is not None
    # The server may be gone before it answers, and then there is no "HTTP 500: ".
    end = "SIGILL" if told else "vLLM's log does not say of what"
    assert fault.removeprefix("HTTP 500: ") == f"worker process VllmWorker-0 died: {end}"
