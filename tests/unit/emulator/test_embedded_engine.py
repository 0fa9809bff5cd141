"""The embedded engine over the wire: vLLM's form, exact counts, faults on demand."""

import json
import resource
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from cell_specs import cell_spec
from step_rows import read_step_file

from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.target import target_of
from connector_tax.run.emulator.faults import Faults, parse_faults
from connector_tax.run.engine.process import LaunchRequest, RunningEngine, running_engine
from connector_tax.run.loadgen.cell import measure_cell
from connector_tax.run.sampler.sampler import scrape_once

# Less than the step records of a cell, and more than a traceback, which is in a file as well.
FILES_OF_10_KB = (10_000, resource.RLIM_INFINITY)
CONFIG = Path(__file__).parents[3] / "config"
CAMPAIGN: CampaignConfig = load_campaign(CONFIG / "demo.yaml")


def launch(tmp_path: Path, connector: str = "plain", fault: str | None = None, steps: bool = False) -> Any:
    step_log = tmp_path / "steps" / "engine_step.jsonl" if steps else None
    return running_engine(
        LaunchRequest(CAMPAIGN.engine, CAMPAIGN.connector(connector), tmp_path, step_log, fault)
    )


def body(engine: RunningEngine, **options: Any) -> dict[str, Any]:
    return {"model": engine.model, "prompt": list(range(10, 30)), "max_tokens": 5, **options}


def spec(**changes: Any) -> CellSpec:
    own = {
        "rate_per_s": 40.0,
        "input_tokens": 64,
        "output_tokens": 6,
        "warmup_s": 0.1,
        "duration_s": 0.5,
        "min_completed": 5,
        "max_cell_s": 1.5,
        "drain_timeout_s": 1.0,
        "inflight_cap": 64,
        "token_id_high": 1000,
    }
    return cell_spec(**{**own, **changes})


def test_a_stream_has_vllms_form_and_wrong_requests_get_vllms_errors(tmp_path: Path) -> None:
    """One event per token, then one with usage and no choices, then [DONE]."""
    with launch(tmp_path, steps=True) as engine:
        engine.wait_ready()
        url = f"{engine.base_url}/v1/completions"
        options = {"stream": True, "stream_options": {"include_usage": True}}
        answer = httpx.post(url, json=body(engine, **options))
        assert httpx.post(url, json=body(engine, model="other")).status_code == 404
        assert httpx.post(url, json=body(engine, max_tokens=5000)).status_code == 400
        assert httpx.post(url, content=b"not json").status_code == 400
        assert httpx.post(url, json=body(engine)).json()["usage"]["completion_tokens"] == 5
        assert httpx.get(f"{engine.base_url}/health").status_code == 200
    assert [p.name.split(".")[1] for p in (tmp_path / "steps").glob("*.jsonl")] == ["scheduler"]
    events = [line[6:] for line in answer.text.split("\n\n") if line]
    assert answer.headers["content-type"].startswith("text/event-stream")
    tokens = [json.loads(e) for e in events[:-2]]
    assert [t["choices"][0]["finish_reason"] for t in tokens] == [None] * 4 + ["length"]
    usage = json.loads(events[-2])
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 20, "total_tokens": 25, "completion_tokens": 5}
    assert events[-1] == "[DONE]"


def test_metrics_count_what_was_served_and_step_records_of_two_processes_join(tmp_path: Path) -> None:
    with launch(tmp_path, "mooncake_both", steps=True) as engine:
        engine.wait_ready()
        httpx.post(f"{engine.base_url}/v1/completions", json=body(engine))
        found = scrape_once(engine.base_url)
    counted = {"prompt_tokens": 20, "generation_tokens": 5, "external_prefix_cache_queries": 20}
    assert found.items() >= {**counted, "prefix_cache_hits": 0, "num_requests_running": 0}.items()
    files = {p.name.split(".")[1]: read_step_file(p) for p in (tmp_path / "steps").glob("*.jsonl")}
    assert set(files) == {"scheduler", "worker"}
    steps, workers = files["scheduler"].steps, files["worker"].worker_steps
    assert [s["step_id"] for s in steps] == [w["step_id"] for w in workers] == [1, 2, 3, 4, 5]
    assert (steps[0]["prefill_tokens"], steps[1]["decode_tokens"]) == (20, 1)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("http500:3", "http_error"),
        ("reset:3", "truncated"),
        ("short:3", "wrong_length"),
    ],
)
def test_faults_on_demand_are_seen_as_what_they_are(tmp_path: Path, fault: str, status: str) -> None:
    with launch(tmp_path, fault=fault) as engine:
        engine.wait_ready()
        outcome = measure_cell(spec(), target_of(engine.base_url, engine.model))
    bad = {r.seq for r in outcome.requests if r.status == status}
    assert bad == {r.seq for r in outcome.requests if r.seq % 3 == 2}
    assert {r.status for r in outcome.requests} == {"ok", status}


def test_latencies_are_those_of_the_model(tmp_path: Path) -> None:
    """One request at a time: TTFT is the prefill step, TPOT a decode step. A busy host only adds, so the quickest counts;

    but to a TTFT it adds what it takes from that request's TPOT, so how quick decoding may be is asked of E2E.
    """
    with launch(tmp_path) as engine:
        engine.wait_ready()
        outcome = measure_cell(
            spec(rate_per_s=10.0, duration_s=1.0), target_of(engine.base_url, engine.model)
        )
    ttft_ms = min((r.ttft_ns or 0) / 1e6 for r in outcome.requests)
    tpot_ms = min((r.tpot_ns or 0) / 1e6 for r in outcome.requests)
    expected_ttft_ms = 2.0 + 0.03 * spec().input_tokens
    assert expected_ttft_ms * 0.8 < ttft_ms < expected_ttft_ms * 1.5 + 2
    assert tpot_ms < 3.0
    e2e_ms = min((r.e2e_ns or 0) / 1e6 for r in outcome.requests)
    assert e2e_ms > expected_ttft_ms * 0.8 + 1.6 * (spec().output_tokens - 1)


def test_faults_are_parsed_or_refused() -> None:
    assert parse_faults("") == Faults()
    assert parse_faults("die_after:5,slow_start:0.5") == Faults(die_after=5, slow_start=0.5)
    with pytest.raises(ConfigError, match="unknown fault 'explode'"):
        parse_faults("explode")
    with pytest.raises(ConfigError, match="is not a number"):
        parse_faults("die_after:soon")


def test_an_engine_whose_step_log_cannot_be_written_any_more_dies_of_it(tmp_path: Path) -> None:
    """It stood still: each cell that was left cost the minute after which an engine is taken to hang."""
    with launch(tmp_path, steps=True) as engine:
        engine.wait_ready()
        (served,) = psutil.Process(engine.root).children(recursive=True)
        resource.prlimit(served.pid, resource.RLIMIT_FSIZE, FILES_OF_10_KB)
        measure_cell(spec(), target_of(engine.base_url, engine.model), should_abort=engine.death)
        assert engine.death(within_s=10) == "OSError: [Errno 27] File too large"
