"""Queues and routers by hand, the orderings that the published proposal reports, and what docs/fleet.md says of pushing and of bin packing."""

import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.fleet import Mean, Policy, Profile
from connector_tax.fleet.policies import QUEUES, ROUTERS, Pattern, Placement, Request, Router
from connector_tax.fleet.run import Found, Member, Setting, run_study, slos, taxes
from connector_tax.fleet.simulation import Day, figures_of, mean_of, mean_of_shares
from connector_tax.fleet.study import given_profiles, load_study

S = 1_000_000_000
Proposal = dict[tuple[int, float, str, str], Found]
SHORT = Pattern("short", 256, 16, 4.0, slo_s=2.0)
LONG = Pattern("long", 4096, 32, 0.5, slo_s=20.0)


def request(seq: int, pattern: Pattern, at_s: float, expected_s: float) -> Request:
    return Request(seq, pattern, round(at_s * S), round(expected_s * S))


def test_the_head_that_would_miss_its_slo_by_most_is_named_first() -> None:
    """At 3 s: short waited 2.2 + 0.5 - 2 = 0.7 s too long; long 3 + 5 - 20 = 12 s to spare. At 16.2 s both miss nothing more
    urgently than short: 13.9 against 1.2."""
    queue = QUEUES["by_pattern"]()
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


def mean(values: Sequence[float], confidence: float = 0.95) -> Mean:
    return mean_of(values, confidence)  # type: ignore[return-value]


def test_students_t_over_days() -> None:
    """1, 2, 3: mean 2, deviation 1, t(2) at 95 % = 4.3027 over root three. A day without the figure is no day."""
    found = mean([1.0, np.nan, 2.0, 3.0])
    assert (found.point, found.days) == (2.0, 3)
    assert found.high == pytest.approx(2 + 4.3027 / np.sqrt(3), abs=1e-4)
    assert mean([1.0]).low is None
    assert mean_of([np.nan, np.nan], 0.95) is None


def test_a_share_that_was_never_seen_has_an_upper_end() -> None:
    """0 of 300: Clopper and Pearson's 1 - 0.025 ** (1 / 300) = 1.22 %; and no share is below 0 or above 1."""
    found = mean_of_shares([0.0, 0.0], [100, 200], 0.95)
    assert found is not None and (found.low, found.high) == (0.0, pytest.approx(0.01222, abs=1e-4))
    found = mean_of_shares([1.0, 1.0], [100, 200], 0.95)
    assert found is not None and (found.low, found.high) == (pytest.approx(0.98778, abs=1e-4), 1.0)
    found = mean_of_shares([0.0, 0.1], [100, 100], 0.95)
    assert found is not None and found.low == 0.0


def test_the_figures_of_a_day_by_hand() -> None:
    """Four requests, two within 2 s; half a load on one instance and 1.5 on the other."""
    requests = [request(k, SHORT, k, 0.5) for k in range(4)]
    for r, (wait_s, e2e_s) in zip(requests, [(0, 1), (0, 2), (1, 3), (3, 4)], strict=True):
        r.t_start_ns, r.t_end_ns = r.t_sched_ns + wait_s * S, r.t_sched_ns + e2e_s * S
    found = figures_of(Day(requests, 3, [0.5, 1.5]), 10.0)
    assert found == {
        "requests": 4,
        "wait_mean_s": 1.0,
        "wait_p90_s": pytest.approx(2.4),
        "e2e_mean_s": 2.5,
        "e2e_p90_s": pytest.approx(3.7),
        "violations": 0.5,
        "goodput_per_s": 0.2,
        "kept_up": 0.75,
        "hotspot": 1.5,
    }
    assert np.isnan(figures_of(Day([], 0, [0.0, 0.0]), 10.0)["e2e_p90_s"])


def found_of(config: str, e2e_s: list[float], kept_up: float = 1.0) -> Found:
    by_day = {"e2e_mean_s": e2e_s, "e2e_p90_s": e2e_s, "violations": [0.1, 0.2], "kept_up": [kept_up] * 2}
    return Found(config, Setting(1, Policy("random_push", "fifo"), 0.5), by_day, {})


def test_a_tax_is_taken_day_by_day_and_only_where_both_keep_up() -> None:
    """Twice as slow on both days, though the days differ: +100 %, and no width."""
    rows = taxes([found_of("plain", [1.0, 3.0]), found_of("x", [2.0, 6.0])], 0.95)
    own = next(t for t in rows if t.metric == "e2e_p90_s").mean
    assert (own.point, own.low, own.high) == (pytest.approx(1.0), pytest.approx(1.0), pytest.approx(1.0))
    for plain_kept, own_kept in ((0.9, 1.0), (1.0, 0.9)):
        assert (
            taxes([found_of("plain", [1.0, 3.0], plain_kept), found_of("x", [2.0, 6.0], own_kept)], 0.95)
            == []
        )


def test_every_configuration_and_policy_has_the_same_days() -> None:
    """Instances that differ in speed get the same requests at the same times, and days differ."""
    path = PROJECT_ROOT / "config" / "fleet_proposal.yaml"
    study = replace(load_study(path), loads=(0.5,), days=2, duration_s=100.0, instances=(2,))
    profiles = given_profiles(study, str(path))
    slower = {name: [replace(days[0], e2e_s=2 * days[0].e2e_s)] for name, days in profiles.items()}
    members = [Member("plain", None, profiles), Member("slow", None, slower)]
    found = run_study(study, members, slos(study, None), map)
    counts = {tuple(f.by_day["requests"]) for f in found}
    assert len(counts) == 1
    first, second = counts.pop()
    assert first != second


@pytest.fixture(scope="module")
def proposal() -> Proposal:
    """The proposal's two patterns, as shipped, on fewer and shorter days."""
    path = PROJECT_ROOT / "config" / "fleet_proposal.yaml"
    study = load_study(path)
    profiles = given_profiles(study, str(path))
    policies = tuple(p for p in study.policies if p.queue == "fifo" or p.router.endswith("push"))
    study = replace(study, loads=(0.7,), days=20, duration_s=400.0, policies=policies)
    found = run_study(study, [Member("given", None, profiles)], slos(study, None), map)
    return {
        (f.setting.instances, f.setting.load, f.setting.policy.router, f.setting.policy.queue): f
        for f in found
    }


def difference(one: Sequence[float], other: Sequence[float]) -> Mean:
    """Day by day, at 99 %."""
    return mean([a - b for a, b in zip(one, other, strict=True)], 0.99)


def test_waiting_is_ordered_as_the_proposal_says(
    proposal: Proposal,
) -> None:
    """Two instances: binpack < least load (pull) < least load (push) < random, told apart from zero on the same days."""
    order = ("binpack_pull", "least_load_pull", "least_load_push", "random_push")
    waits = [proposal[2, 0.7, router, "fifo"].by_day["wait_mean_s"] for router in order]
    for better, worse in pairwise(waits):
        found = difference(worse, better)
        assert found.low is not None and found.low > 0, found


def test_a_line_per_pattern_misses_fewer_slos(proposal: Proposal) -> None:
    """With one instance, where every router is the same, and with two wherever requests are pushed."""
    for n, router in ((1, "least_load_push"), (2, "random_push"), (2, "least_load_push")):
        simple, lines = (proposal[n, 0.7, router, q].by_day["violations"] for q in ("fifo", "by_pattern"))
        found = difference(simple, lines)
        assert found.low is not None and found.low > 0, (n, router, found)


def test_one_instance_leaves_a_router_nothing_to_choose(
    proposal: Proposal,
) -> None:
    """Pushed or pulled, in order of arrival the same requests start at the same times."""
    waits = [proposal[1, 0.7, router, "fifo"].by_day["wait_mean_s"] for router in ROUTERS]
    assert all(w == waits[0] for w in waits)


PATTERN = Pattern("one", 1, 1, 1.0, slo_s=1e9)
# One request at a time, 1 s each; the taxed one takes 10 % longer.
SERVICE_S = {"plain": 1.0, "taxed": 1.1}
LOAD = 0.8


def tax(router: str, instances: int) -> tuple[float, float]:
    """Of mean E2E latency, its 99 % interval over days; as many requests whatever the fleet's size."""
    study = load_study(PROJECT_ROOT / "config" / "fleet_demo.yaml")
    study = replace(
        study,
        instances=(instances,),
        policies=(Policy(router, "fifo"),),
        loads=(LOAD,),
        days=8,
        warmup_s=50.0,
        duration_s=3000 / instances,
    )
    members = [Member(name, None, {"one": [Profile(1 / s, s)]}) for name, s in SERVICE_S.items()]
    found = taxes(run_study(study, members, [PATTERN], map), 0.99)
    mean = next(t.mean for t in found if t.metric == "e2e_mean_s")
    return mean.low, mean.high


def test_pushed_at_random_a_tax_is_the_same_in_eight_as_in_one_and_pushed_to_least_load_it_is_not() -> None:
    """A Poisson stream dealt out at random is a Poisson stream to each (M/D/1, Pollaczek and Khinchine). Least load makes
    the eight one pool, where little waits, so most of what waiting adds to the tax is gone."""
    sojourn = {name: s * (1 + LOAD * s / (2 * (1 - LOAD * s))) for name, s in SERVICE_S.items()}
    theory = sojourn["taxed"] / sojourn["plain"] - 1
    for instances in (1, 8):
        low, high = tax("random_push", instances)
        assert low < theory < high, instances
    low, high = tax("least_load_push", 8)
    assert SERVICE_S["taxed"] - 1 < low < high < 0.7 * theory


def urgent_best_fit(placements: Sequence[Placement], rng: random.Random) -> Placement:
    return min(placements, key=lambda p: (p.urgency, -p.load_after, p.instance))


def test_bin_packing_misses_slos_by_ranking_room_before_urgency(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a line per pattern. The same router that asks for urgency first misses none of the same requests."""
    path = PROJECT_ROOT / "config" / "fleet_proposal_workload.yaml"
    study = load_study(path)
    members = [Member("given", None, given_profiles(study, str(path)))]
    binpack = Policy("binpack_pull", "by_pattern")
    study = replace(study, loads=(0.9,), days=4, duration_s=400.0, policies=(binpack,))

    def missed() -> float:
        found: Found = run_study(study, members, slos(study, None), map)[0]
        return sum(found.by_day["violations"]) / study.days

    shipped = missed()
    monkeypatch.setitem(ROUTERS, "binpack_pull", Router(True, urgent_best_fit))
    assert shipped > 0.01
    assert missed() < shipped / 10
