"""The page: self-contained, escaped, made of the numbers of aggregate.json, with words for every code."""

import base64
import copy
import hashlib
import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from made_pages import view_of
from page_reader import Reader, check_numbers
from whole_aggregate import Aggregate, over_blocks
from whole_aggregate import example as fresh

from connector_tax.base.documents.aggregate import (
    MARKS,
    Conclusion,
    ConfigStatus,
    CriterionWord,
    GrowthQuantity,
    HypothesisId,
    Outcome,
    OutputsVerdict,
    Part,
    ProblemCode,
    ReasonCode,
    RowVerdict,
    SourceKind,
    aggregate_of,
)
from connector_tax.base.documents.figures import Entry
from connector_tax.base.documents.rates import Criterion
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import write_json
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.words import WORDS, labels
from connector_tax.read.report.page import Figure, build_report, render, taxes_markdown
from connector_tax.read.report.view import Left, page_view

SVG = '<svg xmlns="http://www.w3.org/2000/svg"/>'
SECTIONS = ("taxes", "hypotheses", "causes", "lengths", "load", "cells", "provenance", "reproduce")


@pytest.fixture
def aggregate() -> Aggregate:
    return fresh()


def page(aggregate: Aggregate, figures: Sequence[Figure] = ()) -> str:
    return render(view_of(aggregate), figures)


def said(aggregate: Aggregate) -> str:
    """What a reader sees, numbers among it."""
    body = re.sub(r"<(style|script|pre)\b[^>]*>.*?</\1>", "", page(aggregate), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", "", body).replace("\u202f", " ").split())


def headline(aggregate: Aggregate) -> str:
    found = re.search("<h1>(.*?)</h1>", page(aggregate), re.DOTALL)
    assert found is not None
    return " ".join(re.sub(r"<[^>]+>", "", found[1]).replace("\u202f", " ").split())


def test_every_number_of_the_page_is_in_aggregate_json(aggregate: Aggregate) -> None:
    assert check_numbers(aggregate, page(aggregate)) > 200


def test_every_number_over_blocks_is_as_well(aggregate: Aggregate) -> None:
    floor = over_blocks(0.01, -0.02, 0.03, 4)
    floor["noise_floor"]["found_4_of_5"] = {"point": 0.05, "low": 0.02, "high": 0.2}
    aggregate["repeats"] = [floor, {**copy.deepcopy(floor), "metric": "tpot_p90"}]
    for tax in aggregate["main_taxes"]:
        if tax["reference"] == "ref_safe" and tax["unit"] == "ratio":
            tax |= {"phase": None, "n_blocks": 4}
    check_numbers(aggregate, page(aggregate))


CODES: dict[str, Sequence[str]] = {
    "source": get_args(SourceKind),
    "verdict": get_args(RowVerdict),
    "reason": get_args(ReasonCode),
    "problem": get_args(ProblemCode),
    "conclusion": get_args(Conclusion),
    "mark": MARKS,
    "outcome": get_args(Outcome),
    "claim": get_args(HypothesisId),
    "criterion": get_args(CriterionWord),
    "status": get_args(ConfigStatus),
    "part": get_args(Part),
    "growth": get_args(GrowthQuantity),
    "outputs": get_args(OutputsVerdict),
    "saturation": get_args(Criterion),
    "title": tuple(FIGURES),
    "caption": tuple(FIGURES),
}


@pytest.mark.parametrize("kind", CODES)
def test_every_code_has_a_label(kind: str) -> None:
    assert set(CODES[kind]) <= set(labels()[kind])
    assert all(isinstance(words, str) for words in labels()[kind].values())


def test_every_reason_that_the_analysis_gives_has_words() -> None:
    """Codes are strings of the code that gives them."""
    wing = WORDS.parents[1] / "src/connector_tax"
    source = "".join(
        p.read_text() for room in ("read/stats", "base/statistics") for p in (wing / room).rglob("*.py")
    )
    given = re.findall(r'(?:unavailable|Missing|_none|_without)\((?:name, )?[^()\[]*?"([^"\n{}]+)"', source)
    assert len(set(given)) > 15 and set(given) <= set(labels()["missing"])


@pytest.mark.parametrize("verdict", get_args(RowVerdict))
def test_every_verdict_renders(aggregate: Aggregate, verdict: str) -> None:
    lost = verdict in ("failed", "skipped", "missing")
    reason = {"code": "run_failed", "subject": "mooncake_both"} if lost else None
    aggregate["connectors"] = [{"config": "mooncake_both", "verdict": verdict, "reason": reason}]
    clear = ["ttft_p90"] if verdict == "tax" else []
    aggregate["connectors"][0] |= {"clear": clear, "marks": MARKS}
    if lost:
        aggregate["main_taxes"] = []
    text = page(aggregate)
    assert f"<span>{labels()['verdict'][verdict]}</span>" in text
    words = [*(labels()["mark"][mark] for mark in MARKS), labels()["reason"]["run_failed"] if lost else ""]
    assert [w for w in words if w.replace("'", "&#39;") not in text] == [] and "<sup>a" in text


def test_every_problem_renders_with_its_facts_and_what_it_follows_from(aggregate: Aggregate) -> None:
    """Each number that its words name stands in ``numbers``."""
    cause = {"code": "invalid", "detail": "it died <at> start"}
    lines = []
    for code, words in labels()["problem"].items():
        numbers = dict.fromkeys({*re.findall(r"\{(\w+)\}", words)} - {"subject", "names"}, 7)
        shown = {name: "7 s" if name.endswith("_s") else 7 for name in numbers}
        problem = {"code": code, "subject": "one", "names": ["two"], "numbers": numbers, "because": cause}
        aggregate["problems"].append(problem)
        told = words.format(subject="one", names="two", **shown)
        lines.append(f"<code>one</code>: {told}{': ' if told else ''}it died <at> start</li>")
    text = page(aggregate)
    assert [line for line in lines if line not in html.unescape(text)] == []
    check_numbers(aggregate, text)


def test_a_ttft_that_is_no_tax_is_excluded_and_not_unrecorded(aggregate: Aggregate) -> None:
    aggregate["configs"]["nixl_both"]["ttft_is_no_tax"] = "it fakes hits"
    (own,) = [
        t
        for t in aggregate["main_taxes"]
        if (t["config"], t["metric"], t["reference"]) == ("nixl_both", "ttft_p90", "ref_safe")
    ]
    own.update(
        point=None, low=None, high=None, available=False, reason="ttft_excluded", verdict="unavailable"
    )
    row = said(aggregate).partition("NIXL (both)")[2].partition(" %")[0]
    why = labels()["reason"]["ttft_excluded"].replace("'", "&#39;")
    assert row.count(why) == 1 and "not recorded" not in row


def set_taxes(aggregate: Aggregate, *, but: dict[str, tuple[float, float, float]] | None = None) -> None:
    """At ref_safe every latency tax is nothing, but those given."""
    for tax in aggregate["main_taxes"]:
        if tax["reference"] == "ref_safe" and tax["unit"] == "ratio":
            point, low, high = (but or {}).get(tax["config"], (0.01, -0.02, 0.04))
            tax |= {"point": point, "low": low, "high": high, "available": True, "reason": None}
            tax["verdict"] = "tax" if low > 0 else "no_tax_found"


def test_the_headline_gives_the_largest_taxes_and_counts_the_rest(aggregate: Aggregate) -> None:
    set_taxes(aggregate, but={"mooncake_both": (0.42, 0.31, 0.55), "nixl_both": (0.05, 0.01, 0.09)})
    text = headline(aggregate)
    assert text.startswith(
        "Mooncake (both) adds 42 % to TTFT p90 and 42 % to TPOT p90, NIXL (both) adds 5.0 %"
    )
    assert "no tax is seen" in text


def test_without_a_tax_the_headline_says_above_what_none_is(aggregate: Aggregate) -> None:
    set_taxes(aggregate)
    assert "shows a latency tax; none is above 4.0 %." in headline(aggregate)
    lost = next(
        t for t in aggregate["main_taxes"] if t["metric"] == "ttft_p90" and t["reference"] == "ref_safe"
    )
    for without in (
        {"high": None},
        {"point": None, "low": None, "reason": "requests_failed", "verdict": "unavailable"},
    ):
        lost |= without
        assert "shows a latency tax" in headline(aggregate) and "above" not in headline(aggregate)


def test_the_one_that_adds_most_does_so_by_what_is_a_tax(aggregate: Aggregate) -> None:
    """A number that nobody can tell from zero put its connector first, with the 2 % that are one."""
    set_taxes(aggregate, but=dict.fromkeys(aggregate["configs"], (0.3, 0.2, 0.4)))
    for tax in aggregate["main_taxes"]:
        if (tax["config"], tax["reference"]) == ("mooncake_both", "ref_safe") and tax["unit"] == "ratio":
            low = (0.5, -0.1, 1.1) if tax["metric"] == "ttft_p90" else (0.02, 0.01, 0.03)
            tax |= dict(zip(("point", "low", "high"), low, strict=True))
    text = headline(aggregate)
    assert "adds most: 30 % to TTFT p90" in text and not text.startswith("Mooncake (both)")


def test_what_load_adds_stands_at_each_shape_of_phase_b_prime(aggregate: Aggregate) -> None:
    """Only Phase A's was printed, and nobody said of a shape that it was left out."""
    place = {"config": "mooncake_both", "metric": "ttft_p90", "output_tokens": 16}
    of_b = next(t for t in aggregate["taxes"] if (t["config"], t["metric"]) == ("mooncake_both", "ttft_p90"))
    loaded = {"phase": "b_prime", "reference": "ref_load", "rate_per_s": 6.0, "input_tokens": 128}
    aggregate["taxes"].append({**of_b, **place, **loaded, "point": 0.31, "low": 0.3, "high": 0.32})
    gap = {**place, "input_tokens": 128, "point": 0.07, "low": 0.05, "high": 0.09, "n": 5}
    lost = {"input_tokens": 32768, "point": None, "low": None, "high": None, "n": 0, "reason": "not_held"}
    aggregate["amplification"] += [gap, {**place, **lost}]
    text = html.unescape(said(aggregate))
    assert "128 × 166/s of one launch+31 [+30, +32]–+7.0 [+5.0, +9.0]–" in text
    assert f"32,768 × 16––––{labels()['missing']['not_held']}" in text
    check_numbers(aggregate, page(aggregate))


def test_connectors_of_one_label_are_told_apart(aggregate: Aggregate) -> None:
    """An entry that was copied keeps its label; rows of both were one group of cells."""
    aggregate["configs"]["nixl_both"]["label"] = aggregate["configs"]["mooncake_both"]["label"]
    found = view_of(aggregate)
    assert {"nixl_both", "mooncake_both"} <= {row.label for row in found.rows}
    assert {"nixl_both", "mooncake_both"} <= {who for who, _ in found.cells}


def test_a_sentence_about_all_is_said_of_those_that_are_known(aggregate: Aggregate) -> None:
    aggregate["engine_diff"] = {"mooncake_both": {}, "nixl_both": None}
    assert "No connector switches an engine setting" not in said(aggregate)
    aggregate["engine_diff"] = {"mooncake_both": {}, "nixl_both": {}}
    assert "No connector switches an engine setting" in said(aggregate)
    assert any(not cell["usable"] for cell in aggregate["cells"])
    assert "requests of the others failed or were dropped" in said(aggregate)
    aggregate["cells"] = [cell for cell in aggregate["cells"] if cell["usable"]]
    assert "requests failed or were dropped" in said(aggregate)


def test_lengths_of_a_trend_say_at_which_rate_where_these_differ(aggregate: Aggregate) -> None:
    """Else a trend over length is one of utilisation."""
    numbers = next(h["numbers"] for h in aggregate["hypotheses"] if h["numbers"].get("by_length"))
    lengths = list(numbers["by_length"])
    numbers["rates_per_s"] = {k: [2.0] for k in lengths}
    assert f"{lengths[0]} tokens: " in said(aggregate) and f"2/s, {lengths[0]} tokens" not in said(aggregate)
    numbers["rates_per_s"][lengths[-1]] = [0.5]
    assert f"2/s, {lengths[0]} tokens: " in said(aggregate) and f"0.5/s, {lengths[-1]} tokens: " in said(
        aggregate
    )


def test_a_headline_at_a_rate_that_is_not_safe_says_so(aggregate: Aggregate) -> None:
    """And so does the table that is copied as Markdown: neither takes the page's notes along."""
    assert "queueing" not in headline(aggregate)
    aggregate["reference_rates"]["flags"] = ["fallback_lowest_rate"]
    assert headline(aggregate).endswith("No rate is safe for all, so this may be queueing.")
    assert labels()["rate_flag"]["fallback_lowest_rate"] in html.unescape(taxes_markdown(view_of(aggregate)))


def test_without_any_number_it_says_why(aggregate: Aggregate) -> None:
    aggregate |= {"main_taxes": [], "reference_rates": None}
    text = headline(aggregate)
    assert text.startswith("No tax can be stated.") and labels()["reason"]["no_reference_rate"] in text


def test_a_connector_without_a_number_is_in_the_headline_and_keeps_its_row(aggregate: Aggregate) -> None:
    aggregate["main_taxes"] = [t for t in aggregate["main_taxes"] if t["config"] != "mooncake_both"]
    why = {"code": "phase_failed", "subject": "a", "detail": "the engine died at start"}
    aggregate["configs"]["mooncake_both"] |= {"status": "failed", "reason": why}
    assert "Mooncake (both)" in headline(aggregate).partition("no number")[0]
    assert "the engine died at start" in said(aggregate)


def test_both_reference_rates_are_reported(aggregate: Aggregate) -> None:
    rates = aggregate["reference_rates"]
    assert rates["ref_safe_per_s"] != rates["ref_load_per_s"]
    values = {float(a["value"] or "nan") for a, _ in Reader(page(aggregate)).numbers}
    for tax in aggregate["main_taxes"]:
        if tax["metric"] in ("ttft_p90", "tpot_p90") and tax["point"] is not None:
            assert tax["point"] in values, tax


def test_requests_behind_the_taxes_are_counted(aggregate: Aggregate) -> None:
    counts = [
        t["n"]
        for t in aggregate["main_taxes"]
        if (t["reference"], t["unit"]) == ("ref_safe", "ratio") and t["n"]
    ]
    values = {a["value"] for a, _ in Reader(page(aggregate)).numbers}
    assert {str(min(counts)), str(max(counts))} <= values


def test_a_skipped_configuration_has_its_reason_and_how_to_get_it(aggregate: Aggregate) -> None:
    own = {
        "status": "skipped",
        "reason": {"code": "skipped", "detail": "module mooncake not found"},
        "install": "pip install m",
    }
    aggregate["configs"]["mooncake_consumer"] |= own
    assert "skipped module mooncake not found pip install m" in Reader(page(aggregate)).text


@pytest.mark.parametrize(
    ("provenance", "kind", "words"),
    [
        ({"engine_kind": "emulator"}, "embedded_engine", "Nothing here is about a real connector."),
        (
            {"engine_kind": "virtual_gpu", "virtual_gpu": {"name": "NVIDIA H200"}},
            "virtual_gpu",
            "NVIDIA H200",
        ),
        ({}, "gpu", "H20"),
        ({"gpu": [], "host": {"cores": 2}}, "cpu", "on 2 CPU cores"),
    ],
)
def test_the_source_stands_before_any_number_and_beside_every_table(
    aggregate: Aggregate, provenance: dict[str, Any], kind: str, words: str
) -> None:
    aggregate["provenance"] |= provenance
    aggregate["provenance"]["versions"].pop("emulator", None)
    text = page(aggregate)
    boxed = text.partition('<p class="source">')[2].partition("</p>")[0]
    assert labels()["source"][kind] in boxed and words in re.sub(r"<[^>]+>", "", boxed)
    assert text.index('class="source"') < text.index("<h1>")
    own = Reader(text).tags
    assert {a.get("data-source") for tag, a in own if tag in ("table", "figure")} == {kind}


def test_an_unfinished_campaign_says_what_is_left(aggregate: Aggregate) -> None:
    left = Left(3, 12, [("A", ("nixl_both",)), ("B", ())])
    text = render(page_view(aggregate_of(aggregate), left), [])
    assert "Left: phase A of NIXL (both); phase B." in Reader(text).text
    assert "Unfinished" not in page(aggregate)


def campaign_on_disk(root: Path, aggregate: Aggregate) -> None:
    write_json(root / "aggregate.json", aggregate)
    (root / "figures").mkdir()
    (root / "figures" / "fig6.svg").write_text(SVG)
    files = {"svg": "fig6.svg", "csv": "fig6.csv"}
    drawn = {"name": "fig6", "number": 6, "drawn": True, "title": "t", "caption": "n = 3", "files": files}
    lost = {"name": "fig8", "number": 8, "drawn": False, "reason": "mooncake_both was skipped: no module"}
    write_json(root / "figures" / "index.json", {"schema": 1, "figures": [drawn, lost]})


def test_the_page_is_one_well_formed_file_that_fetches_nothing(aggregate: Aggregate, tmp_path: Path) -> None:
    """It can be mailed, and opened without a network."""
    campaign_on_disk(tmp_path, aggregate)
    text = build_report(tmp_path).read_text()
    reader = Reader(text)
    assert reader.open == []
    for tag, attributes in reader.tags:
        assert tag not in ("link", "iframe", "object", "form")
        assert tag != "script" or attributes == {}
        for key in ("src", "href"):
            if attributes.get(key):
                assert str(attributes[key]).startswith(("#", "data:image/svg+xml;charset=utf-8,"))
    assert [tag for tag, _ in reader.tags].count("script") == 1
    content = next(
        str(a["content"]) for _, a in reader.tags if a.get("http-equiv") == "Content-Security-Policy"
    )
    script = text.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src"
    assert content == f"{policy} 'sha256-{digest}'"
    # An SVG's name for itself is no address that anybody asks, and neither is a part of the page.
    assert "http://" not in text.replace("xmlns=%22http://www.w3.org/2000/svg%22", "")
    assert "https://" not in text and "@import" not in text and "url(" not in text.replace("url(#", "")
    ids = [a["id"] for _, a in reader.tags if "id" in a]
    assert set(SECTIONS) <= set(ids)
    assert len(ids) == len(set(ids))
    assert text.count("data:image/svg+xml;charset=utf-8,") == 1
    assert "figure 8 (mooncake_both was skipped: no module)" in reader.text


def test_a_figure_that_vanished_is_named(aggregate: Aggregate, tmp_path: Path) -> None:
    """With the command that draws it again."""
    campaign_on_disk(tmp_path, aggregate)
    (tmp_path / "figures" / "fig6.svg").unlink()
    with pytest.raises(ArtifactError, match=r"fig6\.svg.*connector-tax report"):
        build_report(tmp_path)


def test_a_hostile_name_stays_text(aggregate: Aggregate) -> None:
    """Names come from YAML, reasons from logs; neither becomes markup."""
    evil = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"
    aggregate["campaign"] = evil
    aggregate["configs"]["mooncake_both"]["label"] = evil
    aggregate["configs"]["mooncake_consumer"] |= {
        "reason": {"code": "skipped", "detail": evil},
        "install": evil,
    }
    aggregate["problems"].append({"code": "unreadable", "subject": evil, "detail": evil})
    aggregate["provenance"]["versions"][evil] = evil
    aggregate["cells"][0]["reasons"] = [{"code": "invalid", "detail": evil}]
    aggregate["cells"][0]["flags"] = [evil]
    tags = Reader(page(aggregate, [Figure(Entry(name=evil, number=1, drawn=False, reason=evil))])).tags
    assert [t for t, _ in tags if t in ("script", "img")] == ["script"]
    assert not [a for _, a in tags if any(k.startswith("on") for k in a)]


EMPTY: dict[str, Any] = {
    **{
        key: []
        for key in ("cells", "taxes", "main_taxes", "hypotheses", "criteria", "problems", "amplification")
    },
    **{key: {} for key in ("configs", "saturation")},
    "provenance": {"config_hash": "c0ffee00c0ffee00", "confidence": 0.95},
    "reference_rates": None,
}


@pytest.mark.parametrize("key", EMPTY)
def test_a_page_is_made_of_whatever_there_is(aggregate: Aggregate, key: str) -> None:
    """A campaign cut short still gets its page, and so does one of a version that did not know the key."""
    assert 'id="reproduce"' in page({**aggregate, key: EMPTY[key]})
    if key not in ("cells", "taxes", "configs", "provenance"):
        del aggregate[key]
        assert 'id="reproduce"' in page(aggregate)


def test_the_page_names_the_campaigns_own_confidence(aggregate: Aggregate) -> None:
    aggregate["provenance"]["confidence"] = 0.8
    assert "80 % intervals" in said(aggregate) and "95 % intervals" not in said(aggregate)


def test_intervals_of_one_launch_are_not_held_against_their_confidence(aggregate: Aggregate) -> None:
    """21 of 28 looks like a fault beside 95 %: what two launches differ by is in none of them."""
    one = copy.deepcopy(aggregate)
    one["put_in"] = {"asked": 28, "held": 21, "taxes": [], "launches": 9}
    one["repeats"] = []
    for tax in (*one["taxes"], *one["main_taxes"]):
        tax["n_blocks"] = 1
    text = said(one)
    assert "21 of 28 intervals" in text and "so fewer than 95 % are expected to" in text
    assert "launched once" not in text, "each phase has a launch of plain"


def test_an_interval_without_ends_and_ids_without_a_label_have_words(aggregate: Aggregate) -> None:
    aggregate["hypotheses"][2]["numbers"]["share"] |= {"low": None, "high": None}
    aggregate["cells"].append({**aggregate["cells"][0], "config": "plain_again", "phase": "r2"})
    text = said(aggregate)
    assert "no interval" in text and "\N{MINUS SIGN}∞, ∞" not in text
    assert "plain vLLM again" in text and "repeat 2" in text and "plain_again" not in text


def test_a_cell_that_may_end_early_is_said_once(aggregate: Aggregate) -> None:
    """The published experiment has 200 completed requests in each cell."""
    assert "completed requests" not in said(aggregate)
    aggregate["provenance"]["settings"]["cell"]["min_completed"] = 50
    rule = {"half_width": 0.05, "planned": [50, 100, 200], "wider": 1.2, "reached": True}
    looks = [{"n_planned": n, "n": n, "half_widths": {}, "tight": n == 100} for n in (50, 100)]
    aggregate["cells"][0]["stopping"] = {**rule, "looks": looks}
    aggregate["cells"][1]["stopping"] = {**rule, "looks": [{**looks[0], "n_planned": 200}]}
    text = said(aggregate)
    assert "before 200 completed requests, from 50 on, once an interim analysis" in text
    assert "tight enough: 1 did." in text
    check_numbers(aggregate, page(aggregate))
