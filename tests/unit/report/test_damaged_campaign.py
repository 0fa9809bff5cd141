"""A damaged campaign through analysis, figures, report and manifest: the damage is named, and enters no number.

Each test damages a copy of one campaign and runs the very scripts that the workflow runs.
"""

import json
import re
import shutil
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from builders import DATE, Campaign, campaign_config, fail, reseal
from read_through import BEHAVIOURS, CELL, CONFIG, METRICS, RUN, SECTIONS, Result, but_for_ends, read

from connector_tax.base.artifacts.layout import CellFolder
from connector_tax.base.plan import cells_of
from connector_tax.base.records.request import RequestRecord
from connector_tax.read.figures.words import label


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Campaign, Result]:
    """The sound campaign, and what is made of it."""
    campaign = Campaign(
        tmp_path_factory.mktemp("whole"), campaign_config(**SECTIONS), BEHAVIOURS, max_steps=60
    )
    rates = campaign.measure_everything()
    assert (rates.ref_safe_per_s, rates.ref_load_per_s) == (2.0, 4.0)
    return campaign, read(campaign.root)


@pytest.fixture
def campaign(whole: tuple[Campaign, Result], tmp_path: Path) -> Campaign:
    shutil.copytree(whole[0].root, tmp_path / "copy")
    twin = copy(whole[0])
    twin.root = tmp_path / "copy"
    return twin


@pytest.fixture
def sound(whole: tuple[Campaign, Result]) -> Result:
    return whole[1]


def test_a_sound_campaign_has_no_problem_on_its_page(sound: Result) -> None:
    """And taxes that every test below could lose."""
    assert sound.problems == []
    assert all(c["usable"] for c in sound.aggregate["cells"])
    assert {metric for *_, metric in sound.taxes(CONFIG, "a", CELL)} == METRICS
    # The lowest rate has few requests.
    assert all(t["point"] is not None for key, t in sound.taxes(CONFIG).items() if "neither" not in key)
    assert {c["status"] for c in sound.aggregate["configs"].values()} == {"measured"}
    assert sound.drawn == 8


def assert_named_and_kept_out(found: Result, sound: Result, where: str, what: str) -> None:
    """One cell is lost, with its taxes; every other number is what it was."""
    assert found.says(where, what), found.problems
    lost = found.taxes(CONFIG, "a", CELL)
    assert {metric for *_, metric in lost} == METRICS
    for tax in lost.values():
        assert (tax["point"], tax["low"], tax["high"], tax["verdict"]) == (None, None, None, "unavailable")
        assert tax["reason"] in ("cell_lost", "cell_missing")
    left, before = (but_for_ends(r.taxes(), CELL) for r in (found, sound))
    assert {**left, **lost} == {**before, **lost}
    damaged = (CONFIG, "a", CELL)
    assert not found.cells().get(damaged, {"usable": False})["usable"]
    left, before = (but_for_ends(r.cells(), CELL) for r in (found, sound))
    assert {k: v for k, v in left.items() if k != damaged} == {
        k: v for k, v in before.items() if k != damaged
    }
    state = found.aggregate["configs"][CONFIG]
    assert state["status"] == "partial"
    assert state["reason"].items() >= {"code": "cells_left_out", "subject": f"a/{CELL}"}.items()
    # The same shape and rate was measured by Phase B as well; the page says whose number it shows.
    marks = next(row["marks"] for row in found.aggregate["connectors"] if row["config"] == CONFIG)
    assert "other_phase" in marks and label("mark", "other_phase") in found.page
    assert found.drawn == sound.drawn
    assert f"{DATE}\tA\t{CONFIG}\tmeasured" in found.manifest


Damage = Callable[[Campaign, CellFolder], None]


def _sealed(change: Callable[[list[str]], list[str]], stream: str = "requests") -> Damage:
    """Lines changed as if they had been written so: all checksums agree."""

    def damage(campaign: Campaign, cell: CellFolder) -> None:
        path: Path = getattr(cell, stream)
        path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
        reseal(cell)
        campaign.receipt(CONFIG, "a")

    return damage


def _first(key: str, value: str) -> Callable[[list[str]], list[str]]:
    """Another value of one key in the first line that has it, as text, since it may be no JSON."""

    def change(lines: list[str]) -> list[str]:
        k = next(k for k, line in enumerate(lines) if f'"{key}":' in line)
        changed = re.sub(rf'"{key}":[^,}}]+', f'"{key}":{value}', lines[k])
        assert changed != lines[k]
        return [*lines[:k], changed, *lines[k + 1 :]]

    return change


def _cell_json(key: str, value: Any) -> Damage:
    def damage(campaign: Campaign, cell: CellFolder) -> None:
        document = json.loads(cell.cell_json.read_text())
        document[key] = value
        cell.cell_json.write_text(json.dumps(document))  # Python's own writer lets NaN through

    return damage


def _gone(campaign: Campaign, cell: CellFolder) -> None:
    shutil.rmtree(cell.path)


def _never_there(campaign: Campaign, cell: CellFolder) -> None:
    _gone(campaign, cell)
    campaign.receipt(CONFIG, "a")


def _elsewhere(**sections: Any) -> Damage:
    """The cell of a campaign of the same name and day that asked for something else."""

    def damage(campaign: Campaign, cell: CellFolder) -> None:
        other = Campaign(
            campaign.root.parent / "other",
            campaign_config(**{**SECTIONS, **sections}),
            BEHAVIOURS,
            max_steps=60,
            seed=2,
        )
        other.measure(CONFIG, "a")
        shutil.rmtree(cell.path)
        shutil.copytree(other.run(CONFIG, "a").cell(CELL).path, cell.path)
        campaign.receipt(CONFIG, "a")

    return damage


FOLDER = f"{RUN}/cells/{CELL}"
NAN = float("nan")
DAMAGES: dict[str, tuple[Damage, str, str]] = {
    "cell removed": (_gone, FOLDER, "in the receipt and not on disk"),
    "cell never measured": (_never_there, RUN, f"not measured: {CELL}"),
    "torn line": (
        _sealed(lambda lines: [*lines[:-1], lines[-1][:40]]),
        FOLDER,
        f"requests_A_{CELL}.jsonl: line 42 is not a request",
    ),
    "NaN in the summary": (
        _cell_json("summary", {"ttft_ms": {"p90": NAN}}),
        FOLDER,
        "not valid JSON (JSON is malformed",
    ),
    "a time beyond any number": (
        _sealed(_first("t_last_token_ns", "1e999")),
        FOLDER,
        "line 1 is not a request",
    ),
    "steps without a time": (
        _sealed(
            lambda lines: [re.sub(r'"step_duration_us":[^,]+', '"step_duration_us":null', x) for x in lines],
            "engine_step",
        ),
        FOLDER,
        "steps with a token lack step_duration_us",
    ),
    "another seed's": (
        _elsewhere(seed=99),
        FOLDER,
        "was loaded otherwise than campaign.json says (seed)",
    ),
    "another launch's": (
        _elsewhere(engine={"args": {"max_num_seqs": 7}}),
        FOLDER,
        "was launched otherwise than campaign.json says (args)",
    ),
}
# One of each kind; what differs inside a kind is the reader's message alone.
DRAWN = ("cell removed", "torn line", "NaN in the summary", "another seed's")


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_cell_is_named_and_enters_no_tax(campaign: Campaign, sound: Result, name: str) -> None:
    damage, where, what = DAMAGES[name]
    damage(campaign, campaign.run(CONFIG, "a").cell(CELL))
    found = read(campaign.root, draw=name in DRAWN)
    assert_named_and_kept_out(found, sound, where, what)


@pytest.mark.parametrize(
    ("change", "reason"), [(fail(every=1), "requests_failed"), (lambda requests: [], "no_observations")]
)
def test_a_cell_in_which_nothing_completed_has_no_latency_tax(
    campaign: Campaign,
    sound: Result,
    change: Callable[[list[RequestRecord]], list[RequestRecord]],
    reason: str,
) -> None:
    """It is a result: saturated, without percentiles. Its engine stepped all the same."""
    shutil.rmtree(campaign.run(CONFIG, "a").cell(CELL).path)
    spec = next(c for c in cells_of(campaign.config, CONFIG, "a") if c.cell_id == CELL)
    campaign.cell(CONFIG, spec, change=change)
    campaign.receipt(CONFIG, "a")
    found = read(campaign.root)
    assert found.says(FOLDER, "no request completed")
    for metric in ("ttft_p90", "tpot_p90"):
        tax = found.taxes(CONFIG, "a", CELL)[CONFIG, "a", CELL, "ref_safe", metric]
        assert (tax["point"], tax["verdict"], tax["reason"]) == (None, "unavailable", reason)
        assert tax["overloaded"] == ["own"]
    assert found.aggregate["saturation"][CONFIG]["saturation_rate_per_s"] == 2
    # Who serves nothing at the lowest rate has no say in everybody's.
    assert not found.says("reference_rates.json", "by phase A as it is now")
    others = {k: v for k, v in sound.taxes().items() if k[:3] != (CONFIG, "a", CELL)}
    assert {k: v for k, v in found.taxes().items() if k in others} == others
    # Figure 7: no other launch of the no-op connector stands in for one that completed nothing.
    assert found.drawn == sound.drawn - 1


@pytest.mark.parametrize("text", ["NaN", '"many"'])
def test_a_sample_that_is_no_number_is_not_averaged(campaign: Campaign, sound: Result, text: str) -> None:
    """JSON knows no NaN, so that line is a missed sample; a word for a number is a file that cannot be trusted."""
    change = _first("num_requests_waiting", text)
    _sealed(lambda lines: [*lines[:5], *change(lines[5:])], "metrics")(
        campaign, campaign.run(CONFIG, "a").cell(CELL)
    )
    found = read(campaign.root, draw=False)
    if text == "NaN":
        assert re.search(r"\b1\s+samples of /metrics were missed", found.page)
        assert found.taxes() == sound.taxes()
    else:
        assert_named_and_kept_out(found, sound, FOLDER, "cannot be read, left out")


def test_damage_beside_the_cells_is_named_and_changes_no_number(campaign: Campaign, sound: Result) -> None:
    """Cells carry their own checksums, and reference rates are worked out again from Phase A, which is whole."""
    campaign.run(CONFIG, "a").receipt.write_text('{"schema": 1, "status": 7}')
    rates = campaign.folder.reference_rates
    assert "2.0" in rates.read_text()
    rates.write_text(rates.read_text().replace("2.0", "NaN", 1))
    found = read(campaign.root, draw=False)
    assert found.says(f"{RUN}/receipt.json", "Expected `str`, got `int` - at `$.status`")
    assert f"{DATE}\tA\t{CONFIG}\tunreadable\tits receipt cannot be read" in found.manifest
    assert found.says("reference_rates.json", "JSON is malformed")
    assert found.taxes() == sound.taxes()
