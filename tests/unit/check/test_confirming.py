"""Which further launches an experiment makes, where, and what is read of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made import DATE, QUIET, Campaign, measured, request

from connector_tax.base.artifacts.receipts import write_receipt
from connector_tax.base.documents.health import RAN_LATE
from connector_tax.base.files import read_json, write_json
from connector_tax.base.plan import cells_of, config_of, read_campaign_file
from connector_tax.check import command, confirm
from connector_tax.check.campaigns import Campaigns
from connector_tax.check.command import run_check
from connector_tax.check.confirm import (
    OF_CONNECTOR,
    OF_PLAIN,
    Experiments,
    dearest_mode,
    measure_experiments,
    write_experiments,
)
from connector_tax.check.experiments import STEP, read_experiments
from connector_tax.check.findings import read_findings
from connector_tax.check.lateness import only_late
from connector_tax.check.request import ASYNC, GIVEN, SYNC
from connector_tax.check.run import Measured
from connector_tax.run.engine.threads import Alike, Census
from connector_tax.run.measure.arranged import BUSY_BESIDE, HELPERS_IDLE, UNPINNED, UNTOUCHED, Arrangement

TAXED = QUIET.taxed(0.05)


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Campaigns, Path]:
    """A check whose connector costs 5 %, everywhere."""
    folder = tmp_path_factory.mktemp("check")
    return measured(folder, own=TAXED), folder


@pytest.fixture(scope="module")
def experiments(checked: tuple[Campaigns, Path]) -> Experiments:
    campaigns, folder = checked
    return write_experiments(campaigns, SYNC, folder)


def test_each_arrangement_is_one_cell_at_the_middle_load_with_prompts_of_its_own(
    checked: tuple[Campaigns, Path], experiments: Experiments
) -> None:
    """A prompt that came before in a launch would be in the prefix cache."""
    seeds = set()
    for folder in experiments.folders.values():
        config = config_of(read_campaign_file(folder.campaign_file))
        (cell,) = cells_of(config, GIVEN, "a")
        assert cell.rate_per_s == experiments.rate_per_s == checked[0].rates_per_s[1]
        assert config.engine.args["async_scheduling"] is False
        seeds.add(cell.seed)
    assert len(seeds) == len(experiments.folders) == len({*OF_PLAIN, *OF_CONNECTOR}) == 6
    assert read_json(folder.preflight_status)["configs"]["plain"]["decision"] == "include"


def test_plain_comes_first_and_its_threads_are_handed_on(
    experiments: Experiments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, list[str], Census]] = []

    def measure(arrangements: list[Arrangement], config: str, plain: Census) -> Census:
        made.append((config, [a.change for a in arrangements], plain))
        return {("engine_core", "zmq"): Alike(2, 0.5)}

    monkeypatch.setattr(confirm, "measure_arranged", measure)
    said: list[str] = []
    measure_experiments(experiments, tmp_path / "log", "NIXL", said.append)
    assert made == [
        ("plain", list(OF_PLAIN.values()), {}),
        (GIVEN, list(OF_CONNECTOR.values()), {("engine_core", "zmq"): Alike(2, 0.5)}),
    ]
    assert len(said) == 2 and "NIXL" in said[1]


def test_without_a_launch_of_plain_the_connector_is_not_launched(
    experiments: Experiments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(confirm, "measure_arranged", lambda a, config, plain: made.append(config) or {})
    measure_experiments(experiments, tmp_path / "log", "NIXL", lambda line: None)
    assert made == ["plain"]


def test_a_launch_whose_unchanged_cells_do_not_count_is_made_once_more_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaigns = measured(tmp_path, own=TAXED)
    experiments = write_experiments(campaigns, SYNC, tmp_path)
    made: list[str] = []

    def measure(arrangements: list[Arrangement], config: str, plain: Census) -> Census:
        made.append(config)
        file = arrangements[0].campaign_file
        folder = Campaign(file.parent, config=config_of(read_campaign_file(file)))
        assert not folder.run(config, "a").finished_cells()
        spoilt = {"verdict": "invalid", "reasons": ["late"]} if config == GIVEN else {}
        folder.measure(config, **spoilt)
        return {("engine_core", "zmq"): Alike(2, 0.5)}

    monkeypatch.setattr(confirm, "measure_arranged", measure)
    measure_experiments(experiments, tmp_path / "log", "NIXL", lambda line: None)
    assert made == ["plain", GIVEN, GIVEN]


def test_a_late_clock_alone_does_not_spoil_an_experiment_about_cores() -> None:
    late = f"{RAN_LATE}: results came 5.4% of the device's time after they were due"
    assert only_late({"verdict": "invalid", "reasons": [late]})
    assert not only_late({"verdict": "invalid", "reasons": [late, "the engine died: exit code 1"]})
    assert not only_late({"verdict": "invalid", "reasons": []})
    assert only_late({"verdict": "valid", "reasons": []})


def test_what_cannot_be_undone_is_changed_last() -> None:
    """Without privileges a thread does not leave SCHED_IDLE again."""
    assert list(OF_CONNECTOR.values())[-1] == HELPERS_IDLE


def test_experiments_are_made_where_the_connector_costs_most(tmp_path: Path) -> None:
    findings = read_findings(measured(tmp_path, own=TAXED), {})
    by_mode = {m.mode: m for m in findings.modes}
    free = read_findings(measured(tmp_path / "free"), {})
    assert dearest_mode(free) == SYNC
    quiet = next(m for m in free.modes if m.mode == SYNC)
    assert dearest_mode(replace(findings, modes=(by_mode[ASYNC], quiet))) == ASYNC
    assert dearest_mode(replace(free, modes=(by_mode[ASYNC],))) == ASYNC
    assert dearest_mode(replace(free, modes=(replace(quiet, failure="it does not start"),))) is None


def test_numbers_are_read_from_the_cells_and_reasons_from_receipts(experiments: Experiments) -> None:
    """A tax of 5 % with nothing changed, none with idle helpers; plain loses 4 % beside a busy process."""
    own = {HELPERS_IDLE: QUIET.taxed(0.0)}
    for name, folder in experiments.folders.items():
        made = Campaign(
            folder.root,
            config=config_of(read_campaign_file(folder.campaign_file)),
            behaviours={
                "plain": QUIET.taxed(0.04) if name == BUSY_BESIDE else QUIET,
                GIVEN: own.get(name, TAXED),
            },
            seed=3,
        )
        changed: dict[str, Any] = {"arrangement": {"change": name, "threads": []}}
        if name == HELPERS_IDLE:
            changed["arrangement"]["threads"] = [{"process": "engine_core", "thread": "poller"}]
        if name in OF_PLAIN:
            made.measure("plain", **changed)
        if name == UNPINNED:
            write_receipt(
                made.run(GIVEN, "a"),
                campaign=made.config.campaign,
                status="not_needed",
                reason="none is kept",
            )
        elif name in OF_CONNECTOR:
            made.measure(GIVEN, **changed)
        write_json(folder.campaign_file, {**read_json(folder.campaign_file), "date": DATE})
    results = read_experiments(experiments, {"tpot_p90": 0.001})
    assert results.tax(UNTOUCHED, "tpot_p90").point == pytest.approx(0.05, abs=0.003)
    assert results.tax(HELPERS_IDLE, "tpot_p90").point == pytest.approx(0.0, abs=0.003)
    assert results.tax(BUSY_BESIDE, "ttft_p90").point == pytest.approx(0.04, abs=0.003)
    assert results.tax(UNTOUCHED, STEP).point == pytest.approx(0.05, abs=0.01)
    assert results.tax(UNPINNED, "tpot_p90").reason == "none is kept"
    assert results.own[HELPERS_IDLE].threads == ("poller of engine_core",)
    floor = results.floor("tpot_p90")
    assert floor is not None and 0.001 <= floor < 0.005


@pytest.mark.parametrize("wanted", [True, False])
def test_no_further_launch_is_made_unless_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    made: list[str] = []
    monkeypatch.setattr(command, "write_campaigns", lambda asked, folder: measured(folder, own=TAXED))
    monkeypatch.setattr(command, "measure_check", lambda *a: Measured({}, ()))
    monkeypatch.setattr(command, "measure_experiments", lambda e, *a: made.append(e.mode))
    printed = run_check(
        request(tmp_path),
        root=tmp_path / "root",
        fail_above=None,
        explain=False,
        as_json=False,
        confirm=wanted,
    )
    assert len(made) == (1 if wanted else 0)
    # Nothing was measured, so nothing is concluded.
    assert ("Nothing can be concluded" in printed.text) == wanted
    assert printed.text.splitlines()[-1].startswith("NoOpConnector: a tax")
