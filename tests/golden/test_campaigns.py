"""Every number that the analysis made of the golden campaigns when ``data/`` was written it makes now; words are not held."""

from pathlib import Path

import pytest

from . import key_map
from .campaigns import CAMPAIGNS
from .leaves import column_differences, columns_of, differences, leaves_of, renamed_path, report
from .make_campaigns import DATA, SUFFIX, compared, found, kept


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_the_numbers_are_as_kept(name: str, tmp_path: Path) -> None:
    lines = compared(kept(name), found(name, tmp_path))
    assert not lines, "\n".join(
        [
            f"{len(lines)} leaves of the golden campaign {name} differ, kept -> found:",
            report(lines),
            f"Where a key was renamed: tests/golden/key_map.py. Where numbers are to differ: python -m tests.golden.make_campaigns {name}",
        ]
    )


def test_every_file_has_a_campaign_and_together_they_are_small() -> None:
    files = list(DATA.glob(f"*{SUFFIX}"))
    assert {path.name.removesuffix(SUFFIX) for path in files} == CAMPAIGNS.keys()
    assert sum(path.stat().st_size for path in files) < 400_000


DOCUMENT = {
    "taxes": [
        {"config": "a", "metric": "ttft_p90", "point": 0.25, "n_blocks": 4, "reason": None},
        {"config": "b", "metric": "ttft_p90", "point": None, "n_blocks": None, "reason": "requests failed"},
    ],
    "rates": {"ok": True, "n": 1, "fired": {"0.5": ["waiting"]}, "label": "plain vLLM"},
    "hypotheses": [{"id": "H1", "conclusions": ["prior_kept"], "sentence": "It is kept."}],
}


def test_leaves_are_numbers_truth_values_nulls_and_codes() -> None:
    assert leaves_of(DOCUMENT) == {
        "taxes[0].config": "a",
        "taxes[0].metric": "ttft_p90",
        "taxes[0].point": 0.25,
        "taxes[0].n_blocks": 4,
        "taxes[1].config": "b",
        "taxes[1].metric": "ttft_p90",
        "taxes[1].point": None,
        "taxes[1].n_blocks": None,
        "rates.ok": True,
        "rates.n": 1,
        "rates.fired.0.5[0]": "waiting",
        "hypotheses[0].id": "H1",
        "hypotheses[0].conclusions[0]": "prior_kept",
    }


def test_a_distribution_is_held_by_its_sum_and_some_points() -> None:
    cdf = {"cdf": [*range(100)]}
    assert leaves_of(cdf) == {"cdf.n": 100, "cdf.sum": 4950, "cdf[0]": 0, "cdf[40]": 40, "cdf[80]": 80}
    changed = {"cdf": [*range(50), 50.5, *range(51, 100)]}
    assert differences(leaves_of(cdf), leaves_of(changed)) == ["cdf.sum: 4950.0 -> 4950.5"]


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("taxes[0].point", 0.2500001, "taxes[0].point (a, ttft_p90): 0.25 -> 0.2500001"),
        ("taxes[1].point", 0.0, "taxes[1].point (b, ttft_p90): null -> 0.0"),
        ("rates.ok", 1, "rates.ok: true -> 1"),
        ("rates.m", 1, "rates.m: is not kept -> 1"),
        ("taxes[0].n_blocks", 3, "taxes[0].n_blocks (a, ttft_p90): 4 -> 3"),
    ],
)
def test_a_difference_names_its_leaf_whose_it_is_and_both_values(path: str, value: float, line: str) -> None:
    old = leaves_of(DOCUMENT)
    assert differences(old, {**old, path: value}) == [line]
    gone = {k: v for k, v in old.items() if k != "rates.n"}
    assert differences(old, gone) == ["rates.n: 1 -> is not there"]
    assert differences(old, {**old, "taxes[0].point": 0.25 + 1e-14}) == [], "a last digit"


def test_a_renamed_key_needs_a_line_of_the_map_and_no_new_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the lines: a section, then a key in it, then one that may stand anywhere."""
    renames = (
        ("taxes", "taxes_by_launch"),
        ("taxes_by_launch[*].point", "taxes_by_launch[*].ratio"),
        ("**.n_blocks", "**.blocks"),
    )
    monkeypatch.setattr(key_map, "RENAMED", renames)
    monkeypatch.setattr(key_map, "VALUES", {"taxes_by_launch[*].blocks": {"null": "0"}})
    monkeypatch.setattr(key_map, "GONE", {"rates.n": "nobody read it"})
    monkeypatch.setattr(key_map, "NEW", {"rates.m": "in its place"})
    assert renamed_path("taxes[12].point") == "taxes_by_launch[12].ratio"
    assert renamed_path("taxes_of_others[12].point") == "taxes_of_others[12].point"
    now = {
        "taxes_by_launch": [
            {"config": "a", "metric": "ttft_p90", "ratio": 0.25, "blocks": 4},
            {"config": "b", "metric": "ttft_p90", "ratio": None, "blocks": 0},
        ],
        "rates": {"ok": True, "m": 2, "fired": {"0.5": ["waiting"]}},
        "hypotheses": [{"id": "H1", "conclusions": ["prior_kept"]}],
    }
    assert differences(leaves_of(DOCUMENT), leaves_of(now)) == []


TABLE = "config,n,reasons,tax_other_kind\na,1,late,of one launch\nb,2.50,,over 4 blocks\n"


def test_columns_are_held_by_name_and_words_in_them_are_not() -> None:
    old = columns_of(TABLE)
    others = "config,n,reasons,tax_other_kind,more\na,1.0,code_late,1,x\nb,2.5,,4,y\n"
    assert column_differences(old, columns_of(others), "t.csv") == []
    assert column_differences(old, columns_of(TABLE.replace("2.50", "2.51")), "t.csv") == [
        "t.csv: column n: other values"
    ]
    for table, said in (
        ("config,n,tax_other_kind", "column reasons: is not there"),
        ("n,config,reasons,tax_other_kind", "another order"),
    ):
        assert said in column_differences(old, columns_of(table + "\n"), "t.csv")[0]
