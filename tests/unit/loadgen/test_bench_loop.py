"""The load generator by itself, as a person uses it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from truth_server import Reply, answer_well, truth_server

ROOT = Path(__file__).parents[3]


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "scripts/bench_loop.py", "--model", "m", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_rates_are_measured_and_written_down(tmp_path: Path) -> None:
    with truth_server() as base_url:
        done = bench(
            *("--base-url", base_url, "--rates", "20,40", "--shape", "16,4", "--out", str(tmp_path)),
            *("--duration", "0.4", "--warmup", "0.1", "--min-completed", "5"),
        )
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert list(summary) == ["r20_16x4", "r40_16x4"]
    assert summary["r40_16x4"]["statuses"] == {"ok": summary["r40_16x4"]["n_window"]}
    assert "dispatch_lateness_us" in summary["r40_16x4"]["health"]
    lines = (tmp_path / "requests_r20_16x4.jsonl").read_text().splitlines()
    assert len(lines) == summary["r20_16x4"]["n_scheduled"]
    assert "r40_16x4" in done.stdout


def test_prompts_are_new_in_each_run_and_the_nonce_repeats_them(tmp_path: Path) -> None:
    """One seed is one schedule; a server that keeps what it was sent hits nothing, until it is asked to."""
    runs: list[list[str]] = []

    async def script(reply: Reply, request: dict[str, Any], number: int) -> None:
        runs[-1].append(json.dumps(request["prompt"]))
        await answer_well(reply, request, number)

    def metrics() -> str:
        every = [prompt for run in runs for prompt in run]
        hits, queries = (16 * n for n in (len(every) - len(set(every)), len(every)))
        return (
            f"# TYPE vllm:prefix_cache_hits counter\nvllm:prefix_cache_hits_total {hits}\n"
            f"# TYPE vllm:prefix_cache_queries counter\nvllm:prefix_cache_queries_total {queries}\n"
        )

    def run(out: Path, *arguments: str) -> tuple[dict[str, Any], list[int], str]:
        runs.append([])
        with truth_server(script, metrics) as base_url:
            done = bench(
                *("--base-url", base_url, "--rate", "40", "--shape", "16,4", "--out", str(out)),
                *("--duration", "0.2", "--warmup", "0.1", "--min-completed", "2", "--arrival", "poisson"),
                *arguments,
            )
        assert done.returncode == 0, done.stderr
        lines = (out / "requests_r40_16x4.jsonl").read_text().splitlines()
        cell = json.loads((out / "summary.json").read_text())["r40_16x4"]
        return cell, [json.loads(line)["t_sched_ns"] - cell["window"]["t0_ns"] for line in lines], done.stdout

    first, due, said = run(tmp_path / "1")
    second, due_again, _ = run(tmp_path / "2")
    n = min(len(due), len(due_again))
    assert due[:n] == due_again[:n] and first["nonce"] != second["nonce"]
    assert not set(runs[0]) & set(runs[1])
    assert first["flags"] == second["flags"] == [] and second["prefix_cache"]["hit_tokens"] == 0
    assert f"prompts of nonce {first['nonce']}: " in said and "prefix cache" not in said
    third, _, said = run(tmp_path / "3", "--nonce", str(first["nonce"]))
    assert set(runs[2]) & set(runs[0]) and third["nonce"] == first["nonce"]
    assert third["flags"] == ["prefix_cache_hits"] and third["prefix_cache"]["hit_tokens"] > 0
    assert "prompt tokens were in it (" in said and "TTFT is not that of new prompts" in said


def test_several_shapes_at_one_rate(tmp_path: Path) -> None:
    with truth_server() as base_url:
        done = bench(
            *("--base-url", base_url, "--rate", "40", "--shapes", "8x4,16x2", "--out", str(tmp_path)),
            *("--duration", "0.2", "--warmup", "0.1", "--min-completed", "2", "--arrival", "poisson"),
        )
    assert done.returncode == 0, done.stderr
    assert list(json.loads((tmp_path / "summary.json").read_text())) == ["r40_8x4", "r40_16x2"]


def test_a_closed_loop_has_a_concurrency_for_a_name(tmp_path: Path) -> None:
    with truth_server() as base_url:
        done = bench(
            *("--base-url", base_url, "--concurrency", "4", "--shape", "8,4", "--out", str(tmp_path)),
            *(
                "--duration",
                "0.3",
                "--warmup",
                "0.1",
                "--min-completed",
                "2",
                "--ramp-up",
                "0.1",
                "--event-log",
            ),
        )
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())["c4_8x4"]
    assert summary["throughput_ratio"] is None
    assert summary["health"]["max_inflight"] == 4
    assert (tmp_path / "events_session.jsonl").exists()


def test_nobody_listening_is_said_at_once(tmp_path: Path) -> None:
    done = bench("--base-url", "http://127.0.0.1:9", "--out", str(tmp_path), "--rate", "1")
    assert done.returncode == 2
    assert "no OpenAI-compatible server answers /v1/models there" in done.stderr


def test_a_model_that_is_not_served_is_named(tmp_path: Path) -> None:
    with truth_server() as base_url:
        done = bench("--base-url", base_url, "--out", str(tmp_path), "--rate", "1", "--model", "other")
    assert done.returncode == 2
    assert f"--model other: {base_url} serves m." in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rates", "1,fast"], "give numbers separated by commas"),
        (["--rates", "-1"], "must be above 0"),
        (["--rate", "1", "--shapes", "8by4"], "give INPUTxOUTPUT in tokens"),
        (["--rate", "1", "--gamma-shape", "2"], "goes with --arrival gamma"),
        (["--rate", "1", "--ramp-up", "2"], "goes with --concurrency"),
    ],
)
def test_a_bad_flag_is_one_message(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = bench("--base-url", "http://127.0.0.1:9", "--out", str(tmp_path / "out"), *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
