"""Experiments conclude what their intervals hold, each way."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.check.conclusions import (
    CONFIRMED,
    NOT_CONFIRMED,
    OPEN,
    Conclusion,
    conclusions,
    outcome_of,
    standing_taxes,
    waiting_hooks,
)
from connector_tax.check.confirm import UNTOUCHED_AGAIN
from connector_tax.check.confirm_text import concluding, confirm_text
from connector_tax.check.document import experiments_document
from connector_tax.check.experiments import METRICS, Measured, Results
from connector_tax.read.stats.hook_waits import HookTimes
from connector_tax.run.measure.arranged import BUSY_BESIDE, ENGINE_ALONE, HELPERS_IDLE, UNPINNED, UNTOUCHED

SEEDS = itertools.count()
HOOK = "worker/get_transfer_results"


def around(point: float, half: float) -> Estimate:
    """Resamples that have nothing to do with another estimate's."""
    replicates = np.linspace(point - half, point + half, 1001)
    return Estimate(point, np.random.default_rng(next(SEEDS)).permutation(replicates), 100)


def cell(
    ms: float = 10.0, wait_us: float = 820.0, *, half_us: float = 20.0, cpu_us: float = 76.0
) -> Measured:
    """Every latency known to 0.2 %; one hook."""
    times = HookTimes(around(wait_us + cpu_us, half_us), around(cpu_us, 5.0), around(wait_us, half_us))
    return Measured(None, dict.fromkeys(METRICS, around(ms, ms * 0.002)), 7000.0, {HOOK: times})


PLAIN = {n: cell(10.0) for n in (UNTOUCHED, ENGINE_ALONE, UNTOUCHED_AGAIN, BUSY_BESIDE)}
OWN = {n: cell(11.0) for n in (UNTOUCHED, UNPINNED, ENGINE_ALONE, UNTOUCHED_AGAIN, HELPERS_IDLE)}


def results(plain: dict[str, Measured] | None = None, own: dict[str, Measured] | None = None) -> Results:
    floors: dict[str, float | None] = dict.fromkeys(METRICS, 0.005)
    return Results("sync", 12.0, {**PLAIN, **(plain or {})}, {**OWN, **(own or {})}, floors)


def one(found: Results, change: str, subject: str = HOOK) -> Conclusion:
    return next(c for c in conclusions(found) if c.change == change and c.subject == subject)


def test_a_wait_that_goes_with_the_helper_threads_is_confirmed_to_be_theirs() -> None:
    idle = replace(cell(11.0, 120.0), threads=("nixl-progress of engine_core",))
    found = one(results(own={HELPERS_IDLE: idle}), HELPERS_IDLE)
    assert found.outcome == CONFIRMED
    assert f"{HOOK} waits 820 us [801, 839] and 820 us [801, 839] of a step" in found.before
    assert found.before.endswith(": 896 and 896 us of wall, 76 and 76 of CPU.")
    assert found.words.startswith(
        "With the connector's 1 thread idle it waits 120 us [101, 139]. Confirmed: "
    )


@pytest.mark.parametrize("change", [HELPERS_IDLE, ENGINE_ALONE, UNPINNED])
def test_a_wait_of_which_more_than_half_stays_is_not_confirmed(change: str) -> None:
    """Though the intervals are far apart."""
    found = one(results(own={change: cell(11.0, 500.0)}), change)
    assert found.outcome == NOT_CONFIRMED and "Not confirmed: " in found.words


def test_a_tax_that_is_smaller_only_since_plain_got_slower_is_not_removed() -> None:
    """One millisecond with nothing changed, and one with the engine alone."""
    slower = results({ENGINE_ALONE: cell(25.0)}, {ENGINE_ALONE: cell(26.0)})
    found = one(slower, ENGINE_ALONE, "TPOT p90")
    assert found.outcome == NOT_CONFIRMED
    assert (
        "costs +4.00 %" in found.words.replace("%", " %") and "of plain with nothing changed" in found.words
    )


def test_of_a_cell_that_was_lost_no_hook_is_said_to_be_unchanged() -> None:
    text = "\n".join(confirm_text(results(own={UNTOUCHED_AGAIN: Measured("lost")})))
    assert "no hook's time changed" not in text
    assert "of no hook both this and its times with nothing changed are known" in text


def test_a_wait_that_is_halved_within_what_intervals_leave_open_is_left_open() -> None:
    assert outcome_of((around(820, 500), around(820, 20)), around(390, 10)) == OPEN
    assert outcome_of((around(820, 20), around(820, 20)), around(390, 450)) == OPEN
    assert outcome_of((around(820, 20), around(820, 20)), around(390, 300)) == CONFIRMED


def test_both_cells_with_nothing_changed_count_and_the_nearer_one_decides() -> None:
    """What drifted over the launch was not removed."""
    assert outcome_of((around(820, 20), around(300, 20)), around(200, 20)) == NOT_CONFIRMED
    assert outcome_of((around(820, 20), around(300, 20)), around(140, 20)) == CONFIRMED
    assert waiting_hooks(results(own={UNTOUCHED_AGAIN: cell(11.0, 40.0)})) == []


def test_a_wait_below_fifty_microseconds_at_the_interval_s_end_is_not_looked_at() -> None:
    short = {UNTOUCHED: cell(11.0, 60.0, half_us=15.0), UNTOUCHED_AGAIN: cell(11.0, 60.0, half_us=15.0)}
    assert waiting_hooks(results(own=short)) == []
    long = {UNTOUCHED: cell(11.0, 60.0, half_us=5.0), UNTOUCHED_AGAIN: cell(11.0, 60.0, half_us=5.0)}
    assert waiting_hooks(results(own=long)) == [HOOK]


def test_a_hook_that_is_hardly_called_then_or_a_cell_that_is_lost_leaves_it_open_with_the_reason() -> None:
    lost = Measured("the virtual GPU's clock ran late")
    found = one(results(own={HELPERS_IDLE: lost}), HELPERS_IDLE)
    assert found.outcome == OPEN and "the virtual GPU's clock ran late" in found.words
    silent = replace(cell(11.0), hooks={})
    assert "hardly called" in one(results(own={ENGINE_ALONE: silent}), ENGINE_ALONE).words


def test_a_tax_that_goes_when_the_engine_is_alone_is_confirmed_to_be_of_sharing_the_core() -> None:
    """Plain is measured alone as well: what both gain is no part of it."""
    both = results({ENGINE_ALONE: cell(9.0)}, {ENGINE_ALONE: cell(9.05)})
    assert one(both, ENGINE_ALONE, "TPOT p90").outcome == CONFIRMED
    half = results({ENGINE_ALONE: cell(9.0)}, {ENGINE_ALONE: cell(9.9)})
    assert one(half, ENGINE_ALONE, "TPOT p90").outcome == NOT_CONFIRMED


def test_plain_that_loses_as_much_beside_a_busy_process_shows_that_it_is_the_core() -> None:
    found = one(results({BUSY_BESIDE: cell(11.0)}), BUSY_BESIDE, "TTFT p90")
    assert found.outcome == CONFIRMED and "beside plain it loses +10.00%" in found.words
    assert one(results(), BUSY_BESIDE, "TTFT p90").outcome == NOT_CONFIRMED
    assert "plain loses less than half of it" in one(results(), BUSY_BESIDE, "TTFT p90").words


def test_what_plain_loses_beside_a_busy_process_is_nothing_within_the_noise_floor() -> None:
    """A tax of 10 % with a floor of 6 %: a loss of 7 % is half of it, and 1 % above the floor with half an interval of 0.3 %."""
    lost = results({BUSY_BESIDE: cell(10.7)})
    assert (
        one(replace(lost, floors=dict.fromkeys(METRICS, 0.06)), BUSY_BESIDE, "TPOT p90").outcome == CONFIRMED
    )
    assert one(replace(lost, floors=dict.fromkeys(METRICS, 0.08)), BUSY_BESIDE, "TPOT p90").outcome == OPEN


def test_what_cells_with_nothing_changed_differ_by_is_no_tax() -> None:
    assert standing_taxes(results()) == list(METRICS)
    drifting = results({UNTOUCHED: cell(10.0), UNTOUCHED_AGAIN: cell(11.2)}, {UNTOUCHED_AGAIN: cell(12.4)})
    assert standing_taxes(drifting) == []


def test_without_a_tax_the_waits_are_still_looked_at() -> None:
    free = results(own={n: cell(10.0) for n in OWN})
    said = list(concluding(free))
    assert said[0] == "No tax above the noise floor was there to remove."
    assert len(said) == 2 and said[1].startswith(f"{HOOK} waits 820 us")
    assert said[1].count("With ") == 3
    quiet = results(own={n: cell(10.0, 3.0) for n in OWN})
    assert list(concluding(quiet))[1:] == ["No hook is known to wait for 50 us of a step or longer."]


def test_nothing_is_concluded_where_a_cell_with_nothing_changed_is_lost() -> None:
    """Least of all that there was no tax."""
    lost = results({UNTOUCHED_AGAIN: Measured("something else took the cores")})
    (said,) = concluding(lost)
    assert said.startswith("Nothing can be concluded") and "something else took the cores" in said
    assert "No tax" not in " ".join(confirm_text(lost))


def test_the_text_says_which_times_are_of_this_host_and_names_what_changed() -> None:
    idle = replace(cell(11.0, 120.0), threads=("nixl-progress of engine_core",))
    text = "\n".join(confirm_text(results(own={HELPERS_IDLE: idle})))
    assert "this host's. CPU times carry over" in text
    assert "rearranged: nixl-progress of engine_core" in text
    assert (
        f"helper threads idle: {HOOK}: wall 196.0 us [177.0, 215.0], before 896.0 us [877.0, 915.0] and"
        in text
    )
    assert f"{HOOK}: cpu" not in text  # it stayed as it was
    assert "engine alone on a core: no hook's time changed by more than its interval" in text


def test_the_document_holds_every_interval_and_every_conclusion() -> None:
    found = experiments_document(results(own={UNPINNED: Measured("every thread may use all CPUs anyway")}))
    assert found.connector[HELPERS_IDLE].hooks[HOOK].wait_us.high == pytest.approx(839, abs=1)
    assert found.taxes[UNPINNED]["tpot_p90"].reason == "every thread may use all CPUs anyway"
    assert {c.change for c in found.conclusions} == {UNPINNED, HELPERS_IDLE, ENGINE_ALONE, BUSY_BESIDE}


def test_a_clock_that_ran_late_is_printed_with_what_it_means() -> None:
    late = "\n".join(confirm_text(results(own={HELPERS_IDLE: replace(cell(11.0), late_share=0.054)})))
    assert "5.4% (-)" in late and "The clock ran late in some of these cells" in late
    assert "ran late" not in "\n".join(confirm_text(results()))
