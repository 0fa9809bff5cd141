"""Two campaigns compared: the change by hand, the exit code, and everything that must be said beside it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from two_campaigns import BOTH, EXAMPLE, Aggregate, change_of, compared, lose, rows, set_tax, two_days

from connector_tax.base.errors import ArtifactError, ConnectorTaxError, NotComparable
from connector_tax.read.compare.comparison import OnlyIn, Side, compare, read_side
from connector_tax.read.compare.text import (
    comparison_document,
    comparison_json_text,
    comparison_text,
    sentence,
)
from connector_tax.read.figures.words import labels


@pytest.fixture(scope="module")
def example() -> Aggregate:
    return json.loads(EXAMPLE.read_text())


@pytest.fixture
def pair() -> tuple[Aggregate, Aggregate]:
    return two_days()


def test_a_tax_that_rose_is_a_regression(pair: tuple[Aggregate, Aggregate]) -> None:
    """0.12 - sqrt(0.04^2 + 0.06^2) and 0.12 + sqrt(0.07^2 + 0.05^2)."""
    set_tax(pair[0], 0.30, 0.25, 0.36)
    set_tax(pair[1], 0.42, 0.38, 0.49)
    found = compared(*pair)
    change = change_of(found)
    assert change.change is not None
    assert (change.change.point, change.change.low, change.change.high) == pytest.approx(
        (0.12, 0.047889, 0.206023), abs=1e-6
    )
    assert (change.word, change.regression, found.exit_code) == ("worse", True, 1)
    assert sentence(found) == (
        "Regression: 1 of 12 taxes rose by more than 5 pp (GPU NVIDIA H20). Risen: TTFT p90 of mooncake_both by +12 pp [+4.8 pp, +21 pp]. "
        "Skipped in both: mooncake_consumer. Intervals: A of one launch and B of one launch."
    )
    text = " ".join(comparison_text(found).split())
    assert (
        "mooncake_both A +30 % [+25 %, +36 %] of one launch B +42 % [+38 %, +49 %] of one launch change +12 pp [+4.8 pp, +21 pp] worse, REG"
        in text
    )


@pytest.mark.parametrize(
    ("b", "fail_above", "word", "exit_code"),
    [
        ((0.42, 0.38, 0.49), 0.13, "worse", 0),  # told apart, not far enough
        ((0.42, 0.30, 0.60), 0.05, "not told apart", 0),  # far enough, not told apart
        ((0.42, 0.38, None), 0.05, "worse", 1),
        ((0.10, 0.05, 0.15), 0.05, "better", 0),
        ((0.33, 0.329, 0.331), 0.0, "not told apart", 0),
    ],
)
def test_a_regression_is_told_apart_and_too_far(
    pair: tuple[Aggregate, Aggregate],
    b: tuple[float, float, float],
    fail_above: float,
    word: str,
    exit_code: int,
) -> None:
    set_tax(pair[0], 0.30, 0.25, 0.36)
    set_tax(pair[1], *b)
    found = compared(*pair, fail_above=fail_above)
    assert (change_of(found).word, found.exit_code) == (word, exit_code)


def test_a_limit_is_told_as_it_was_given(pair: tuple[Aggregate, Aggregate]) -> None:
    """0.04 percentage points were "0 pp", and taxes that rose by 0.03 had not risen by more than that."""
    set_tax(pair[0], 0.30, 0.2999, 0.3001)
    set_tax(pair[1], 0.3003, 0.3002, 0.3004)
    found = compared(*pair, fail_above=0.0004)
    assert found.exit_code == 0 and change_of(found).word == "worse"
    assert "risen by more than 0.04 pp " in sentence(found)


def test_only_the_metric_that_is_asked_for_decides(pair: tuple[Aggregate, Aggregate]) -> None:
    set_tax(pair[1], 0.9, 0.88, 0.92, metric="tpot_p90")
    assert compared(*pair).exit_code == 1
    found = compared(*pair, deciding=("ttft_p90",))
    assert found.exit_code == 0
    assert change_of(found, metric="tpot_p90").word == "worse"
    assert sentence(found).startswith("No regression: no tax of 6 is known to have risen by more than")


def test_microseconds_are_compared_and_never_decide(pair: tuple[Aggregate, Aggregate]) -> None:
    set_tax(pair[1], 9000, 8900, 9100, metric="step_p50_us")
    found = compared(*pair)
    assert change_of(found, metric="step_p50_us").word == "worse"
    assert found.exit_code == 0
    assert "change +7,100 µs [+6,965 µs, +7,235 µs]  worse" in comparison_text(found)
    lose(pair[1], "mooncake_both", "step_p50_us", "this cell has no step records")
    assert change_of(compared(*pair), metric="step_p50_us").reason == "in B this cell has no step records"
    pair[1]["step_timing_available"] = False
    assert not [
        c for c in compared(*pair).changes if (c.config, c.metric) == ("mooncake_both", "step_p50_us")
    ]


def test_at_another_rate_the_highest_that_is_healthy_in_both_is_taken(
    pair: tuple[Aggregate, Aggregate],
) -> None:
    """A's ref_safe is 4; it measured 2 as well, and has a tax there, whose interval knows that plain's cell is shared."""
    a, b = pair
    a["reference_rates"]["ref_safe_per_s"] = 4
    for tax in a["main_taxes"]:
        tax["reference"] = {2: "neither", 4: "ref_safe"}[tax["rate_per_s"]]
    found = compared(a, b)
    assert found.rate.per_s == 2
    assert found.rate.sentence.startswith("ref_safe is 4 req/s in A and 2 req/s in B; compared at 2 req/s")
    first, (row,) = change_of(found).a, rows(a, "mooncake_both", "ttft_p90")
    assert [first.point, first.low, first.high] == [row["point"], row["low"], row["high"]]
    assert {c.metric for c in found.changes if c.config == "mooncake_both"} == {
        *BOTH,
        "step_p50_us",
        "callback_p50_us",
    }
    a["main_taxes"] = [t for t in a["main_taxes"] if t["rate_per_s"] == 4]
    assert compared(a, b).exit_code == 2, "an aggregate of an earlier version has none at 2 req/s"


def _fell_back(a: Aggregate) -> None:
    a["reference_rates"] |= {"ref_safe_per_s": 0.5, "flags": ["fallback_lowest_rate"]}


def _no_rate_in_common(a: Aggregate) -> None:
    a["reference_rates"]["ref_safe_per_s"] = 3
    a["cells"] = [c for c in a["cells"] if c["rate_per_s"] not in (0.5, 1, 2)]


def _no_reference(a: Aggregate) -> None:
    a["reference_rates"] = None


def _nothing_available(a: Aggregate) -> None:
    for config in a["configs"]:
        for metric in BOTH if rows(a, config, "ttft_p90") else ():
            lose(a, config, metric, "p90 falls on requests that failed")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (
            _fell_back,
            "ref_safe is 0.5 req/s in A and 2 req/s in B, and that of A is a fallback, so none can be compared",
        ),
        (_no_rate_in_common, "plain has no rate in both that is healthy in both"),
        (_no_reference, "No reference rates in A"),
        (
            _nothing_available,
            "(in A p90 falls on requests that failed). Skipped in both: mooncake_consumer",
        ),
    ],
)
def test_where_nothing_can_be_compared_there_is_no_verdict(
    pair: tuple[Aggregate, Aggregate], spoil: Callable[[Aggregate], None], reason: str
) -> None:
    """And no exit code that a CI would take for one."""
    spoil(pair[0])
    found = compared(*pair)
    assert found.exit_code == 2
    last = comparison_text(found).splitlines()[-1]
    assert last.startswith("No verdict: 0 of ")
    assert reason in last
    assert comparison_document(found)["verdict"] == "not comparable"


def test_a_configuration_in_one_of_the_two_is_listed_with_the_others_reason(
    pair: tuple[Aggregate, Aggregate],
) -> None:
    a, b = pair
    for key in ("cells", "main_taxes"):
        b[key] = [x for x in b[key] if x["config"] != "nixl_both"]
        a[key] = [x for x in a[key] if x["config"] != "lmcache_only"]
    b["configs"]["nixl_both"] |= {
        "status": "skipped",
        "reason": {"code": "skipped", "detail": "no module named nixl"},
    }
    del a["configs"]["lmcache_only"]
    found = compared(a, b)
    assert found.only_in == (
        OnlyIn("A", "nixl_both", "nixl_both was skipped: no module named nixl"),
        OnlyIn("B", "lmcache_only", "lmcache_only is not part of this campaign"),
    )
    text = comparison_text(found)
    assert "nixl_both (in A): in B nixl_both was skipped: no module named nixl" in text
    assert "In one only: nixl_both (A) and lmcache_only (B)" in text.splitlines()[-1]
    assert found.only_in[0].side == "A"
    assert not [c for c in found.changes if c.config in ("nixl_both", "lmcache_only")]


def test_a_tax_that_is_unavailable_is_shown_and_counted(pair: tuple[Aggregate, Aggregate]) -> None:
    """A connector that began to lose requests must not pass unseen."""
    lose(pair[1], "mooncake_both", "ttft_p90", "p90 falls on requests that failed")
    found = compared(*pair)
    assert change_of(found).word == "not available"
    text = comparison_text(found)
    assert "B not available (p90 falls on requests that failed)" in text
    assert text.splitlines()[-1].startswith(
        "No verdict: 11 of 12 taxes can be compared, and none of them is known to have risen"
    )
    named = (
        "Not comparable: TTFT p90 of mooncake_both (in B p90 falls on requests that failed). "
        "Skipped in both: mooncake_consumer."
    )
    assert named in text.splitlines()[-1]
    assert found.exit_code == 2
    allowed = replace(found, allow_missing=True)
    assert allowed.exit_code == 0
    assert f"{named} Intervals: A of one launch" in comparison_text(allowed).splitlines()[-1]
    (row,) = [c for c in found.changes if c.word == "not available"]
    assert (row.change, row.b.reason) == (None, "p90 falls on requests that failed")


def test_a_connector_that_only_b_has_withholds_no_verdict(pair: tuple[Aggregate, Aggregate]) -> None:
    for key in ("cells", "main_taxes"):
        pair[0][key] = [x for x in pair[0][key] if x["config"] != "lmcache_only"]
    del pair[0]["configs"]["lmcache_only"]
    found = compared(*pair)
    assert found.only_in and not found.gone
    assert found.exit_code == 0


def test_a_regression_is_one_whatever_is_missing(pair: tuple[Aggregate, Aggregate]) -> None:
    lose(pair[1], "nixl_both", "ttft_p90", "p90 falls on requests that failed")
    set_tax(pair[1], 0.9, 0.85, 0.95)
    assert compared(*pair).exit_code == 1


def test_a_side_that_did_not_keep_up_is_marked(pair: tuple[Aggregate, Aggregate]) -> None:
    (row,) = rows(pair[1], "mooncake_both", "ttft_p90")
    row["overloaded"] = ["own"]
    assert "of one launch, saturated  change" in comparison_text(compared(*pair))


def test_the_embedded_engine_is_announced_with_the_verdict(pair: tuple[Aggregate, Aggregate]) -> None:
    pair[1]["provenance"]["engine_kind"] = "emulator"
    text = comparison_text(compared(*pair))
    assert "Note: B: Embedded engine: numbers of a model" in text
    assert "Note: A and B were measured on two engines" in text
    assert "engine_kind: vllm / emulator" in text
    assert text.splitlines()[-1].startswith(
        "No regression: no tax of 12 is known to have risen by more than 5 pp (A on GPU NVIDIA H20, B on Embedded engine)"
    )


def test_what_else_differs_is_printed(pair: tuple[Aggregate, Aggregate]) -> None:
    b = pair[1]
    b["provenance"]["versions"]["vllm"] = "0.33.0"
    b["provenance"] |= {"gpu": ["GPU 0: NVIDIA H200"], "model": "other"}
    b["provenance"]["engine_args"] = {"max_model_len": 8192}
    b["provenance"]["host"] = {**b["provenance"]["host"], "cpu": "EPYC", "memory_mib": 7}
    b["reference_rates"] |= {"flags": ["non_monotonic_load"], "ref_load_per_s": 8}
    for cell in b["cells"]:
        cell["flags"] = ["cores_shared"]
    text = comparison_text(compared(*pair))
    for line in (
        "versions.vllm: 0.32.0 / 0.33.0",
        "gpu: GPU 0: NVIDIA H20 (UUID: GPU-00000000-1111-2222-3333-444444444444) / GPU 0: NVIDIA H200",
        "model: example/model-7b / other",
        "engine_args.max_model_len: 40960 / 8192",
        "engine_args.enable_prefix_caching: True / -",
        "host.cpu: Xeon 8469C / EPYC",
        "ref_load, req/s: 4 / 8",
        "flags of the reference rates: none / non_monotonic_load",
        "flags of the cells: none / cores_shared",
    ):
        assert f"  {line}\n" in text
    assert "memory_mib" not in text
    assert f"Note: B: non_monotonic_load: {labels()['rate_flag']['non_monotonic_load']}" in text


def test_where_both_fell_back_to_one_rate_nothing_is_compared(pair: tuple[Aggregate, Aggregate]) -> None:
    """A tax at a rate that nobody is known to hold may be queueing."""
    for value in pair:
        value["reference_rates"]["flags"] = ["fallback_lowest_rate"]
    found = compared(*pair)
    assert (found.exit_code, found.changes) == (2, ())
    last = comparison_text(found).splitlines()[-1]
    assert (
        "ref_safe is 2 req/s in A and 2 req/s in B, and that of A and B is a fallback, so none can be compared"
        in last
    )


def test_of_one_reason_it_is_said_once(pair: tuple[Aggregate, Aggregate]) -> None:
    why = "plain's ttft_p90 has no value in block R1: requests failed or did not finish"
    for config in ("mooncake_both", "nixl_both", "noop_connector"):
        lose(pair[1], config, "ttft_p90", why)
    last = comparison_text(compared(*pair)).splitlines()[-1]
    assert last.count(why) == 1
    assert "Not comparable: TTFT p90 of noop_connector, TTFT p90 of mooncake_both and TTFT p90" in last
    for metric in BOTH:
        for config in {t["config"] for t in pair[1]["main_taxes"]}:
            if rows(pair[1], config, metric):
                lose(pair[1], config, metric, why)
    refused = comparison_text(compared(*pair)).splitlines()[-1]
    assert refused.startswith("No verdict: 0 of 12 taxes") and refused.count(why) == 1


def _as_baseline(value: Aggregate) -> None:
    """NIXL's numbers become those of plain with its settings."""
    for key in ("cells", "main_taxes", "taxes"):
        for row in value[key]:
            if row["config"] == "nixl_both":
                row["config"] = "plain_matched_nixl_both"
    value["configs"]["plain_matched_nixl_both"] = value["configs"].pop("nixl_both")


def test_plain_with_settings_is_shown_and_decides_nothing(pair: tuple[Aggregate, Aggregate]) -> None:
    """It is no connector: nobody's tax rose where it did, or is lost, or is in one campaign only."""
    for value in pair:
        _as_baseline(value)
    before = compared(*pair)
    set_tax(pair[1], 9.0, 8.9, 9.1, config="plain_matched_nixl_both")
    lose(pair[1], "plain_matched_nixl_both", "tpot_p90", "lost")
    found = compared(*pair)
    assert found.exit_code == before.exit_code == 0
    text = comparison_text(found)
    assert "worse, decides nothing" in text
    assert "plain_matched" not in text.splitlines()[-1]
    for key in ("cells", "main_taxes"):
        pair[1][key] = [x for x in pair[1][key] if x["config"] != "plain_matched_nixl_both"]
    assert compared(*pair).exit_code == 0
    for value in pair:
        value["main_taxes"] = [t for t in value["main_taxes"] if t["config"].startswith("plain_matched")]
    alone = compared(*pair)
    assert alone.exit_code == 2 and alone.regressions == []


def test_a_campaign_against_itself_is_said_to_be_one(example: Aggregate) -> None:
    text = comparison_text(compared(example, example))
    assert "Note: A and B are one campaign" in text and "A and B are one campaign" in text.splitlines()[-1]
    assert "Nothing else differs between A and B." in text


def _another_shape(b: Aggregate) -> None:
    for cell in b["cells"]:
        cell["input_tokens"] = 512


def _another_confidence(b: Aggregate) -> None:
    b["provenance"]["confidence"] = 0.9


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (_another_shape, NotComparable, r"4096 prompt and 256 output tokens in a and 512 prompt and 256"),
        (_another_confidence, NotComparable, r"confidence is 0\.95 in a and 0\.9 in b\. Analyse"),
    ],
)
def test_campaigns_that_answer_other_questions_are_refused(
    pair: tuple[Aggregate, Aggregate],
    spoil: Callable[[Aggregate], None],
    error: type[Exception],
    message: str,
) -> None:
    spoil(pair[1])
    with pytest.raises(error, match=message):
        compared(*pair)


def test_one_that_does_not_say_its_confidence_is_refused(example: Aggregate, tmp_path: Path) -> None:
    """Two that are set side by side must have the same."""
    provenance = {k: v for k, v in example["provenance"].items() if k != "confidence"}
    (tmp_path / "aggregate.json").write_text(json.dumps({**example, "provenance": provenance}))
    with pytest.raises(ArtifactError, match=r"`confidence` - at `\$\.provenance`.*connector-tax report"):
        read_side("B", tmp_path)


@pytest.fixture(scope="module")
def sound() -> Side:
    return read_side("A", EXAMPLE)


@pytest.fixture(scope="module")
def parts(example: Aggregate) -> dict[str, str]:
    """Each part of it as JSON."""
    return {key: json.dumps(value) for key, value in example.items()}


@pytest.mark.parametrize("value", [None, "x", 3, [], [3], [{}], {}, {"x": 1}])
def test_a_poor_aggregate_gives_words_or_one_error(
    sound: Side, parts: dict[str, str], value: Any, tmp_path: Path
) -> None:
    """Whatever stands in place of any part of it."""
    for key in parts:
        poor = ", ".join(f'"{k}": {v}' for k, v in {**parts, key: json.dumps(value)}.items())
        (tmp_path / "aggregate.json").write_text(f"{{{poor}}}")
        try:
            found = compare(sound, read_side("B", tmp_path), fail_above=0.05, deciding=BOTH)
        except ConnectorTaxError as error:
            assert len(str(error)) > 20
        else:
            assert comparison_text(found).splitlines()[-1].endswith(".")
            comparison_json_text(found)
