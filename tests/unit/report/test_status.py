"""``connector-tax status``: what is done of the plan as it is now, who works on it, and what would go on with it."""

import json
import shutil
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from builders import SMALL, Campaign, campaign_config
from msgspec.structs import replace

from connector_tax.base.artifacts.supervisor import RECORD
from connector_tax.base.files import read_json, write_json
from connector_tax.read.report.status import status_text
from connector_tax.run.engine.process import LaunchRequest, running_engine

COMMAND = "connector-tax run mine.yaml"


@pytest.fixture
def found(tmp_path: Path) -> Campaign:
    config = campaign_config(**{**SMALL, "connectors": ["plain", "mooncake_both"]})
    return Campaign(tmp_path / config.campaign, config)


def rates(found: Campaign, safe: float, load: float) -> None:
    value = {"ref_safe_per_s": safe, "ref_load_per_s": load, "b_prime_needed": safe != load}
    write_json(found.folder.reference_rates, value)


def said(found: Campaign) -> dict[str, str]:
    """The table's rows by configuration, and the rest as one text."""
    text = status_text(found.config, found.folder.root, COMMAND)
    lines = text.splitlines()
    return {
        "all": text,
        **{line.split()[0]: line for line in lines if line and not line.startswith("campaign")},
    }


def test_a_campaign_that_was_not_started_says_how_to(tmp_path: Path) -> None:
    config = campaign_config(**SMALL)
    assert status_text(config, tmp_path / "demo", COMMAND).endswith(
        "not started. Start it with: connector-tax run mine.yaml"
    )


def test_what_is_done_and_that_nobody_goes_on(found: Campaign) -> None:
    found.measure("plain")
    found.measure("mooncake_both", receipt=False)
    text = said(found)
    assert text["plain"].split()[1:3] == ["3", "cells"]
    assert text["mooncake_both"].split()[1:4] == ["3", "of", "3"]
    assert text["all"].endswith("nobody works on it; go on with: connector-tax run mine.yaml")


def test_cells_of_an_earlier_plan_do_not_count(found: Campaign) -> None:
    """Phase B was measured at 2 req/s; the reference rate became 4, so none of it is of the plan."""
    for connector in ("plain", "mooncake_both"):
        found.measure(connector)
    found.measure("plain", "b", rates=(2.0, 2.0), receipt=False)
    rates(found, 2.0, 2.0)
    assert "4 of 4" in said(found)["plain"]
    rates(found, 4.0, 4.0)
    assert "of 4" not in said(found)["plain"]


def test_engines_side_by_side_are_named_with_their_places(found: Campaign) -> None:
    found.config = replace(found.config, engine=replace(found.config.engine, gpus=(0, 3)))
    with ExitStack() as stack:
        for connector, slot in (("plain", 3), ("mooncake_both", 0)):
            run, engine = found.run(connector, "a"), replace(found.config.engine, gpu=slot)
            run.path.mkdir(parents=True)
            request = LaunchRequest(engine, found.config.connector(connector), run.path)
            stack.enter_context(running_engine(request))
        text = said(found)
        assert "running," in text["plain"] and "running," in text["mooncake_both"]
        assert "on gpu0: mooncake_both in phase A\non gpu3: plain in phase A" in text["all"]
    assert "go on with: connector-tax run mine.yaml --cores 2" in said(found)["all"]


def test_the_run_whose_engine_is_up_is_shown_as_running(found: Campaign) -> None:
    """With the record of a launch as it is written; it is over once the engine is, also by ``kill -9``."""
    found.measure("plain", receipt=False)
    run = found.run("plain", "a")
    request = LaunchRequest(found.config.engine, found.config.connector("plain"), run.path)
    with running_engine(request) as engine:
        assert said(found)["plain"].split()[1:5] == ["running,", "3", "of", "3"]
        assert "running" not in said(found)["mooncake_both"]
        record = (run.path / RECORD).read_text()
        engine.supervisor.kill()
        engine.supervisor.wait()
        assert "running" not in said(found)["all"]
    (run.path / RECORD).write_text(record)
    assert "running" not in said(found)["all"]


def test_rates_that_nothing_was_measured_at_are_void_before_phase_a_is_over(found: Campaign) -> None:
    found.measure("plain")
    found.measure("mooncake_both", receipt=False)
    rates(found, 2.0, 2.0)
    assert "reference_rates.json: made before all of phase A was there" in said(found)["all"]
    found.measure("plain", "b", rates=(2.0, 2.0), receipt=False)
    assert "4 of 4" in said(found)["plain"]


def test_a_receipt_whose_cell_is_gone_is_void(found: Campaign) -> None:
    for connector in ("plain", "mooncake_both"):
        found.measure(connector)
    shutil.rmtree(found.run("plain", "a").finished_cells()[0].path)
    text = said(found)
    assert text["plain"].split()[1] == "void"
    assert "receipt.json: cell r2_256x16: is not there" in text["all"]


def test_who_works_on_it_is_named_and_whoever_has_its_number_now_is_not(
    found: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    found.measure("plain")
    found.folder.start_lock.write_text(str(psutil.Process().pid))
    monkeypatch.setattr(psutil.Process, "cmdline", lambda self: ["python", "-m", "snakemake"])
    assert f"process {psutil.Process().pid} works on it" in said(found)["all"]
    monkeypatch.setattr(psutil.Process, "cmdline", lambda self: ["vi"])
    assert "nobody works on it" in said(found)["all"]


def test_a_report_of_before_is_said_to_be_one(found: Campaign) -> None:
    found.measure("plain")
    found.folder.report.write_text("")
    assert "report.html, made before the rest was measured" in said(found)["all"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("receipt", {"cells": [1]}),
        ("receipt", "{"),
        ("reference_rates", {"schema": 1}),
        ("preflight_status", {"configs": {"plain": 1}}),
    ],
)
def test_a_file_that_somebody_else_wrote_costs_its_line_only(
    found: Campaign, name: str, content: object
) -> None:
    for connector in ("plain", "mooncake_both"):
        found.measure(connector)
    path = found.run("plain", "a").receipt if name == "receipt" else getattr(found.folder, name)
    if name == "receipt" and isinstance(content, dict):
        content = {**read_json(path), **content}
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    text = said(found)
    assert f"cannot be read: {path}: " in text["all"]
    assert text["mooncake_both"].split()[1:3] == ["3", "cells"]
    assert ("void" in text["plain"]) == (name == "receipt")
