"""Lengths follow the distribution that was asked for, and the arrival's index alone decides which one it gets."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from connector_tax.base.errors import ConfigError
from connector_tax.run.workload.lengths import BLOCK, Lengths, parse_lengths


def drawn(text: str, n: int = 20 * BLOCK) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    lengths = Lengths(parse_lengths(text), 7, "input")
    return np.array([lengths.of(k) for k in range(n)])


def test_a_number_is_always_that_length() -> None:
    assert set(drawn("512", 2000)) == set(drawn("constant:512", 2000)) == {512}


def test_uniform_lengths_have_both_ends_and_all_between() -> None:
    values = drawn("uniform:3,7")
    counts = np.bincount(values, minlength=8)[3:]
    assert set(values) == {3, 4, 5, 6, 7}
    assert stats.chisquare(counts).pvalue > 0.001


def test_lognormal_takes_mean_and_deviation_of_the_lengths_themselves() -> None:
    values = drawn("lognormal:1000,800")
    assert values.mean() == pytest.approx(1000, rel=0.03)
    assert values.std() == pytest.approx(800, rel=0.08)
    assert stats.skew(np.log(values)) == pytest.approx(0, abs=0.06)


def test_normal_lengths_stay_inside_their_bounds() -> None:
    values = drawn("normal:100,50,20,180")
    assert values.min() == 20 and values.max() == 180
    assert values.mean() == pytest.approx(100, rel=0.02)


def test_lengths_of_a_file_are_those_of_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text("5\n5\n9\n")
    values = drawn(f"file:{path}")
    assert set(values) == {5, 9}
    assert (values == 5).mean() == pytest.approx(2 / 3, abs=0.02)


def test_an_arrival_has_its_length_in_whatever_order_it_is_asked() -> None:
    parsed = parse_lengths("uniform:1,100000")
    forward, back = Lengths(parsed, 7, "input"), Lengths(parsed, 7, "input")
    indices = range(0, 3 * BLOCK, 97)
    assert [forward.of(k) for k in indices] == [back.of(k) for k in reversed(indices)][::-1]
    assert [forward.of(k) for k in indices] != [Lengths(parsed, 8, "input").of(k) for k in indices]
    assert [forward.of(k) for k in indices] != [Lengths(parsed, 7, "output").of(k) for k in indices]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "give one of"),
        ("0", "of 1 or more"),
        ("2.5", "give one of"),
        ("-5", "give one of"),
        ("zipf:2", "give one of"),
        ("uniform:5", "two whole numbers"),
        ("uniform:9,5", "two whole numbers"),
        ("uniform:1.5,5", "two whole numbers"),
        ("uniform:1,1e99", "from 0 to"),
        ("normal:100", "mean and standard deviation"),
        ("normal:100,nan", "from 0 to"),
        ("normal:100,5,200,300", "the mean has to lie"),
        ("lognormal:a,b", "numbers stand behind"),
        ("file:/none/such", "cannot be read"),
    ],
)
def test_what_is_no_distribution_is_said(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_lengths(text)


@pytest.mark.parametrize("content", ["", "5\nx\n", "0\n", "5\n-1\n", "99999999999999999999\n"])
def test_a_file_with_what_is_no_length_is_said(tmp_path: Path, content: str) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text(content)
    with pytest.raises(ConfigError, match="one whole number of tokens per line"):
        parse_lengths(f"file:{path}")
