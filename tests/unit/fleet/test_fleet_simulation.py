"""The fleet against queueing theory, and its gateway against cases worked out by hand."""

import heapq
import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest

from connector_tax.base.documents.fleet import Policy, Profile
from connector_tax.base.units import NS_PER_S
from connector_tax.fleet.policies import QUEUES, Pattern
from connector_tax.fleet.simulation import Day, Instance, ProfileInstance, arrivals, simulate

ONE = Profile(rate_per_s=2.0, e2e_s=0.5)
FOUR = Profile(rate_per_s=8.0, e2e_s=0.5)


def fleet(n: int, **profiles: Profile) -> Callable[[str], Sequence[Instance]]:
    return lambda queue: [ProfileInstance(profiles, QUEUES[queue]()) for _ in range(n)]


def day(
    patterns: list[Pattern],
    instances: Callable[[str], Sequence[Instance]],
    router: str = "least_load_push",
    queue: str = "fifo",
    *,
    duration_s: float = 20_000.0,
    seed: int = 1,
) -> Day:
    end_s = 100.0 + duration_s
    due = arrivals(patterns, end_s + 100.0, seed)
    policy = Policy(router, queue)
    return simulate(due, instances(queue), policy, begin_s=100.0, end_s=end_s, seed=seed)


def waits_s(found: Day) -> list[float]:
    return [((r.t_start_ns or 0) - r.t_sched_ns) / NS_PER_S for r in found.requests]


def pattern(rate_per_s: float, name: str = "short", slo_s: float = 2.0) -> Pattern:
    return Pattern(name, 256, 16, rate_per_s, slo_s)


@pytest.mark.parametrize("utilisation", [0.3, 0.6, 0.8])
def test_one_server_of_one_waits_as_pollaczek_and_khinchine_say(utilisation: float) -> None:
    """M/D/1: the mean wait is rho S / 2(1 - rho)."""
    found = day([pattern(2.0 * utilisation)], fleet(1, short=ONE), duration_s=60_000.0)
    expected_s = utilisation * 0.5 / (2 * (1 - utilisation))
    assert float(np.mean(waits_s(found))) == pytest.approx(expected_s, rel=0.05)
    # In the fleet are those being served and those that wait.
    assert found.loads[0] == pytest.approx(utilisation * (1 + expected_s / 0.5), rel=0.05)


@pytest.mark.parametrize(("n", "profile"), [(1, FOUR), (4, ONE)])
def test_four_servers_and_one_line_wait_as_the_recursion_says(n: int, profile: Profile) -> None:
    """Kiefer and Wolfowitz: the next in line starts on the server that is free first; request by request the same.

    One instance of capacity four and four of capacity one with a line at the gateway are both that.
    """
    traffic = [pattern(7.0)]
    found = day(traffic, fleet(n, short=profile), "least_load_pull", duration_s=2_000.0)
    free_ns = [0] * 4
    expected = []
    for at_ns, _ in arrivals(traffic, 2_200.0, 1):
        start_ns = max(at_ns, heapq.heappop(free_ns))
        heapq.heappush(free_ns, start_ns + NS_PER_S // 2)
        if 100 * NS_PER_S <= at_ns < 2_100 * NS_PER_S:
            expected.append(start_ns)
    assert [r.t_start_ns for r in found.requests] == expected


def test_pushed_at_random_each_instance_is_a_queue_of_its_own() -> None:
    found = day([pattern(4 * 2.0 * 0.6)], fleet(4, short=ONE), "random_push", duration_s=20_000.0)
    assert float(np.mean(waits_s(found))) == pytest.approx(0.6 * 0.5 / (2 * 0.4), rel=0.05)
    share = np.bincount([r.instance for r in found.requests if r.instance is not None]) / len(found.requests)
    assert share == pytest.approx(0.25, abs=0.01)


def test_the_published_examples_of_capacity() -> None:
    """Requests in flight of 256/16 at 4 req/s and 0.5 s, of 4096/32 at 1 req/s and 5 s."""
    assert Profile(4.0, 0.5).capacity == 2.0 and Profile(4.0, 0.5).load == 0.5
    assert Profile(1.0, 5.0).capacity == 5.0 and Profile(1.0, 5.0).load == 0.2


def test_every_request_ends_and_none_twice() -> None:
    traffic = [pattern(3.0), pattern(0.5, "long", 20.0)]
    for router in ("random_push", "least_load_push", "least_load_pull", "binpack_pull"):
        for queue in ("fifo", "by_pattern"):
            instances = fleet(2, short=ONE, long=Profile(1.0, 5.0))
            found = day(traffic, instances, router, queue, duration_s=500.0)
            assert [r.seq for r in found.requests] == sorted({r.seq for r in found.requests})
            assert all(r.t_end_ns is not None and r.t_start_ns is not None for r in found.requests)
            assert all((r.t_start_ns or 0) >= r.t_sched_ns for r in found.requests)


def test_an_idle_instance_takes_a_request_larger_than_itself() -> None:
    """Capacity 0.5: one request is two instances' worth of load, and is served all the same, one at a time."""
    found = day([pattern(0.5)], fleet(1, short=Profile(1.0, 0.5)), "least_load_pull", duration_s=100.0)
    assert found.requests and not math.isnan(found.loads[0])
    starts = [r.t_start_ns or 0 for r in found.requests]
    assert all(b - a >= NS_PER_S // 2 for a, b in pairwise(starts))
