"""A tax that was put in is found, and where there is none, none is found."""

import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml
from checkout import Project
from rehearsed_day import rehearsed_day
from true_taxes import true_tax

from connector_tax.base.config import load_campaign
from connector_tax.base.plan import cells_of
from connector_tax.base.vllm_model.costs import load_costs

pytestmark = pytest.mark.emulated

# Steps of several milliseconds with the spread of a real engine's: the host's own 0.2 ms are then small.
ENGINE = {
    "base_us": 5000,
    "per_prefill_token_us": 50,
    "per_decode_seq_us": 50,
    "per_context_token_us": 0.02,
    "schedule_us": 40,
    "update_us": 20,
    "jitter_cv": 0.15,
    "launch_cv": 0.0,
    "max_num_seqs": 64,
    "kv_blocks": 4000,
    "block_size": 16,
}
CONNECTORS = {"NoOpConnector/kv_both": {}, "MooncakeConnector/kv_both": {"step_factor": 1.3}}


def configure(project: Project, duration_s: float) -> None:
    model = {"engine": ENGINE, "connectors": CONNECTORS}
    (project.root / "config" / "truth_model.yaml").write_text(yaml.safe_dump(model))

    def change(config: dict[str, Any]) -> None:
        config["engine"]["model_file"] = str(project.root / "config" / "truth_model.yaml")
        config["phase_a"] = {"rates_per_s": [12], "input_tokens": 128, "output_tokens": 12}
        config["phase_b_prime"] = {}
        config["cell"].update(
            arrival="poisson", warmup_s=1, duration_s=duration_s, min_completed=40, max_cell_s=40
        )
        config["analysis"].update(confidence=0.95, bootstrap_draws=500)

    project.configure(change)


def truths(project: Project, connector: str) -> dict[str, float]:
    config = load_campaign(project.root / "config" / "test.yaml")
    costs = load_costs(
        project.root / "config" / "truth_model.yaml", config.connector(connector).kv_transfer_config
    )
    cell = cells_of(config, connector, "a")[0]
    return true_tax(cell, *costs, max_num_batched_tokens=512)


def median_step_us(project: Project, connector: str) -> float:
    """Of the stored decoding steps with one to three requests: as long as the engine meant them to be, however late the host was."""
    (path,) = project.results.glob(f"*_{connector}/phase_a/cells/*/engine_step_*.jsonl")
    rows = [row for row in map(json.loads, path.read_text().splitlines()) if row["kind"] == "step"]
    decoding = [row for row in rows if row["prefill_tokens"] == 0 and 1 <= row["num_running"] <= 3]
    assert len(decoding) > 100
    return median(row["step_duration_us"] for row in decoding)


def test_a_tax_that_was_put_in_arrives_in_the_cells(project: Project) -> None:
    """From the launch to the stored cell. Latencies over sockets are the host's as well: the twenty days below judge those."""
    configure(project, duration_s=4)
    done = project.snakemake("phase_a")
    assert done.returncode == 0, done.stderr[-3000:]
    plain, taxed, free = (median_step_us(project, c) for c in ("plain", "mooncake_both", "noop_connector"))
    assert taxed / plain == pytest.approx(1.3, abs=0.1)
    assert free / plain == pytest.approx(1.0, abs=0.07)


def test_intervals_hold_the_truth_about_as_often_as_they_say(project: Project, tmp_path: Path) -> None:
    """Twenty days in virtual time: 95 % intervals hold the model's truth in most of them."""
    configure(project, duration_s=25)
    config = load_campaign(project.root / "config" / "test.yaml")
    truth = truths(project, "mooncake_both")
    assert truth["tpot_p90"] > 0.25
    held = {"ttft_p90": 0, "tpot_p90": 0}
    missed = false_alarms = 0
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for found in pool.map(partial(rehearsed_day, config, tmp_path), range(20)):
            for metric in held:
                tax = found["mooncake_both", metric]
                held[metric] += tax.low <= truth[metric] <= tax.high
                missed += tax.verdict != "tax"
                false_alarms += found["noop_connector", metric].verdict != "no_tax_found"
    # Binomial(20, 0.95) lies below 16 once in 390 times.
    assert min(held.values()) >= 16, held
    assert missed == 0, missed
    assert false_alarms <= 6, false_alarms
