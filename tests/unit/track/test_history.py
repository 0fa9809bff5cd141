"""Many campaigns to series, changes and a verdict: what is never one series, what has no number, and what is said of it."""

import json
import math
import shutil
from pathlib import Path

import jsonschema
import pytest
from histories import Aggregate, lose, nights, noise_floor, noisy, of, of_blocks, rows, set_tax

from connector_tax.base.config.checked import SCHEMAS
from connector_tax.base.documents.history_schema import history_schema
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import to_json
from connector_tax.read.track.history import history
from connector_tax.read.track.page import render
from connector_tax.read.track.sources import SWEEP, Place

STEP = noisy(24, s14=0.02)


def test_a_step_is_a_regression_with_its_size_its_night_and_what_changed(tmp_path: Path) -> None:
    def release(k: int, value: Aggregate) -> None:
        value["provenance"]["versions"]["vllm"] = "0.31.0" if k < 14 else "0.32.0"

    found = history([nights(tmp_path, STEP, release)])
    [series] = of(found)
    [change] = series.changes
    assert (change.last_before, change.first, change.status, change.standing) == (
        13,
        14,
        "confirmed",
        "stands",
    )
    assert change.low < 0.02 / 1.05 < change.high
    assert [(d.what, d.before, d.after) for d in change.differences] == [
        ("version of vllm", "0.31.0", "0.32.0")
    ]
    assert change.regression and (found.verdict, found.exit_code) == ("regression", 1)
    assert "TPOT p90 of nixl_both at ref_safe (2 req/s) by +1.9 %" in found.sentence
    assert "with night-14 of 2026-10-15T02:00:00Z on 1 x NVIDIA H20" in found.sentence


def test_nights_without_a_step_are_no_regression(tmp_path: Path) -> None:
    found = history([nights(tmp_path, noisy(24))])
    assert (found.verdict, found.exit_code) == ("no regression", 0)
    assert not any(s.changes for s in found.series)


def test_a_tax_that_fell_is_no_regression(tmp_path: Path) -> None:
    found = history([nights(tmp_path, noisy(24, s14=-0.02))])
    [change] = of(found)[0].changes
    assert change.point < 0 and not change.regression and found.exit_code == 0


def test_a_rise_that_was_taken_back_is_no_regression_any_more(tmp_path: Path) -> None:
    found = history([nights(tmp_path, noisy(30, s10=0.03, s20=-0.03))])
    up, down = of(found)[0].changes
    assert (up.first, up.standing, up.regression) == (10, "taken back", False)
    assert (down.first, down.standing) == (20, "stands")
    assert found.exit_code == 0


def test_a_rise_within_the_limit_is_no_regression(tmp_path: Path) -> None:
    root = nights(tmp_path, STEP)
    assert history([root], fail_above=0.03).exit_code == 0
    assert history([root], fail_above=0.01).exit_code == 1


def test_the_last_night_alone_is_suspected_and_names_who_would_confirm_it(tmp_path: Path) -> None:
    found = history([nights(tmp_path, noisy(14, s13=0.05))])
    [change] = of(found)[0].changes
    assert (change.status, change.to_confirm, change.regression) == ("suspected", "night-13", False)
    assert (found.verdict, found.exit_code) == ("suspected", 0)
    assert "Measuring night-13 once more would tell: --confirm CONFIGFILE does." in found.sentence


def test_in_a_sweep_no_campaign_beside_it_would_confirm_a_suspicion(tmp_path: Path) -> None:
    """``--confirm`` is refused there, and what is measured by hand is of no series of the sweep's."""
    root = nights(tmp_path, noisy(14, s13=0.05))
    places = {path.resolve(): Place({SWEEP: "s"}, (k,)) for k, path in enumerate(sorted(root.iterdir()))}
    found = history([root], places=places)
    assert found.verdict == "suspected" and "--confirm" not in found.sentence
    assert found.sentence.endswith("of an axis that it follows, with that campaign once more.")


def test_plain_with_a_connectors_settings_decides_nothing(tmp_path: Path) -> None:
    def rename(_: int, value: Aggregate) -> None:
        value["configs"]["plain_matched_nixl"] = value["configs"].pop("nixl_both")
        for row in (t for t in value["main_taxes"] if t["config"] == "nixl_both"):
            row["config"] = "plain_matched_nixl"

    found = history([nights(tmp_path, STEP, rename)])
    [series] = of(found, "plain_matched_nixl")
    assert series.changes and not series.decides
    assert found.exit_code == 0


TWO_PLACES = {"engine.gpu 0": ["a"], "engine.gpu 1": ["b"]}
UNLIKE = {
    "engine": lambda p: p.update(engine_kind="emulator"),
    "device": lambda p: p.update(gpu=["GPU 0: NVIDIA H200 (UUID: GPU-1)"]),
    "model": lambda p: p.update(model="another/model"),
    "host CPU": lambda p: p["host"].update(cpu="EPYC 9654"),
    "host cores": lambda p: p["host"].update(cores=8),
    "arrivals": lambda p: p.update(arrival="poisson"),
    "engine argument max_model_len": lambda p: p["engine_args"].update(max_model_len=8192),
    "setting engine.extra_args": lambda p: p["settings"]["engine"].update(extra_args=["--enforce-eager"]),
    "setting cell.gamma_shape": lambda p: p["settings"]["cell"].update(gamma_shape=0.25),
    "setting cell.duration_s": lambda p: p["settings"]["cell"].update(duration_s=5),
    "setting cell.warmup_s": lambda p: p["settings"]["cell"].update(warmup_s=0),
    "setting cell.inflight_cap": lambda p: p["settings"]["cell"].update(inflight_cap=4),
    "setting engine.env.OMP_NUM_THREADS": lambda p: p["settings"]["engine"].update(
        env={"OMP_NUM_THREADS": "1"}
    ),
    "setting engine.pin_cpus": lambda p: p["settings"]["engine"].update(pin_cpus=False),
    "setting engine.step_timing": lambda p: p["settings"]["engine"].update(step_timing=False),
    "engine argument rope_theta": lambda p: p["engine_args"].update(rope_theta=1000001.0),
    "engines side by side": lambda p: p.update(cards=TWO_PLACES, mixed_cards=[]),
    "cards, or places without one": lambda p: p.update(cards=TWO_PLACES, mixed_cards=[], side_by_side=1),
    "comparisons across cards": lambda p: p.update(cards=TWO_PLACES, mixed_cards=["a"], side_by_side=1),
    "confidence of the intervals": lambda p: p.update(confidence=0.9),
}


@pytest.mark.parametrize("what", UNLIKE)
def test_campaigns_that_differ_in_what_taxes_depend_on_are_never_one_series(
    tmp_path: Path, what: str
) -> None:
    def change(k: int, value: Aggregate) -> None:
        value["provenance"]["engine_args"]["rope_theta"] = 1000000.0
        if k >= 3:
            UNLIKE[what](value["provenance"])

    found = history([nights(tmp_path, noisy(6), change)])
    first, second = of(found)
    assert [[p.campaign for p in s.points] for s in (first, second)] == [[0, 1, 2], [3, 4, 5]]
    assert what in found.environments[0].differs
    assert found.environments[0].facts.get(what) != found.environments[1].facts[what]


def test_a_campaign_of_other_cards_says_what_keeps_it_apart(tmp_path: Path) -> None:
    """One card, then two side by side, then two whose launches are mixed: three series, and each page names the others."""

    def cards(k: int, value: Aggregate) -> None:
        if k >= 2:
            mixed = ["a", "b"] if k >= 4 else []
            value["provenance"] |= {"cards": TWO_PLACES, "mixed_cards": mixed, "side_by_side": 2}

    found = history([nights(tmp_path, noisy(6), cards)])
    assert [[p.campaign for p in s.points] for s in of(found)] == [[0, 1], [2, 3], [4, 5]]
    beside = [
        (e.facts["engines side by side"], e.facts["comparisons across cards"]) for e in found.environments
    ]
    assert beside == [("up to 1", "none"), ("up to 2", "none"), ("up to 2", "some")]
    page = render(found)
    assert "engines side by side is up to 2 there and up to 1 here" in page
    assert "comparisons across cards is some there and none here" in page


def test_an_argument_that_is_null_is_one_that_is_not_there(tmp_path: Path) -> None:
    def null(k: int, value: Aggregate) -> None:
        if k % 2:
            value["provenance"]["engine_args"]["seed"] = None

    assert len(history([nights(tmp_path, noisy(4), null)]).environments) == 1


def test_another_card_of_the_same_kind_is_the_same_device_and_two_are_not(tmp_path: Path) -> None:
    def cards(k: int, value: Aggregate) -> None:
        mine = [f"GPU {j}: NVIDIA H20 (UUID: GPU-{k}-{j})" for j in range(2 if k == 5 else 1)]
        value["provenance"]["gpu"] = mine

    found = history([nights(tmp_path, noisy(6), cards)])
    assert [e.facts["device"] for e in found.environments] == ["1 x NVIDIA H20", "2 x NVIDIA H20"]
    assert [len(s.points) for s in of(found)] == [5, 1]


def test_two_virtual_gpus_of_other_documents_are_two_devices(tmp_path: Path) -> None:
    def clock(k: int, value: Aggregate) -> None:
        profile = {"profile": "h200", "name": "NVIDIA H200", "sha256": f"{k % 2:016d}"}
        value["provenance"] |= {"engine_kind": "virtual_gpu", "virtual_gpu": profile}

    found = history([nights(tmp_path, noisy(4), clock)])
    assert len(found.environments) == 2 and set(found.environments[0].differs) == {"device"}
    assert found.environments[0].facts["device"].startswith("virtual NVIDIA H200 (profile h200, ")


def test_another_shape_and_another_rate_are_other_series(tmp_path: Path) -> None:
    def shape(k: int, value: Aggregate) -> None:
        if k == 1:
            for cell in value["cells"]:
                cell["input_tokens"] = 512
        if k == 2:
            value["reference_rates"]["ref_safe_per_s"] = 4

    found = history([nights(tmp_path, noisy(4), shape)])
    assert [(s.environment, s.rate_per_s, len(s.points)) for s in of(found)] == [
        (0, 2, 2),
        (0, 4, 1),
        (1, 2, 1),
    ]


def test_a_campaign_without_a_number_keeps_its_place_and_its_reason(tmp_path: Path) -> None:
    def one_lost(k: int, value: Aggregate) -> None:
        if k == 3:
            lose(value, "requests failed in it")
        if k == 4:
            value["main_taxes"] = [t for t in value["main_taxes"] if t["config"] != "nixl_both"]
            value["configs"]["nixl_both"] |= {"status": "failed", "reason": "failed: its engine died"}

    [series] = of(history([nights(tmp_path, noisy(6), one_lost)]))
    assert [p.reason for p in series.points[3:5]] == [
        "requests failed in it",
        "nixl_both failed: its engine died",
    ]
    assert [p.point is None for p in series.points] == [False, False, False, True, True, False]


def test_a_fallback_rate_has_no_tax_that_could_be_compared(tmp_path: Path) -> None:
    def fallen(k: int, value: Aggregate) -> None:
        value["reference_rates"]["flags"] = ["fallback_lowest_rate"] if k == 2 else []

    [series] = of(history([nights(tmp_path, noisy(4), fallen)]))
    assert "is a fallback there" in (series.points[2].reason or "")


def test_kinds_are_judged_apart_and_the_older_one_is_marked(tmp_path: Path) -> None:
    """Blocks from the fifteenth night on, 2 % higher: no step, since launches and blocks are not compared."""
    found = history([nights(tmp_path, STEP, lambda k, value: k >= 14 and of_blocks(value, 5))])
    [series] = of(found)
    assert not series.changes
    assert [p.unlike for p in series.points] == [True] * 14 + [False] * 10


def test_a_shift_within_what_plain_differs_by_is_no_alarm(tmp_path: Path) -> None:
    """The noise floor of those very campaigns decides, of taxes over blocks."""

    def floor(half: float):
        def change(_: int, value: Aggregate) -> None:
            of_blocks(value, 5)
            noise_floor(value, half)

        return change

    wide, narrow = (
        history([nights(tmp_path / "a", STEP, floor(0.08))]),
        history([nights(tmp_path / "b", STEP, floor(0.005))]),
    )
    assert [c.regression for c in of(wide)[0].changes + of(narrow)[0].changes] == [True]
    assert not of(wide)[0].changes
    [threshold] = of(wide)[0].thresholds
    assert (threshold.source, threshold.n) == ("noise floor over blocks", 24)
    assert math.log1p(threshold.ratio) == pytest.approx(0.08 / 4.303 * 2.0106, rel=0.01), (
        "of 3 blocks each: t of 2 and of 48 degrees"
    )


def test_pairs_of_plains_launches_are_the_threshold_of_taxes_of_one_launch(tmp_path: Path) -> None:
    """Plain's second launch, of every phase that has one: by hand 1 % apart, up and down."""

    def again(k: int, value: Aggregate) -> None:
        own = [c for c in value["cells"] if c["config"] == "plain" and c["phase"] == "a" and c["usable"]]
        for cell in json.loads(json.dumps(own)):
            cell["config"] = "plain_again"
            cell["tpot_ms"]["p90"]["point"] *= 1.01 if k % 2 else 1 / 1.01
            value["cells"].append(cell)

    [series] = of(history([nights(tmp_path, noisy(24), again)]))
    [threshold] = series.thresholds
    assert (threshold.source, threshold.n) == ("pairs of launches of plain", 24)
    assert threshold.ratio == pytest.approx(1.01**2.064 - 1, rel=0.01), "Student's t of 24 degrees is 2.064"


def test_without_plains_second_launch_the_series_own_spread_is_the_threshold(tmp_path: Path) -> None:
    [series] = of(history([nights(tmp_path, noisy(24))]))
    assert series.thresholds[0].source == "spread of the series itself"


def test_an_open_end_and_queueing_are_kept(tmp_path: Path) -> None:
    def mark(_: int, value: Aggregate) -> None:
        for row in rows(value):
            row |= {
                "high": None,
                "reason": "requests failed",
                "overloaded": ["own"],
                "verdict": "undetermined",
            }

    point = of(history([nights(tmp_path, noisy(2), mark)]))[0].points[0]
    assert point.high is None and point.low is not None and point.overloaded


def test_a_damaged_campaign_is_one_message_and_the_others_are_tracked(tmp_path: Path) -> None:
    root = nights(tmp_path, noisy(5))
    (root / "night-01" / "aggregate.json").write_text('{"schema_version": 1')
    (root / "night-02" / "aggregate.json").write_text('{"schema_version": 99}')
    (root / "not-analysed").mkdir()
    (root / "not-analysed" / "campaign.json").write_text("{}")
    (root / "anything-else").mkdir()
    found = history([root])
    assert [c.name for c in found.campaigns] == ["night-00", "night-03", "night-04"]
    reasons = {Path(f.path).name: f.reason for f in found.left_out}
    assert set(reasons) == {"night-01", "night-02", "not-analysed"}
    assert "night-01/aggregate.json: not valid JSON" in reasons["night-01"]
    assert "night-02/aggregate.json: schema 99" in reasons["night-02"]
    assert "not analysed" in reasons["not-analysed"]


def test_a_campaign_is_tracked_once_however_often_it_is_found(tmp_path: Path) -> None:
    root = nights(tmp_path / "all", noisy(3))
    shutil.copytree(root / "night-01", tmp_path / "copy")
    found = history([root, root / "night-00", tmp_path / "copy"])
    assert len(found.campaigns) == 3
    assert [
        f.reason.endswith("night-01 once more") or f.reason.endswith("copy once more") for f in found.left_out
    ] == [True]


def test_without_a_campaign_it_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no campaign that can be read"):
        history([tmp_path])
    with pytest.raises(ConfigError, match="no such folder"):
        history([tmp_path / "nowhere"])
    with pytest.raises(ConfigError, match="too long"):
        history([tmp_path / ("x" * 300)])


def test_the_document_is_as_its_schema_says_and_comes_out_the_same(tmp_path: Path) -> None:
    def mixed(k: int, value: Aggregate) -> None:
        if k == 2:
            lose(value, "lost")
        if k == 13:
            set_tax(value, 0.2, config="noop_connector")

    root = nights(tmp_path, noisy(14, s9=0.03), mixed)
    first = to_json(history([root]))
    jsonschema.validate(json.loads(first), history_schema())
    assert to_json(history([root])) == first
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(first), "verdict": "fine"}, history_schema())


def test_the_schemas_file_is_made_from_the_types() -> None:
    assert json.loads((SCHEMAS / "history.schema.json").read_text()) == history_schema(), (
        "run scripts/make_schemas.py"
    )
