"""``connector-tax compare``: two campaigns on disk to an exit code that a CI can act on."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import ROOT, SMALL, Campaign, campaign_config
from invented_server import Behaviour

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import write_json
from connector_tax.cli import command, main
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.aggregate import aggregate

EXAMPLE = ROOT / "tests" / "data" / "aggregate_example.json"


def measured(root: Path, tax: float, seed: int) -> Path:
    """A campaign on disk whose Mooncake costs ``tax``."""
    plain = Behaviour(noise=0.05)
    behaviours = {
        "plain": plain,
        "noop_connector": plain,
        "mooncake_both": plain.taxed(tax),
        "nixl_both": plain,
    }
    campaign = Campaign(root, campaign_config(**SMALL), behaviours, max_steps=60, seed=seed)
    campaign.measure_everything()
    write_json(campaign.folder.aggregate, aggregate(read_campaign(root)))
    return root


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Two days of a tax of 10 %, and one of 30 %."""
    places = [tmp_path_factory.mktemp(name) for name in ("first", "second", "third")]
    first, second, third = (
        measured(p, t, s) for p, t, s in zip(places, (0.1, 0.1, 0.3), (1, 2, 3), strict=True)
    )
    return first, second, third


Door = Callable[..., SimpleNamespace]


@pytest.fixture
def door(capsys: pytest.CaptureFixture[str]) -> Door:
    def run(*arguments: object) -> SimpleNamespace:
        code: object = 0
        try:
            main(["compare", *map(str, arguments)])
        except SystemExit as ended:
            code = ended.code or 0
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    return run


def test_the_door_finds_a_tax_that_rose_and_none_that_did_not(
    days: tuple[Path, Path, Path], door: Door
) -> None:
    first, second, third = days
    quiet = door(first, second)
    assert quiet.returncode == 0, quiet.stdout
    assert quiet.stdout.splitlines()[-1].startswith(
        "No regression: no tax of 6 is known to have risen by more than 5 pp (Embedded engine"
    )
    loud = door(first, third / "aggregate.json")
    assert (loud.returncode, loud.stderr) == (1, "")
    assert "TTFT p90 of mooncake_both by +" in loud.stdout.splitlines()[-1]
    assert "noop_connector by" not in loud.stdout.splitlines()[-1]
    assert door(first, third, "--fail-above", "0.5").returncode == 0
    assert door(third, first, "--metric", "tpot_p90").returncode == 0


def test_an_analysis_of_runs_that_are_gone_is_refused(
    days: tuple[Path, Path, Path], tmp_path: Path, door: Door
) -> None:
    now = Path(shutil.copytree(days[1], tmp_path / "now"))
    shutil.rmtree(CampaignFolder(now).runs()[-1].path)
    done = door(days[0], now)
    assert done.returncode == 2 and "has cells of 1 run gone since, the first" in done.stderr
    assert f"connector-tax report {now}" in done.stderr
    assert door(days[0], now / "aggregate.json").returncode == 0


def test_the_door_gives_one_json_object(days: tuple[Path, Path, Path], door: Door) -> None:
    done = door(days[0], days[2], "--json", "--metric", "tpot_p90")
    value = json.loads(done.stdout)
    assert (done.returncode, value["exit_code"], value["verdict"]) == (1, 1, "regression")
    assert value["deciding"] == ["tpot_p90"]
    worse = [c for c in value["changes"] if c["regression"]]
    assert [(c["config"], c["metric"]) for c in worse] == [("mooncake_both", "tpot_p90")]
    assert worse[0]["change"]["low"] < 0.2 < worse[0]["change"]["high"]
    assert value["a"]["vllm"] == "0.32.0"


def test_no_text_of_either_side_moves_a_cursor(tmp_path: Path, door: Door) -> None:
    escapes = "\x1b]0;title\x07\x1b[2J\x9b31m\n"
    value = json.loads(EXAMPLE.read_text())
    value["campaign"] = escapes
    text = json.dumps(value).replace('"nixl_both"', json.dumps("nixl" + escapes))
    (tmp_path / "aggregate.json").write_text(text)
    for flags in ((), ("--json",)):
        done = door(EXAMPLE, tmp_path, *flags)
        assert "nixl" in done.stdout and "Traceback" not in done.stderr
        assert all(c.isprintable() for line in done.stdout.split("\n") for c in line)
    value["date"] = escapes
    (tmp_path / "aggregate.json").write_text(json.dumps(value))
    done = door(EXAMPLE, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "`$.date`" in done.stderr and all(c.isprintable() for c in done.stderr.rstrip("\n"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no campaign"),
        ("\x00\xff", "not valid JSON"),
        ("[1, 2]", "schema None, this version reads 1"),
        ('{"schema_version": 2}', "schema 2, this version reads 1"),
        ("a folder", "cannot be read"),
    ],
)
def test_wrong_input_is_one_message(tmp_path: Path, content: str | None, message: str) -> None:
    if content == "a folder":
        (tmp_path / "aggregate.json").mkdir()
    elif content is not None:
        (tmp_path / "aggregate.json").write_bytes(content.encode("latin-1"))
    with pytest.raises((ArtifactError, ConfigError), match=message) as refused:
        command("compare").call([str(EXAMPLE), str(tmp_path)])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("limit", ["-0.1", "nan", "inf", "five"])
def test_a_limit_that_is_none_is_refused(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    """NaN would let everything pass."""
    with pytest.raises(SystemExit) as ended:
        command("compare").call([str(EXAMPLE), str(EXAMPLE), f"--fail-above={limit}"])
    assert ended.value.code == 2 and "--fail-above" in capsys.readouterr().err
