"""What docs/fleet.md says of pushing and of bin packing, on instances whose waiting can be worked out."""

import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.fleet import Policy, Profile
from connector_tax.fleet.patterns import Pattern
from connector_tax.fleet.routers import ROUTERS, Placement, Router
from connector_tax.fleet.run import Found, Member, run_study, slos, taxes
from connector_tax.fleet.study import given_profiles, load_study

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
        duration_s=6000 / instances,
    )
    members = [Member(name, None, {"one": [Profile(1 / s, s)]}) for name, s in SERVICE_S.items()]
    found = taxes(run_study(study, members, [PATTERN], map), 0.99)
    mean = next(t.mean for t in found if t.metric == "e2e_mean_s")
    assert mean.low is not None and mean.high is not None
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
