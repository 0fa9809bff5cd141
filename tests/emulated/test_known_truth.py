"""The two tests that matter most: a tax that was put in is found, and where there is none, none is found."""

import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import Project
from rehearsed_day import rehearsed_day

from connector_tax.config import load_campaign
from connector_tax.enginemodel.costs import load_costs
from connector_tax.plan import cells_of
from connector_tax.rehearsal.truth import true_tax

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


def configure(project: Project) -> None:
    model = {"engine": ENGINE, "connectors": CONNECTORS}
    (project.root / "config" / "truth_model.yaml").write_text(yaml.safe_dump(model))

    def change(config: dict[str, Any]) -> None:
        config["engine"]["model_file"] = str(project.root / "config" / "truth_model.yaml")
        config["phase_a"] = {"rates_per_s": [12], "input_tokens": 128, "output_tokens": 12}
        config["phase_b_prime"] = {}
        # In virtual time a tax of 30 % is told from none in 24 campaigns of 24 at this length.
        config["cell"].update(arrival="poisson", warmup_s=1, duration_s=25, min_completed=100, max_cell_s=40)
        # Six intervals in one test: at 95 % one of them would miss its truth every third run.
        config["analysis"].update(confidence=0.999, bootstrap_draws=4000)

    project.configure(change)


def truths(project: Project, connector: str) -> dict[str, float]:
    config = load_campaign(project.root / "config" / "test.yaml")
    costs = load_costs(
        project.root / "config" / "truth_model.yaml", config.connector(connector).kv_transfer_config
    )
    cell = cells_of(config, connector, "a")[0]
    return true_tax(cell, *costs, max_num_batched_tokens=512)


def headline(root: Path) -> dict[tuple[str, str], dict[str, Any]]:
    taxes = json.loads((root / "aggregate.json").read_text())["taxes"]
    return {(t["config"], t["metric"]): t for t in taxes if t["headline"] and t["reference"] == "ref_safe"}


def test_a_tax_of_thirty_percent_is_found_and_nothing_is_not(project: Project) -> None:
    """Over real sockets, in real time, from the launch script to the interval."""
    configure(project)
    done = project.quiet("phase_a", "reference_rates")
    assert done.returncode == 0, done.stderr[-3000:]
    done = project.snakemake("analysis")
    assert done.returncode == 0, done.stderr[-3000:]
    found = headline(project.results)
    truth = truths(project, "mooncake_both")
    assert truth["tpot_p90"] > 0.25
    for metric in ("ttft_p90", "tpot_p90"):
        tax = found["mooncake_both", metric]
        assert tax["low"] <= truth[metric] <= tax["high"], (metric, truth, tax)
        assert tax["verdict"] == "tax"
        nothing = found["noop_connector", metric]
        assert nothing["verdict"] == "no_tax_found", nothing


def test_intervals_hold_the_truth_about_as_often_as_they_say(project: Project, tmp_path: Path) -> None:
    """Thirty days in virtual time: 95 % intervals hold the model's truth in most of them."""
    configure(project)
    config = load_campaign(project.root / "config" / "test.yaml")
    config = replace(config, analysis=replace(config.analysis, confidence=0.95, bootstrap_draws=500))
    truth = truths(project, "mooncake_both")
    held = {"ttft_p90": 0, "tpot_p90": 0}
    false_alarms = 0
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for found in pool.map(partial(rehearsed_day, config, tmp_path), range(30)):
            for metric in held:
                tax = found["mooncake_both", metric]
                held[metric] += tax["low"] <= truth[metric] <= tax["high"]
                false_alarms += found["noop_connector", metric]["verdict"] != "no_tax_found"
    # Binomial(30, 0.95) lies below 25 once in 1,800 times.
    assert min(held.values()) >= 25, held
    assert false_alarms <= 9, false_alarms
