"""What docs/fleet.md says of pushing routers and of bin packing, simulated: the tax by fleet size, and urgency before room.

    .venv/bin/python tests/perf/fleet_claims.py [--days 10] [--only size|urgency]

``size`` puts the demo's plain vLLM and its Mooncake in both roles, as config/engine_model_demo.yaml has them, into fleets of
one and eight; the one is watched eight times as long, so that both see as many requests. ``urgency`` runs the proposal's
four patterns on four instances at load 0.9 with a bin-packing router that ranks urgency before room, beside the one that is
shipped, which ranks room first.
"""

import argparse
import random
from collections.abc import Sequence

from msgspec.structs import replace

from connector_tax.base.config.checked import PROJECT_ROOT, read_yaml
from connector_tax.base.documents.fleet import Policy, Profile, Study
from connector_tax.base.parallel import Each, cores, each_in
from connector_tax.base.seeds import derive_seed
from connector_tax.base.vllm_model.costs import load_costs
from connector_tax.fleet.calibration import FittedEngine, find_profile
from connector_tax.fleet.policies import ROUTERS, Placement, Router
from connector_tax.fleet.run import Found, Member, run_study, slos, taxes
from connector_tax.fleet.study import given_profiles, load_study

CONFIG = PROJECT_ROOT / "config"
TAXED = "mooncake_both"
MANY = 8


def engine_of(connector: str) -> FittedEngine:
    """The true one, as the cost model has it; nothing is fitted."""
    kv = read_yaml(CONFIG / "connectors.yaml")[connector]["kv_transfer_config"]
    costs, per_connector = load_costs(CONFIG / "engine_model_demo.yaml", kv)
    return FittedEngine(costs, per_connector, 0.0, 8192)


def by_size(days: int, loads: Sequence[float], each: Each) -> list[Found]:
    """Plain and the taxed one, alone and in fleets of ``MANY``, pushed at random and to where load is least."""
    study = replace(load_study(CONFIG / "fleet_demo.yaml"), days=days, loads=tuple(loads), warmup_s=5.0)
    engines = {config: engine_of(config) for config in ("plain", TAXED)}
    patterns = slos(study, engines["plain"])
    # One day's profiles for all days: loads are the same in every setting then, whatever a profile's scatter.
    seed = derive_seed(study.seed, "profile", 0)
    profiles: dict[str, dict[str, list[Profile]]] = {config: {} for config in engines}
    for config, engine in engines.items():
        for pattern in patterns:
            profile = find_profile(engine, pattern, study.violations_allowed, seed)
            assert profile is not None, f"{config} keeps {pattern.name}'s SLO at no rate"
            profiles[config][pattern.name] = [profile]
    members = [Member(config, engine, profiles[config]) for config, engine in engines.items()]
    push = (Policy("random_push", "fifo"), Policy("least_load_push", "fifo"))
    alone = replace(study, instances=(1,), policies=push[:1], duration_s=MANY * study.duration_s)
    together = replace(study, instances=(MANY,), policies=push)
    return [found for one in (alone, together) for found in run_study(one, members, patterns, each)]


def urgent_best_fit(placements: Sequence[Placement], rng: random.Random) -> Placement:
    """The most urgent request, where it leaves least room."""
    return min(placements, key=lambda p: (p.urgency, -p.load_after, p.instance))


def urgency_first(study: Study) -> dict[str, Found]:
    """By what was done: the shipped routers, and bin packing with urgency before room in place of the shipped one."""
    members = [Member("given", None, given_profiles(study, "the proposal"))]
    patterns = slos(study, None)
    found = {f"{p.router} {p.queue}": _one(study, p, members, patterns) for p in study.policies}
    shipped = ROUTERS["binpack_pull"]
    ROUTERS["binpack_pull"] = Router(True, urgent_best_fit)
    try:
        policy = Policy("binpack_pull", "by_pattern")
        return {**found, "urgency before room": _one(study, policy, members, patterns)}
    finally:
        ROUTERS["binpack_pull"] = shipped


def _one(study: Study, policy: Policy, members: list[Member], patterns: Sequence) -> Found:  # type: ignore[type-arg]
    return run_study(replace(study, policies=(policy,)), members, patterns, map)[0]


def proposal(days: int, duration_s: float = 600.0) -> Study:
    study = load_study(CONFIG / "fleet_proposal_workload.yaml")
    binpack = (Policy("binpack_pull", "fifo"), Policy("binpack_pull", "by_pattern"))
    pulled = (Policy("least_load_pull", "by_pattern"),)
    return replace(
        study, instances=(4,), loads=(0.9,), days=days, duration_s=duration_s, policies=binpack + pulled
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--only", choices=["size", "urgency"])
    args = parser.parse_args()
    if args.only != "urgency":
        with each_in(cores()) as each:
            found = by_size(args.days, (0.5, 0.7, 0.9), each)
        print(f"tax of {TAXED}, E2E, {args.days} days, 95 %")
        for tax in taxes(found, 0.95):
            where = f"{tax.instances} instances, {tax.router}, load {tax.load:g}"
            m = tax.mean
            print(f"  {where:<45} {tax.metric:<12} {m.point:+.1%} [{m.low:+.1%}, {m.high:+.1%}]")
        print("did not keep up:", [(f.config, f.setting) for f in found if not f.kept_up])
    if args.only != "size":
        print(f"the proposal's four patterns on four instances at load 0.9, {2 * args.days} days of 600 s")
        for what, one in urgency_first(proposal(2 * args.days)).items():
            wait, missed = one.mean("wait_mean_s", 0.95), one.mean("violations", 0.95)
            assert wait is not None and missed is not None
            print(
                f"  {what:<28} waits {wait.point:.2f} s [{wait.low:.2f}, {wait.high:.2f}], misses {missed.point:.2%} [{missed.low:.2%}, {missed.high:.2%}]"
            )


if __name__ == "__main__":
    main()
