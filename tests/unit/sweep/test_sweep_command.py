"""``connector-tax sweep``: what it plans, where campaigns stand, and its table."""

import copy
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "track"))
from builders import Campaign
from histories import lose, set_tax, small_example

from connector_tax.base.artifacts.receipts import write_receipt
from connector_tax.base.config import checked
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.files import to_json, write_json
from connector_tax.base.locks import started_once
from connector_tax.base.plan import SIDE_BY_SIDE, campaign_document
from connector_tax.cli import command
from connector_tax.commands import run as run_command
from connector_tax.read.stats.provenance import settings_of
from connector_tax.sweep import Sweep, SweepCell, load_sweep

AXES = {
    "release": [{"name": "r1"}, {"name": "r2", "set": {"engine": {"env": {"RELEASE": "2"}}}}],
    "model": [{"name": "small"}, {"name": "large", "set": {"cell": {"min_completed": 41}}}],
}
BASE = checked.PROJECT_ROOT / "config" / "demo.yaml"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a sweep of two releases and two models of three configurations."""
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "Snakefile").write_text("")
    base = yaml.safe_load(BASE.read_text())
    base |= {"connectors": ["plain", "noop_connector", "nixl_both"], "phase_b_prime": {}}
    base["engine"]["model_file"] = str(checked.PROJECT_ROOT / base["engine"]["model_file"])
    (root / "base.yaml").write_text(yaml.safe_dump(base))
    value = {"sweep": "study", "base": str(root / "base.yaml"), "axes": AXES}
    (root / "sweep.yaml").write_text(yaml.safe_dump(value, sort_keys=False))
    monkeypatch.setattr(checked, "PROJECT_ROOT", root)
    monkeypatch.setattr(run_command, "PROJECT_ROOT", root)
    monkeypatch.chdir(root)
    return root


def sweep_of(project: Path) -> Sweep:
    return load_sweep(project / "sweep.yaml")


def rewritten(project: Path, **changes: Any) -> None:
    value = yaml.safe_load((project / "sweep.yaml").read_text()) | changes
    (project / "sweep.yaml").write_text(yaml.safe_dump(value, sort_keys=False))


def swept(*arguments: str) -> int:
    return command("sweep").call(["sweep.yaml", *arguments])


def rows_of(out: str) -> list[list[str]]:
    """The table's rows, its head first."""
    return [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in out.splitlines()]


def analysed(
    project: Path, name: str, day: int, tax: float, change: Callable[[dict[str, Any]], None] = lambda v: None
) -> None:
    """An aggregate of that campaign in which NIXL's TPOT has this tax; and how the sweep has it measured by now, if it was not begun yet."""
    value = copy.deepcopy(small_example())
    value |= {"campaign": name, "date": f"2026-10-{day:02d}"}
    value["provenance"]["created_utc"] = f"2026-10-{day:02d}T02:00:00Z"
    set_tax(value, tax)
    of = next((c for c in sweep_of(project).cells if c.name == name), None)
    if of is not None:
        value["provenance"] |= measured_with(of)
    change(value)
    folder = project / "results" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "aggregate.json").write_text(json.dumps(value))
    if of is not None and not (folder / "campaign.json").exists():
        write_json(
            folder / "campaign.json",
            campaign_document(of.config, date=value["date"], created_utc=f"{value['date']}T02:00:00Z"),
        )


def measured_with(cell: SweepCell) -> dict[str, Any]:
    """Of ``provenance``, what a campaign of that cell has there."""
    config = json.loads(to_json(campaign_document(cell.config, date="", created_utc="")))["config"]
    return {
        "engine_kind": config["engine"]["kind"],
        "model": config["engine"]["model"],
        "engine_args": config["engine"]["args"],
        "settings": settings_of(config),
        "seed": config["seed"],
    }


def test_the_plan_names_each_campaign_with_its_entries_and_time(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert swept("plan") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("sweep study: 4 campaigns of ")
    assert lines[2].split() == [
        "campaign",
        "release",
        "model",
        "configurations",
        "runs",
        "time",
        "left",
        "state",
    ]
    assert lines[4].split()[:5] == ["study-r1-large", "r1", "large", "3", "0/6"]
    assert lines[4].split()[5].isdecimal()
    assert not (project / "sweeps").exists() and not (project / "results").exists(), "a plan writes nothing"
    assert SIDE_BY_SIDE not in lines


def test_the_status_is_a_line_for_each_campaign(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = sweep_of(project)
    cells = {c.name.removeprefix("study-"): c for c in sweep.cells}
    for name in ("r1-small", "r1-large", "r2-small"):
        Campaign(project / "results" / f"study-{name}", config=cells[name].config)
    for name in ("r1-small", "r1-large"):
        config = cells[name].config
        folder = Campaign(project / "results" / f"study-{name}", config=config)
        for phase in config.phases:
            for k, connector in enumerate(config.members(phase)):
                status, reason = ("failed", "died") if k == 1 and phase == "a" else ("measured", None)
                if name == "r1-small" or (phase == "a" and k == 0):
                    write_receipt(
                        folder.run(connector, phase),
                        campaign=config.campaign,
                        status=status,  # type: ignore[arg-type]
                        reason=reason,
                    )
    analysed(project, "study-r1-small", 1, 0.1)
    write_json(
        project / "results" / "study-r1-small" / "reference_rates.json",
        {"ref_safe_per_s": 2.0, "ref_load_per_s": 2.0, "b_prime_needed": False},
    )
    for made in (
        "report.html",
        "aggregate.csv",
        "figures/index.json",
        "MANIFEST.tsv",
    ):
        file = project / "results" / "study-r1-small" / made
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
    # Another size of its cells than the file says today.
    other = sweep.cells[3].config
    Campaign(project / "results" / cells["r2-large"].name, config=cells["r2-small"].config)
    assert other.campaign == "study-r2-large"
    assert swept("status") == 0
    said = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert said["study-r1-small"].endswith("  finished: noop_connector failed")
    assert said["study-r1-large"].endswith("  stopped") and "  1/6  " in said["study-r1-large"]
    assert said["study-r2-small"].endswith("  stopped") and "  0/6  " in said["study-r2-small"]
    assert said["study-r2-large"].endswith("  changed: campaign, cell.min_completed")
    assert any(line.startswith("1 of 4 campaigns finished, about ") for line in said)


def test_a_variable_that_another_shell_has_is_no_edit(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    value = yaml.safe_load((project / "sweep.yaml").read_text())
    value["axes"]["model"][1]["set"]["engine"] = {"model": "${SOME_MODEL}"}
    (project / "sweep.yaml").write_text(yaml.safe_dump(value, sort_keys=False))
    monkeypatch.setenv("SOME_MODEL", "/models/some")
    Campaign(project / "results" / "study-r1-large", config=sweep_of(project).cells[1].config)
    monkeypatch.delenv("SOME_MODEL")
    swept("status")
    assert "  stopped\n" in capsys.readouterr().out
    monkeypatch.setenv("SOME_MODEL", "/models/other")
    swept("status")
    assert "  changed: engine.model\n" in capsys.readouterr().out


def test_a_damaged_campaign_keeps_no_other_from_being_told(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = project / "results" / "study-r1-small"
    broken.mkdir(parents=True)
    (broken / "campaign.json").write_text("[]")
    assert swept("status") == 0
    out = capsys.readouterr().out
    assert "  unreadable: " in out and out.count("not started") == 3


def test_run_measures_each_campaign_once_and_says_which_failed(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With a process in Snakemake's place that notes its file, and ends as it is told for that campaign."""
    code = (
        "import sys, pathlib, yaml; name = yaml.safe_load(open(sys.argv[1]))['campaign'];"
        "open('measured', 'a').write(name + '\\n'); sys.exit(name.endswith('r1-large') and not pathlib.Path('mended').exists())"
    )
    asked: list[tuple[Any, ...]] = []

    def stand_in(configfile: Path, cores: int | None, *more: str) -> list[str]:
        asked.append((cores, *more))
        return [sys.executable, "-c", code, str(configfile)]

    monkeypatch.setattr(run_command, "snakemake_command", stand_in)
    names = [c.name for c in sweep_of(project).order]
    assert swept("run") == 1
    out, err = capfd.readouterr()
    assert (project / "measured").read_text().split() == names
    assert err.startswith("failed: study-r1-large; ")
    assert "3 of 4 campaigns came to their end." in err
    assert "campaign study-r1-large failed: exit code 1" in out
    assert "campaign 4 of 4: study-r2-large" in out
    (project / "mended").write_text("")
    assert swept("run", "--cores", "3", "--profile", "profiles/slurm", "--", "phase_a") == 0
    out, _ = capfd.readouterr()
    assert out.splitlines()[-1].startswith("4 of 4 campaigns came to their end. ")
    assert asked[0] == (1,)
    assert asked[-1] == (3, "phase_a", "--workflow-profile", str(project / "profiles/slurm"))
    assert swept("run", "--profile", "profiles/slurm") == 0
    assert "4 of 4 campaigns came to their end. Their taxes: " in capfd.readouterr().out
    assert asked[-1][0] is None, "the profile says how many jobs there are"


def test_the_command_that_goes_on_asks_for_the_same(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without its stage it measured all of every campaign, without its profile on this host."""
    monkeypatch.setattr(run_command, "snakemake_command", lambda file, cores, *more: ["false"])
    words = ["run", "--profile", "profiles/my slurm", "--", "phase_a", "--keep-going"]
    monkeypatch.setattr(sys, "argv", ["connector-tax", "sweep", "sweep.yaml", *words])
    assert swept(*words) == 1
    again = "connector-tax sweep sweep.yaml run --profile 'profiles/my slurm' -- phase_a --keep-going"
    assert capfd.readouterr().err.endswith(f"Go on with: {again}\n")


def test_a_sweep_is_run_once_at_a_time(project: Path) -> None:
    sweep = sweep_of(project)
    with started_once(sweep.folder / ".lock", sweep.name, "sweep"):
        for action in ("run", "write"):
            with pytest.raises(
                EngineError,
                match=rf"sweep study was started already and is going on \(process {os.getpid()}\)",
            ):
                swept(action)
        assert swept("status") == 0


def test_a_variable_that_is_not_set_is_told_before_anything_is_measured(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_MODEL", raising=False)
    value = yaml.safe_load((project / "sweep.yaml").read_text())
    value["axes"]["model"][1]["set"]["engine"] = {"model": "${NO_SUCH_MODEL}"}
    (project / "sweep.yaml").write_text(yaml.safe_dump(value, sort_keys=False))
    with pytest.raises(
        ConfigError, match=r"campaign study-r1-large: engine.model: \$\{NO_SUCH_MODEL\}: .* is not set"
    ):
        swept("run")
    assert not (project / "sweeps").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "--page", "x.html"], "unrecognized arguments: --page x.html"),
        (["run", "--cores", "0"], "argument --cores: 0: give 1 or more"),
        (["status", "phase_a"], "unrecognized arguments: phase_a"),
        (["list"], "argument ACTION: invalid choice: 'list' (choose from"),
    ],
)  # fmt: skip
def test_what_an_action_would_pass_over_is_refused(
    project: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        swept(*arguments)
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_an_axis_that_is_not_there_is_no_column(project: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--across gpu: sweep.yaml has the axes release, model\."):
        swept("table", "--across", "gpu")


def test_the_table_has_releases_in_columns_and_connectors_in_rows(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    analysed(project, "study-r1-small", 1, 0.05)
    analysed(project, "study-r2-small", 2, 0.09)
    analysed(project, "study-r1-large", 3, 0.07, lambda v: lose(v, "it died"))
    page = project / "out" / "sweep.html"
    assert swept("table", "--page", str(page)) == 0
    out = capsys.readouterr().out
    rows = rows_of(out)
    assert rows[0] == ["campaigns", "connector", "what", "release r1", "release r2"]
    assert ["model small", "NIXL (both)", "TPOT p90 tax", "+5.0 % [+4.0 %, +6.0 %], of one launch",
            "+9.0 % [+8.0 %, +10 %], of one launch"] in rows  # fmt: skip
    assert ["model large", "NIXL (both)", "TPOT p90 tax", "it died", "not started"] in rows
    assert ["model small", "", "ref_safe", "2 req/s", "2 req/s"] in rows
    html = page.read_text()
    assert (
        "+9.0 % [+8.0 %, +10 %]" in html
        and "not started" in html
        and "default-src &#39;none&#39;" not in html
    )
    before = page.read_bytes()
    assert swept("table", "--page", str(page)) == 0
    assert page.read_bytes() == before


def test_a_tax_has_the_flags_of_its_cells(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def flagged(*flags: str) -> Callable[[dict[str, Any]], None]:
        def change(value: dict[str, Any]) -> None:
            for cell in value["cells"]:
                cell["flags"] = list(flags)

        return change

    analysed(project, "study-r1-small", 1, 0.05, flagged("cores_shared"))
    analysed(project, "study-r2-small", 2, 0.05, flagged("cores_shared", "host_busy"))
    swept("table")
    [row] = [
        row
        for row in rows_of(capsys.readouterr().out)
        if row[:3] == ["model small", "NIXL (both)", "TPOT p90 tax"]
    ]
    assert row[3].endswith(", cores_shared") and row[4].endswith(", cores_shared, host_busy")


def test_names_from_results_are_text_in_the_page(project: Path) -> None:
    def hostile(value: dict[str, Any]) -> None:
        lose(value, "<script>alert(1)</script>|\x1b[2J")

    analysed(project, "study-r1-small", 1, 0.05, hostile)
    page = project / "sweep.html"
    swept("table", "--page", str(page))
    html = page.read_text()
    assert "<script" not in html and "&lt;script&gt;" in html and "\x1b" not in html
