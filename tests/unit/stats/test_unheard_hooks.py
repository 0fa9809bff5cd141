"""A connector whose hooks nobody recorded has unknown hook times, and the report says whose and why."""

import json
from pathlib import Path
from typing import Any

import pytest
from analysed import aggregate_json, rows
from mutations import MUTATIONS

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.records.cell import CellWindow
from connector_tax.base.steptime.share import cut
from connector_tax.base.vllm_model.costs import ConnectorCosts, Member, load_costs
from connector_tax.base.vllm_model.model import EngineModel
from connector_tax.read.ingest import read_campaign
from connector_tax.read.ingest.steps import read_steps
from connector_tax.run.emulator.steplog import StepLog


@pytest.fixture(scope="module")
def value(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Nobody heard NIXL's worker."""
    root = tmp_path_factory.mktemp("c") / "c"
    MUTATIONS["hooks unheard"].made(root)
    return aggregate_json(read_campaign(root))  # from its tables


def test_its_callback_taxes_are_unavailable_and_say_why(value: dict[str, Any]) -> None:
    why, own = "hooks_unknown", {"config": "nixl_both"}
    found = rows(value, "taxes", metric="callback_p50_us", **own)
    assert found and {(t["point"], t["verdict"], t["reason"]) for t in found} == {(None, "unavailable", why)}
    rest = rows(value, "taxes", metric="unexplained_us", **own)
    assert {(t["reason"], t["subject"]) for t in rest} == {(why, "hooks")}
    assert all(t["point"] is not None for t in rows(value, "taxes", metric="step_p50_us", **own))
    assert rows(value, "attribution", **own) == []
    others = rows(value, "taxes", metric="callback_p50_us", config="mooncake_both")
    assert {t["point"] for t in others} == {100.0}


def test_its_cells_are_flagged_and_a_problem_names_it(value: dict[str, Any]) -> None:
    flagged = {c["config"] for c in value["cells"] if "hook_times_unknown" in c["flags"]}
    assert flagged == {"nixl_both"}
    (problem,) = value["problems"]
    n = len(rows(value, "cells", config="nixl_both"))
    assert problem["numbers"] == {"cells": n, "of": n}
    assert (problem["code"], problem["subject"]) == ("hooks_unknown", "nixl_both")
    assert problem["because"] == {"code": "no_worker"}


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
