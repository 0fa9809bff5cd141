"""The CPU time of a hook never contradicts the wall time beside it, in the table, the sentence and README's table alike."""

import sys
from pathlib import Path
from typing import Any

from connector_tax.base.documents.aggregate import Interval, aggregate_of
from connector_tax.read.figures.words import hooks_words
from connector_tax.read.report.attribution import attribution_view
from connector_tax.read.report.tax_table import tax_table

sys.path.insert(0, str(Path(__file__).parents[2]))
from whole_aggregate import example, hook


def with_hooks(*hooks: dict[str, Any]) -> dict[str, Any]:
    aggregate = example()
    (entry,) = [e for e in aggregate["attribution"] if e["config"] == "nixl_both"]
    entry["hooks"] = list(hooks)
    return aggregate


def test_a_short_hook_spends_all_of_it_on_the_cpu() -> None:
    aggregate = with_hooks(
        hook("worker/get_finished", 20.0, 5.0),
        hook("worker/wait_for_save", 0.6, 1.4),
        hook("worker/start_load_kv", 0.4, None),
    )
    (view,) = [v for v in attribution_view(aggregate_of(aggregate)) if v.id == "nixl_both"]
    assert [h.cpu for h in view.hooks] == ["5", "all of it", "–"]
    assert view.why[0].startswith("Its hooks take 21 µs of a step, at least 6 µs of that on the CPU; ")
    (row,) = [
        line for line in tax_table(aggregate_of(aggregate)).splitlines() if line.startswith("| NIXL (both)")
    ]
    assert row.endswith(" | 21 | ≥ 6 |")


def test_the_sum_is_of_what_is_said_of_each() -> None:
    """A hook that seems to take more than it lasted makes up for none that waited."""
    aggregate = with_hooks(hook("worker/get_finished", 10.0, 2.0), hook("worker/wait_for_save", 4.0, 12.0))
    (view,) = [v for v in attribution_view(aggregate_of(aggregate)) if v.id == "nixl_both"]
    assert "Its hooks take 14 µs of a step, 6 µs of that on the CPU" in view.why[0]


def test_hooks_that_take_more_than_the_difference_are_no_part_of_it() -> None:
    assert hooks_words(Interval(2.77, 2.6, 2.96), "what A adds") == (
        "hooks take 277 % [260 %, 296 %] of what A adds, and other parts of the step less than plain's"
    )
    # Where the interval leaves it open the words do as well.
    assert (
        hooks_words(Interval(1.05, 0.9, 1.2), "what A adds")
        == "hooks take 105 % [90 %, 120 %] of what A adds"
    )
    assert hooks_words(Interval(0.76, 0.74, 0.78), "what A adds") == (
        "76 % [74 %, 78 %] of what A adds is spent in hooks"
    )
