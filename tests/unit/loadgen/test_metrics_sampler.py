"""One set of names for every vLLM release, on a grid, with gaps that say so."""

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from connector_tax.run.sampler import sampler
from connector_tax.run.sampler.sampler import parse_metrics, sampling, scrape_once, scrape_patiently

NEW = """
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0"} 0.25
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0"} 0.0
vllm:prefix_cache_hits_created{engine="0"} 1.7e9
# TYPE vllm:external_prefix_cache_queries counter
vllm:external_prefix_cache_queries_total{engine="0"} 600.0
"""
OLD = """
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
# TYPE vllm:gpu_prefix_cache_hits counter
vllm:gpu_prefix_cache_hits_total{model_name="m"} 16.0
"""


def test_engines_are_summed_and_creation_times_ignored() -> None:
    assert parse_metrics(NEW) == {
        "num_requests_running": 7.0,
        "kv_cache_usage": 0.25,
        "prefix_cache_hits": 0.0,
        "external_prefix_cache_queries": 600.0,
    }


def test_older_releases_have_other_names_for_the_same() -> None:
    assert parse_metrics(OLD) == {"kv_cache_usage": 0.5, "prefix_cache_hits": 16.0}


def test_a_metric_under_both_names_counts_once() -> None:
    assert parse_metrics(NEW + OLD)["kv_cache_usage"] == 0.25


@pytest.mark.parametrize("word", ["NaN", "+Inf", "-Inf"])
def test_a_value_that_is_no_number_is_absent(word: str) -> None:
    """JSON has no word for it: the line of the sample could not be read back."""
    found = parse_metrics(f"vllm:num_requests_running {word}\nvllm:num_requests_waiting 1\n")
    assert found == {"num_requests_waiting": 1.0}


def test_a_server_that_is_not_there_is_an_error_that_names_it() -> None:
    with pytest.raises(OSError, match=r"http://127\.0\.0\.1:9/metrics"):
        scrape_once("http://127.0.0.1:9")


def test_a_missed_sample_is_a_line_that_says_so_and_the_grid_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "metrics.jsonl"
    with sampling("http://127.0.0.1:9", out, 0.2):
        time.sleep(0.9)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) >= 3
    assert all(not r["ok"] and "ConnectError" in r["error"] for r in rows)
    assert all(b["t_ns"] > a["t_ns"] for a, b in itertools.pairwise(rows))


@contextmanager
def metrics_server(*first_answers: str) -> Iterator[tuple[str, list[str]]]:
    """Its address and what it was asked; the first answers are ``slow`` or ``500``, all later ones well."""
    asked: list[str] = []
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            kind = first_answers[len(asked) - 1] if len(asked) <= len(first_answers) else "well"
            if kind == "slow":
                over.wait(30)
                return
            self.send_response(500 if kind == "500" else 200)
            self.end_headers()
            self.wfile.write(b"" if kind == "500" else NEW.encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        over.set()
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("answers", [("slow",), ("500",), ("slow", "500")])
def test_an_answer_that_is_slow_or_fails_is_asked_for_again(
    answers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "PATIENT_TIMEOUTS_S", (1.0, 10.0, 30.0))
    with metrics_server(*answers) as (base_url, asked):
        assert scrape_patiently(base_url)["num_requests_running"] == 7
        assert len(asked) == len(answers) + 1


def test_nobody_is_asked_for_ever() -> None:
    with metrics_server(*["500"] * 9) as (base_url, asked):
        with pytest.raises(OSError, match="500"):
            scrape_patiently(base_url)
        assert len(asked) == len(sampler.PATIENT_TIMEOUTS_S)
        with pytest.raises(OSError, match="500"):
            scrape_patiently(base_url, gone=lambda: True)
        assert len(asked) == len(sampler.PATIENT_TIMEOUTS_S) + 1
