"""The whole DAG on the embedded engine, and what a second look at its results may and may not do."""

import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from checkout import Project

from connector_tax.base.config import load_campaign
from connector_tax.read.report.page import closing_lines
from connector_tax.run.rehearsal.campaign import rehearse

pytestmark = pytest.mark.emulated


@pytest.fixture(scope="module")
def phase_a(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of Phase A, of which tests get copies."""
    project = Project(tmp_path_factory.mktemp("measured") / "checkout")
    project.configure()
    done = project.snakemake("phase_a")
    assert done.returncode == 0, done.stderr[-3000:]
    return project.results


@pytest.fixture
def measured(project: Project, phase_a: Path) -> Project:
    """A checkout into which a measured Phase A was copied."""
    shutil.copytree(phase_a, project.results)
    return project


def scramble_times(root: Path) -> None:
    """What ``git clone`` does: every file gets a time of its own, in no useful order."""
    for index, path in enumerate(sorted(root.rglob("*"), key=lambda p: hash(str(p)))):
        if path.is_file():
            stamp = time.time() - 1000 + index % 997
            os.utime(path, (stamp, stamp))


def test_the_study_runs_ends_in_a_report_and_is_then_done(tmp_path: Path) -> None:
    """All stages, every artifact, all figures or reasons; and reading it again measures nothing. In a folder that a shell would take apart,
    with a proxy that nobody answers at and a variable that is no text."""
    project = Project(tmp_path / "a check'out $(touch HERE)")
    project.configure()
    (project.root / ".venv").symlink_to(sys.prefix)
    proxies = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
    project.environment |= dict.fromkeys(proxies, "http://127.0.0.1:9") | {"VLLM_CAFE": "caf\udce9"}
    done = project.snakemake()
    assert done.returncode == 0, done.stderr[-3000:]
    results = project.results
    for name in ("aggregate.json", "aggregate.csv", "report.html", "MANIFEST.tsv", "reference_rates.json"):
        assert (results / name).stat().st_size > 0, name
    aggregate = json.loads((results / "aggregate.json").read_text())
    assert {c["status"] for c in aggregate["configs"].values()} == {"measured"}
    assert all(c["verdict"] == "valid" for c in aggregate["cells"]), [
        c["reasons"] for c in aggregate["cells"]
    ]
    assert aggregate["problems"] == []
    assert {(o["config"], o["phase"]): o["verdict"] for o in aggregate["outputs"]} == {
        (config, phase): "reference" if (config, phase) == ("plain", "a") else "same"
        for config in ("plain", "noop_connector", "mooncake_both")
        for phase in ("a", "b")
    }
    index = json.loads((results / "figures" / "index.json").read_text())
    assert len(index["figures"]) == 9
    drawn = {f["name"] for f in index["figures"] if f["drawn"]}
    assert {"fig6_step_cdf", "fig7_decomposition", "fig9_attribution"} <= drawn
    run = next(results.glob("*_plain/phase_a"))
    for name in ("config.json", "launch.sh", "vllm_stdout.log", "vllm_stderr.log", "env.txt", "summary.json"):
        assert (run / name).is_file(), name
    assert "VLLM_CAFE=caf\\udce9\n" in (run / "env.txt").read_text()
    assert "## test\n" in (results.parent / "MANIFEST.md").read_text()

    closing = closing_lines(results).splitlines()
    assert done.stdout.splitlines()[-3:] == closing and closing[0] == f"report: {results / 'report.html'}"
    again = project.snakemake()
    assert "Nothing to be done" in again.stderr and again.stdout.splitlines()[-3:] == closing
    # Of a file between two that are there Snakemake does not ask by itself.
    status = results / "preflight" / "preflight_status.json"
    for made, rule in (
        (results / "aggregate.json", "aggregate"),
        (run / "receipt.json", "measure"),
        (status, "preflight"),
    ):
        made.rename(project.root / "away")
        assert f"rule {rule}:" in project.snakemake("--dry-run").stdout, made
        (project.root / "away").rename(made)

    before = project.cells()
    scramble_times(project.root)
    shutil.rmtree(project.root / ".snakemake")
    rules = project.root / "workflow" / "rules" / "measure.smk"
    rules.write_text(rules.read_text().replace('"exec python', '"exec  python'))
    planned = project.snakemake("--dry-run")
    assert "rule measure:" not in planned.stdout and "rule preflight:" not in planned.stdout
    shutil.rmtree(results / "figures")
    (results / "aggregate.json").unlink()
    # An engine that cannot start: reading must not so much as try.
    shutil.rmtree(project.root / "launch")
    again = project.snakemake("figures")
    assert again.returncode == 0, again.stderr[-3000:]
    assert (results / "figures" / "index.json").is_file()
    assert project.cells().keys() == before.keys()
    assert "measure_" not in again.stderr
    assert not list(tmp_path.rglob("HERE"))


def test_another_rate_is_another_campaign_and_a_connector_more_is_measured_alone(measured: Project) -> None:
    project = measured
    before = project.cells()

    def add_a_rate(config):  # type: ignore[no-untyped-def]
        config["phase_a"]["rates_per_s"] = [10, 15, 20]

    project.configure(add_a_rate)
    refused = project.snakemake("phase_a")
    assert (
        refused.returncode == 2 and "campaign.json: phase_a_rates_per_s: was (10.0, 20.0)" in refused.stderr
    )

    def add_a_connector(config):  # type: ignore[no-untyped-def]
        config["connectors"].append("nixl_both")

    project.configure(add_a_connector)
    assert project.snakemake("phase_a").returncode == 0
    after = project.cells()
    assert {k: after[k] for k in before} == before
    assert {k.partition("_")[2].partition("/")[0] for k in after.keys() - before.keys()} == {"nixl_both"}


def test_a_lost_and_a_damaged_cell_are_announced_and_measured_again_alone(measured: Project) -> None:
    """Behind a receipt: Snakemake found nothing to do. A dry run removes nothing."""
    project = measured
    before = project.cells()
    lost, damaged = sorted(k for k in before if "_plain/" in k or "_noop_connector/" in k)[::2]
    shutil.rmtree(project.results / lost)
    requests = next((project.results / damaged).glob("requests_*"))
    os.truncate(requests, 200)
    files = {p: p.read_bytes() for p in project.results.rglob("*") if p.is_file()}
    planned = project.snakemake("phase_a", "--dry-run")
    assert planned.stdout.count("rule measure:") == 2, planned.stdout
    assert "rule preflight:" not in planned.stdout
    for cell, why in ((lost, "is not there"), (damaged, "has 200 bytes, and had ")):
        assert f"cell {Path(cell).name}: " in planned.stderr and why in planned.stderr
    assert {p: p.read_bytes() for p in project.results.rglob("*") if p.is_file()} == files
    done = project.snakemake("phase_a")
    assert done.returncode == 0, done.stderr[-3000:]
    after = project.cells()
    assert after.keys() == before.keys()
    assert {k for k in before if after[k] != before[k]} == {lost, damaged}
    assert "Nothing to be done" in project.snakemake("phase_a").stderr


def test_an_edited_load_generator_discards_nothing_and_says_so(measured: Project) -> None:
    project = measured
    before = project.cells()
    source = project.root / "src" / "connector_tax" / "run" / "loadgen" / "cell.py"
    source.write_text(source.read_text() + "\n# edited\n")
    next(project.results.glob("*_plain/phase_a/receipt.json")).unlink()
    again = project.snakemake("phase_a")
    assert again.returncode == 0, again.stderr[-3000:]
    assert project.cells() == before
    assert "another version of the load generator; kept" in again.stderr


def test_a_campaign_that_is_half_measured_can_be_read_and_then_goes_on(measured: Project) -> None:
    """No reference rates and a receipt missing: figures of what there is, and a resume keeps every cell. Another setting of the analysis
    reaches the analysis alone."""
    project = measured
    before = project.cells()
    (project.results / "reference_rates.json").unlink(missing_ok=True)
    next(project.results.glob("*_noop_connector/phase_a/receipt.json")).unlink()
    read = project.snakemake("report")
    assert read.returncode == 0, read.stderr[-3000:]
    assert (project.results / "report.html").is_file()
    assert project.snakemake("reference_rates").returncode == 0
    assert (project.results / "reference_rates.json").is_file()

    def draw_more(config):  # type: ignore[no-untyped-def]
        config["analysis"]["bootstrap_draws"] = 333

    project.configure(draw_more)
    again = project.snakemake("analysis")
    assert again.returncode == 0, again.stderr[-3000:]
    aggregate = json.loads((project.results / "aggregate.json").read_text())
    assert aggregate["provenance"]["bootstrap_draws"] == 333
    for target in ("analysis", "phase_a"):
        assert "Nothing to be done" in project.snakemake(target).stderr
    assert project.cells() == before


def test_an_edit_of_what_the_analysis_rests_on_runs_it_again_and_one_that_fails_is_a_rule_that_failed(
    project: Project,
) -> None:
    """TTFT is defined in base/records/request.py, which no room of the reading wing owns; the load generator is nothing of the analysis. A failing
    script's message reaches the person and Snakemake its exit code, though a pipe into the log comes after it."""
    rehearse(load_campaign(project.root / "config" / "test.yaml"), project.results.parent, processes=1)
    shutil.move(project.results.with_name("test-rehearsed"), project.results)
    assert project.snakemake("analysis").returncode == 0
    package = project.root / "src" / "connector_tax"
    for name, expected in (("run/loadgen/sse.py", False), ("base/records/request.py", True)):
        (package / name).write_text((package / name).read_text() + "\n# edited\n")
        planned = project.snakemake("analysis", "--dry-run")
        assert planned.returncode == 0, planned.stderr[-3000:]
        assert ("rule aggregate:" in planned.stdout + planned.stderr) == expected, name
    (project.root / "scripts" / "analyze.py").write_text("raise SystemExit('error: the reason why')\n")
    found = project.snakemake("analysis")
    assert found.returncode != 0
    assert "the reason why" in found.stderr + found.stdout
    assert "completed successfully" not in found.stderr
    assert "the reason why" in (project.results / "logs" / "aggregate.log").read_text()


def test_the_patch_can_be_reverted_by_name_without_measuring(project: Project) -> None:
    done = project.snakemake("revert_patch")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "nothing to revert" in done.stderr + done.stdout
    assert project.cells() == {}
    found = project.snakemake("figures")
    assert found.returncode == 2
    assert "nothing measured there yet" in found.stderr
    assert "Traceback" not in found.stderr


def test_a_skipped_configuration_does_not_block_the_rest(project: Project) -> None:
    """A connector whose engine dies at start is skipped with the root cause, everywhere it matters."""
    connectors = project.root / "config" / "connectors.yaml"
    connectors.write_text(
        connectors.read_text()
        + "\nbroken:\n  label: broken on purpose\n"
        + "  kv_transfer_config: {kv_connector: NoOpConnector, kv_role: kv_both}\n"
        + "  env: {CONNECTOR_TAX_FAULT: die_at_start}\n"
        + "\nasleep:\n  label: asleep on purpose\n"
        + "  kv_transfer_config: {kv_connector: NoOpConnector, kv_role: kv_both}\n"
        + "  env: {CONNECTOR_TAX_FAULT: degraded}\n"
    )

    def use(config):  # type: ignore[no-untyped-def]
        config["connectors"] = ["plain", "broken", "asleep"]

    project.configure(use)
    done = project.snakemake("analysis", "phase_a")
    assert done.returncode == 0, done.stderr[-3000:]
    status = json.loads((project.results / "preflight" / "preflight_status.json").read_text())["configs"]
    assert status["broken"]["decision"] == "skip"
    assert "RuntimeError: this engine was told to die at start" in status["broken"]["reason"]
    assert status["asleep"]["decision"] == "skip"
    assert "degraded mode" in status["asleep"]["reason"]
    receipt = json.loads(next(project.results.glob("*_broken/phase_a/receipt.json")).read_text())
    assert receipt["status"] == "skipped"
    aggregate = json.loads((project.results / "aggregate.json").read_text())
    assert aggregate["configs"]["broken"]["status"] == "skipped"


def test_plain_that_cannot_run_stops_everything_with_its_reason(project: Project) -> None:
    def break_plain(config):  # type: ignore[no-untyped-def]
        config["engine"]["env"] = {"CONNECTOR_TAX_FAULT": "die_at_start"}

    project.configure(break_plain)
    done = project.snakemake()
    assert done.returncode != 0
    assert "plain vLLM cannot be measured" in done.stderr
    assert not list(project.results.glob("*_*/phase_a/receipt.json"))
