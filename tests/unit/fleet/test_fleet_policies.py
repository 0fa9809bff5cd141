"""Queues and routers by hand, and the orderings that the published proposal reports."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from connector_tax.config.checked import PROJECT_ROOT
from connector_tax.fleet.outcome import Mean
from connector_tax.fleet.patterns import Pattern, Request
from connector_tax.fleet.queues import ByPattern, Fifo
from connector_tax.fleet.routers import ROUTERS, Placement
from connector_tax.fleet.run import Found, Member, run_study, slos
from connector_tax.fleet.study import given_profiles, load_study

S = 1_000_000_000
SHORT = Pattern("short", 256, 16, 4.0, slo_s=2.0)
LONG = Pattern("long", 4096, 32, 0.5, slo_s=20.0)


def request(seq: int, pattern: Pattern, at_s: float, expected_s: float) -> Request:
    return Request(seq, pattern, round(at_s * S), round(expected_s * S))


def test_first_come_first_served_names_one_and_keeps_the_rest_behind_it() -> None:
    queue = Fifo()
    first, second = request(0, LONG, 0, 5), request(1, SHORT, 1, 0.5)
    queue.put(first)
    queue.put(second)
    assert queue.heads(10 * S) == [first]
    queue.take(first)
    assert queue.heads(10 * S) == [second]


def test_the_head_that_would_miss_its_slo_by_most_is_named_first() -> None:
    """At 3 s: short waited 2.2 + 0.5 - 2 = 0.7 s too long; long 3 + 5 - 20 = 12 s to spare. At 16.2 s both miss nothing more
    urgently than short: 13.9 against 1.2."""
    queue = ByPattern()
    long, short, shorter = request(0, LONG, 0, 5), request(1, SHORT, 0.8, 0.5), request(2, SHORT, 0.9, 0.5)
    for one in (long, short, shorter):
        queue.put(one)
    assert [long.excess_ns(3 * S) / S, short.excess_ns(3 * S) / S] == [-12.0, pytest.approx(0.7)]
    assert queue.heads(3 * S) == [short, long]
    queue.take(short)
    assert queue.heads(3 * S) == [shorter, long]
    queue.take(shorter)
    queue.put(request(3, SHORT, 19.9, 0.5))
    assert queue.heads(20 * S)[0] is long


def test_a_request_that_waits_alone_in_its_line_is_not_forgotten() -> None:
    queue = ByPattern()
    only = request(0, LONG, 0, 5)
    queue.put(only)
    assert queue.heads(S) == [only]
    queue.take(only)
    assert queue.heads(S) == []


def placements(*rows: tuple[int, int, float, float]) -> list[Placement]:
    """(urgency, instance, load, load with it)."""
    return [Placement(request(u, SHORT, 0, 0.5), u, i, load, after) for u, i, load, after in rows]


@pytest.mark.parametrize(
    ("router", "chosen"),
    [
        ("least_load_push", (0, 1)),  # the most urgent, where it finds least
        ("least_load_pull", (0, 1)),
        ("binpack_pull", (1, 0)),  # whoever and wherever leaves least room
    ],
)
def test_who_goes_where(router: str, chosen: tuple[int, int]) -> None:
    offered = placements((0, 0, 0.4, 0.6), (0, 1, 0.1, 0.3), (1, 0, 0.4, 0.9), (1, 1, 0.1, 0.6))
    found = ROUTERS[router].choose(offered, random.Random(0))
    assert (found.urgency, found.instance) == chosen


def test_loads_that_sum_to_one_fit_and_a_little_more_does_not() -> None:
    tenth = sum([0.1] * 10)
    assert all(p.fits for p in placements((0, 0, 0.9, tenth), (0, 0, 0.0, 1.7)))
    assert not any(p.fits for p in placements((0, 0, 0.9, 1.01)))


def test_students_t_over_days() -> None:
    """1, 2, 3: mean 2, deviation 1, t(2) at 95 % = 4.3027 over root three."""
    found = Mean.of([1.0, 2.0, 3.0], 0.95)
    assert (found.point, found.days) == (2.0, 3)
    assert found.high == pytest.approx(2 + 4.3027 / np.sqrt(3), abs=1e-4)
    assert Mean.of([1.0], 0.95).low is None
    assert Mean.of([0.0, 0.1], 0.95).within(0.0, 1.0).low == 0.0


@pytest.fixture(scope="module")
def proposal() -> dict[tuple[int, float, str, str], Found]:
    """The proposal's two patterns, as shipped, on fewer and shorter days."""
    path = PROJECT_ROOT / "config" / "fleet_proposal.yaml"
    study = load_study(path)
    profiles = given_profiles(study, str(path))
    study = replace(study, loads=(0.7,), days=20, duration_s=400.0)
    found = run_study(study, [Member("given", None, profiles)], slos(study, None), map)
    return {
        (f.setting.instances, f.setting.load, f.setting.policy.router, f.setting.policy.queue): f
        for f in found
    }


def difference(one: Sequence[float], other: Sequence[float]) -> Mean:
    """Day by day, at 99 %."""
    return Mean.of(np.array(one) - np.array(other), 0.99)


def test_waiting_is_ordered_as_the_proposal_says(
    proposal: dict[tuple[int, float, str, str], Found],
) -> None:
    """Two instances: binpack < least load (pull) < least load (push) < random, told apart from zero on the same days."""
    order = ("binpack_pull", "least_load_pull", "least_load_push", "random_push")
    waits = [proposal[2, 0.7, router, "fifo"].by_day["wait_mean_s"] for router in order]
    for better, worse in pairwise(waits):
        found = difference(worse, better)
        assert found.low is not None and found.low > 0, found


def test_a_line_per_pattern_misses_fewer_slos(proposal: dict[tuple[int, float, str, str], Found]) -> None:
    """With one instance, where every router is the same, and with two wherever requests are pushed."""
    for n, router in ((1, "least_load_push"), (2, "random_push"), (2, "least_load_push")):
        simple, lines = (proposal[n, 0.7, router, q].by_day["violations"] for q in ("fifo", "by_pattern"))
        found = difference(simple, lines)
        assert found.low is not None and found.low > 0, (n, router, found)


def test_one_instance_leaves_a_router_nothing_to_choose(
    proposal: dict[tuple[int, float, str, str], Found],
) -> None:
    """Pushed or pulled, in order of arrival the same requests start at the same times."""
    waits = [proposal[1, 0.7, router, "fifo"].by_day["wait_mean_s"] for router in ROUTERS]
    assert all(w == waits[0] for w in waits)
