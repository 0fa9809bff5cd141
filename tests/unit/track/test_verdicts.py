"""What a last campaign, a bad one, small steps and too few campaigns do to a verdict: nothing that they should not."""

import re
import shutil
from pathlib import Path

import pytest
from histories import Aggregate, lose, nights, noise_floor, noisy, of, of_blocks

from connector_tax.read.track.history import history
from connector_tax.read.track.picture import title


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
