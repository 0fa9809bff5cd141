"""The reader of pages finds what is planted; the demo's page and the published campaign's hold nothing that it finds."""

import copy
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.files import read_json
from connector_tax.read.ingest import read_campaign
from connector_tax.run.rehearsal.campaign import analyse, rehearse

sys.path.insert(0, str(Path(__file__).parents[2]))
from alterations import SHARES_OF, alterations, shares
from analysed import aggregate_json
from claim_numbers import estimate, misread
from claim_verdicts import disagreements
from claims import ONE_LAUNCH, PageReader, faults
from made_pages import page_of
from mutations import BLOCKS, MUTATIONS, Mutation


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return Mutation(BLOCKS).made(tmp_path_factory.mktemp("made") / "campaign")


@pytest.fixture(scope="module")
def page(made: dict[str, Any]) -> str:
    return page_of(made)


def test_the_page_of_the_rehearsed_demo(tmp_path: Path) -> None:
    root, _ = rehearse(load_campaign(PROJECT_ROOT / "config" / "demo.yaml"), tmp_path)
    analyse(root)
    aggregate = read_json(root / "aggregate.json")
    assert faults(page_of(aggregate), aggregate) == []


@pytest.fixture(scope="module")
def published(published_campaign: Path) -> dict[str, Any]:
    return aggregate_json(read_campaign(published_campaign))


def test_the_page_of_the_published_campaign(published: dict[str, Any]) -> None:
    assert faults(page_of(published), published) == []


def changed(page: str, old: str, new: str) -> str:
    assert page.count(old) >= 1, old
    return page.replace(old, new, 1)


def test_a_number_of_unknown_origin_is_found(page: str, made: dict[str, Any]) -> None:
    """In a paragraph, in a cell of a table, above a figure and below it."""
    assert faults(page, made) == []
    for old, new in (
        ('<p class="details">', '<p class="details">It is 7.3 % faster. '),
        ("</td></tr>", " 7.3 %</td></tr>"),
        ('alt="Figure 4: ', 'alt="Figure 4: 7.3 % of '),
        ("Tax = percentile with the connector", "Over 7.3 ms. Tax = percentile with the connector"),
        ('<h2 id="criteria">', '<p>It is 7.3 % faster.</p><h2 id="criteria">'),
    ):
        found = faults(changed(page, old, new), made)
        assert found and any("'7.3" in f for f in found)


def test_what_provenance_loses_or_says_under_another_name_is_found(page: str, made: dict[str, Any]) -> None:
    row = "<dt>plain.kv_transfer_config</dt><dd>not set</dd>"
    lost = "Provenance: 'settings.connectors.plain.kv_transfer_config: not set' is not on the page"
    assert faults(changed(page, row, ""), made) == [lost]
    for old, new in (("<dt>seed</dt>", "<dt>seeds</dt>"), (": <code>order</code>", ": <code>orders</code>")):
        found = faults(changed(page, old, new), made)
        assert any("is of unknown origin" in f for f in found) and any(
            "is not on the page" in f for f in found
        )


def test_a_wrong_interval_is_found(page: str, made: dict[str, Any]) -> None:
    """Also one that has the right point, and one that is left out."""
    tax = next(
        t
        for t in made["main_taxes"]
        if (t["config"], t["metric"], t["reference"]) == ("nixl_both", "ttft_p90", "ref_safe")
    )
    low, high = (f"{100 * tax[k]:+.0f} %" for k in ("low", "high"))
    said = f"<small>[{low}, {high}]</small>"
    (fault,) = faults(changed(page, said, f"<small>[{low}, +77 %]</small>"), made)
    assert f"[{low}, +77 %]" in fault and "is not" in fault
    assert faults(changed(page, said, ""), made)


def test_a_wrong_kind_is_found(page: str, made: dict[str, Any]) -> None:
    """Another number of blocks, one launch's number as one over blocks, the reverse, and no word about it."""
    assert faults(changed(page, "over 4 blocks of launches", "over 5 blocks of launches"), made)
    assert faults(changed(page, "Over 4 blocks of launches", "Of one launch each"), made)
    assert faults(changed(page, ", over 4 blocks of launches", ""), made)
    assert faults(changed(page, "tax, of one launch", "tax"), made)


def test_a_wrong_count_and_somebody_elses_number_are_found(page: str, made: dict[str, Any]) -> None:
    """Also a number that prints like another's in the same table, and a name that takes another's row."""
    assert faults(re.sub(r"(\d) of 5 connectors", "4 of 5 connectors", page, count=1), made)
    label = made["configs"]["nixl_both"]["label"]
    other = made["configs"]["mooncake_both"]["label"]
    rows = page.split("<tr>")
    k = next(k for k, row in enumerate(rows) if f">{label}<small>" in row and "n 320" in row)
    swapped = rows[k].replace(label, other).replace("nixl_both", "mooncake_both")
    assert faults("<tr>".join([*rows[:k], swapped, *rows[k + 1 :]]), made)


def test_a_verdict_of_another_word_is_found(page: str, made: dict[str, Any]) -> None:
    for old, new in (
        ("a tax for 5 of 5", "a gain for 5 of 5"),
        ("% more TTFT", "% less TTFT"),
        ('">supported', '">refuted'),
        ("The two taxes add up", "The two taxes interfere, together they cost more"),
        ("undetermined, of one launch", "supported, of one launch"),
    ):
        assert faults(changed(page, old, new), made), old


# Campaign -> what its page says of open ends, or of who has no number, and what it may not say.
OPEN = {
    "open above": (
        ("costs at least ", "costs "),
        ("no upper bound", "+77 %"),
        ("the upper end is open: the interval", "the upper end is open: an interval"),
        ("a tax for 4 of 5", "a tax for 3 of 5"),
        (
            "no difference is found for the other one",
            "no difference is found for the other one; one without a number, LMCache",
        ),
    ),
    "one-sided intervals": (
        (": whether it has a tax on TTFT p90 ", ": no tax on TTFT p90 "),
        ("undetermined, of one launch", "no tax found, of one launch"),
        ("not known, since the interval is open, for", "no difference is found for"),
        ("of 20 it is not known", "of 19 it is not known"),
        ("Whether there is a tax to split is not known", "No tax to split is found"),
        (", dotted where an open end leaves it open which", ""),
    ),
    "requests of a stack's block failed": (
        ("Mooncake + LMCache has no number", "LMCache has no number"),
        ("one without a number, Mooncake + LMCache", "one without a number, LMCache"),
        ("of 5 connectors", "of 4 connectors"),
        ("no value in block R1", "no value in block R2"),
    ),
    "lost cell of a connector": (
        ("s own launch for mooncake_both", "s launch for mooncake_both"),
        ("whether Mooncake (both) saturates earlier is not known, and no other connector does", "no connector saturates earlier"),
        ("s launch, since its cell of phase A is lost", "s launch, since its cell of phase B is lost"),
        ("of 5 connectors: the largest Mooncake + LMCache", "of 4 connectors: the largest Mooncake + LMCache"),
        ("No usable cell of phase A at this rate: mooncake_both", "No step records at this rate: mooncake_both"),
    ),
    "saturated everywhere": (
        ("Reference rates carry: fallback_lowest_rate, fallback_lowest_rate_load.", ""),
        (" did not keep up at this rate", " kept up at this rate"),
        (", the lowest rate that was measured, so whether a connector saturates earlier is not known", ", and no connector saturates earlier"),
    ),
    "answers": (
        ("NIXL (both) has no number: its latencies are no tax", "NIXL (both) has no number: its cells are lost"),
        ("The title does not count nixl_both: its TTFT is no tax", "The title does not count lmcache_only: its TTFT is no tax"),
        ("with one of 4 from ", "with one of 5 from "),
        ("No other launch of plain answered them", "1 other launch of plain shows how repeatable the engine is"),
    ),
    "connector that fakes hits": (("The title does not count decode_bench", "The title counts decode_bench"),),
    "noise": (
        ("interval, of one launch)", "interval)"),
        ("is not resolved here; the estimate is", "is not known; the estimate is"),
        (": whether it has a tax on TTFT p90 at ref_safe (4\xa0req/s) is not resolved here; the", ": no tax on TTFT p90 is found at ref_safe (4\xa0req/s); the"),
        ("not resolved here, of one launch", "no tax found, of one launch"),
        ("no tax found, of one launch", "not resolved here, of one launch"),
        ("not resolved here, since the interval is wider than 100 points, for", "no difference is found for"),
        ("Not resolved here: the interval holds zero", "Not resolved here: the interval excludes zero"),
        ("Whether there is a tax to split is not resolved here", "No tax to split is found"),
    ),
    "hooks between steps": (
        ("in the connector&#39;s hooks, also those between two steps", "of it in the connector&#39;s hooks"),
        ("median step less these hooks</", "of it elsewhere</"),
        ("hooks are called between steps, or other", "other"),
        ("the dearest of these is", "the dearest is"),
    ),
    "plain's requests failed": ((", and no connector saturates earlier", ", so whether a connector saturates earlier is not known"),),
    "matched baseline alone": (
        (", each: its cell", ": its cell"),
        ("Drawn: plain_matched_mooncake_both, plain", "Not drawn: plain_matched_mooncake_both, plain"),
        ("there is no tax of the framework alone: noop_connector: its cell", "no tax can be split: noop_connector: its cell"),
    ),
    "lost cell of plain": (
        ("plain has no usable cell in phase A", "plain has no decoding steps in phase A"),
        ("so nobody&#39;s decoding steps", "so nobody&#39;s steps"),
    ),
    "requests failed in phase A alone": (
        ("in phase A: p90 falls", "p90 falls"),
        ("in phase A: p90 falls", "in phase B: p90 falls"),
        ("mooncake_both has no number (p90 falls", "mooncake_both was skipped (p90 falls"),
    ),
    "plain saturated at the lowest rate": (
        ("; whether Mooncake (both) and LMCache saturate earlier is not known, and no", "; whether LMCache saturates earlier is not known, and no"),
        (" is not known, and no other connector does", " is not known"),
    ),
    "no taxes over blocks": (("; the tax above zero is ", "; the largest of these taxes is "),),
    "no plain": (("Plain has no number here.", ""),),
    "settings": ((">not known<", ">none<"),),
    "test connectors that burn": (
        ("Without a burn: test connector, 0 µs. 7 of 8", "Without a burn: test connector, 0 µs. 8 of 8"),
        ("Without a burn: test connector, 0 µs", "Without a burn: test connector, 200 µs"),
        ("of 95 % hold what was put in", "of 99 % hold what was put in"),
        ("<td>hooks per step (median)</td>", "<td>median step</td>"),
        ('<td class="wide">200 µs</td>', '<td class="wide">1,000 µs</td>'),
        ("+201 µs [+201 µs, +201 µs]<small>over 4 blocks", "+201 µs [+201 µs, +201 µs]<small>over 3 blocks"),
        ("+201 µs [+201 µs, +201 µs]<small>over 4 blocks", "+200 µs [+200 µs, +200 µs]<small>over 4 blocks"),
        (">outside the interval<", ">inside<"),
        ("none: the first token waits", "none: the last token waits"),
    ),
    "embedded engine": (
        ("from 1,200 launches", "from 1,201 launches"),
        ("7 of 9 intervals", "8 of 9 intervals"),
        (", inside<", ", outside the interval<"),
        (", outside the interval<", ", inside<"),
        ("<small>put in +", "<small>put in −"),
    ),
    "observer": ((", unrecorded</td>", "</td>"),),
}  # fmt: skip


@pytest.mark.parametrize("name", OPEN)
def test_what_a_page_says_of_open_ends_and_lost_numbers_is_read(name: str, tmp_path: Path) -> None:
    aggregate = MUTATIONS[name].made(tmp_path / "campaign")
    page = page_of(aggregate)
    assert faults(page, aggregate) == []
    for old, new in OPEN[name]:
        assert faults(changed(page, old, new), aggregate), old


def test_every_n_of_taxes_over_blocks_and_of_their_parts_is_read(made: dict[str, Any]) -> None:
    """Requests of all blocks, beside each tax and beside each part."""
    reader, tables = PageReader(made), ("/ Repeated launches / ", "/ What a tax is made of")
    altered = [
        a
        for a in alterations(made, page_of(made))
        if a.kind in ("count", "number")
        and a.statement.cells
        and any(t in a.statement.section for t in tables)
    ]
    sizes = [sum(a.kind == "count" and t in a.statement.section for a in altered) for t in tables]
    assert sizes[0] >= 10 and sizes[1] >= 40
    assert [a for a in altered if not reader.of(a.statement)] == []


def test_every_word_on_wide_intervals_is_read(tmp_path: Path) -> None:
    """An interval that resolves nothing is not called ``no tax found``, and the other way round."""
    aggregate = MUTATIONS["noise"].made(tmp_path / "campaign")
    reader, words = PageReader(aggregate), ("not resolved here", "no tax found", "wider than 100 p")
    altered = [a for a in alterations(aggregate, page_of(aggregate)) if a.old.lower() in words]
    assert {a.old for a in altered} == {*words, "Not resolved here"} and len(altered) > 40
    assert [a for a in altered if not reader.of(a.statement)] == []


def test_digits_that_hide_what_the_aggregate_tells_apart_are_found() -> None:
    """A sign of zero, a tax that reads as zero, and an end that reads as its point."""
    (value,) = estimate({"point": 0.00101, "low": 0.00098, "high": 0.00104})
    assert list(misread("+0.101 % [+0.098 %, +0.104 %]", [value])) == []
    for text in ("+0.1 % [+0.1 %, +0.1 %]", "0 % [0 %, 0 %]", "+0.101 % [+0.1 %, +0.1 %]"):
        assert list(misread(text, [value])), text
    (value,) = estimate({"point": 0.000752, "low": 0.0004, "high": 0.0012})
    assert list(misread("+0.08 % [+0.04 %, +0.12 %]", [value])) == []
    assert list(misread("+0.1 % [+0.04 %, +0.12 %]", [value]))
    (value,) = estimate({"point": -0.0001, "low": -0.02, "high": 0.01})
    assert list(misread("0 % [−2.0 %, +1.0 %]", [value])) == []
    assert list(misread("−0 % [−2.0 %, +1.0 %]", [value]))


def test_every_number_of_the_process_tables_is_read(published: dict[str, Any]) -> None:
    """Cores and memory per process, parts and hooks of a step, and the sentences on why it takes longer."""
    reader = PageReader(published)
    tables = ("What each engine process", "Where the microseconds", "The virtual GPU's clock")
    altered = [
        a
        for a in alterations(published, page_of(published))
        if any(t in a.statement.section for t in tables) and a.kind in ("number", "sign", "name")
    ]
    assert len(altered) > 800
    assert [a for a in altered if not reader.of(a.statement)] == []


def test_a_verdict_may_leave_its_kind_to_the_table_of_verdicts(made: dict[str, Any]) -> None:
    """Success criteria repeat what verdicts say; a campaign whose evidence does not repeat the kind is right as well."""
    told = copy.deepcopy(made)
    for entry in (*told["criteria"], *told["hypotheses"]):
        for key in ("evidence", "sentence"):
            entry[key] = str(entry.get(key) or "").replace(ONE_LAUNCH, "")
    assert faults(page_of(told), told) == []
    for entry in told["hypotheses"]:
        entry["kind"] = None
    assert faults(page_of(told), told) == []


def test_what_a_verdict_says_is_held_against_its_own_numbers(made: dict[str, Any]) -> None:
    """The sentence stands on the page as it stands in the aggregate, so only its numbers give it away."""
    told = copy.deepcopy(made)
    told["hypotheses"][0]["sentence"] = told["hypotheses"][0]["sentence"].replace("31.4 %", "31.3 %")
    assert any("31.3 %" in f for f in faults(page_of(told), told))


@pytest.mark.parametrize("which", ["made", "published"])
def test_nearly_everything_that_is_altered_is_found(which: str, request: pytest.FixtureRequest) -> None:
    """Of each kind of alteration; ``tests/alterations.py`` says what is altered, and what of a page nobody reads."""
    caught, counts, missed = shares(request.getfixturevalue(which))
    assert {k for k in SHARES_OF if counts.get(k, 0) >= 40} == set(SHARES_OF)
    assert {k: v for k, v in caught.items() if v < 0.99} == {}, missed[:20]


LIE = "Mooncake is as fast as plain."


@pytest.mark.parametrize(
    "planted",
    [
        f"<p>{LIE}</p>", f"<ul><li>{LIE}</li></ul>", f"<div>{LIE}</div>", LIE, f"<pre>{LIE}</pre>", f"<blockquote>{LIE}</blockquote>",
        f"<table><caption>{LIE}</caption></table>", f"<table><tr><th>{LIE}</th></tr></table>", f"<h2>{LIE}</h2>", f"<h3>{LIE}</h3>",
        f'<p title="{LIE}"></p>', f'<div class="scroll" aria-label="{LIE}"></div>', f"<script>alert('{LIE}')</script>", f"<footer>{LIE}</footer>",
        f'<a href="#taxes">{LIE}</a>',
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", ["verdicts", "taxes", "reproduce"])
def test_text_outside_of_what_is_read_is_a_fault(
    page: str, made: dict[str, Any], planted: str, before: str
) -> None:
    """Wherever it stands, and with no number in it."""
    head = f'<h2 id="{before}">'
    assert faults(changed(page, head, planted + head), made)


def test_what_is_said_of_how_to_reproduce_is_the_templates(page: str, made: dict[str, Any]) -> None:
    head = '<h2 id="reproduce">How to reproduce</h2>'
    assert faults(changed(page, head, f"{head}<p>{LIE}</p>"), made)
    assert faults(changed(page, head, f"{head}<pre><code>rm -r results</code></pre>"), made)
    assert faults(changed(page, "--root results/", "--root /tmp/results/"), made)


def test_no_page_lacks_its_headline_or_its_banner(page: str, made: dict[str, Any]) -> None:
    for kind in ("headline", "banner"):
        line = re.search(rf'<p class="{kind}".*?</p>', page, re.DOTALL)
        assert line is not None
        found = faults(changed(page, line[0], ""), made)
        assert any(kind in f for f in found), kind
        assert faults(changed(page, line[0], line[0] * 2), made)


def test_a_tooltip_says_why_there_is_no_number(page: str, made: dict[str, Any]) -> None:
    tip = re.search(r' title="(.*?)"', page)
    assert tip is not None, "some cell of the highest rate is overloaded"
    assert faults(changed(page, tip[0], f' title="{LIE}"'), made)


def lie_of(aggregate: dict[str, Any], alter: Callable[[dict[str, Any]], None]) -> list[str]:
    """Of a page that is made of an aggregate that does not agree with itself."""
    found = copy.deepcopy(aggregate)
    alter(found)
    return faults(page_of(found), found)


def verdict_of(aggregate: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(h for h in aggregate["hypotheses"] if h["id"] == name)
    return found


def say(aggregate: dict[str, Any], name: str, old: str, new: str, **changes: Any) -> None:
    """Another outcome, in all the places that it has."""
    h = verdict_of(aggregate, name)
    assert old in h["sentence"], h["sentence"]
    h |= changes | {"sentence": h["sentence"].replace(old, new)}
    for c in aggregate["criteria"]:
        c["evidence"] = c["evidence"].replace(old, new)


def _h1(a: dict[str, Any]) -> None:
    say(a, "H1", "threshold is 10 %: supported", "threshold is 10 %: refuted", outcome="refuted")


def _h2(a: dict[str, Any]) -> None:
    say(a, "H2", "replay: undetermined", "replay: supported", outcome="supported", p_value=0.01, p_holm=0.05)


def _h3(a: dict[str, Any]) -> None:
    say(a, "H3", "implementation-cost-dominated", "mixed", label="mixed")


def _h4(a: dict[str, Any]) -> None:
    to = "refuted (sub-additive: shared cost)"
    say(a, "H4", "tax: supported", f"tax: {to}", outcome="refuted", label="sub-additive: shared cost")


def _p(a: dict[str, Any]) -> None:
    verdict_of(a, "H1").update(p_value=0.9, p_holm=0.99)


def _holm(a: dict[str, Any]) -> None:
    verdict_of(a, "H1")["p_holm"] = verdict_of(a, "H1")["p_value"]


def _decomposition(a: dict[str, Any]) -> None:
    for e in a["decomposition"]:
        e["framework"]["point"] += 0.001


def _two_parts(a: dict[str, Any]) -> None:
    a["two_parts"][0]["rest"]["point"] += 0.001


def _requests_of_parts(a: dict[str, Any]) -> None:
    a["decomposition"][0]["framework"]["n"] -= 1


def _requests_over_blocks(a: dict[str, Any]) -> None:
    for t in a["main_taxes"]:
        if t["config"] == "lmcache_only":
            t["n_plain"] += 1


def _blocks_in_place_of_requests(a: dict[str, Any]) -> None:
    verdict_of(a, "H1")["numbers"]["tax_ttft_p90"]["n"] = 4


def _part_of_a_framework(a: dict[str, Any]) -> None:
    """Of a tax that is not split."""
    row = next(e for e in a["decomposition"] if e["parts"] == 2)
    row |= {
        "parts": 0,
        "implementation": {
            **row["implementation"],
            "point": None,
            "low": None,
            "high": None,
            "kind": None,
            "reason": "not known",
        },
    }
    row["framework"]["point"] /= 2


def _amplification(a: dict[str, Any]) -> None:
    tax = next(t for t in a["main_taxes"] if (t["reference"], t["metric"]) == ("ref_safe", "ttft_p90"))
    own = {"config": tax["config"], "metric": "ttft_p90", "available": True, "kind": tax["kind"]}
    a["amplification"] = [own | {"point": 0.1, "low": 0.05, "high": 0.2, "n": 4}]


def _drift(a: dict[str, Any]) -> None:
    a["repeats"][0]["drift"]["p_value"] = 0.001


def _blocks(a: dict[str, Any]) -> None:
    tax = a["repeats"][0]["taxes"][0]
    tax["by_block"] = {b: v + 0.02 for b, v in tax["by_block"].items()}


def _four_of_five(a: dict[str, Any]) -> None:
    a["repeats"][0]["noise_floor"]["found_4_of_5"]["point"] *= 0.8


@pytest.mark.parametrize(
    "alter", [_h1, _h2, _h3, _h4, _p, _holm, _decomposition, _two_parts, _requests_of_parts, _requests_over_blocks, _blocks_in_place_of_requests, _part_of_a_framework,
     _amplification, _drift, _blocks, _four_of_five]
)  # fmt: skip
def test_an_aggregate_that_does_not_agree_with_itself_is_found(
    made: dict[str, Any], alter: Callable[[dict[str, Any]], None]
) -> None:
    """The page says what the aggregate says, in words and numbers."""
    assert lie_of(made, alter)


def test_a_verdict_that_cannot_be_tested_names_those_it_lacks(made: dict[str, Any]) -> None:
    found = copy.deepcopy(made)
    for t in found["main_taxes"]:
        if (t["config"], t["metric"]) == ("nixl_both", "ttft_p90"):
            t |= {"point": None, "low": None, "high": None, "reason": "lost", "verdict": "unavailable"}
    h2 = verdict_of(found, "H2")
    h2 |= {
        "outcome": "not testable",
        "label": None,
        "numbers": {},
        "p_value": None,
        "p_holm": None,
        "kind": None,
    }
    for name, right in (("nixl_both", True), ("lmcache_only", False)):
        h2["sentence"] = f"Not testable ({name}: lost)."
        said = [f for f in disagreements(found) if f.startswith("Verdicts: H2") and "named" in f]
        assert (said == []) == right
