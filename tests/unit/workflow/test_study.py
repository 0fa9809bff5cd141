"""What decides whether a Snakemake run may measure, and what it takes over from an earlier start."""

import atexit
import errno
import fcntl
import json
import logging
import os
import re
import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from builders import Campaign, campaign_config
from whole_aggregate import example

from connector_tax import workflow
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.files import write_json
from connector_tax.workflow import Study, only_reads, open_study, requested_targets


def targets(*arguments: str) -> frozenset[str]:
    return requested_targets(["--cores", "1", *arguments], {})


@pytest.mark.parametrize(
    "arguments",
    [
        ["analysis", "report"],
        ["results/demo/report.html"],
        ["./results/demo/figures/index.json", "manifest"],
        ["--until", "figures"],
        ["figures", "--forcerun", "measure_a"],
    ],
)
def test_a_target_that_reads_brings_no_measuring_rule(arguments: list[str]) -> None:
    """By name, by path, or by a flag; and no flag beside such a target brings them back."""
    assert only_reads(targets(*arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["figures", "phase_a"],
        ["--until", "phase_a"],
        ["results/demo/2026-01-01_plain/phase_a/receipt.json"],
    ],
)
def test_everything_else_may_measure(arguments: list[str]) -> None:
    assert not only_reads(targets(*arguments))


def test_processes_that_snakemake_starts_inherit_what_was_asked_for() -> None:
    """They are started with targets of their own, which must not change which rules there are."""
    environment: dict[str, str] = {}
    asked = requested_targets(["--cores", "1", "figures"], environment)
    assert requested_targets(["--cores", "1", "measure_a"], environment) == asked


def demo(**changes: Any) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((PROJECT_ROOT / "config" / "demo.yaml").read_text())
    for key, value in changes.items():
        config[key] = {**config[key], **value}
    return config


def study(measuring: bool, environment: dict[str, str] | None = None, **changes: Any) -> Study:
    environment = {} if environment is None else environment
    return open_study(demo(**changes), "demo.yaml", measuring=measuring, environment=environment)


def campaign_file(root: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((root / "results" / "demo" / "campaign.json").read_text())
    return value


def begin(started: Study) -> None:
    """As its process does, which then ends."""
    started.begin()
    workflow._STARTED.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def refuse(message: str) -> None:
        raise AssertionError(message)

    monkeypatch.setattr(workflow, "stop", refuse)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("age_s", "said"), [(-1, 1), (1, 0)])
def test_a_run_ends_with_what_a_report_of_this_analysis_says(
    here: Path, monkeypatch: pytest.MonkeyPatch, age_s: int, said: int
) -> None:
    started, at_exit = study(True), list[tuple[Any, ...]]()
    monkeypatch.setattr(atexit, "register", lambda *call, **_: at_exit.append(call))
    started.say_result()
    write_json(started.folder.aggregate, example())
    started.folder.report.touch()
    at_s = started.folder.aggregate.stat().st_mtime - age_s
    os.utime(started.folder.report, (at_s, at_s))
    started.say_result()
    printed = [call[1] for call in at_exit if call[0] is print]
    assert len(printed) == said
    assert all(text.startswith(f"report: {here}/results/demo/report.html\n") for text in printed)


def test_the_date_of_the_first_start_is_kept(here: Path) -> None:
    """Folders carry it: a resume after midnight must find what was measured before."""
    begin(study(True, {"CONNECTOR_TAX_DATE": "2026-01-31"}))
    first = campaign_file(here)
    resumed = study(True, {"CONNECTOR_TAX_DATE": "2026-02-01"})
    assert resumed.date == "2026-01-31"
    begin(resumed)
    assert campaign_file(here) == first


def test_a_campaign_whose_description_was_removed_keeps_its_date(here: Path) -> None:
    """As the message on a damaged one advises: with today's date all of it would be measured again."""
    first = study(True, {"CONNECTOR_TAX_DATE": "2026-01-31"})
    (first.folder.root / "2026-01-31_plain").mkdir(parents=True)
    assert study(True, {}).date == "2026-01-31"


@pytest.mark.parametrize("measuring", [True, False])
def test_a_file_in_the_place_of_the_results_is_one_message(here: Path, measuring: bool) -> None:
    (here / "results").mkdir()
    (here / "results" / "demo").touch()
    with pytest.raises(
        AssertionError,
        match=r"^results/demo: a file lies where a folder belongs\. Move it away",
    ):
        study(measuring)


@pytest.mark.parametrize(
    "where",
    ["logs", "2026-01-31_plain", "2026-01-31_plain/phase_b/cells"],
)
def test_a_file_in_the_place_of_a_folder_of_a_run_is_one_message(here: Path, where: str) -> None:
    in_the_way = here / "results" / "demo" / where
    in_the_way.parent.mkdir(parents=True)
    in_the_way.touch()
    with pytest.raises(
        AssertionError, match=rf"^results/demo/{where}: a file lies where a folder belongs\. Move it away"
    ):
        study(True, {"CONNECTOR_TAX_DATE": "2026-01-31"})
    study(False, {"CONNECTOR_TAX_DATE": "2026-01-31"})  # whoever reads leaves it out


def test_processes_started_after_midnight_keep_the_date(here: Path) -> None:
    environment: dict[str, str] = {}
    date = study(True, environment).date
    assert environment["CONNECTOR_TAX_DATE"] == date


def test_reading_takes_over_analysis_settings_and_nothing_else(here: Path) -> None:
    """Otherwise a changed setting would run the analysis again with the old one; and what was measured
    stays described as it was measured."""
    begin(study(True))
    before = campaign_file(here)
    begin(study(False, analysis={"bootstrap_draws": 777}, cell={"duration_s": 2.5}))
    after = campaign_file(here)
    assert after["config"]["analysis"]["bootstrap_draws"] == 777
    after["config"]["analysis"] = before["config"]["analysis"]
    assert after == before


def test_reading_starts_no_campaign(here: Path) -> None:
    begin(study(False))
    assert not (here / "results").exists()


def test_reading_takes_what_is_on_disk(here: Path) -> None:
    """A campaign that stopped in Phase A can be looked at; one that measures waits for all of it."""
    folder = study(True).folder
    receipt = folder.run("2026-01-31", "plain", "a").receipt
    receipt.parent.mkdir(parents=True)
    receipt.write_text("{}")
    reading = study(False)
    assert reading.to_read() == [str(receipt)]
    assert reading.rates_to_read() == []
    folder.reference_rates.write_text("{}")
    assert reading.rates_to_read() == [str(folder.reference_rates)]
    assert len(study(True).to_read()) == 3 * 8
    # Of what is older nothing follows.
    for made in (folder.aggregate, folder.manifest):
        made.write_text("{}")
    assert study(False).to_read() == []


def test_where_nothing_was_measured_the_start_is_named(here: Path) -> None:
    with pytest.raises(
        AssertionError, match=r"nothing measured there yet.* Measure it first with connector-tax run"
    ):
        study(False).to_read()


def test_a_campaign_is_started_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second start would remove the receipts of the first; when that has ended, however it did, the next may begin."""
    started = ExitStack()
    monkeypatch.setattr(workflow, "_STARTED", started)
    study(True).begin()
    with pytest.raises(
        AssertionError, match=f"demo was started already and is going on .process {os.getpid()}."
    ):
        study(True).begin()
    study(False).begin()  # who only reads measures nothing
    started.close()
    aside = study(True).folder.root / "2026-01-31_plain" / ".phase_a.replaced"
    aside.mkdir(parents=True)  # as a killed `advance --take` leaves it
    study(True).begin()
    assert [p.name for p in aside.parent.iterdir()] == ["phase_a"]
    started.close()


def test_a_start_on_a_file_system_that_does_not_lock_is_one_message(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(handle: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(
        AssertionError, match=r"the lock of campaign demo cannot be taken \(No locks available\)"
    ):
        study(True).begin()


def test_phase_d_waits_for_every_phase_before_it_and_blocks_wait_for_phase_d(here: Path) -> None:
    """The rates are no more than an order here: closed loops have none."""
    config = {
        **demo(),
        "phase_d": {"cached_tokens": [0, 16000], "warmup_s": 1, "duration_s": 2},
        "repeats": 1,
    }
    found = open_study(config, "demo.yaml", measuring=True, environment={})
    waits_for = waited_for(found)
    assert waits_for["d"] == ["phase_b", "phase_b_prime"]
    assert waits_for["r1"] == ["phase_b", "phase_b_prime", "phase_d"]
    assert any(r.endswith("phase_d/receipt.json") for r in found.left())


def waited_for(found: Study) -> dict[str, list[str]]:
    """Phases by whose receipts those of each wait."""
    phases = {}
    for phase in found.config.phases:
        files = found.before(SimpleNamespace(phase=phase, connector="plain"))
        phases[phase] = sorted({Path(f).parent.name for f in files if f.endswith("receipt.json")})
        assert ("reference_rates.json" in {Path(f).name for f in files}) == (phase != "a")
    return phases


def several(**engine: Any) -> Study:
    config = {**demo(engine={"gpus": [0, 2], **engine}), "repeats": 2}
    return open_study(config, "demo.yaml", measuring=True, environment={})


def test_one_engine_at_a_time_is_the_limit_of_one_card(here: Path) -> None:
    found = study(True)
    assert found.limits(None) == found.limits(1) == found.limits(4) == {"gpu": 1}
    assert found.cards() == {}


def test_jobs_take_a_card_each_and_no_more_than_there_are(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = several()
    assert (found.limits(None), found.limits(1)) == ({"gpu": 2}, {"gpu": 1})
    assert capsys.readouterr().err == ""
    assert found.limits(4) == {"gpu": 2}
    assert "--resources gpu=4: campaign demo may use 2 (engine.gpus: 0, 2)." in capsys.readouterr().err


def test_a_phase_that_stays_on_a_card_takes_that_one(here: Path) -> None:
    found = several(mix_cards=False)
    assert found.limits(None) == {"gpu": 2, "card0": 1, "card1": 1}

    def taken(phase: str) -> dict[str, int]:
        return {name: of(SimpleNamespace(phase=phase)) for name, of in found.cards().items()}

    assert taken("a") == taken("b_prime") == {"card0": 1, "card1": 0}
    assert taken("b") == taken("r1") == {"card0": 0, "card1": 1}
    assert waited_for(found) == {"a": [], "b": [], "b_prime": [], "r1": ["phase_b"], "r2": ["phase_b_prime"]}


def test_on_several_cards_a_later_phase_comes_after_all_of_an_earlier_one(here: Path) -> None:
    """Both may be ready at once, so that no card idles at the end of the earlier one."""
    found = several()
    first, second = (
        [found.position(SimpleNamespace(phase=p, connector=c)) for c in found.config.members(p)]
        for p in ("r1", "r2")
    )
    assert min(first) > max(second)
    assert sorted(
        study(True).position(SimpleNamespace(phase="a", connector=c))
        for c in study(True).config.connector_ids
    ) == list(range(1, len(study(True).config.connector_ids) + 1))


def test_a_stage_that_is_none_leads_to_one(here: Path) -> None:
    """Snakemake has no remedy for it, and takes another campaign's file for one that is made already."""
    found = study(True)
    made = str(found.folder.aggregate)
    rules = [SimpleNamespace(name=n, is_producer=lambda file: file == made) for n in ("phase_a", "report")]
    found.folder.root.mkdir(parents=True)
    found.folder.campaign_file.write_text("{}")
    found.refuse_unknown(["report", "phase_a", made, str(found.folder.campaign_file)], rules)
    (here / "other.yaml").write_text("")
    for target, remedy in (("phse_a", r"Did you mean phase_a\?"), ("other.yaml", "Stages: phase_a, report")):
        with pytest.raises(AssertionError, match=rf"^{target}: no stage .*{remedy}"):
            found.refuse_unknown([target], rules)


def test_a_start_that_failed_ends_with_what_its_jobs_complained_of(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stood some twenty lines above the end, between Snakemake's rules. Logs of earlier starts are not repeated."""
    found = study(measuring=False)
    failed = [SimpleNamespace(log=[])]
    found.say_why(failed)
    preflight, draw, noop = (found.logs / f"{name}.log" for name in ("preflight", "draw", "measure_a_noop"))
    found.logs.mkdir(parents=True)
    preflight.write_text("trying plain\nerror: engine.python: not set.\n")
    draw.write_text("error: of yesterday\n")
    (found.logs / "gone.log").symlink_to("nowhere")
    found.begin()
    found.say_why(failed)
    assert capsys.readouterr().err == ""
    # Nothing failed: Snakemake was told to end, and its job had come to its end.
    with pytest.raises(SystemExit, match="130"):
        found.say_why()
    assert "interrupted; what was finished is kept\nThe same command goes on." in capsys.readouterr().err

    # The next start has another reason. Preflight's log is continued, as measuring jobs do it.
    with preflight.open("a") as log:
        log.write("preflight: plain is included\n")
    # A byte that is no text, words that are long and go on, and a job that began again behind them.
    long = b"x" * 70 + b"\n"
    noop.write_bytes(
        long * 30_000
        + b"error: \xff is \x1b[5mfull\nMend the host.\n2026-01-31 10:00:00 phase A: on\nwhat else\n"
    )
    found.say_why()
    assert (
        capsys.readouterr().err == f"\nWhy it ended:\nerror: \ufffd is  [5mfull ({noop})\n  Mend the host.\n"
    )

    found.begin()
    draw.write_text("error: of yesterday\n")  # again, and written anew
    with preflight.open("a") as log:
        log.write("interrupted; what was finished is kept\n")
    with pytest.raises(SystemExit, match="130"):
        found.say_why()
    assert capsys.readouterr().err == (
        f"\nWhy it ended:\nerror: of yesterday ({draw})\ninterrupted; what was finished is kept ({preflight})\n"
        "The same command goes on.\n"
    )


@pytest.mark.parametrize("told", [True, False])
def test_a_quiet_start_lets_snakemake_speak_where_no_job_said_more(
    here: Path, capsys: pytest.CaptureFixture[str], told: bool
) -> None:
    """And names the command that goes on. What a launch inherits does not say who started it."""
    environment = {"CONNECTOR_TAX_COMMAND": "connector-tax run my.yaml", "CONNECTOR_TAX_QUIET": "1"}
    found = study(True, environment)
    assert not {"CONNECTOR_TAX_COMMAND", "CONNECTOR_TAX_QUIET"} & environment.keys()
    logger = logging.Logger("snakemake")
    heard = logging.StreamHandler()
    heard.name = "DefaultStreamHandler"
    logger.addHandler(heard)
    found.hush(logger)
    logger.info("Building DAG of jobs...")
    logger.error("RuleException")
    if told:
        found.logs.mkdir(parents=True)
        (found.logs / "preflight.log").write_text("interrupted; what was finished is kept\n")
        with pytest.raises(SystemExit, match="130"):
            found.say_why()
    logger.error("WorkflowError")
    for handler in logger.handlers:
        handler.flush()
    said = capsys.readouterr().err
    assert "DAG" not in said
    assert ("RuleException\nWorkflowError\n" in said) is not told
    assert said.endswith("Go on: connector-tax run my.yaml\n") is told


def test_a_folder_that_was_renamed_is_read_and_not_gone_on_with(here: Path) -> None:
    """A start wrote the new name into ``campaign.json``: nothing was measured, every cell was another campaign's, and no tax was left."""
    campaign = Campaign(Path("results/demo"), campaign_config(), max_steps=30)
    campaign.measure("plain")
    campaign.folder.root.rename("results/other")

    def renamed(measuring: bool) -> Study:
        return open_study({**demo(), "campaign": "other"}, "demo.yaml", measuring=measuring, environment={})

    renamed(False).begin()
    with pytest.raises(AssertionError, match=r"campaign: was 'demo' .* and is 'other' in the config"):
        renamed(True)
    assert json.loads(Path("results/other/campaign.json").read_text())["campaign"] == "demo"


def test_a_finished_run_has_no_rule_and_one_whose_cell_is_gone_has(here: Path) -> None:
    """Whatever Snakemake knows of parameters, times and code: what no rule makes is not made again."""
    campaign = Campaign(Path("results/demo"), campaign_config(), max_steps=10)
    campaign.measure("plain")
    receipt = campaign.run("plain", "a").receipt

    def made(found: Study) -> bool:
        pattern = re.escape(found.receipt).replace(r"\{connector\}", f"({found.left_pattern})")
        return re.fullmatch(pattern.replace(r"\{phase\}", "([a-z_0-9]+)"), str(receipt)) is not None

    found = study(True)
    assert not made(found) and str(receipt) not in found.left() and found.newer == {}
    assert str(campaign.run("noop_connector", "a").receipt) in found.left()
    cell = campaign.run("plain", "a").finished_cells()[0]
    shutil.rmtree(cell.path)
    found = study(True)
    assert made(found) and str(receipt) in found.left()
    plain = SimpleNamespace(phase="a", connector="plain")
    assert Path(found.before(plain)[0]).stat().st_mtime > receipt.stat().st_mtime
    assert receipt.exists()
    begin(found)
    assert not receipt.exists() and not Path(found.newer[receipt]).exists()


def test_a_process_that_was_started_for_a_job_does_it_whatever_is_left(here: Path) -> None:
    """A batch system begins a job again whose receipt was written already: it failed for want of a rule."""
    campaign = Campaign(Path("results/demo"), campaign_config(), max_steps=10)
    campaign.measure("plain")
    job = study(True, {"CONNECTOR_TAX_START": "of another process"})
    assert re.fullmatch(job.left_pattern, "plain")
    assert job.left() == [] and job.newer == {}
    assert job.before(SimpleNamespace(phase="a", connector="plain")) == []


def test_other_settings_of_the_analysis_have_it_made_again_and_nothing_else(here: Path) -> None:
    campaign = Campaign(Path("results/demo"), campaign_config(), max_steps=10)
    campaign.measure("plain")
    for made in (campaign.folder.aggregate, campaign.folder.manifest):
        made.write_text("{}")
    for measuring in (True, False):
        assert study(measuring).settings_to_read() == ["results/demo/campaign.json"]
        now = study(measuring, analysis={"confidence": 0.9})
        assert list(now.newer) == [campaign.folder.aggregate]
        assert now.settings_to_read()[0] == now.newer[campaign.folder.aggregate]
        assert str(campaign.run("plain", "a").receipt) not in now.to_read()
        workflow._STARTED.close()


@pytest.fixture
def with_logs(here: Path) -> Study:
    """One that reads, in a project that has a place for logs."""
    found = study(measuring=False)
    found.logs.mkdir(parents=True)
    return found


def test_a_job_that_was_killed_is_named_with_its_log(
    with_logs: Study, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says nothing itself, so nothing stood under "Why it ended:". Snakemake's own log has the signal, or a shell's code for it."""
    found = with_logs
    found.begin()
    names = ("measure_a_plain", "aggregate", "draw", "report", "preflight")
    logs = {name: found.logs / f"{name}.log" for name in names}
    for log in logs.values():
        log.write_text("2026-01-31 10:00:00 phase A: on\n")
    logs["preflight"].write_text("error: no such model\n")
    account = here / "snakemake.log"
    account.write_text(
        f"Command 'exec python scripts/measure.py --log {logs['measure_a_plain']}' died with <Signals.SIGKILL: 9>.\n"
        f"Command 'python scripts/analyze.py 2>&1 | tee {logs['aggregate']}' returned non-zero exit status 139.\n"
        f"Command 'python scripts/plot.py 2>&1 | tee {logs['draw']}' returned non-zero exit status 70.\n"
        f"Command 'exec python scripts/preflight.py --log {logs['preflight']}' returned non-zero exit status 2.\n"
    )
    jobs = [SimpleNamespace(log=[str(log)], jobid=k) for k, log in enumerate(logs.values())]
    found.say_why(jobs, [str(account)])
    assert capsys.readouterr().err.splitlines() == [
        "",
        "Why it ended:",
        f"error: no such model ({logs['preflight']})",
        f"killed by SIGSEGV ({logs['aggregate']})",
        f"ended with exit code 70 ({logs['draw']})",
        f"killed by SIGKILL ({logs['measure_a_plain']})",
        f"ended without a word, as what is killed does ({logs['report']})",
        "The same command goes on.",
    ]


def test_of_a_job_that_was_not_killed_nothing_is_invented(
    with_logs: Study, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs of a group that never began, one that was never started, and one that finished: all were said to have ended as what is killed does."""
    found = with_logs
    names = ("aggregate", "figures", "report", "measure_a_plain", "measure_b_plain")
    aggregate, draw, report, never, whole = jobs = [
        SimpleNamespace(log=[str(found.logs / f"{name}.log")], jobid=k) for k, name in enumerate(names, 1)
    ]
    for job in jobs:
        Path(job.log[0]).write_text("of an earlier start\n")
    found.begin()
    account = here / "snakemake.log"
    account.write_text("Job 5  completed successfully, but some output files are missing.\n")
    group = SimpleNamespace(jobs=[report, aggregate, draw], log=())
    Path(aggregate.log[0]).write_text("read\n")
    Path(whole.log[0]).write_text("done\n")
    os.utime(aggregate.log[0], ns=(1, time.time_ns() - 10**9))
    Path(draw.log[0]).write_text("drawing\n")
    found.say_why([never, whole, group], [str(account)])
    assert capsys.readouterr().err.splitlines()[2:] == [
        f"ended without a word, as what is killed does ({draw.log[0]})",
        f"ended before it wrote into its log ({never.log[0]})",
    ]
    Path(aggregate.log[0]).write_text("error: no cell\n")
    found.say_why([group])
    assert capsys.readouterr().err.splitlines()[2:] == [f"error: no cell ({aggregate.log[0]})"]
