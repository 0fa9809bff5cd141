"""Many campaigns to series, changes and a verdict: what is never one series, what has no number, and what is said of it."""

import json
import math
import os
import re
import shutil
from pathlib import Path

import jsonschema
import msgspec
import pytest
from histories import Aggregate, lose, nights, noise_floor, noisy, of_blocks, rows, set_tax

from connector_tax.base.config.checked import SCHEMAS
from connector_tax.base.documents.history import History, Series
from connector_tax.base.documents.history_schema import history_schema
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import to_json, write_json
from connector_tax.read.track.history import history
from connector_tax.read.track.picture import title

STEP = noisy(24, s14=0.02)


def of(
    found: History, config: str = "nixl_both", metric: str = "tpot_p90", reference: str = "ref_safe"
) -> list[Series]:
    return [s for s in found.series if (s.config, s.metric, s.reference) == (config, metric, reference)]


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


@pytest.mark.parametrize(
    ("steps", "last", "code"),
    [({"s12": 0.05}, -0.05, 1), ({"s10": 0.05, "s20": -0.05}, 0.05, 0), ({"s28": 0.05}, -0.05, 1)],
)
def test_the_last_campaign_alone_changes_no_verdict(
    tmp_path: Path, steps: dict[str, float], last: float, code: int
) -> None:
    """A rise that stands, one that was taken back, and one of the two campaigns before."""
    taxes = noisy(31, **steps)
    taxes[-1] = noisy(31)[-1] + steps.get("s12", steps.get("s28", 0.0)) + last
    found = history([nights(tmp_path, taxes)])
    changes = [c for c in of(found)[0].changes if c.status == "confirmed"]
    assert [c.first for c in changes] == [int(name[1:]) for name in steps]
    assert [c.standing for c in changes] == [
        c.standing for c in of(history([_without_last(tmp_path)]))[0].changes
    ]
    assert found.exit_code == code == history([_without_last(tmp_path)]).exit_code


def _without_last(root: Path) -> Path:
    last = root / "night-30"
    if last.exists():
        shutil.rmtree(last)
    return root


@pytest.mark.parametrize(("bad", "since"), [(0.5, 15), (0.2, 28)])
def test_one_bad_night_hides_no_regression(tmp_path: Path, bad: float, since: int) -> None:
    taxes = noisy(30, **{f"s{since}": 0.05})
    taxes[5] += bad
    found = history([nights(tmp_path, taxes)])
    assert [c.first for c in of(found)[0].changes] == [since] and found.exit_code == 1


def test_every_night_after_a_rise_says_so_where_plain_was_launched_once(tmp_path: Path) -> None:
    root = nights(tmp_path, noisy(20, s8=0.3))
    for night in range(19, 9, -1):
        found = history([root])
        assert ([c.first for c in of(found)[0].changes], found.exit_code) == ([8], 1), night
        shutil.rmtree(root / f"night-{night:02d}")


def test_small_steps_are_held_together_against_the_limit_and_so_is_what_is_left_of_one(
    tmp_path: Path,
) -> None:
    creeping = nights(tmp_path / "a", noisy(40, s12=0.03, s25=0.03))
    found = history([creeping], fail_above=0.04)
    assert [c.regression for c in of(found)[0].changes] == [True, False] and found.exit_code == 1
    assert re.search(r"by \+2\.\d %.*, \+5\.\d+ % by now, with night-12", found.sentence), found.sentence
    left = nights(tmp_path / "b", noisy(40, s12=0.10, s25=-0.08))
    assert history([left], fail_above=0.05).exit_code == 0 and history([left]).exit_code == 1


@pytest.mark.parametrize(("behind", "back", "code"), [(15, -0.04, 0), (15, 0.0, 1), (1, -0.04, 1)])
def test_campaigns_of_another_kind_say_whether_a_rise_still_stands(
    tmp_path: Path, behind: int, back: float, code: int
) -> None:
    """Two of them at the least."""

    def blocks(k: int, value: Aggregate) -> None:
        if k >= 25:
            of_blocks(value, 5)
        noise_floor(value, 0.004)

    taxes = noisy(25 + behind, seed=2, s12=0.04, s25=back)
    found = history([nights(tmp_path, taxes, blocks)])
    [change] = of(found)[0].changes
    assert (change.first, change.kind, found.exit_code) == (12, "launch", code)


def test_what_no_clock_tells_apart_is_no_rise(tmp_path: Path) -> None:
    """A deterministic engine differs in no digit, or in the last one."""
    found = history([nights(tmp_path, [0.05] * 18 + [0.05 + 1e-9] * 2)])
    assert not of(found)[0].changes and of(found)[0].thresholds[0].ratio == 1e-6
    shutil.rmtree(tmp_path)
    assert history([nights(tmp_path, [0.05] * 18 + [0.0501] * 2)]).exit_code == 1


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


def test_plain_with_a_connectors_settings_decides_nothing(tmp_path: Path) -> None:
    def rename(_: int, value: Aggregate) -> None:
        value["configs"]["plain_matched_nixl"] = value["configs"].pop("nixl_both")
        for row in (t for t in value["main_taxes"] if t["config"] == "nixl_both"):
            row["config"] = "plain_matched_nixl"

    found = history([nights(tmp_path, STEP, rename)])
    [series] = of(found, "plain_matched_nixl")
    assert series.changes and not series.decides
    assert found.exit_code == 0


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


@pytest.mark.parametrize("n", [1, 2, 4])
def test_too_few_campaigns_are_no_verdict(tmp_path: Path, n: int) -> None:
    def change(_: int, value: Aggregate) -> None:
        of_blocks(value, 5)
        noise_floor(value, 0.004)

    found = history([nights(tmp_path, noisy(n), change)])
    assert (found.verdict, found.exit_code) == ("not judged", 0)
    assert found.sentence == (
        "Nothing can be judged yet: of 8 series none has 5 campaigns with a number of one kind."
    )
    assert "too few campaigns to tell a change" in title(found, of(found)[0])


def test_series_that_cannot_be_judged_are_counted_apart(tmp_path: Path) -> None:
    found = history(
        [nights(tmp_path, noisy(8), lambda k, v: k > 4 and lose(v, "lost", config="noop_connector"))]
    )
    judged = sum(bool(s.thresholds) for s in found.series)
    few = history([nights(tmp_path / "few", noisy(6), lambda k, v: k > 2 and lose(v, "lost"))])
    assert judged == 8 and "none of 8 series" in found.sentence
    assert (
        "none of 6 series" in few.sentence
        and " 2 more cannot be judged: fewer than 5 campaigns" in few.sentence
    )


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
