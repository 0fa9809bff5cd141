"""What decides whether a Snakemake run may measure, and what it takes over from an earlier start."""

import base64
import errno
import fcntl
import json
import os
import shutil
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from snakemake.persistence import MetadataRecord
from snakemake.persistence.db import DbPersistence

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import Campaign, campaign_config

from connector_tax import unseen_edits, workflow
from connector_tax.base.config import parse_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.files import write_json
from connector_tax.base.plan.edits import has_record
from connector_tax.workflow import Study, only_reads, open_study, requested_targets


def targets(*arguments: str) -> frozenset[str]:
    return requested_targets(["--cores", "1", *arguments], {})


@pytest.mark.parametrize(
    "arguments",
    [
        ["figures"],
        ["analysis", "report"],
        ["revert_patch"],
        ["results/demo/report.html"],
        ["./results/demo/figures/index.json", "manifest"],
        ["--until", "figures"],
        ["--forcerun", "report"],
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
        ["all"],
        ["phase_b"],
        ["figures", "phase_a"],
        ["--until", "phase_a"],
        ["results/demo/reference_rates.json"],
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


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_date_of_the_first_start_is_kept(here: Path) -> None:
    """Folders carry it: a resume after midnight must find what was measured before."""
    study(True, {"CONNECTOR_TAX_DATE": "2026-01-31"}).write_campaign_file()
    first = campaign_file(here)
    resumed = study(True, {"CONNECTOR_TAX_DATE": "2026-02-01"})
    assert resumed.date == "2026-01-31"
    resumed.write_campaign_file()
    assert campaign_file(here) == first


def test_a_campaign_whose_description_was_removed_keeps_its_date(here: Path) -> None:
    """As the message on a damaged one advises: with today's date all of it would be measured again."""
    first = study(True, {"CONNECTOR_TAX_DATE": "2026-01-31"})
    (first.folder.root / "2026-01-31_plain").mkdir(parents=True)
    assert study(True, {}).date == "2026-01-31"


@pytest.mark.parametrize("measuring", [True, False])
def test_a_file_in_the_place_of_the_results_is_one_message(
    here: Path, measuring: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "results").mkdir()
    (here / "results" / "demo").touch()

    def refuse(message: str) -> None:
        raise AssertionError(message)

    monkeypatch.setattr(workflow, "stop", refuse)
    with pytest.raises(
        AssertionError,
        match=r"^results/demo: is no folder, and the campaign's results go there\. Move it away",
    ):
        study(measuring)


@pytest.mark.parametrize(
    "where",
    ["logs", "preflight", "2026-01-31_plain", "2026-01-31_plain/phase_a", "2026-01-31_plain/phase_b/cells"],
)
def test_a_file_in_the_place_of_a_folder_of_a_run_is_one_message(
    here: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_way = here / "results" / "demo" / where
    in_the_way.parent.mkdir(parents=True)
    in_the_way.touch()
    monkeypatch.setattr(workflow, "stop", refuse)
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
    study(True).write_campaign_file()
    before = campaign_file(here)
    study(False, analysis={"bootstrap_draws": 777}, cell={"duration_s": 2.5}).write_campaign_file()
    after = campaign_file(here)
    assert after["config"]["analysis"]["bootstrap_draws"] == 777
    after["config"]["analysis"] = before["config"]["analysis"]
    assert after == before


def test_reading_starts_no_campaign(here: Path) -> None:
    study(False).write_campaign_file()
    assert not (here / "results").exists()


def test_reading_takes_what_is_on_disk(here: Path) -> None:
    """A campaign that stopped in Phase A can be looked at; one that measures waits for all of it."""
    folder = study(True).folder
    receipt = folder.run("2026-01-31", "plain", "a").receipt
    receipt.parent.mkdir(parents=True)
    receipt.write_text("{}")
    reading = study(False)
    assert reading.receipts_to_read() == [str(receipt)]
    assert reading.rates_to_read() == []
    folder.reference_rates.write_text("{}")
    assert reading.rates_to_read() == [str(folder.reference_rates)]
    assert len(study(True).receipts_to_read()) == 3 * 8


@pytest.mark.parametrize(("engine", "cores"), [({}, 1), ({"gpus": [0, 1, 2, 3]}, 4)])
def test_where_nothing_was_measured_the_start_is_named_with_all_cards(
    here: Path, monkeypatch: pytest.MonkeyPatch, engine: dict[str, Any], cores: int
) -> None:
    def refuse(message: str) -> None:
        raise AssertionError(message)

    monkeypatch.setattr(workflow, "stop", refuse)
    with pytest.raises(
        AssertionError, match=rf"nothing measured there yet.* Run `snakemake --cores {cores}` first"
    ):
        study(False, engine=engine).receipts_to_read()


def test_a_campaign_is_started_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second start would remove the receipts of the first; when that has ended, however it did, the next may begin."""
    started = ExitStack()
    monkeypatch.setattr(workflow, "_STARTED", started)
    monkeypatch.setattr(workflow, "stop", refuse)
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
    monkeypatch.setattr(workflow, "stop", refuse)
    with pytest.raises(
        AssertionError, match=r"the lock of campaign demo cannot be taken \(No locks available\)"
    ):
        study(True).begin()


def refuse(message: str) -> None:
    raise AssertionError(message)


def test_phase_d_waits_for_every_phase_before_it_and_blocks_wait_for_phase_d(here: Path) -> None:
    """The rates are no more than an order here: closed loops have none."""
    config = {
        **demo(),
        "phase_d": {"cached_tokens": [0, 16000], "warmup_s": 1, "duration_s": 2},
        "repeats": 1,
    }
    found = open_study(config, "demo.yaml", measuring=True, environment={})
    waits_for = {Path(r).parent.name for r in found.receipts_before("d")}
    assert waits_for == {"phase_b", "phase_b_prime"}
    assert {Path(r).parent.name for r in found.receipts_before("r1")} == {
        "phase_b",
        "phase_b_prime",
        "phase_d",
    }
    assert any(r.endswith("phase_d/receipt.json") for r in found.last_receipts())


def several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **engine: Any) -> Study:
    monkeypatch.chdir(tmp_path)
    config = {**demo(engine={"gpus": [0, 2], **engine}), "repeats": 2}
    return open_study(config, "demo.yaml", measuring=True, environment={})


def test_one_engine_at_a_time_is_the_limit_of_one_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = study(True)
    assert found.limits(None) == found.limits(1) == found.limits(4) == {"gpu": 1}
    assert found.card("a") == found.card(None) == {}


def test_jobs_take_a_card_each_and_no_more_than_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = several(tmp_path, monkeypatch)
    assert (found.limits(None), found.limits(1)) == ({"gpu": 2}, {"gpu": 1})
    assert capsys.readouterr().err == ""
    assert found.limits(4) == {"gpu": 2}
    assert "--resources gpu=4: campaign demo may use 2 (engine.gpus: 0, 2)." in capsys.readouterr().err


def test_a_phase_that_stays_on_a_card_takes_that_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = several(tmp_path, monkeypatch, mix_cards=False)
    assert found.limits(None) == {"gpu": 2, "card0": 1, "card1": 1}

    def taken(phase: str | None, /, **wildcards: str) -> dict[str, int]:
        return {name: of(SimpleNamespace(**wildcards)) for name, of in found.card(phase).items()}

    assert taken("a") == taken("b_prime") == {"card0": 1, "card1": 0}
    assert taken("b") == taken(None, phase="r1") == {"card0": 0, "card1": 1}
    waits = {p: sorted({Path(r).parent.name for r in found.receipts_before(p)}) for p in found.config.phases}
    assert waits == {"a": [], "b": [], "b_prime": [], "r1": ["phase_b"], "r2": ["phase_b_prime"]}


def test_on_several_cards_a_later_phase_comes_after_all_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both may be ready at once, so that no card idles at the end of the earlier one."""
    found = several(tmp_path, monkeypatch)
    first, second = (
        [found.position(None)(SimpleNamespace(phase=p, connector=c)) for c in found.config.members(p)]
        for p in ("r1", "r2")
    )
    assert min(first) > max(second)
    monkeypatch.chdir(tmp_path)
    assert sorted(
        study(True).position("a")(SimpleNamespace(connector=c)) for c in study(True).config.connector_ids
    ) == list(range(1, len(study(True).config.connector_ids) + 1))


RATES = {"phase_a": {"rates_per_s": [20, 30, 40, 80]}}
EDITS: list[tuple[str, dict[str, Any], bool, set[str]]] = [
    ("nothing", {}, True, set()),
    ("a rate", RATES, True, {"2026-01-31_plain/phase_a/receipt.json"}),
    ("a rate, and figures are asked for", RATES, False, set()),
    ("the engine", {"engine": {"env": {"A": "1"}}}, True, {"preflight/preflight_status.json", "2026-01-31_plain/phase_a/receipt.json", "2026-01-31_plain/phase_b/receipt.json"}),
    ("true for 1, which are equal to Python", {"engine": {"args": {"max_model_len": 4096, "max_num_batched_tokens": 512, "enable_prefix_caching": 1}}}, True, {"preflight/preflight_status.json", "2026-01-31_plain/phase_a/receipt.json", "2026-01-31_plain/phase_b/receipt.json"}),
    ("the analysis", {"analysis": {"confidence": 0.9}}, False, {"aggregate.json"}),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "changes", "measuring", "wanted"), EDITS, ids=[e[0] for e in EDITS])
def test_an_edit_that_snakemake_cannot_see_is_refused_and_every_file_named(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    edit: str,
    changes: dict[str, Any],
    measuring: bool,
    wanted: set[str],
) -> None:
    """Without ``.snakemake`` it has nothing to hold the config against: it said "Nothing to be done", and the report was of another config."""
    monkeypatch.setattr(workflow, "stop", refuse)
    environment = {"CONNECTOR_TAX_DATE": "2026-01-31"}
    study(True, environment).write_campaign_file()
    root = Path("results") / "demo"
    made = [f"2026-01-31_plain/phase_{p}/receipt.json" for p in "ab"]
    made += ["preflight/preflight_status.json", "aggregate.json"]
    for name in made:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}")
    if not wanted:
        study(measuring, environment, **changes)
        return
    with pytest.raises(AssertionError, match="edited since campaign demo was measured") as told:
        study(measuring, environment, **changes)
    assert f"no record of what these files ({len(wanted)}) were made with" in str(told.value)
    rm = str(told.value).splitlines()[-1]
    assert {str(Path(p).relative_to(root)) for p in rm.split()[1:]} == wanted
    # What Snakemake knows of it makes anew itself; and so it does what is not there. Of a torn record it knows nothing.
    for text in ('{"params": [', '{"params": []}'):
        for name in wanted:
            record = Path(".snakemake/metadata", base64.urlsafe_b64encode(str(root / name).encode()).decode())
            record.parent.mkdir(parents=True, exist_ok=True)
            record.write_text(text)
        if text.endswith("["):
            with pytest.raises(AssertionError, match="edited since campaign demo"):
                study(measuring, environment, **changes)
    study(measuring, environment, **changes)
    shutil.rmtree(".snakemake")
    for name in wanted:
        (root / name).unlink()
    study(measuring, environment, **changes)


def test_a_start_that_failed_ends_with_what_its_jobs_complained_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stood some twenty lines above the end, between Snakemake's rules. Logs of earlier starts are not repeated."""
    monkeypatch.chdir(tmp_path)
    found = study(measuring=False)
    found.say_why()
    preflight, draw, noop = (found.logs / f"{name}.log" for name in ("preflight", "draw", "measure_a_noop"))
    found.logs.mkdir(parents=True)
    preflight.write_text("trying plain\nerror: engine.python: not set.\n")
    draw.write_text("error: of yesterday\n")
    (found.logs / "gone.log").symlink_to("nowhere")
    found.begin()
    found.say_why()
    assert capsys.readouterr().err == ""

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
    found.say_why()
    assert capsys.readouterr().err == (
        f"\nWhy it ended:\nerror: of yesterday ({draw})\ninterrupted; what was finished is kept ({preflight})\n"
        "The same command goes on.\n"
    )


@pytest.mark.parametrize("reference", ["${HF_TOKEN}", "${STORE}/kv"])
def test_an_edit_that_refers_to_a_secret_or_a_store_is_an_edit(
    here: Path, monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    """HF_TOKEN was said not to be set, which it was, and STORE, which nobody sets: there was no way on."""
    monkeypatch.setattr(workflow, "stop", refuse)
    monkeypatch.setenv("HF_TOKEN", "planted-token-1")
    study(True, {"CONNECTOR_TAX_DATE": "2026-01-31"}).write_campaign_file()
    receipt = Path("results/demo/2026-01-31_plain/phase_a/receipt.json")
    receipt.parent.mkdir(parents=True)
    receipt.write_text("{}")
    with pytest.raises(AssertionError, match="edited since campaign demo") as told:
        study(True, engine={"env": {"A": reference}})
    assert f"rm {receipt}" in str(told.value)


def test_an_edit_of_a_start_that_was_interrupted_is_seen_without_snakemakes_records(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``campaign.json`` is edited since then, and the receipt is of the config before: it was taken for what is wanted now."""
    monkeypatch.setattr(workflow, "stop", refuse)
    campaign = Campaign(Path("results/demo"), campaign_config(), max_steps=30)
    campaign.measure("plain")
    receipt = campaign.run("plain", "a").receipt
    study(True)
    edit: dict[str, Any] = {"engine": {"env": {"A": "1"}}}
    replace(study(True), config=parse_campaign(demo(**edit), "demo.yaml")).write_campaign_file()
    campaign.folder.preflight_status.unlink()  # as Snakemake does before it makes it again
    with pytest.raises(AssertionError, match="edited since campaign demo was measured") as told:
        study(True, **edit)
    assert str(told.value).splitlines()[-1] == f"rm {receipt}"
    receipt.unlink()
    study(True, **edit)


def test_a_folder_that_was_renamed_is_read_and_not_gone_on_with(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start wrote the new name into ``campaign.json``: nothing was measured, every cell was another campaign's, and no tax was left."""
    monkeypatch.setattr(workflow, "stop", refuse)
    campaign = Campaign(Path("results/demo"), campaign_config(), max_steps=30)
    campaign.measure("plain")
    campaign.folder.root.rename("results/other")

    def renamed(measuring: bool) -> Study:
        return open_study({**demo(), "campaign": "other"}, "demo.yaml", measuring=measuring, environment={})

    renamed(False).begin()
    with pytest.raises(
        AssertionError, match=r"receipt\.json: of campaign demo \(2 files\), and other is to be measured"
    ):
        renamed(True).begin()
    workflow._STARTED.close()
    assert json.loads(Path("results/other/campaign.json").read_text())["campaign"] == "demo"
    shutil.copytree("results/other", "results/demo")
    study(True).begin()
    workflow._STARTED.close()


def test_a_shape_more_of_a_start_that_was_interrupted_is_seen_without_snakemakes_records(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every cell of the receipt is of the config, and those of the new shape were never measured."""
    monkeypatch.setattr(workflow, "stop", refuse)
    campaign = Campaign(Path("results/demo"), campaign_config(), max_steps=30)
    campaign.measure("plain", "b", rates=(20.0, 40.0))
    receipt, rates = campaign.run("plain", "b").receipt, campaign.folder.reference_rates
    write_json(rates, {"ref_safe_per_s": 20.0, "ref_load_per_s": 40.0, "b_prime_needed": False})
    os.utime(rates, (1, 1))
    study(True)
    edit: dict[str, Any] = {"phase_b": {"output_tokens": [8, 16, 32, 64]}}
    replace(study(True), config=parse_campaign(demo(**edit), "demo.yaml")).write_campaign_file()
    with pytest.raises(AssertionError, match="edited since campaign demo was measured") as told:
        study(True, **edit)
    assert str(told.value).splitlines()[-1] == f"rm {receipt}"
    os.utime(rates)  # selected since: Snakemake measures Phase B again
    study(True, **edit)


def test_a_variable_that_is_not_set_any_more_is_no_edit(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The config was said to be edited, and its files were to be removed, in a shell in which MODEL_FOLDER was not exported again."""
    monkeypatch.setattr(workflow, "stop", refuse)
    engine: dict[str, Any] = {"engine": {"model": "${MODEL_FOLDER}", "env": {"HF_TOKEN": "${HF_TOKEN}"}}}
    monkeypatch.setenv("MODEL_FOLDER", "/models/one")
    study(True, {"CONNECTOR_TAX_DATE": "2026-01-31"}, **engine).write_campaign_file()
    receipt = Path("results/demo/2026-01-31_plain/phase_a/receipt.json")
    receipt.parent.mkdir(parents=True)
    receipt.write_text("{}")
    monkeypatch.delenv("MODEL_FOLDER")
    with pytest.raises(
        AssertionError, match=r"variables that are not set here .* campaign demo: MODEL_FOLDER\."
    ) as told:
        study(True, **engine)
    assert str(receipt) in str(told.value) and "rm " not in str(told.value)
    study(False, **engine)
    monkeypatch.setenv("MODEL_FOLDER", "/models/one")
    study(True, **engine)
    monkeypatch.setenv("MODEL_FOLDER", "/models/another")
    with pytest.raises(AssertionError, match="edited since campaign demo"):
        study(True, **engine)


def test_an_edited_cost_model_is_an_edit(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its content was part of no specification: cells of two models were compared, and nobody said so."""
    monkeypatch.setattr(workflow, "stop", refuse)
    model = here / "costs.yaml"
    shutil.copy(PROJECT_ROOT / "config" / "engine_model_demo.yaml", model)
    engine: dict[str, Any] = {"engine": {"model_file": str(model)}}
    begun = study(True, {"CONNECTOR_TAX_DATE": "2026-01-31"}, **engine)
    begun.write_campaign_file()
    plain = SimpleNamespace(connector="plain")
    before = begun.spec_hash("a")(plain), begun.launches_hash()
    receipt = Path("results/demo/2026-01-31_plain/phase_a/receipt.json")
    receipt.parent.mkdir(parents=True)
    receipt.write_text("{}")
    study(True, **engine)
    model.write_text(model.read_text().replace("base_us: 2000", "base_us: 2001"))
    changed = r"changed is the content of engine.model_file \(.*costs.yaml\)"
    with pytest.raises(AssertionError, match=f"{changed}, since campaign demo was measured"):
        study(True, **engine)
    stored = begun.folder.campaign_file
    document = json.loads(stored.read_text())
    del document["config"]["engine"]["model_sha256"]
    stored.write_text(json.dumps(document))
    with pytest.raises(
        AssertionError,
        match=f"{changed}, which the version that began the campaign did not write down, since",
    ):
        study(True, **engine)
    monkeypatch.setattr(unseen_edits, "has_record", lambda path: True)
    study(True, **engine).begin()
    workflow._STARTED.close()
    assert (
        "which the version that began the campaign did not write down: every cell is measured again"
        in capsys.readouterr().err
    )
    now = study(True, **engine)
    assert not set(before) & {now.spec_hash("a")(plain), now.launches_hash()}


def test_only_a_files_own_record_in_snakemakes_database_counts(here: Path) -> None:
    """Where there was a database, every file was taken to have a record in it."""
    receipt = Path("results/demo/2026-01-31_plain/phase_a/receipt.json")
    database = DbPersistence(path=here / ".snakemake")
    assert not has_record(receipt)
    database._write_record(str(receipt), MetadataRecord(rule="measure_a"))
    assert has_record(receipt) and not has_record(receipt.with_name("other.json"))
    (here / ".snakemake" / "metadata.db").write_bytes(b"no database")
    assert not has_record(receipt)


def with_logs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """One that reads, in a project at ``folder`` that has a place for logs."""
    monkeypatch.chdir(folder)
    found = study(measuring=False)
    found.logs.mkdir(parents=True)
    return found


def test_a_job_that_was_killed_is_named_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says nothing itself, so nothing stood under "Why it ended:". Snakemake's own log has the signal, or a shell's code for it."""
    found = with_logs(tmp_path, monkeypatch)
    found.begin()
    logs = {
        name: found.logs / f"{name}.log"
        for name in ("measure_a_plain", "aggregate", "draw", "report", "preflight")
    }
    for log in logs.values():
        log.write_text("2026-01-31 10:00:00 phase A: on\n")
    logs["preflight"].write_text("error: no such model\n")
    account = tmp_path / "snakemake.log"
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs of a group that never began, one that was never started, and one that finished: all were said to have ended as what is killed does."""
    found = with_logs(tmp_path, monkeypatch)
    names = ("aggregate", "figures", "report", "measure_a_plain", "measure_b_plain")
    aggregate, draw, report, never, whole = jobs = [
        SimpleNamespace(log=[str(found.logs / f"{name}.log")], jobid=k) for k, name in enumerate(names, 1)
    ]
    for job in jobs:
        Path(job.log[0]).write_text("of an earlier start\n")
    found.begin()
    account = tmp_path / "snakemake.log"
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


def test_what_python_warns_of_behind_an_error_is_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = with_logs(tmp_path, monkeypatch)
    found.begin()
    log = found.logs / "preflight.log"
    log.write_text(
        "error: no such model\nGive another.\n"
        "/usr/lib/python3.11/multiprocessing/resource_tracker.py:224: UserWarning: There appear to be 1 leaked objects\n"
        "  warnings.warn('There appear to be ...')\n"
    )
    found.say_why()
    assert capsys.readouterr().err.splitlines()[2:] == [f"error: no such model ({log})", "  Give another."]
