"""Which launches are made, and what becomes of a connector that does not start."""

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made import DATE, Campaign, request

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.receipts import write_receipt
from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import read_json
from connector_tax.base.plan import cells_of, config_of, read_campaign_file
from connector_tax.check import run
from connector_tax.check.campaigns import write_campaigns
from connector_tax.check.command import run_check
from connector_tax.check.request import GIVEN
from connector_tax.run.measure.deaths import Death
from connector_tax.run.measure.preflight import run_preflight
from connector_tax.run.measure.turns import Turns


def _receipt(campaign_file: Path, config: str, phase: str, failure: str | None) -> None:
    """What a measured run leaves, without one."""
    folder, date = CampaignFolder(campaign_file.parent), read_json(campaign_file)["date"]
    write_receipt(
        folder.run(date, config, phase),  # type: ignore[arg-type]
        campaign=folder.root.name,
        status="measured" if failure is None else "failed",
        reason=failure,
    )


@pytest.fixture(autouse=True)
def nothing_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """What engines that are up together measure is told in test_turns; here each is left to itself."""
    monkeypatch.setattr(run, "measure_in_turns", lambda *a, **k: Turns({}))
    monkeypatch.setattr(run, "run_preflight", lambda file, launch: None)


def test_a_connector_that_does_not_start_ends_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, str, str]] = []

    def measure(campaign_file: Path, config: str, phase: str, then: str | None = None) -> tuple[Death, ...]:
        made.append((campaign_file.parent.name, config, phase))
        fails = config == GIVEN and campaign_file.parent.name == "check-async"
        _receipt(campaign_file, config, phase, "no such class" if fails else None)
        return ()

    def together(file: Path, *args: Any, **kwargs: Any) -> Turns:
        return Turns({}, GIVEN if file.parent.name == "check-async" else None)

    monkeypatch.setattr(run, "measure_run", measure)
    monkeypatch.setattr(run, "measure_in_turns", together)
    said: list[str] = []
    campaigns = write_campaigns(request(tmp_path, growth=True), tmp_path)
    failed = run.measure_check(campaigns, tmp_path / "log", said.append).failed
    assert failed == {"async": "no such class"}
    assert made == [
        ("check-async", GIVEN, "a"),  # it was the one that did not get ready, so plain is not asked
        ("check-async", GIVEN, "d"),
        ("check-sync", "plain", "a"),
        ("check-sync", GIVEN, "a"),
        ("check-sync", "plain_again", "a"),
    ]
    assert [line.partition("s  ")[2] for line in said] == ["asynchronous scheduling: NoOpConnector by itself"]


def test_deaths_of_engines_that_were_up_together_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(campaign_file: Path, config: str, phase: str, then: str | None = None) -> tuple[Death, ...]:
        _receipt(campaign_file, config, phase, None)
        return ()

    death = Death("a", "r8_256x16", "RuntimeError: boom")
    monkeypatch.setattr(run, "measure_run", measure)
    monkeypatch.setattr(run, "measure_in_turns", lambda *a, **k: Turns({GIVEN: (death,)}))
    campaigns = write_campaigns(request(tmp_path, modes=("sync",)), tmp_path)
    ((launch, found),) = run.measure_check(campaigns, tmp_path / "log", lambda line: None).deaths
    assert (launch.config, launch.mode, found) == (GIVEN, "sync", death)


def test_an_engine_that_launches_for_the_loads_and_not_for_what_follows_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its prompts are longer. No cell has that death, and the check must not pass."""

    def measure(campaign_file: Path, config: str, phase: str, then: str | None = None) -> tuple[Death, ...]:
        _receipt(campaign_file, config, phase, "did not launch: SIGSEGV" if phase == "d" else None)
        return ()

    monkeypatch.setattr(run, "measure_run", measure)
    campaigns = write_campaigns(request(tmp_path, growth=True), tmp_path)
    ((launch, death),) = run.measure_check(campaigns, tmp_path / "log", lambda line: None).deaths
    assert (launch.config, death) == (GIVEN, Death("d", "", "did not launch: SIGSEGV"))


def test_preflight_without_launches_includes_what_nothing_speaks_against(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first measured launch is the trial; a module that is missing is known without one."""
    monkeypatch.setenv(
        "CONNECTOR_TAX_CACHE", str(tmp_path / "cache")
    )  # a campaign of this host is none of its business
    stand_in = request(tmp_path)
    stand_in.entry["modules"] = [{"module": "no_such_module", "install": "pip install it"}]
    campaigns = write_campaigns(stand_in, tmp_path)
    folder = campaigns.folders["async"]
    monkeypatch.setattr(
        "connector_tax.run.measure.preflight.identity_with_model",
        lambda *a: EngineIdentity(versions={"vllm": "0.32.0"}, gpu=(), cuda=None, host={}),
    )
    monkeypatch.setattr("connector_tax.run.measure.preflight.refuse_misfit", lambda *a: None)
    monkeypatch.setattr("connector_tax.run.measure.preflight.too_large", lambda *a: None)
    monkeypatch.setattr(
        "connector_tax.run.measure.preflight.unusable_modules",
        lambda *a: {"no_such_module": "has no module no_such_module"},
    )
    monkeypatch.setattr(
        "connector_tax.run.measure.preflight._verify", lambda *a: pytest.fail("it was launched")
    )
    run_preflight(folder.campaign_file, launch="none")
    status = read_json(folder.preflight_status)
    assert status["configs"]["plain"]["decision"] == "include"
    assert status["configs"][GIVEN]["decision"] == "skip"
    assert "no_such_module" in status["configs"][GIVEN]["reason"]


def test_a_folder_that_holds_something_is_not_measured_into(tmp_path: Path) -> None:
    (tmp_path / "earlier").mkdir()
    with pytest.raises(ConfigError, match="holds something already"):
        run_check(request(tmp_path), root=tmp_path, fail_above=None, explain=False, as_json=False)


def test_a_launch_is_made_once_more_only_where_the_check_still_ends_in_time() -> None:
    assert run.once_more_fits(elapsed_s=110, round_s=108, rounds_left=1, blocks=1)
    assert run.once_more_fits(elapsed_s=220, round_s=108, rounds_left=0, blocks=1)
    assert not run.once_more_fits(130, round_s=128, rounds_left=1, blocks=1), "launches are slow on this host"
    assert not run.once_more_fits(280, round_s=130, rounds_left=0, blocks=1), "it is late already"
    assert run.once_more_fits(elapsed_s=280, round_s=130, rounds_left=4, blocks=3)


@pytest.mark.parametrize(("promised_s", "launches"), [(1e6, 2), (0.0, 1)])
def test_cells_that_something_spoilt_are_measured_once_more_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, promised_s: float, launches: int
) -> None:
    """The cells that count stay; a second loss, or one on a host that is busy all the time, is left to the verdict."""
    monkeypatch.setattr(run, "PROMISED_S", promised_s)
    tries: list[set[str]] = []

    def measure(campaign_file: Path, config: str, phase: str, then: str | None = None) -> tuple[Death, ...]:
        made = Campaign(campaign_file.parent, config=config_of(read_campaign_file(campaign_file)))
        there = {c.cell_id for c in made.run(config, "a").finished_cells()}
        if config == "plain":
            tries.append(there)
        for cell in cells_of(made.config, config, "a"):
            spoilt = (
                {"verdict": "invalid", "reasons": ["late"]}
                if cell.rate_per_s == rate and config == "plain"
                else {}
            )
            if cell.cell_id not in there:
                made.cell(config, cell, **spoilt)
        made.receipt(config, "a")
        return ()

    monkeypatch.setattr(run, "measure_run", measure)
    # The builder's campaigns have a date of their own.
    monkeypatch.setattr(
        "connector_tax.check.campaigns.datetime",
        SimpleNamespace(now=lambda zone: datetime.fromisoformat(DATE)),
    )
    campaigns = write_campaigns(request(tmp_path, modes=("async",)), tmp_path)
    rate = campaigns.rates_per_s[1]
    said: list[str] = []
    assert run.measure_check(campaigns, tmp_path / "log", said.append).failed == {}
    assert [len(there) for there in tries] == [0, 2][:launches]
    assert sum("1 cells of plain do not count, once more" in line for line in said) == launches - 1


def test_a_death_is_not_forgotten_where_a_later_launch_measured_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell in which the engine died twice was tried twice already, and is not what something else on the host spoilt."""
    made: list[str] = []

    def measure(campaign_file: Path, config: str, phase: str, then: str | None = None) -> tuple[Death, ...]:
        made.append(config)
        campaign = Campaign(campaign_file.parent, config=config_of(read_campaign_file(campaign_file)))
        cells = cells_of(campaign.config, config, "a")
        for cell in cells:
            died_twice = config == GIVEN and cell is cells[-1]
            dead = {"verdict": "invalid", "reasons": ["engine died: RuntimeError: boom"]}
            campaign.cell(config, cell, **(dead if died_twice else {}))
        campaign.receipt(config, "a")
        once = Death("a", cells[0].cell_id, "RuntimeError: boom")
        return (once,) if config == GIVEN else ()

    monkeypatch.setattr(run, "measure_run", measure)
    monkeypatch.setattr(
        "connector_tax.check.campaigns.datetime",
        SimpleNamespace(now=lambda zone: datetime.fromisoformat(DATE)),
    )
    printed = run_check(
        request(tmp_path, modes=("async",)),
        root=tmp_path / "root",
        fail_above=0.5,
        explain=False,
        as_json=False,
    )
    assert made == ["plain", GIVEN, "plain_again"]
    assert printed.exit_code == 2
    assert "starts and serves: no: its engine died while it served: RuntimeError: boom" in printed.text
    assert printed.text.splitlines()[-1].startswith(
        "NoOpConnector died while it served: RuntimeError: boom (asynch"
    )
