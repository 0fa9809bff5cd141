"""The page: self-contained, escaped, complete, and honest about where its numbers are from."""

import base64
import copy
import hashlib
import html
import json
import re
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.figures import Entry
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import write_json
from connector_tax.read.report.page import Figure, build_report, render

sys.path.insert(0, str(Path(__file__).parents[2]))
from made_pages import view_of

EXAMPLE = Path(__file__).parents[2] / "data" / "aggregate_example.json"
SVG = '<svg xmlns="http://www.w3.org/2000/svg"/>'
SECTIONS = (
    "verdicts",
    "taxes",
    "criteria",
    "configurations",
    "figures",
    "cells",
    "problems",
    "provenance",
    "reproduce",
)


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return json.loads(EXAMPLE.read_text())


@pytest.fixture
def aggregate(example: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(example)


def page(aggregate: dict[str, Any], figures: Sequence[Figure] = ()) -> str:
    return render(view_of(aggregate), figures)


def words(text: str) -> str:
    """What a reader sees: no tags, no style, entities resolved."""
    body = re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


class Tags(HTMLParser):
    """Collects start tags and attributes; complains about tags left open."""

    VOID = ("meta", "img", "br", "link", "input", "hr")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def campaign_on_disk(root: Path, aggregate: dict[str, Any]) -> None:
    write_json(root / "aggregate.json", aggregate)
    (root / "figures").mkdir()
    (root / "figures" / "fig1.svg").write_text(SVG)
    drawn = {"name": "fig1", "number": 1, "drawn": True, "title": "A claim", "caption": "n = 3", "files": {"svg": "fig1.svg", "csv": "fig1.csv"}}  # fmt: skip
    left_out = {
        "name": "fig8",
        "number": 8,
        "drawn": False,
        "reason": "mooncake_both was skipped: no such module",
    }
    write_json(root / "figures" / "index.json", {"schema": 1, "figures": [drawn, left_out]})


def test_the_page_is_one_well_formed_file_that_fetches_nothing(
    aggregate: dict[str, Any], tmp_path: Path
) -> None:
    """It can be mailed, and opened without a network."""
    campaign_on_disk(tmp_path, aggregate)
    text = build_report(tmp_path).read_text()
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    for tag, attributes in tags.found:
        assert tag not in ("link", "iframe", "object", "form")
        assert tag != "script" or attributes == {}
        for key in ("src", "href"):
            if attributes.get(key):
                assert str(attributes[key]).startswith(("#", "data:image/svg+xml;charset=utf-8,"))
    assert [tag for tag, _ in tags.found].count("script") == 1
    policy = next(
        str(a["content"]) for tag, a in tags.found if a.get("http-equiv") == "Content-Security-Policy"
    )
    digest = base64.b64encode(
        hashlib.sha256(text.partition("<script>")[2].partition("</script>")[0].encode()).digest()
    ).decode()
    assert (
        policy
        == f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    )
    # An SVG's name for itself is no address that anybody asks.
    assert "http://" not in text.replace("xmlns=%22http://www.w3.org/2000/svg%22", "")
    assert "https://" not in text
    assert "url(" not in text
    assert "@import" not in text
    ids = [a["id"] for _, a in tags.found if "id" in a]
    assert set(SECTIONS) <= set(ids)
    assert len(ids) == len(set(ids))


def test_building_it_twice_gives_the_same_bytes(aggregate: dict[str, Any], tmp_path: Path) -> None:
    """It holds no time of building."""
    campaign_on_disk(tmp_path, aggregate)
    assert build_report(tmp_path).read_bytes() == build_report(tmp_path).read_bytes()


def test_figures_are_inside_and_missing_ones_give_their_reason(
    aggregate: dict[str, Any], tmp_path: Path
) -> None:
    """A reader never wonders where Figure 8 went."""
    campaign_on_disk(tmp_path, aggregate)
    text = build_report(tmp_path).read_text()
    assert text.count("data:image/svg+xml;charset=utf-8,") == 1
    assert "Figure 8 is left out: mooncake_both was skipped: no such module." in words(text)


def test_a_figure_that_vanished_is_named(aggregate: dict[str, Any], tmp_path: Path) -> None:
    """With the command that draws it again."""
    campaign_on_disk(tmp_path, aggregate)
    (tmp_path / "figures" / "fig1.svg").unlink()
    with pytest.raises(ArtifactError, match=r"fig1\.svg.*connector-tax figures"):
        build_report(tmp_path)


def test_the_headline_is_the_tax_with_its_interval(aggregate: dict[str, Any]) -> None:
    """And the number of requests behind it."""
    for tax in aggregate["main_taxes"]:
        if (tax["config"], tax["metric"], tax["reference"], tax["phase"]) == (
            "mooncake_both",
            "ttft_p90",
            "ref_safe",
            "a",
        ):
            tax |= {"point": 0.42, "low": 0.31, "high": 0.55, "n": 1234, "n_plain": 987}
    text = words(page(aggregate))
    assert (
        "Merely switching on Mooncake (both) costs 42 % more TTFT p90 at ref_safe (2 req/s), 95 % interval 31 % to 55 %, "
        "of one launch." in text
    )
    assert "1,234 requests with the connector and 987 without" in text


def test_a_tax_inside_the_noise_is_no_headline(aggregate: dict[str, Any]) -> None:
    """An interval that covers zero is said to find no tax."""
    for tax in aggregate["main_taxes"]:
        tax |= {"point": 0.01, "low": -0.02, "high": 0.04}
    assert "Mooncake (both): no tax on TTFT p90 is found at ref_safe" in words(page(aggregate))


def test_the_headline_carries_the_flags_of_the_reference_rate(aggregate: dict[str, Any]) -> None:
    """A rate chosen for want of a better one qualifies every number at it."""
    aggregate["reference_rates"]["flags"] = ["fallback_lowest_rate"]
    text = words(page(aggregate))
    assert "Flag fallback_lowest_rate" in text
    assert text.index("fallback_lowest_rate") < text.index("What decides it")


def test_the_headline_names_the_flags_of_the_cells_behind_it(aggregate: dict[str, Any]) -> None:
    """The connector's and plain's; a reader of one sentence must know that the client was late."""
    for cell in aggregate["cells"]:
        if (cell["phase"], cell["cell_id"]) == ("a", "r2_4096x256"):
            if cell["config"] == "plain":
                cell["flags"] = ["client_limited"]
            elif cell["config"] == "mooncake_both":
                cell["flags"] = ["host_busy", "client_limited"]
            else:
                cell["flags"] = ["cpu_stolen"]
    text = words(page(aggregate))
    assert (
        "The cells behind it are flagged client_limited and host_busy; section Flags says what that means."
        in text
    )


def test_without_mooncake_the_dearest_connector_stands_in(aggregate: dict[str, Any]) -> None:
    """And the page says why the intended one does not."""
    aggregate["main_taxes"] = [t for t in aggregate["main_taxes"] if "mooncake" not in t["config"]]
    aggregate["configs"]["mooncake_both"] |= {
        "status": "skipped",
        "reason": "skipped: module mooncake not found",
    }
    text = words(page(aggregate))
    assert "Merely switching on NIXL (both) costs" in text
    assert "mooncake_both was skipped: module mooncake not found" in text


def test_the_embedded_engine_is_announced_before_any_number(aggregate: dict[str, Any]) -> None:
    """Also by the headline itself, which gets quoted."""
    assert 'class="banner"' not in page(aggregate)
    aggregate["provenance"]["engine_kind"] = "emulator"
    text = words(page(aggregate))
    assert "They say nothing about real connectors." in text
    assert text.index("embedded engine") < text.index("Merely switching on")
    assert "On the embedded engine: Merely" in text


def test_a_host_without_a_gpu_is_announced(aggregate: dict[str, Any]) -> None:
    """With its number of cores."""
    aggregate["provenance"] |= {"gpu": [], "host": {"cores": 2}}
    assert "CPU host with 2 cores: not the numbers of a GPU" in words(page(aggregate))


def test_a_hostile_name_stays_text(aggregate: dict[str, Any]) -> None:
    """Names come from YAML, reasons from logs; neither becomes markup."""
    evil = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"
    aggregate["campaign"] = evil
    aggregate["configs"]["mooncake_both"]["label"] = evil
    aggregate["configs"]["mooncake_consumer"]["reason"] = evil
    aggregate["configs"]["mooncake_consumer"]["install"] = evil
    aggregate["problems"].append({"where": evil, "what": evil})
    aggregate["provenance"]["versions"][evil] = evil
    aggregate["cells"][0]["reasons"] = [evil]
    aggregate["cells"][0]["ttft_ms"]["p99"] = {
        "point": None,
        "low": None,
        "high": None,
        "n": 0,
        "reason": evil,
    }
    text = page(aggregate, [Figure(Entry(name=evil, number=1, drawn=False, reason=evil))])
    tags = Tags()
    tags.feed(text)
    assert [t for t, _ in tags.found if t in ("script", "img")] == ["script"]
    assert not [a for _, a in tags.found if any(k.startswith("on") for k in a)]


def test_skips_come_with_what_would_change_them(aggregate: dict[str, Any]) -> None:
    """The reason, and the install command where there is one."""
    aggregate["configs"]["mooncake_consumer"] |= {
        "reason": "module mooncake not found",
        "install": "pip install m",
    }
    text = words(page(aggregate))
    assert "skipped none module mooncake not found pip install m" in text


EMPTY: dict[str, Any] = {
    **{
        key: []
        for key in ("cells", "taxes", "main_taxes", "hypotheses", "criteria", "problems", "amplification")
    },
    **{key: {} for key in ("configs", "saturation")},
    "provenance": {"config_hash": "c0ffee00c0ffee00"},
    "reference_rates": None,
}


@pytest.mark.parametrize("key", EMPTY)
def test_a_page_is_made_of_whatever_there_is(aggregate: dict[str, Any], key: str) -> None:
    """A campaign cut short still gets its page, and so does one of a version that did not know the key."""
    assert "How to reproduce" in page({**aggregate, key: EMPTY[key]})
    if key not in ("cells", "taxes", "configs", "provenance"):
        del aggregate[key]
        assert "How to reproduce" in page(aggregate)


@pytest.mark.parametrize("key", ["cells", "taxes", "configs", "provenance"])
@pytest.mark.parametrize("value", [None, "absent"])
def test_an_aggregate_without_its_body_is_one_message(
    aggregate: dict[str, Any], key: str, value: Any, tmp_path: Path
) -> None:
    if value is None:
        aggregate[key] = None
    else:
        del aggregate[key]
    campaign_on_disk(tmp_path, aggregate)
    with pytest.raises(ArtifactError, match=rf"aggregate\.json: .*{key}.*connector-tax analyze"):
        build_report(tmp_path)


def test_an_unavailable_tax_gives_its_reason(aggregate: dict[str, Any]) -> None:
    """Instead of a blank."""
    aggregate["taxes"] = [
        t
        | {
            "point": None,
            "low": None,
            "high": None,
            "available": False,
            "reason": "p90 falls on a dropped request",
        }
        if t["phase"] == "b"
        else t
        for t in aggregate["taxes"]
    ]
    assert "not available p90 falls on a dropped request" in words(page(aggregate))


def test_flags_are_counted_and_explained_and_an_overload_is_marked(aggregate: dict[str, Any]) -> None:
    """What qualifies half the cells must not be found only in the last column of a long table."""
    assert 'id="flags"' not in page({**aggregate, "cells": []})
    for cell in aggregate["cells"]:
        cell["flags"] = []
    for cell in aggregate["cells"][:3]:
        cell["flags"] = ["cores_shared"]
    chosen = ("a", "ref_safe", "ttft_p90")
    row = next(t for t in aggregate["main_taxes"] if (t["phase"], t["reference"], t["metric"]) == chosen)
    row["overloaded"] = ["plain"]
    text = page(aggregate)
    assert f"3 of {len(aggregate['cells'])}" in words(text)
    assert "client and engine had too few cores to be pinned apart" in words(text)
    assert "did not keep up" in text.partition('<h2 id="verdicts">')[2].partition("<h4>")[0]


def test_random_arrivals_are_said_beside_the_saturation_rates(aggregate: dict[str, Any]) -> None:
    """Two of the three criteria mean something else there."""
    words_of_it = "Arrivals are random, so throughput is held against what was sent"
    assert words_of_it not in words(page(aggregate))
    aggregate["provenance"]["arrival"] = "poisson"
    assert words_of_it in words(page(aggregate))


def test_a_queue_that_was_seen_once_is_said_to_be_of_one_sample(aggregate: dict[str, Any]) -> None:
    """The saturation criterion that asks for a median is decided by that one."""
    assert "of one sample" not in words(page(aggregate))
    next(c for c in aggregate["cells"] if c.get("n_waiting"))["n_waiting"] = 1
    assert words(page(aggregate)).count("of one sample") == 1


def test_cells_of_fewer_requests_than_the_published_200_are_said(aggregate: dict[str, Any]) -> None:
    """With the interim analyses at which they may end; those of 200 need no word."""
    cell = aggregate["provenance"]["settings"]["cell"]
    asked = "the published experiment asks for 200"
    cell["min_completed"] = 200
    assert asked not in words(page(aggregate))
    cell["min_completed"] = 40
    assert f"may end after 40 completed requests; {asked}" in words(page(aggregate))
    measured = next(c for c in aggregate["cells"] if c.get("n_waiting"))
    look = {"n": 50, "n_planned": 50, "half_widths": {}, "tight": True}
    measured["stopping"] = {
        "half_width": 0.08, "planned": [50, 100, 200], "wider": 1.2, "looks": [look], "reached": True,
    }  # fmt: skip
    assert "at interim analyses of 50, 100, 200 completed requests" in words(page(aggregate))


def test_a_reference_rate_above_a_saturated_one_is_flagged(aggregate: dict[str, Any]) -> None:
    aggregate["reference_rates"]["flags"] = ["non_monotonic_load"]
    aggregate["saturation"]["plain"] |= {"saturation_rate_per_s": 1, "non_monotonic": [2, 4]}
    assert "1 req/s; not at 2 req/s and 4 req/s" in words(page(aggregate))
    assert "plain is saturated at a rate below ref_load and keeps up at ref_load itself" in words(
        page(aggregate)
    )


def test_outputs_that_differ_are_shown_with_their_place(aggregate: dict[str, Any]) -> None:
    assert "Outputs were not compared" in words(page(aggregate))
    row = {"config": "nixl_both", "phase": "a", "n_prompts": 16, "n_same": 15, "n_failed": 0}
    row |= {"verdict": "differs", "first_difference": {"prompt": 3, "token": 7}}
    text = words(page({**aggregate, "outputs": [row]}))
    assert "15 of 16 prompt 3, token 7 differs" in text


def test_what_two_launches_measured_stands_side_by_side(aggregate: dict[str, Any]) -> None:
    """The only look at launch-to-launch variance that one campaign gives."""
    rows = [t for t in aggregate["taxes"] if t["reference"] == "ref_safe" and t["config"] == "nixl_both"]
    a = next(t for t in rows if t["phase"] == "a" and t["metric"] == "ttft_p90")
    aggregate["taxes"] = [a, {**a, "phase": "b", "point": 0.5, "low": 0.4, "high": 0.6}]
    found = view_of(aggregate).repeats
    assert [t.text for t in found[0].taxes][1] == "+50 %"
    aggregate["taxes"][1]["input_tokens"] = 17
    assert view_of(aggregate).repeats == []


def test_what_processes_take_stands_on_the_page(aggregate: dict[str, Any]) -> None:
    """A thread that spins is named; CPU seconds are cores; a campaign without figures has no table."""
    text = words(page(aggregate))
    assert "nixl_worker (99 % of a core)" in text
    assert "engine_core 0.01 0.51 2,048" in text
    assert "all 0.02 0.70 2,560" in text
    for cell in aggregate["cells"]:
        cell["cpu"] = {"loaded_s": {}, "idle_share": {}, "rss_mib": {}}
    assert "What each engine process takes" not in words(page(aggregate))


def test_a_tax_stands_in_two_parts_and_in_three(aggregate: dict[str, Any]) -> None:
    """Three with their settings apart; two as published; none where the no-op connector has no tax."""
    text = words(page(aggregate))
    assert (
        "LMCache TTFT p90 of one launch +9.0 % [+4.5 %, +14 %] n 200 +3.0 % [+1.0 %, +5.0 %] n 200 +2.0 % [0 %, +4.0 %] n 200 +4.0 %"
        in text
    )
    assert "The published experiment's two parts" not in words(page(aggregate))


def test_several_launches_stand_before_one(aggregate: dict[str, Any]) -> None:
    """Headline and table over blocks; the one launch is named beside them."""
    floor = {"point": 0.01, "low": -0.01, "high": 0.03, "half_width": 0.02}
    floor |= {"found_4_of_5": {"point": 0.021, "low": 0.012, "high": 0.08}}
    numbers = {"point": 0.27, "low": 0.15, "high": 0.41, "n": 4, "verdict": "tax", "adjusted": None}
    numbers |= {"kind": "over 4 blocks", "sd": 0.01}
    aggregate["repeats"] = [
        {
            "reference": "ref_safe",
            "rate_per_s": 2.0,
            "metric": "ttft_p90",
            "blocks": 4,
            "noise_floor": floor,
            "between_launch_sd": 0.012,
            "between_launches": {"point": 0.012, "low": 0.0, "high": 0.03},
            "drift": {"change": {"point": 0.02, "low": 0.01, "high": 0.03}, "p_value": 0.01, "hours": 2.5},
            "taxes": [{"config": "mooncake_both", **numbers, "by_block": {"r1": 0.2, "r2": 0.3}}],
        }
    ]
    chosen = {"point": 0.27, "low": 0.15, "high": 0.41, "phase": None, "blocks": 4, "n": 800, "n_plain": 1600}
    chosen["kind"] = "over 4 blocks"
    wanted = ("mooncake_both", "ref_safe", "ttft_p90")
    for tax in aggregate["main_taxes"]:
        if (tax["config"], tax["reference"], tax["metric"]) == wanted:
            tax |= chosen
        elif tax["metric"] == "ttft_p90":
            tax |= {"point": 0.1, "low": 0.05, "high": 0.2}
    for cell in aggregate["cells"]:
        if (cell["config"], cell["phase"], cell["cell_id"]) == ("mooncake_both", "a", "r2_4096x256"):
            aggregate["cells"].append({**cell, "phase": "r2", "flags": ["host_busy"]})
            break
    text = words(page(aggregate))
    assert "The cells behind it are flagged host_busy" in text
    assert "Over 4 blocks of launches it compares 800 requests with the connector and 1,600 without" in text
    assert "n 800 and 1,600, over 4 blocks of launches" in text
    assert "costs 27 % more TTFT p90 at ref_safe (2 req/s), 95 % interval 15 % to 41 %" in text.replace(
        "\xa0", " "
    )
    assert "Phase A's launch alone: +40 %" in text.replace("\xa0", " ")
    assert (
        "The tax that 4 such blocks find in four of five campaigns is estimated at +2.1 % [+1.2 %, +8.0 %], if a connector's"
        in text
    )
    assert "Launches of plain differ by 1.2 % [0 %, 3.0 %] (standard deviation)" in text
    assert (
        "Plain drifts: +2.0 % [+1.0 %, +3.0 %] from the first of these launches to the last, 2.5 h, on a line through the blocks"
        in text
    )
    assert "Mooncake (both) +27 % [+15 %, +41 %] n 800 and 1,600 tax – R1 +20 %, R2 +30 %" in text
    aggregate["provenance"]["confidence"] = 0.995
    assert "Plain does not visibly drift: +2.0 %" in words(page(aggregate))


def test_every_interval_on_the_page_is_of_the_campaigns_own_confidence(aggregate: dict[str, Any]) -> None:
    at = "95 % interval"
    usual = words(page(aggregate)).replace("\u00a0", " ")
    aggregate["provenance"]["confidence"] = 0.8
    text = words(page(aggregate)).replace("\u00a0", " ")
    assert at not in text
    assert usual.count(at) == text.count("80 % interval") > 2


@pytest.mark.parametrize(("cards", "cores"), [(None, 1), ({"engine.gpu 0": ["a"], "engine.gpu 1": ["b"]}, 2)])
def test_the_recipe_takes_as_many_cores_as_cards_were_used(
    aggregate: dict[str, Any], cards: dict[str, list[str]] | None, cores: int
) -> None:
    """With one core the engines run one after the other, and have no neighbours."""
    if cards is not None:
        aggregate["provenance"] |= {"cards": cards, "mixed_cards": []}
    assert f"snakemake --cores {cores} --configfile config/<file>.yaml" in words(page(aggregate))
