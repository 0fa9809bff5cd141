"""A change between campaigns whose interval has an open end."""

import pytest

from connector_tax.base.documents.aggregate import Interval
from connector_tax.read.compare.comparison import word_of


@pytest.mark.parametrize(
    ("value", "regression", "word"),
    [
        (Interval(0.1, -0.05, None), False, "not known"),
        (Interval(0.1, 0.05, None), False, "worse"),
        (Interval(0.1, 0.05, None), True, "worse"),
        (Interval(-0.1, None, -0.05), False, "better"),
        (Interval(-0.1, -0.2, -0.05), False, "better"),
        (Interval(0.0, -0.2, 0.05), False, "not told apart"),
    ],
    ids=["open", "rise", "regression", "fall", "better", "nothing"],
)
def test_a_change_with_an_open_end_is_not_called_nothing(
    value: Interval, regression: bool, word: str
) -> None:
    assert word_of(value, regression) == word
