"""A connector whose hooks nobody recorded has unknown hook times, and the report says whose and why."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.steptime.share import cut
from connector_tax.base.vllm_model.costs import ConnectorCosts, Member, load_costs
from connector_tax.base.vllm_model.model import EngineModel
from connector_tax.read.ingest import read_campaign
from connector_tax.read.ingest.steps import read_steps
from connector_tax.run.emulator.steplog import StepLog
from connector_tax.run.rehearsal import campaign
from connector_tax.run.rehearsal.cell import simulate_cell

sys.path.insert(0, str(Path(__file__).parents[2]))
from analysed import aggregate_json
from builders import Campaign, campaign_config
from cell_specs import cell_spec
from invented_server import Behaviour, step_lines

SECTIONS: dict[str, Any] = {
    "connectors": ["plain", "noop_connector", "nixl_both"],
    "phase_a": {"rates_per_s": [2, 4], "input_tokens": 256, "output_tokens": 16},
    "phase_b": {"input_tokens": [256], "output_tokens": [16]},
    "phase_b_prime": {"configs": [], "shapes": []},
    "cell": {"warmup_s": 1, "duration_s": 5, "min_completed": 10, "max_cell_s": 10},
    "analysis": {"bootstrap_draws": 200},
}
HOOKS_US = (300.0, 200.0, 100.0)
DEAF = (301.0, 200.0, 100.0)


def lines(window: CellWindow, behaviour: Behaviour, rng: np.random.Generator, most: int) -> list[str]:
    """As every cell has them, but that nobody heard the worker of the one that takes ``DEAF``."""
    found = step_lines(window, behaviour, rng, most)
    return [line for line in found if behaviour.hooks_us != DEAF or '"worker' not in line]


@pytest.fixture(scope="module")
def value(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    plain = Behaviour(noise=0.05)
    behaviours = {
        "plain": plain,
        "noop_connector": plain.taxed(0.1, hooks_us=DEAF),
        "nixl_both": plain.taxed(0.1, hooks_us=HOOKS_US),
    }
    root = tmp_path_factory.mktemp("c") / "c"
    campaign = Campaign(root, campaign_config(**SECTIONS), behaviours, step_lines=lines)
    campaign.measure_everything()
    aggregate_json(read_campaign(root))
    return aggregate_json(read_campaign(root))  # from its tables


def taxes(value: dict[str, Any], config: str, metric: str) -> Iterator[dict[str, Any]]:
    yield from (t for t in value["taxes"] if (t["config"], t["metric"]) == (config, metric))


def test_its_callback_taxes_are_unavailable_and_say_why(value: dict[str, Any]) -> None:
    why = "hooks_unknown"
    found = [*taxes(value, "noop_connector", "callback_p50_us")]
    assert found and {(t["point"], t["verdict"], t["reason"]) for t in found} == {(None, "unavailable", why)}
    rest = taxes(value, "noop_connector", "unexplained_us")
    assert {(t["reason"], t["subject"]) for t in rest} == {(why, "hooks")}
    assert all(t["point"] is not None for t in taxes(value, "noop_connector", "step_p50_us"))
    assert "noop_connector" not in {a["config"] for a in value["attribution"]}


def test_its_cells_are_flagged_and_a_problem_names_it(value: dict[str, Any]) -> None:
    flagged = {(c["config"], "hook_times_unknown" in c["flags"]) for c in value["cells"]}
    assert flagged == {("plain", False), ("noop_connector", True), ("nixl_both", False)}
    assert value["problems"] == [
        {
            "code": "hooks_unknown",
            "subject": "noop_connector",
            "numbers": {"cells": 3, "of": 3},
            "because": {"code": "no_worker"},
        }
    ]


def test_the_others_keep_theirs(value: dict[str, Any]) -> None:
    assert {t["point"] for t in taxes(value, "nixl_both", "callback_p50_us")} == {600.0}


@pytest.fixture
def spec() -> CellSpec:
    return cell_spec()


@pytest.mark.parametrize("kv_transfer_config", [None, {"kv_connector": "X"}])
def test_the_rehearsals_records_are_heard(
    tmp_path: Path, spec: CellSpec, kv_transfer_config: dict[str, Any] | None
) -> None:
    costs = load_costs(PROJECT_ROOT / "config" / "engine_model.yaml", None)[0]
    connector = ConnectorCosts()
    cell = simulate_cell(spec, EngineModel(costs, connector, max_num_batched_tokens=2048, seed=1), 0)
    path = tmp_path / "engine_step.jsonl"
    path.write_text("\n".join(campaign._step_lines(cell, (costs, connector), kv_transfer_config)) + "\n")
    assert (read_steps(path, cell.window, connector=True).hooks_missing == ()) == (
        kv_transfer_config is not None
    )


def test_the_embedded_engines_records_are_heard(tmp_path: Path) -> None:
    costs = load_costs(PROJECT_ROOT / "config" / "engine_model.yaml", None)[0]
    model = EngineModel(costs, ConnectorCosts(), max_num_batched_tokens=2048, seed=1)
    log = StepLog(tmp_path / "s.jsonl", costs, (Member("", "X", ConnectorCosts()),), flush_s=0.0)
    model.add(1, 16, 4)
    for t_ns in (1000, 2000):
        log.step(t_ns, model.step())
    log.flush()
    cut(sorted(tmp_path.glob("s.*.jsonl")), 0, 10**9, tmp_path / "share.jsonl")
    whole = CellWindow(0, 0, 10**9, 10**9, True)
    assert read_steps(tmp_path / "share.jsonl", whole, connector=True).hooks_missing == ()
    headers = [json.loads(line) for line in (tmp_path / "share.jsonl").read_text().splitlines()[:2]]
    assert {h["process"] for h in headers} == {"scheduler", "worker"}
