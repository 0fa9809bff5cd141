"""A campaign without a number, one that is in no series, links, and folders and hosts that are easily taken for others."""

import os
from pathlib import Path

import msgspec
from histories import Aggregate, nights, noisy, of

from connector_tax.base.files import write_json
from connector_tax.read.track.history import history


def test_a_campaign_without_reference_rates_or_connector_keeps_its_place(tmp_path: Path) -> None:
    def odd(k: int, value: Aggregate) -> None:
        if k == 2:
            value["reference_rates"] = None
        if k == 3:
            value["reference_rates"] |= {
                "ref_safe_per_s": 1,
                "ref_load_per_s": 1,
                "flags": ["fallback_lowest_rate"],
            }
        if k == 5:
            del value["configs"]["nixl_both"]
            for name in ("main_taxes", "cells"):
                value[name] = [row for row in value[name] if row["config"] != "nixl_both"]

    found = history([nights(tmp_path, noisy(6), odd)])
    [series] = of(found)
    assert [(p.campaign, p.reason) for p in series.points if p.point is None] == [
        (2, "it has no ref_safe"),
        (3, "ref_safe is a fallback there, so nobody knows how much of a tax is queueing"),
        (5, "nixl_both is not in it"),
    ]
    assert "Without a number in the last campaign: TPOT p90 of nixl_both at ref_safe" in found.sentence


def test_a_campaign_that_is_in_no_series_is_named(tmp_path: Path) -> None:
    def alone(k: int, value: Aggregate) -> None:
        if k == 1:
            value["reference_rates"] = None
            value["provenance"]["host"]["cpu"] = "another"

    found = history([nights(tmp_path, noisy(3), alone)])
    assert [(Path(f.path).name, f.reason[:26]) for f in found.left_out] == [
        ("night-01", "it has no reference rates,")
    ]


def test_two_references_at_one_rate_are_one_tax(tmp_path: Path) -> None:
    def same(_: int, value: Aggregate) -> None:
        value["reference_rates"]["ref_load_per_s"] = value["reference_rates"]["ref_safe_per_s"]

    found = history([nights(tmp_path, noisy(20, s12=0.04), same)])
    assert {s.reference for s in found.series} == {"ref_safe"}
    assert found.sentence.startswith("Regression: 1 of 4 series")


def test_two_hosts_that_start_in_the_same_second_are_two(tmp_path: Path) -> None:
    def hosts(k: int, value: Aggregate) -> None:
        value["campaign"], value["date"] = "nightly", f"2026-10-{k // 2 + 1:02d}"
        value["provenance"]["created_utc"] = f"2026-10-{k // 2 + 1:02d}T02:00:00Z"
        value["provenance"]["host"]["cpu"] = f"CPU {k % 2}"

    found = history([nights(tmp_path, noisy(6), hosts)])
    assert [len(s.points) for s in of(found)] == [3, 3] and not found.left_out


def test_nights_that_do_not_say_when_they_started_are_told_apart_by_their_date(tmp_path: Path) -> None:
    def unsaid(_: int, value: Aggregate) -> None:
        value["campaign"] = "nightly"
        del value["provenance"]["created_utc"]

    found = history([nights(tmp_path, noisy(6), unsaid)])
    assert len(found.campaigns) == 6 and not found.left_out


def test_a_link_to_a_campaign_is_named(tmp_path: Path) -> None:
    root = nights(tmp_path / "n", noisy(3))
    (root / "night-01").rename(tmp_path / "elsewhere")
    (root / "night-01").symlink_to(tmp_path / "elsewhere")
    found = history([root])
    assert len(found.campaigns) == 2
    assert [(Path(f.path).name, f.reason[:12]) for f in found.left_out] == [("night-01", "it is a link")]
    assert len(history([root / "night-01"]).campaigns) == 1, "one that is named is followed"


def test_a_folder_whose_name_is_no_text_leaves_a_document_that_can_be_read(tmp_path: Path) -> None:
    root = nights(tmp_path, noisy(2))
    (root / "night-01").rename(root / os.fsdecode(b"night-\xff\x1b[2J"))
    (root / os.fsdecode(b"none-\xff")).mkdir()
    (root / os.fsdecode(b"none-\xff") / "campaign.json").write_text("{}")
    found = history([root])
    write_json(tmp_path / "history.json", found)
    again = msgspec.json.decode((tmp_path / "history.json").read_bytes())
    assert again["campaigns"][1]["path"].endswith("night-  [2J") and again["left_out"][0]["path"].endswith(
        "none- "
    )
