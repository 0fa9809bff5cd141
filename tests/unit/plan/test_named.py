"""A campaign is named by its config file, by that file's bare name, or by its results folder; what names none leads to one that does."""

import json
from pathlib import Path

import pytest

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError
from connector_tax.base.plan import named
from connector_tax.base.plan.named import find_campaign, results_folder

DEMO = (PROJECT_ROOT / "config" / "demo.yaml").read_text()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a config of its own and results of two campaigns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(named, "results_folder", lambda: Path("results"))
    (tmp_path / "my.yaml").write_text(DEMO.replace("campaign: demo", "campaign: mine"))
    for name in ("mine", "theirs"):
        folder = tmp_path / "results" / name
        folder.mkdir(parents=True)
        (folder / "campaign.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "root", "file"),
    [
        ("my.yaml", "results/mine", "my.yaml"),
        ("results/mine", "results/mine", None),
        ("results/mine/", "results/mine", None),
        ("results/mine/aggregate.json", "results/mine", None),
    ],
)
def test_a_file_and_a_folder_name_the_same_campaign(
    here: Path, text: str, root: str, file: str | None
) -> None:
    found = find_campaign(text)
    assert (found.root, found.file) == (Path(root), None if file is None else Path(file))


def test_a_bare_name_is_a_file_of_config_from_any_folder(here: Path) -> None:
    demo = find_campaign("demo")
    assert demo.file is not None and demo.file.resolve() == PROJECT_ROOT / "config" / "demo.yaml"
    (here / "config").mkdir()
    (here / "config" / "demo.yaml").write_text(DEMO.replace("campaign: demo", "campaign: own"))
    assert find_campaign("demo").root == Path("results/own")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("results", "is no campaign. Campaigns in it: mine, theirs."),
        ("results/theris", "Did you mean results/theirs?"),
        ("my.yml", "Did you mean my.yaml?"),
        ("zzz", "Give a config file, which connector-tax init writes, a results folder, or demo."),
    ],
)
def test_what_names_no_campaign_leads_to_one(here: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        find_campaign(text)
    assert str(refused.value).startswith(f"{text}: ") and said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["7", "../out", "''"])
def test_a_config_with_a_name_that_is_none_is_refused_before_it_names_a_folder(here: Path, name: str) -> None:
    (here / "odd.yaml").write_text(DEMO.replace("campaign: demo", f"campaign: {name}"))
    with pytest.raises(ConfigError, match=r"odd\.yaml: campaign"):
        find_campaign("odd.yaml")


def test_what_was_not_measured_yet_names_the_command_that_does(here: Path) -> None:
    (here / "my folder.yaml").write_text(DEMO.replace("campaign: demo", "campaign: new"))
    with pytest.raises(ConfigError, match=r"results/new: nothing .* connector-tax run 'my folder\.yaml'"):
        _ = find_campaign("my folder.yaml").measured_root


def test_a_results_folder_is_gone_on_with_by_its_config_where_that_measures_in_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Begun:
        campaign = "mine"

    monkeypatch.setattr(named, "read_campaign_file", lambda path: json.loads(path.read_text()))
    monkeypatch.setattr(named, "config_of", lambda document: Begun)
    assert find_campaign("results/mine").config_file() == Path("my.yaml")
    with pytest.raises(ConfigError, match=r"results/theirs: no file in config/ measures campaign mine"):
        find_campaign("results/theirs").config_file()


def test_results_lie_in_the_checkout_wherever_the_command_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert results_folder().resolve() == PROJECT_ROOT / "results"
    monkeypatch.chdir(PROJECT_ROOT)
    assert results_folder() == Path("results")
