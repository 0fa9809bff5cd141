"""The reader of pages finds what is planted; the demo's page and the published campaign's hold nothing that it finds."""

import random
import re
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from connector_tax.config import load_campaign
from connector_tax.config.checked import PROJECT_ROOT
from connector_tax.files import read_json
from connector_tax.ingest import read_campaign
from connector_tax.rehearsal.campaign import analyse, rehearse
from connector_tax.stats.aggregate import aggregate as aggregated

sys.path.insert(0, str(Path(__file__).parents[2]))
from claims import NUMBER, PageReader, faults
from made_pages import page_of
from mutations import BLOCKS, Mutation
from page_statements import Statement, statements

PUBLISHED = PROJECT_ROOT / "results" / "virtual-h200"


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
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("published") / "virtual-h200"
    shutil.copytree(PUBLISHED, root)
    return aggregated(read_campaign(root))


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
    ):
        found = faults(changed(page, old, new), made)
        assert len(found) == 1 and "'7.3" in found[0] and "unknown origin" in found[0]


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
    assert "another interval" in fault
    assert any("without its interval" in f for f in faults(changed(page, said, ""), made))


def test_a_wrong_kind_is_found(page: str, made: dict[str, Any]) -> None:
    """One launch's number as one over blocks, the reverse, and no word about it."""
    kinds = [
        f
        for f in faults(page.replace("over 4 blocks of launches", "over 5 blocks of launches"), made)
        if " is over 4 blocks " in f
    ]
    assert kinds
    assert any(" is of one launch " in f for f in faults(page.replace("of one launch", ""), made))
    assert any(
        " is over 4 blocks " in f
        for f in faults(page.replace("Over 4 blocks of launches", "Of one launch each"), made)
    )


def test_a_wrong_count_and_somebody_elses_number_are_found(page: str, made: dict[str, Any]) -> None:
    assert any(
        "counts nothing" in f
        for f in faults(re.sub(r"(\d) of 5 connectors", "4 of 6 connectors", page, count=1), made)
    )
    label = made["configs"]["nixl_both"]["label"]
    other = made["configs"]["mooncake_both"]["label"]
    rows = page.split("<tr>")
    k = next(k for k, row in enumerate(rows) if f">{label}<small>" in row and "n 320" in row)
    swapped = rows[k].replace(label, other).replace("nixl_both", "mooncake_both")
    assert faults("<tr>".join([*rows[:k], swapped, *rows[k + 1 :]]), made)


def altered(text: str, rng: random.Random) -> tuple[str, str] | None:
    """One of its numbers off by 3 to 50 %, written as it was; and which."""
    found = list(re.finditer(rf"(?<![\w.,/])({NUMBER})(?![\w])", text))
    if not found:
        return None
    match = rng.choice(found)
    digits = len(match[1].partition(".")[2])
    value = float(match[1].replace(",", "").replace("−", "-").lstrip("+"))
    factor = 1 + rng.choice((-1, 1)) * rng.uniform(0.03, 0.5)
    other = value * factor if abs(value * factor - value) >= 0.5 * 10**-digits else value + 10**-digits
    new = f"{abs(other):,.{digits}f}" if "," in match[1] else f"{abs(other):.{digits}f}"
    sign = match[1][0] if match[1][0] in "+−-" else ""
    return (
        (text[: match.start()] + sign + new + text[match.end() :], match[1])
        if sign + new != match[1]
        else None
    )


def caught(aggregate: dict[str, Any], n: int) -> float:
    """Share of single altered numbers that are found, over the statements of the page."""
    rng, reader = random.Random(13), PageReader(aggregate)
    known = [s for s in statements(page_of(aggregate)) if re.search(r"\d", s.text)]
    outcomes: Counter[bool] = Counter()
    while sum(outcomes.values()) < n:
        statement = rng.choice(known)
        place = rng.randrange(len(statement.cells)) if statement.cells else 0
        other = altered(statement.cells[place] if statement.cells else statement.text, rng)
        if other is None:
            continue
        cells = [other[0] if k == place else c for k, c in enumerate(statement.cells)]
        planted: Statement = replace(statement, text=" | ".join(cells) or other[0], cells=cells)
        outcomes[bool(reader.of(planted))] += 1
    return outcomes[True] / n


def test_nearly_every_altered_number_is_found(made: dict[str, Any], published: dict[str, Any]) -> None:
    """What gets past is a small count that is another count of the same row, or a rounding that another value shares."""
    assert caught(made, 300) > 0.9
    assert caught(published, 300) > 0.85
