"""Two campaigns compared: the change by hand, the exit code, and everything that must be said beside it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from two_campaigns import (
    BOTH,
    Aggregate,
    change_of,
    compared,
    lose,
    over_blocks,
    rows,
    set_tax,
    two_days,
)
from virtual_gpus import IDENTITY
from whole_aggregate import EXAMPLE

from connector_tax.base.errors import ConnectorTaxError, NotComparable
from connector_tax.read.compare.comparison import Side, compare, read_side
from connector_tax.read.compare.text import (
    comparison_document,
    comparison_json_text,
    comparison_text,
    sentence,
)
from connector_tax.read.figures.words import labels


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
    risen = (
        "Risen: TTFT p90 of mooncake_both by +12 pp [+4.8 pp, +21 pp]. Skipped in both: mooncake_consumer."
    )
    assert sentence(found).startswith(
        "Regression: 1 of 12 taxes rose by more than 5 pp"
    ) and risen in sentence(found)
    row = "A +30 % [+25 %, +36 %] of one launch B +42 % [+38 %, +49 %] of one launch change +12 pp [+4.8 pp, +21 pp] worse, REG"
    assert f"mooncake_both {row}" in " ".join(comparison_text(found).split())


@pytest.mark.parametrize(
    ("b", "fail_above", "word", "exit_code"),
    [
        ((0.42, 0.38, 0.49), 0.13, "worse", 0),  # told apart, not far enough
        ((0.42, 0.30, 0.60), 0.05, "not told apart", 0),  # far enough, not told apart
        ((0.42, 0.38, None), 0.05, "worse", 1),
        ((0.10, 0.05, 0.15), 0.05, "better", 0),
        ((0.10, None, 0.15), 0.05, "better", 2),
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


def _both_fell_back(a: Aggregate) -> None:
    """A tax at a rate that nobody is known to hold may be queueing."""
    a["reference_rates"]["flags"] = ["fallback_lowest_rate"]


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
        (_both_fell_back, "and 2 req/s in B, and that of A is a fallback, so none can be compared"),
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
    assert replace(found, allow_missing=True).exit_code == 0
    (row,) = [c for c in found.changes if c.word == "not available"]
    assert (row.change, row.b.reason) == (None, "p90 falls on requests that failed")
    set_tax(pair[1], 0.9, 0.85, 0.95, config="nixl_both")
    assert compared(*pair).exit_code == 1, "a regression is one whatever is missing"


def gone(value: Aggregate, config: str, status: str | None, reason: str = "") -> None:
    """Everything of it is lost, and the campaign says why, or does not know it."""
    for key in ("cells", "main_taxes", "taxes"):
        value[key] = [x for x in value[key] if x["config"] != config]
    if status is None:
        del value["configs"][config]
    else:
        value["configs"][config] |= {"status": status, "reason": {"code": "invalid", "detail": reason}}


SKIPPED, DIED = ("skipped", "no module named nixl"), ("failed", "the engine died")


@pytest.mark.parametrize(
    ("a", "b", "exit_code", "last", "table"),
    [
        (None, SKIPPED, 2, "In one only: nixl_both (A)", "nixl_both (in A): in B nixl_both was skipped: no module named nixl"),
        ((None,), None, 0, "In one only: nixl_both (B)", "nixl_both (in B): in A nixl_both is not part of this campaign"),
        (DIED, DIED, 2, "Without a tax in A and in B: nixl_both (nixl_both failed: the engine died).", "nixl_both: nixl_both failed: the engine died"),
        (SKIPPED, DIED, 2, "Without a tax", "in A nixl_both was skipped: no module named nixl; in B nixl_both failed: the engine died"),
        (SKIPPED, SKIPPED, 0, "Skipped in both: mooncake_consumer and nixl_both.", "nixl_both"),
        ((None,), DIED, 0, "Planned in one and not measured there: nixl_both (B).", "in A nixl_both is not part of this campaign; in B nixl_both failed"),
    ],
    ids=["skipped in B", "not in A", "failed in both", "skipped and failed", "skipped in both", "planned in B alone"],
)  # fmt: skip
def test_a_configuration_without_a_tax_is_named_and_withholds_what_both_asked_for(
    pair: tuple[Aggregate, Aggregate], a: Any, b: Any, exit_code: int, last: str, table: str
) -> None:
    """ "No regression" would claim it; preflight's word in both, and a plan of one campaign alone, ask for none."""
    for value, lost in zip(pair, (a, b), strict=True):
        if lost is not None:
            gone(value, "nixl_both", *lost)
    found = compared(*pair)
    text = comparison_text(found)
    assert found.exit_code == exit_code and table in text
    assert last in text.splitlines()[-1] and "nixl_both" not in {c.config for c in found.changes}
    assert replace(found, allow_missing=True).exit_code == 0


def on_virtual_gpu(value: Aggregate, sha256: str = IDENTITY["sha256"]) -> None:
    gpu = {"engine_kind": "virtual_gpu", "gpu": [], "virtual_gpu": {**IDENTITY, "sha256": sha256}}
    value["provenance"] |= gpu


def test_the_source_of_both_stands_with_the_verdict_and_two_engines_are_said(
    pair: tuple[Aggregate, Aggregate],
) -> None:
    """Two days on one virtual GPU are one engine; another clock, also of one profile, is another."""
    on_virtual_gpu(pair[1])
    text = comparison_text(compared(*pair))
    assert "A on GPU NVIDIA H20, B on Virtual GPU NVIDIA H200" in text.splitlines()[-1]
    assert "Note: A and B were measured on two engines" in text
    assert "engine_kind: vllm / virtual_gpu" in text
    on_virtual_gpu(pair[0])
    text = comparison_text(compared(*pair))
    assert "two engines" not in text and "virtual_gpu:" not in text
    on_virtual_gpu(pair[0], "f" * 16)
    text = comparison_text(compared(*pair))
    assert "two engines" in text and f"(profile h200, {'f' * 16}) / NVIDIA H200 (profile h200, " in text
    pair[1]["provenance"]["engine_kind"] = "emulator"
    assert "Note: B: Embedded engine: numbers of a model" in comparison_text(compared(*pair))


def test_what_else_differs_is_printed(pair: tuple[Aggregate, Aggregate]) -> None:
    """Of a connector's settings only what both measured: that it is in one alone is said elsewhere."""
    b = pair[1]
    b["provenance"]["versions"]["vllm"] = "0.33.0"
    b["provenance"] |= {"gpu": ["GPU 0: NVIDIA H200"], "config_hash": "1" * 16, "seed": 7}
    b["provenance"]["engine_args"] = {"max_model_len": 8192}
    b["provenance"]["host"] = {**b["provenance"]["host"], "cpu": "EPYC", "memory_mib": 7}
    b["reference_rates"] |= {"flags": ["non_monotonic_load"], "ref_load_per_s": 8}
    settings = b["provenance"]["settings"]
    settings["cell"] |= {"min_completed": 40}
    settings["connectors"]["mooncake_both"] = {"kv_transfer_config": {"kv_role": "kv_producer"}}
    settings["connectors"]["new"] = {"env": {"X": "1"}}
    text = comparison_text(compared(*pair))
    for line in (
        "versions.vllm: 0.32.0 / 0.33.0",
        "gpu: GPU 0: NVIDIA H20 (UUID: GPU-00000000-1111-2222-3333-444444444444) / GPU 0: NVIDIA H200",
        "engine_args.max_model_len: 40960 / 8192",
        "engine_args.enable_prefix_caching: True / -",
        "host.cpu: Xeon 8469C / EPYC",
        "ref_load, req/s: 4 / 8",
        "flags of the reference rates: none / non_monotonic_load",
        "settings.cell.min_completed: 200 / 40",
        "settings.connectors.mooncake_both.kv_transfer_config.kv_role: - / kv_producer",
        "seed: 20260526 / 7",
    ):
        assert f"  {line}\n" in text
    for kept_quiet in ("memory_mib", "config hash", "connectors.new"):
        assert kept_quiet not in text
    assert f"Note: B: non_monotonic_load: {labels()['rate_flag']['non_monotonic_load']}" in text


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


@pytest.fixture(scope="module")
def sound() -> Side:
    return read_side("A", EXAMPLE)


@pytest.fixture(scope="module")
def parts() -> dict[str, str]:
    """Each part of it as JSON."""
    return {key: json.dumps(value) for key, value in json.loads(EXAMPLE.read_text()).items()}


@pytest.mark.parametrize("value", [None, "x", [3], [{}], {"x": 1}])
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


def test_one_campaign_is_not_compared_with_itself_unsaid(pair: tuple[Aggregate, Aggregate]) -> None:
    """Also before and after a block was lost: both sides share launches."""
    words = "A and B are one campaign"
    again, lost = two_days()[0], two_days()[0]
    lost["main_taxes"] = lost["main_taxes"][1:]
    for other in (again, lost):
        text = comparison_text(compared(pair[0], other))
        assert f"Note: {words}" in text and words in text.splitlines()[-1]
    text = comparison_text(compared(*pair))
    assert words not in text


def test_campaigns_that_answer_other_questions_are_refused(pair: tuple[Aggregate, Aggregate]) -> None:
    pair[1]["provenance"]["confidence"] = 0.9
    with pytest.raises(NotComparable, match=r"confidence is 0\.95 in a and 0\.9 in b\. Analyse"):
        compared(*pair)
    pair = two_days()
    for cell in pair[1]["cells"]:
        cell["input_tokens"] = 512
    with pytest.raises(NotComparable, match=r"4096 prompt and 256 output tokens in a and 512 prompt and 256"):
        compared(*pair)


def test_taxes_over_blocks_are_compared_with_their_like_alone(pair: tuple[Aggregate, Aggregate]) -> None:
    """Their intervals hold what launches differ by, and that of one launch lacks it: then there is no verdict."""
    for value, point, n in zip(pair, (0.30, 0.40), (5, 4), strict=True):
        set_tax(value, point, point - 0.08, point + 0.08)
        over_blocks(value, n)
    found = compared(*pair)
    change = change_of(found)
    assert change.change is not None and change.change.low == pytest.approx(0.1 - 0.08 * 2**0.5)
    assert found.exit_code == 0 and (change.a.n_blocks, change.b.n_blocks) == (5, 4)
    assert sentence(found).endswith(" Intervals: A over 5 blocks and B over 4 blocks.")
    over_blocks(pair[1], 3, "nixl_both")
    assert "B over 3 blocks, over 4 blocks." in sentence(compared(*pair))
    pair = two_days()
    set_tax(pair[1], 0.9, 0.85, 0.95)
    over_blocks(pair[0], 5, "mooncake_both")
    found = compared(*pair)
    change = change_of(found)
    assert (change.change, change.word, found.exit_code) == (None, "not available", 2)
    assert "(over 5 blocks in A, of one launch in B)" in comparison_text(found)
    assert replace(found, allow_missing=True).exit_code == 0


def test_where_ref_safe_differs_a_rate_is_taken_at_which_both_have_one_kind(
    pair: tuple[Aggregate, Aggregate],
) -> None:
    """A's ref_safe is 4, B's 2, and both have blocks at their own: at 1 req/s both have Phase A's launch."""
    a, b = pair
    a["reference_rates"]["ref_safe_per_s"] = 4
    for value, own in zip(pair, (4, 2), strict=True):
        lower = [
            {**t, "rate_per_s": 1, "reference": "neither"}
            for t in value["main_taxes"]
            if t["rate_per_s"] == 2
        ]
        for tax in value["main_taxes"]:
            if tax["unit"] == "ratio" and tax["rate_per_s"] == own:
                tax |= {"phase": None, "n_blocks": 5}
        value["main_taxes"] += lower
    found = compared(a, b)
    assert (found.rate.per_s, found.exit_code) == (1, 0)
    assert "compared at 1 req/s, the highest rate that is healthy in both and has" in found.rate.sentence
    for value in pair:
        value["main_taxes"] = [t for t in value["main_taxes"] if t["rate_per_s"] != 1]
    found = compared(a, b)
    assert (found.rate.per_s, found.exit_code) == (2, 2)


@pytest.mark.parametrize(("low", "high"), [(None, 0.49), (0.30, None), (None, None)])
def test_a_change_without_a_bound_withholds_the_verdict(
    pair: tuple[Aggregate, Aggregate], low: float | None, high: float | None
) -> None:
    """It may have risen by more than is known; a regression that is found is one all the same."""
    set_tax(pair[0], 0.30, 0.25, 0.36)
    set_tax(pair[1], 0.42, low, high)
    found = compared(*pair)
    assert (found.exit_code, replace(found, allow_missing=True).exit_code) == (2, 2)
    assert change_of(found).word == "not known"
    assert comparison_document(found)["verdict"] == "not comparable"
    assert "Changes without a bound: TTFT p90 of mooncake_both by +12 pp" in sentence(found)
    set_tax(pair[1], 0.9, 0.85, 0.95, config="nixl_both")
    assert compared(*pair).exit_code == 1


def test_a_tax_that_neither_has_withholds_the_verdict(pair: tuple[Aggregate, Aggregate]) -> None:
    for value in pair:
        lose(value, "mooncake_both", "ttft_p90", "p90 falls on requests that failed")
    assert compared(*pair).exit_code == 2
    for value in pair:
        value["configs"]["mooncake_both"]["ttft_is_no_tax"] = "it fakes cache hits"
    found = compared(*pair)
    assert found.exit_code == 0, "where a TTFT is no tax there is nothing to compare"
    assert "ttft_p90" not in {c.metric for c in found.changes if c.config == "mooncake_both"}


def test_it_carries_what_qualifies_a_change(pair: tuple[Aggregate, Aggregate]) -> None:
    """Also where there is a regression."""
    rows(pair[1], "nixl_both", "tpot_p90")[0]["overloaded"] = ["plain"]
    for value in pair:
        value["reference_rates"]["flags"] = ["non_monotonic_load"]
    for point, verdict in ((0.31, "No regression"), (0.9, "Regression")):
        set_tax(pair[1], point, point - 0.01, point + 0.01)
        said = sentence(compared(*pair))
        assert said.startswith(verdict)
        assert " Queueing, since a side was saturated, in: TPOT p90 of nixl_both in B." in said
        assert "of one launch, saturated  change" in comparison_text(compared(*pair))
        assert ". Flags of the reference rates: A non_monotonic_load and B non_monotonic_load." in said
