"""One set of names for every vLLM release, on a grid, with gaps that say so."""

import itertools
import json
import time
from pathlib import Path

import pytest

from connector_tax.loadgen.sampler import parse_metrics, sampling, scrape_once

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
