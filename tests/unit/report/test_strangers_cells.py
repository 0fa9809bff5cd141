"""Cells that somebody else sent: what they name, link to and hold costs no more than the cell."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.artifacts.receipts import write_receipt

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import DATE, IDENTITY, Campaign
from hostile import IRREGULAR, Watch, put, watched
from read_through import read
from strangers import (  # noqa: F401 - fixtures
    ALL,
    BEHAVIOURS,
    CELL,
    CONFIG,
    FOLDER,
    RUN,
    SECRET,
    SECTIONS,
    campaign,
    change_json,
    others,
    sound,
    watch,
)

# What a receipt lists.


@pytest.mark.parametrize(
    "name", ["/dev/zero", "/etc/passwd", "../../../../../../secret", "..", ".", "", "cell.json\n"]
)
@pytest.mark.parametrize("document", ["receipt", "cell"])
def test_a_listed_file_is_one_of_the_cell(campaign: Campaign, watch: Watch, document: str, name: str) -> None:
    """/dev/zero has no end; a checksum of somebody's file would say whether a guess at its content is right."""
    path = campaign.root / (f"{RUN}/receipt.json" if document == "receipt" else f"{FOLDER}/cell.json")

    def listed(value: Any) -> None:
        entry = value if document == "cell" else next(c for c in value["cells"] if c["cell_id"] == CELL)
        entry["files"][name] = {"bytes": 1, "sha256": "0"}

    change_json(path, listed)
    if document == "cell":
        (campaign.root / RUN / "receipt.json").unlink()
    found = read(campaign.root, draw=False)
    assert found.says(FOLDER, "is no bare name")
    assert others(found) == ALL - {(CONFIG, "a", CELL)}


@pytest.mark.parametrize("kind", IRREGULAR)
@pytest.mark.parametrize("name", ["requests_A"])
def test_a_file_of_a_cell_that_is_none_costs_the_cell(
    campaign: Campaign, watch: Watch, name: str, kind: str
) -> None:
    (path,) = (campaign.root / FOLDER).glob(f"{name}*")
    put(path, kind, campaign.root.parents[2] / "secret")
    found = read(campaign.root, draw=False)
    assert found.says(FOLDER, f"{path.name}: cannot be read: it is"), found.problems
    assert others(found) == ALL - {(CONFIG, "a", CELL)}
    assert SECRET not in (campaign.root / "report.html").read_text()


@pytest.mark.parametrize("place", [f"{DATE}_{CONFIG}", f"{RUN}/cells", FOLDER])
def test_a_linked_folder_is_named_and_not_followed(campaign: Campaign, tmp_path: Path, place: str) -> None:
    """Its own content would count otherwise, from wherever it lies."""
    shutil.move(campaign.root / place, tmp_path / "elsewhere")
    (campaign.root / place).symlink_to(tmp_path / "elsewhere")
    with watched(tmp_path, campaign.root.parent) as watch:
        found = read(campaign.root, draw=False)
    assert watch.opened == []
    assert found.says(place, "is a link, not followed")
    assert (CONFIG, "a", CELL) not in others(found)
    assert {key for key in ALL if key[0] == "plain"} <= others(found)


# One cell's own content.


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{", "[" * 200_000, "nested too deep"),
        ('"reasons": []', '"reasons": ["\\ud800"]', "surrogates not allowed"),
        ('"prefix_cache_hits_delta": 0.0', f'"prefix_cache_hits_delta": {"9" * 300}', "beyond 64 bits"),
        (
            '"drained_ns": ',
            '"drained_ns": 5000000000000000000, "was": ',
            "Expected `int` <= 4611686018427387904 - at `$.window.drained_ns`",
        ),
        ('"verdict": "valid"', '"verdict": "invalid", "verdict": "valid"', "stands twice"),
        ('"attempt": 1', '"attempt": [1]', "Expected `int | null`, got `array` - at `$.attempt`"),
    ],
)
def test_a_cell_that_stops_a_reader_costs_itself(
    campaign: Campaign, watch: Watch, old: str, new: str, message: str
) -> None:
    """A list of 200,000 lists ends a recursive reader; half of a surrogate pair cannot be written on."""
    path = campaign.root / FOLDER / "cell.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    (campaign.root / RUN / "receipt.json").unlink()
    found = read(campaign.root, draw=False)
    assert found.says(FOLDER, message), found.problems
    assert others(found) == ALL - {(CONFIG, "a", CELL)}


def _requests(change: Callable[[list[str]], list[str]]) -> Callable[[Campaign], None]:
    def apply(campaign: Campaign) -> None:
        from builders import reseal

        cell = campaign.run(CONFIG, "a").cell(CELL)
        lines = cell.requests.read_text().split("\n")
        cell.requests.write_bytes("\n".join(change(lines)).encode("utf-8", "surrogatepass"))
        reseal(cell)
        ids = [c.cell_id for c in campaign.run(CONFIG, "a").finished_cells()]
        write_receipt(
            campaign.run(CONFIG, "a"),
            campaign="demo",
            status="measured",
            cell_ids=ids,
            step_timing_available=True,
            engine=IDENTITY,
        )

    return apply


def test_a_line_separator_inside_a_text_tears_no_line(campaign: Campaign, watch: Watch) -> None:
    """U+2028 may stand in JSON as it is; Python's splitlines cuts there."""
    _requests(
        lambda lines: [lines[0].replace('"error":null', '"error":"one\u2028two\x85three"'), *lines[1:]]
    )(campaign)
    found = read(campaign.root, draw=False)
    assert found.problems == []
    assert others(found) == ALL


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"prompt_tokens":256', '"prompt_tokens":"many"'),
        ('"prompt_tokens":256', '"prompt_tokens":[[]]'),
        ('"t_send_ns":', '"t_send_ns":99999999999999999999,"error":'),
        ('"worker":0', '"worker":' + "[" * 5000),
        ('"phase":"', '"phase":"\\ud800'),
        ('"seq":0', '"seq":-5'),
        ('"error":null', '"error":{"a":1}'),
    ],
)
def test_a_request_of_another_form_costs_its_cell(
    campaign: Campaign, watch: Watch, old: str, new: str
) -> None:
    def change(lines: list[str]) -> list[str]:
        assert old in lines[0]
        return [lines[0].replace(old, new), *lines[1:]]

    _requests(change)(campaign)
    found = read(campaign.root, draw=False)
    assert found.says(FOLDER, f"requests_A_{CELL}.jsonl: line 1 ")
    assert others(found) == ALL - {(CONFIG, "a", CELL)}
