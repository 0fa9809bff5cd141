"""``connector-tax compare --history``: each campaign against the one before it by ``compare``, what is never compared, and what decides."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from histories import Aggregate, Change, lose, nights, set_tax

from connector_tax.base.errors import ConfigError
from connector_tax.cli import command
from connector_tax.read.compare.comparison import LATENCIES, compare, read_side
from connector_tax.read.compare.text import comparison_document
from connector_tax.read.track import History, render, track

LIMIT = 0.05
HOSTILE = '</script><img src=x onerror=alert(1)>\u202e$x_{1}$&"'


def history(root: Path, taxes: Sequence[float], change: Change | None = None) -> History:
    return track([nights(root, taxes, change)], LIMIT)


def names(found: History) -> list[list[str]]:
    """Campaigns of each series."""
    return [[side.aggregate.campaign for side in series.sides] for series in found.series]


def tracked(root: Path, to: Path, *more: str) -> int:
    return command("compare").call(["--history", str(root), "--to", str(to), *more])


def test_each_campaign_is_compared_with_the_one_before_it_as_compare_does(tmp_path: Path) -> None:
    root = nights(tmp_path, [0.05, 0.06, 0.2])
    [series] = track([root], LIMIT).series
    folders = sorted(root.iterdir())
    for step, (a, b) in zip(series.steps, pairwise(folders), strict=True):
        own = compare(
            read_side("A", a), read_side("B", b), fail_above=LIMIT, deciding=LATENCIES, allow_missing=True
        )
        assert comparison_document(step) == comparison_document(own)
    assert [step.exit_code for step in series.steps] == [0, 1]


@pytest.mark.parametrize(
    ("taxes", "code"),
    [
        ([0.05, 0.05, 0.2], 1),  # of the newest
        ([0.05, 0.2, 0.2], 1),  # of an earlier one, and it is up still
        ([0.05, 0.2, 0.05], 0),  # and it was taken back
        ([0.05, 0.08, 0.11, 0.14], 1),  # in steps that are small each
        ([0.2, 0.2, 0.05], 0),
        ([0.05, 0.06, 0.055], 0),
    ],
)
def test_a_rise_of_the_newest_campaign_decides(tmp_path: Path, taxes: list[float], code: int) -> None:
    """Since the campaign before it, or since the first."""
    found = track([nights(tmp_path, taxes)], LIMIT)
    assert found.exit_code == code
    assert found.verdict.startswith("Regression: " if code else "No regression: ")


def test_a_fallback_rate_has_no_tax_that_could_be_compared(tmp_path: Path) -> None:
    def fallen(k: int, value: Aggregate) -> None:
        value["reference_rates"]["flags"] = ["fallback_lowest_rate"] if k == 1 else []

    found = history(tmp_path, [0.05, 0.2], fallen)
    assert found.exit_code == 0 and found.verdict.startswith("Nothing to judge: ")
    assert "ref_safe is a fallback" in render(found)


def test_a_connector_that_no_longer_starts_is_said(tmp_path: Path) -> None:
    def gone(k: int, value: Aggregate) -> None:
        if k == 1:
            value["main_taxes"] = [t for t in value["main_taxes"] if t["config"] != "nixl_both"]
            value["cells"] = [c for c in value["cells"] if c["config"] != "nixl_both"]
            value["configs"]["nixl_both"] |= {
                "status": "failed",
                "reason": {"code": "invalid", "detail": "its engine died"},
            }

    found = history(tmp_path, [0.05, 0.05], gone)
    assert found.verdict.endswith("Not every tax could be compared: night-01 against night-00.")
    assert "its engine died" in render(found)


def test_plain_with_a_connectors_settings_decides_nothing(tmp_path: Path) -> None:
    def rename(_: int, value: Aggregate) -> None:
        value["configs"]["plain_matched_nixl"] = value["configs"].pop("nixl_both")
        for row in (t for name in ("main_taxes", "cells") for t in value[name]):
            row["config"] = "plain_matched_nixl" if row["config"] == "nixl_both" else row["config"]

    found = history(tmp_path, [0.05, 0.2], rename)
    assert found.exit_code == 0 and "decides nothing" in render(found)


def test_campaigns_lie_in_order_of_their_first_start(tmp_path: Path) -> None:
    root = nights(tmp_path, [0.05, 0.06, 0.07])
    (root / "night-00").rename(root / "z")
    assert names(track([root / "night-02", root], LIMIT)) == [["night-00", "night-01", "night-02"]]


TWO_PLACES = {"engine.gpu 0": ["a"], "engine.gpu 1": ["b"]}
UNLIKE = {
    "engine_kind": lambda p: p.update(engine_kind="emulator"),
    "device": lambda p: p.update(gpu=["GPU 0: NVIDIA H200 (UUID: GPU-1)"]),
    "model": lambda p: p.update(model="another/model"),
    "host.cpu": lambda p: p["host"].update(cpu="EPYC 9654"),
    "arrival": lambda p: p.update(arrival="poisson"),
    "engine_args.rope_theta": lambda p: p["engine_args"].update(rope_theta=1000001.0),
    "engines side by side": lambda p: p.update(cards=TWO_PLACES, mixed_cards=[], side_by_side=2),
    "comparisons across cards": lambda p: p.update(cards=TWO_PLACES, mixed_cards=["a"], side_by_side=1),
    "confidence": lambda p: p.update(confidence=0.9),
}


@pytest.mark.parametrize("what", UNLIKE)
def test_campaigns_that_differ_in_what_taxes_depend_on_are_never_compared(tmp_path: Path, what: str) -> None:
    def change(k: int, value: Aggregate) -> None:
        value["provenance"]["engine_args"]["rope_theta"] = 1000000.0
        if k % 2:
            UNLIKE[what](value["provenance"])

    found = history(tmp_path, [0.05, 0.2, 0.05, 0.2], change)
    assert names(found) == [["night-00", "night-02"], ["night-01", "night-03"]]
    assert found.exit_code == 0
    first, second = (series.alike.get(what) for series in found.series)
    assert first != second and f"{what} {second}" in render(found)


def test_an_argument_that_is_null_is_one_that_is_not_there(tmp_path: Path) -> None:
    def null(k: int, value: Aggregate) -> None:
        if k % 2:
            value["provenance"]["engine_args"]["seed"] = None

    assert len(history(tmp_path, [0.05] * 4, null).series) == 1


def test_another_card_of_the_same_kind_is_the_same_device_and_two_are_not(tmp_path: Path) -> None:
    def cards(k: int, value: Aggregate) -> None:
        mine = [f"GPU {j}: NVIDIA H20 (UUID: GPU-{k}-{j})" for j in range(2 if k == 3 else 1)]
        value["provenance"]["gpu"] = mine

    found = history(tmp_path, [0.05] * 4, cards)
    assert [(s.alike["device"], len(s.sides)) for s in found.series] == [
        ("1 x NVIDIA H20", 3),
        ("2 x NVIDIA H20", 1),
    ]


def test_two_virtual_gpus_of_other_documents_are_two_devices(tmp_path: Path) -> None:
    def clock(k: int, value: Aggregate) -> None:
        profile = {"profile": "h200", "name": "NVIDIA H200", "sha256": f"{k % 2:016d}"}
        value["provenance"] |= {"engine_kind": "virtual_gpu", "virtual_gpu": profile}

    found = history(tmp_path, [0.05] * 4, clock)
    assert [s.alike["device"][:40] for s in found.series] == [
        "virtual NVIDIA H200 (profile h200, 00000",
    ] * 2


def test_a_damaged_campaign_is_named_and_the_others_are_tracked(tmp_path: Path) -> None:
    root = nights(tmp_path, [0.05] * 5)
    (root / "night-01" / "aggregate.json").write_text('{"schema_version": 1')
    (root / "night-02" / "aggregate.json").write_text('{"schema_version": 99}')
    (root / "not-analysed").mkdir()
    (root / "not-analysed" / "campaign.json").write_text("{}")
    (root / "anything-else").mkdir()
    found = track([root], LIMIT)
    assert names(found) == [["night-00", "night-03", "night-04"]]
    reasons = {Path(f.path).name: f.reason for f in found.left_out}
    assert set(reasons) == {"night-01", "night-02", "not-analysed"}
    assert "night-01/aggregate.json: not valid JSON" in reasons["night-01"]
    assert "night-02/aggregate.json: schema 99" in reasons["night-02"]
    assert "connector-tax report " in reasons["not-analysed"]


def test_a_campaign_is_tracked_once_however_often_it_is_found(tmp_path: Path) -> None:
    root = nights(tmp_path / "all", [0.05] * 3)
    shutil.copytree(root / "night-01", tmp_path / "copy")
    found = track([root, root / "night-00", tmp_path / "copy"], LIMIT)
    assert names(found) == [["night-00", "night-01", "night-02"]]
    assert [f.reason.endswith("once more") for f in found.left_out] == [True]


def test_without_a_campaign_it_is_one_message(tmp_path: Path) -> None:
    for folder, said in ((tmp_path, "no campaign that can be read"), (tmp_path / "none", "No such file"), (tmp_path / ("x" * 300), "too long")):  # fmt: skip
        with pytest.raises(ConfigError, match=said):
            track([folder], LIMIT)
    entry = [sys.executable, "-c", "from connector_tax.cli import main; main()", "compare", "--history"]
    ended = subprocess.run(
        [*entry, str(tmp_path), "--to", str(tmp_path / "to")], capture_output=True, text=True
    )
    assert ended.returncode == 2 and ended.stderr.startswith("error: ") and "Traceback" not in ended.stderr


def test_the_command_writes_two_files_and_says_what_compare_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, to = nights(tmp_path / "n", [0.05, 0.05, 0.2]), tmp_path / "to"
    (root / "night-01" / "aggregate.json").write_text("[]")
    assert tracked(root, to) == 1
    out, err = capsys.readouterr()
    assert {p.name for p in to.iterdir()} == {"index.html", "history.json"}
    assert out.splitlines()[-1].startswith("Regression: risen by more than 5 pp: TPOT p90 of nixl_both by ")
    assert "\nnight-02 against night-00: Regression: 1 of 4 taxes rose" in out
    assert err.count("left out: ") == 1 and "night-01" in err
    assert "night-01" in (to / "index.html").read_text().split('id="left-out"')[1]
    document = json.loads((to / "history.json").read_text())
    assert (document["exit_code"], document["series"][0]["steps"][0]["exit_code"]) == (1, 1)
    assert tracked(root, to, "--fail-above", "0.2") == 0


def test_the_page_says_where_a_tax_rose_and_where_it_fell(tmp_path: Path) -> None:
    page = render(history(tmp_path, [0.05, 0.2, 0.05, 0.08]))
    tags = re.findall(r'<small class="tag (\w+)">([^<]*)<', page)
    assert [(mood, text.split(" [")[0]) for mood, text in tags] == [
        ("bad", "worse, +15 pp"),
        ("good", "better, −15 pp"),
        ("open", "worse, +3.0 pp"),
    ]


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_hostile_names_are_text_and_nothing_is_fetched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def hostile(k: int, value: Aggregate) -> None:
        set_tax(value, 0.05, config="nixl_both")
        value["campaign"] = f"{HOSTILE}{k}\x1b[2J"
        value["configs"][HOSTILE] = value["configs"].pop("nixl_both") | {"label": HOSTILE}
        for row in (t for t in value["main_taxes"] if t["config"] == "nixl_both"):
            row["config"] = HOSTILE
        lose(value, HOSTILE, config="noop_connector")
        value["provenance"]["versions"]["vllm"] = f"{HOSTILE}{k}"
        value["provenance"]["host"]["cpu"] = HOSTILE

    tracked(nights(tmp_path / "n", [0.05, 0.2], hostile), tmp_path / "to")
    page = (tmp_path / "to" / "index.html").read_text()
    elements = Elements()
    elements.feed(page)
    assert not [tag for tag, _ in elements.found if tag in ("script", "img", "iframe", "object", "link")]
    assert not [name for _, attributes in elements.found for name in attributes if name.startswith("on")]
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;" in page and "\u202e" not in page
    assert "default-src 'none'" in page and not re.search(r"(src|href)=\"(?!data:|#)", page)
    assert "\x1b" not in page + "".join(capsys.readouterr())


def test_a_folder_whose_name_is_no_text_leaves_a_document_that_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = nights(tmp_path / "n", [0.05] * 2)
    (root / "night-01").rename(root / os.fsdecode(b"night-\xff\x1b[2J"))
    (root / os.fsdecode(b"none-\xff")).mkdir()
    (root / os.fsdecode(b"none-\xff") / "campaign.json").write_text("{}")
    assert tracked(root, tmp_path / "to") == 0
    again = json.loads((tmp_path / "to" / "history.json").read_text())
    assert again["series"][0]["campaigns"][1]["path"].endswith("night-  [2J")
    assert again["left_out"][0]["path"].endswith("none- ")
    assert "\x1b" not in "".join(capsys.readouterr())


def test_another_shape_is_never_compared(tmp_path: Path) -> None:
    def shape(k: int, value: Aggregate) -> None:
        for cell in value["cells"] if k == 1 else ():
            cell["input_tokens"] = 512

    assert names(track([nights(tmp_path, [0.05, 0.2, 0.05], shape)], LIMIT)) == [
        ["night-00", "night-02"],
        ["night-01"],
    ]


def test_two_hosts_that_start_in_the_same_second_are_two(tmp_path: Path) -> None:
    def hosts(k: int, value: Aggregate) -> None:
        value["campaign"], value["date"] = "nightly", f"2026-10-{k // 2 + 1:02d}"
        value["provenance"]["created_utc"] = f"2026-10-{k // 2 + 1:02d}T02:00:00Z"
        value["provenance"]["host"]["cpu"] = f"CPU {k % 2}"

    found = track([nights(tmp_path, [0.05] * 6, hosts)], LIMIT)
    assert [len(s.sides) for s in found.series] == [3, 3] and not found.left_out
