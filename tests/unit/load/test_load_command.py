"""The load generator by itself, as a person uses it: ``connector-tax load`` and ``scripts/bench_loop.py``."""

import asyncio
import csv
import json
import os
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from host_faults import LIMITS_ON_THE_CLIENT
from truth_server import DONE, Reply, Script, answer_well, token_event, truth_server, usage_event

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.target import target_of
from connector_tax.cli import command
from connector_tax.load.server import reach

ROOT = Path(__file__).parents[3]
SHORT = ("--duration", "0.4", "--warmup", "0.1", "--min-completed", "5")
FIVE = ("--rate", "20", "--num-prompts", "5", "--shape", "8,9")


async def streamed(reply: Reply, request: dict[str, Any], number: int) -> None:
    """Tokens one by one, so that nothing is wrong with the client or the stream."""
    await asyncio.sleep(0.05)
    reply.head()
    for _ in range(request["max_tokens"]):
        reply.body(token_event())
        await asyncio.sleep(0.01)
    reply.body(usage_event(len(request["prompt"]), request["max_tokens"]) + DONE)
    reply.end()


def load(*arguments: str, judged: bool = False, **environment: str) -> "subprocess.CompletedProcess[str]":
    """``judged``: whether a client that was late spoils a cell, as it does for people; others measure beside these tests."""
    lifted = {} if judged else {"INJECTED_LIFTED": " ".join(LIMITS_ON_THE_CLIENT)}
    paths = [str(ROOT / "tests" / "injected"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "scripts/bench_loop.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **lifted, **environment},
    )


def measured(
    out: Path,
    *arguments: str,
    script: Script = streamed,
    metrics: Callable[[], str] | None = None,
    code: int = 0,
    **how: Any,
) -> tuple[dict[str, dict[str, Any]], str]:
    """The cells of a load that ends with ``code``, and what was printed."""
    with truth_server(script, metrics) as url:
        done = load("--base-url", url, "--out", str(out), *arguments, **how)
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    return cells_in(out), said


def records_in(out: Path, cell_id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / f"requests_{cell_id}.jsonl").read_text().splitlines()]


def cells_in(out: Path) -> dict[str, dict[str, Any]]:
    return {cell["cell_id"]: cell for cell in json.loads((out / "summary.json").read_text())["cells"]}


def test_rates_are_measured_and_written_down_with_the_percentiles_of_their_records(tmp_path: Path) -> None:
    """By hand from the JSONL: every request scheduled in the window, from its intended send."""
    cells, said = measured(tmp_path, "--rates", "20,40", "--shape", "16,4", *SHORT)
    assert list(cells) == ["r20_16x4", "r40_16x4"]
    cell = cells["r40_16x4"]
    assert "dispatch_lateness_us" in cell["health"]
    assert "r40_16x4: " in said and "TTFT" in said
    page = (tmp_path / "load.html").read_text()
    assert "r40_16x4" in page and "<script" not in page and 'http-equiv="Content-Security-Policy"' in page
    requests = records_in(tmp_path, "r40_16x4")
    assert len(requests) == cell["n_scheduled"]
    start, stop = cell["window"]["window_start_ns"], cell["window"]["t_stop_ns"]
    chosen = [r for r in requests if start <= r["t_sched_ns"] < stop]
    assert cell["requests"] == {"window": len(chosen), "ok": len(chosen)}
    ttft = [(r["t_first_token_ns"] - r["t_sched_ns"]) / 1e6 for r in chosen]
    tpot = [(r["t_last_token_ns"] - r["t_first_token_ns"]) / 3e6 for r in chosen]
    for name, values in (("ttft_ms", ttft), ("tpot_ms", tpot)):
        for q in (50, 90, 99):
            level = cell["latencies"][name][f"p{q}"]
            assert level["point"] == pytest.approx(np.percentile(values, q))
            assert level["low"] <= level["point"] <= level["high"]
    rows = csv.DictReader((tmp_path / "summary.csv").open())
    key = ("r40_16x4", "ttft_ms", "p90")
    (row,) = (r for r in rows if (r["cell_id"], r["quantity"], r["percentile"]) == key)
    assert float(row["value"]) == cell["latencies"]["ttft_ms"]["p90"]["point"] > 50
    per_s = sum(start <= r["t_last_token_ns"] < stop for r in requests) / ((stop - start) / 1e9)
    assert cell["throughput"]["requests_per_s"] == pytest.approx(per_s)
    assert cell["throughput"]["output_tokens_per_s"] == pytest.approx(4 * per_s)
    assert cell["throughput"]["total_tokens_per_s"] == pytest.approx(20 * per_s)


def test_prompts_are_new_in_each_run_and_the_nonce_repeats_them(tmp_path: Path) -> None:
    """One seed is one schedule; a server that keeps what it was sent hits nothing, until it is asked to."""
    runs: list[list[str]] = []

    async def script(reply: Reply, request: dict[str, Any], number: int) -> None:
        runs[-1].append(json.dumps(request["prompt"]))
        await streamed(reply, request, number)

    def metrics() -> str:
        every = [prompt for run in runs for prompt in run]
        hits, queries = (16 * n for n in (len(every) - len(set(every)), len(every)))
        return (
            f"# TYPE vllm:prefix_cache_hits counter\nvllm:prefix_cache_hits_total {hits}\n"
            f"# TYPE vllm:prefix_cache_queries counter\nvllm:prefix_cache_queries_total {queries}\n"
        )

    def run(out: Path, *arguments: str) -> tuple[dict[str, Any], int, list[int], str]:
        runs.append([])
        times = ("--duration", "0.2", "--warmup", "0.1", "--min-completed", "2", "--arrival", "poisson")
        at_40 = ("--rate", "40", "--shape", "16,4", *times, *arguments)
        cells, said = measured(out, *at_40, script=script, metrics=metrics)
        cell = cells["r40_16x4"]
        due = [r["t_sched_ns"] - cell["window"]["t0_ns"] for r in records_in(out, "r40_16x4")]
        return cell, json.loads((out / "summary.json").read_text())["nonce"], due, said

    first, nonce, due, said = run(tmp_path / "1")
    second, another, due_again, _ = run(tmp_path / "2")
    n = min(len(due), len(due_again))
    assert due[:n] == due_again[:n] and nonce != another and not set(runs[0]) & set(runs[1])
    # A host that lets the client be late flags that, too, which is no matter here.
    late = {"client_limited", "client_stalled"}
    assert {*first["flags"], *second["flags"]} <= late and second["prefix_cache"]["hit_tokens"] == 0
    assert f"prompts of nonce {nonce}: " in said and "prefix cache" not in said
    third, same, _, said = run(tmp_path / "3", "--nonce", str(nonce))
    assert set(runs[2]) & set(runs[0]) and same == nonce
    assert {*third["flags"]} - late == {"prefix_cache_hits"} and third["prefix_cache"]["hit_tokens"] > 0
    assert "prompt tokens were in it (" in said and "TTFT is not that of new prompts" in said


def test_several_shapes_at_one_rate(tmp_path: Path) -> None:
    cells, _ = measured(tmp_path, "--rate", "40", "--shapes", "8x4,16x2", *SHORT)
    assert list(cells) == ["r40_8x4", "r40_16x2"]


def test_a_closed_loop_has_a_concurrency_for_a_name(tmp_path: Path) -> None:
    closed = ("--concurrency", "4", "--shape", "8,4", *SHORT)
    cells, _ = measured(tmp_path, *closed, "--ramp-up", "0.1", "--event-log")
    cell = cells["c4_8x4"]
    assert cell["rate_per_s"] is None
    assert cell["health"]["max_inflight"] == 4
    assert (tmp_path / "events_session.jsonl").exists()


def test_an_offline_batch_has_one_makespan_and_no_intervals(tmp_path: Path) -> None:
    cells, _ = measured(tmp_path, "--offline", "--num-prompts", "20", "--shape", "8,4")
    cell = cells["offline20_8x4"]
    assert cell["requests"] == {"window": 20, "ok": 20}
    last = max(r["t_last_token_ns"] for r in records_in(tmp_path, "offline20_8x4"))
    over_s = cell["throughput"]["over_s"]
    assert over_s == pytest.approx((last - cell["window"]["t0_ns"]) / 1e9)
    assert cell["throughput"]["requests_per_s"] == pytest.approx(20 / over_s)
    level = cell["latencies"]["ttft_ms"]["p90"]
    assert level["point"] > 50 and level["low"] is None and "one observation" in level["reason"]


def test_a_run_without_a_success_ends_with_1_and_says_why(tmp_path: Path) -> None:
    def script(reply: Reply, request: dict[str, Any], number: int) -> None:
        reply.raw(b"HTTP/1.1 500 Oops\r\nContent-Length: 7\r\n\r\nno room")

    _, said = measured(tmp_path, *FIVE, script=script, code=1)
    assert "no request succeeded: the first failed as http_error (HTTP 500: no room)" in said


def test_a_client_that_is_the_bottleneck_ends_with_1(tmp_path: Path) -> None:
    """Answers that come whole, all tokens at one instant, have no TPOT: something between gathers events."""
    _, said = measured(tmp_path, *FIVE, script=answer_well, code=1, judged=True)
    assert "not streamed: 100% of the answers came whole" in said


def test_a_key_and_headers_are_sent_and_kept_nowhere(tmp_path: Path) -> None:
    """Under whatever name, and also where the server repeats them in an error."""
    key, heads = "zq81-planted-77x", []
    planted = {"X-Tenant": "tenant-83hf-planted", "Cookie": "session=k2k3j4h5-planted"}

    def script(reply: Reply, request: dict[str, Any], number: int) -> None:
        heads.append(reply.asked)
        said = f"{key}, {' and '.join(planted.values())} may not do this".encode()
        reply.raw(b"HTTP/1.1 403 No\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))

    headers = [part for name, value in planted.items() for part in ("--header", f"{name}: {value}")]
    own = ("--api-key-env", "MINE", "--event-log", *headers)
    _, said = measured(tmp_path, *FIVE, *own, script=script, code=1, MINE=key)
    assert len(heads) == 5 and all(f"Authorization: Bearer {key}".encode() in head for head in heads)
    written = b"".join(p.read_bytes() for p in tmp_path.iterdir()).decode() + said
    assert "403" in written and "may not do this" in written
    assert not [secret for secret in (key, *planted.values()) if secret in written]


def test_chats_are_measured_with_prompts_of_the_wanted_length(tmp_path: Path) -> None:
    """The server makes 1.5 tokens of a word and adds 9: prompts of 69 tokens have 40 words."""
    words: list[int] = []

    async def script(reply: Reply, request: dict[str, Any], number: int) -> None:
        n = len(request["messages"][0]["content"].split())
        usage = {"prompt_tokens": round(1.5 * n) + 9, "completion_tokens": request["max_tokens"]}
        if request["stream"] is False:
            body = json.dumps({"choices": [{}], "usage": usage}).encode()
            reply.head(content_type="application/json")
            reply.body(body)
        else:
            words.append(n)
            await asyncio.sleep(0.05)
            reply.head()
            for _ in range(request["max_tokens"]):
                reply.body(b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n')
                await asyncio.sleep(0.01)
            reply.body(usage_event(usage["prompt_tokens"], request["max_tokens"]) + DONE)
        reply.end()

    chats = ("--api", "chat", "--rate", "40", "--num-prompts", "8", "--shape", "69,4")
    cells, _ = measured(tmp_path, *chats, script=script)
    assert set(words) == {40}
    (cell,) = cells.values()
    assert cell["prompt_tokens_mean"] == 69


def test_the_demo_sweeps_an_engine_of_its_own_and_ends_it(tmp_path: Path) -> None:
    """Rates double until one is too many; two pictures show it; nobody serves there afterwards."""
    done = load("--demo", "--shape", "256,32", "--out", str(tmp_path), "--warmup", "0.2", "--duration", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "summary.json").read_text())
    probe, first, second = found["cells"][:3]
    assert probe["cell_id"] == "c16_256x32"
    assert first["rate_per_s"] == pytest.approx(probe["throughput"]["requests_per_s"] / 4, rel=0.1)
    assert second["rate_per_s"] == 2 * first["rate_per_s"]
    search = found["search"]
    assert search["highest_per_s"] < search["fails_per_s"] <= 1.25 * search["highest_per_s"] + 1
    page = (tmp_path / "load.html").read_text()
    curves = re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", page)
    assert len(curves) == 2 and b"#a02020" in b64decode(curves[0])
    with pytest.raises(ConfigError, match="no OpenAI-compatible server answers"):
        reach(target_of(found["base_url"], ""))


def test_the_demo_has_no_other_server() -> None:
    with pytest.raises(ConfigError, match="--demo does not go with --base-url"):
        command("load").call(["--demo", "--base-url", "http://127.0.0.1:9"])


def test_nobody_listening_is_said_at_once(tmp_path: Path) -> None:
    done = load("--base-url", "http://127.0.0.1:9", "--model", "m", "--out", str(tmp_path), "--rate", "1")
    assert done.returncode == 2
    assert "no OpenAI-compatible server answers /v1/models there" in done.stderr
    with truth_server() as url, pytest.raises(ConfigError, match=f"--model other: {url} serves m"):
        reach(target_of(url, "other"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", "1", "--gamma-shape", "2"], "--arrival gamma is missing beside --gamma-shape"),
        (["--rate", "1", "--ramp-up", "2"], "--concurrency or --ramp-from is missing beside --ramp-up"),
        (["--rate", "1", "--workers", "many"], "is no whole number"),
        (["--rate", "1", "--max-seconds", "0"], "it has to be above 0"),
        (["--offline"], "--num-prompts is missing beside --offline"),
        (["--find-rate", "8:1", "--slo", "ttft_p90=1s"], "give LOW:HIGH with LOW < HIGH"),
        (["--rate", "1", "--goodput", "itl=5ms"], "give ttft, tpot or e2e"),
        (["--rate", "1", "--percentiles", "0,50"], "each from 1e-09 to 100"),
        (["--rate", "1", "--extra-body", "[1]"], "not a JSON object"),
        (["--rate", "1", "--extra-body", '{"stream": false}'], "use --no-stream"),
        (["--rate", "1", "--output-length", "zipf:1"], "give one of constant, uniform"),
        (
            ["--rate", "1", "--no-stream", "--goodput", "ttft=1s,e2e=2s"],
            "--goodput of ttft: answers in one piece",
        ),
        (["--rate", "1", "--api", "chat", "--sessions", "x.jsonl"], "which only completions take"),
        (["--rate", "1", "--header", "x"], "has no colon"),
        (["--rate", "1", "--api-key-env", "NOT_SET_ANYWHERE"], "not set"),
        (["--rate", "1", "--base-url", "127.0.0.1:9"], "Give http://host:port"),
        (["--rate", "1", "--concurrency", "2"], "not allowed with"),
    ],
)
def test_a_bad_flag_is_one_message(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((ConfigError, SystemExit)) as ended:
        command("load").call(["--base-url", "http://127.0.0.1:9", "--out", str(tmp_path / "out"), *arguments])
    said = str(ended.value) if isinstance(ended.value, ConfigError) else capsys.readouterr().err
    assert message.lower() in said.lower()
    assert not (tmp_path / "out").exists()
