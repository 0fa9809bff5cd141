"""Runs a study: every configuration in every fleet, policy and load, on the same simulated days."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec.structs import asdict
from numpy.typing import ArrayLike

from connector_tax.base.documents.fleet import Mean, Policy, Profile, Study, TaxRow
from connector_tax.base.errors import AnalysisError
from connector_tax.base.parallel import Each
from connector_tax.base.seeds import derive_seed
from connector_tax.fleet.calibration import FittedEngine, find_profile
from connector_tax.fleet.policies import QUEUES, Pattern
from connector_tax.fleet.simulation import (
    KEPT_UP,
    Instance,
    ProfileInstance,
    arrivals,
    figures_of,
    mean_of,
    mean_of_shares,
    simulate,
)

PLAIN = "plain"
# Taxes on latencies are relative; taxes on shares are differences.
RELATIVE = ("e2e_mean_s", "e2e_p90_s")
DIFFERENCES = ("violations",)
SHARES = ("violations",)


@dataclass(frozen=True, slots=True)
class Member:
    """A configuration in the study; all instances of a fleet run the same one.

    Attributes:
        engine: None if only profiles are known.
        profiles: by pattern, one per day. A profile found on its own day is used on that day, so that the
            interval includes the profile's uncertainty.
    """

    config: str
    engine: FittedEngine | None
    profiles: Mapping[str, Sequence[Profile]]

    def on(self, day: int) -> dict[str, Profile]:
        return {name: days[day % len(days)] for name, days in self.profiles.items()}

    def instances(self, n: int, policy: Policy, day: int, seed: int) -> Sequence[Instance]:
        profiles = self.on(day)
        if self.engine is None:
            return [ProfileInstance(profiles, QUEUES[policy.queue]()) for _ in range(n)]
        return [self.engine.instance(profiles, derive_seed(seed, "engine", i)) for i in range(n)]


@dataclass(frozen=True, slots=True)
class Setting:
    """A fleet and its offered load; configurations are compared within one setting."""

    instances: int
    policy: Policy
    load: float

    @property
    def flat(self) -> tuple[int, str, str, float]:
        """The fields of a row of ``fleet.json``."""
        return self.instances, self.policy.router, self.policy.queue, self.load


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one configuration in one setting.

    Attributes:
        by_day: metric -> figure of each day; day i has the same arrivals for all configurations.
        by_pattern: the same for each pattern.
    """

    config: str
    setting: Setting
    by_day: dict[str, list[float]]
    by_pattern: dict[str, dict[str, list[float]]]

    @property
    def kept_up(self) -> bool:
        """Whether it is not saturated (docs/measurement.md, first criterion); true without requests."""
        found = mean_of(self.by_day["kept_up"], 0.95)
        return found is None or found.point >= KEPT_UP

    def mean(self, metric: str, confidence: float) -> Mean | None:
        days = self.by_day[metric]
        if metric in SHARES:
            return mean_of_shares(days, self.by_day["requests"], confidence)
        return mean_of(days, confidence)


def slos(study: Study, plain: FittedEngine | None) -> tuple[Pattern, ...]:
    """Return the study's patterns with an SLO each; their rates are weights, scaled later.

    Args:
        plain: gives the SLOs that the study does not; None if it gives all.
    """
    patterns = []
    for spec in study.patterns:
        pattern = Pattern(spec.name, spec.input_tokens, spec.output_tokens, spec.weight, math.inf)
        slo_s = spec.slo_s
        if slo_s is None:
            assert plain is not None
            slo_s = study.slo_factor * plain.idle(pattern, study.seed)["e2e_mean_s"]
        patterns.append(replace(pattern, slo_s=slo_s))
    return tuple(patterns)


def profiles_of(
    engines: Mapping[str, FittedEngine], patterns: Sequence[Pattern], study: Study, each: Each
) -> dict[str, dict[str, list[Profile]]]:
    """Find profiles by configuration and pattern, one per day; none if any day's SLO cannot be kept."""
    jobs = [
        (engine, p, study.violations_allowed, derive_seed(study.seed, "profile", day))
        for engine in engines.values()
        for p in patterns
        for day in range(study.days)
    ]
    results = iter(each(_profile, jobs))
    by_day = {
        config: {p.name: [next(results) for _ in range(study.days)] for p in patterns} for config in engines
    }
    return {
        config: {
            name: [] if None in days else [profile for profile in days if profile is not None]
            for name, days in days_by_pattern.items()
        }
        for config, days_by_pattern in by_day.items()
    }


def _profile(job: tuple[FittedEngine, Pattern, float, int]) -> Profile | None:
    return find_profile(*job)


def offered(
    patterns: Sequence[Pattern], plain: Mapping[str, Profile], instances: int, load: float
) -> list[Pattern]:
    """Scale the patterns' rates to load ``instances`` of plain to ``load`` by plain's profiles."""
    load_at_weights = sum(p.rate_per_s / plain[p.name].rate_per_s for p in patterns)
    scale = load * instances / load_at_weights
    return [replace(p, rate_per_s=p.rate_per_s * scale) for p in patterns]


def run_study(
    study: Study, members: Sequence[Member], patterns: Sequence[Pattern], each: Each
) -> list[Found]:
    """Simulate every member in every setting; loads are relative to the first member.

    Raises:
        AnalysisError: there are no members.
    """
    if not members:
        raise AnalysisError("no configuration can be put into a fleet; the reasons stand beside each.")
    settings = [
        Setting(n_instances, policy, load)
        for n_instances in study.instances
        for policy in study.policies
        for load in study.loads
    ]
    jobs = [
        (
            study,
            member,
            setting,
            tuple(offered(patterns, members[0].on(day), setting.instances, setting.load)),
            day,
        )
        for member in members
        for setting in settings
        for day in range(study.days)
    ]
    results = iter(each(_one_day, jobs))
    return [
        _gathered(member.config, setting, [next(results) for _ in range(study.days)])
        for member in members
        for setting in settings
    ]


def taxes(outcomes: Sequence[Found], confidence: float) -> list[TaxRow]:
    """Compare every configuration with plain, day by day: ratios less one, and differences of shares.

    There is no row if one of the two is saturated: its waiting would reflect the day's length.
    """
    plain = {f.setting: f for f in outcomes if f.config == PLAIN}
    rows = []
    for outcome in outcomes:
        base = plain.get(outcome.setting)
        if outcome.config == PLAIN or base is None or not (outcome.kept_up and base.kept_up):
            continue
        for metric in (*RELATIVE, *DIFFERENCES):
            values, base_values = (np.array(f.by_day[metric]) for f in (outcome, base))
            mean = (
                ratio_less_one(values, base_values, confidence)
                if metric in RELATIVE
                else mean_of(values - base_values, confidence)
            )
            if mean is not None:
                rows.append(TaxRow(outcome.config, *outcome.setting.flat, metric, **asdict(mean)))
    return rows


def ratio_less_one(values: ArrayLike, base_values: ArrayLike, confidence: float) -> Mean | None:
    """Return the mean of paired ratios less one, with Student's t on the logarithm."""
    ratio = mean_of(np.log(np.asarray(values) / np.asarray(base_values)), confidence)
    if ratio is None:
        return None
    low, high = (None if v is None else math.expm1(v) for v in (ratio.low, ratio.high))
    return Mean(math.expm1(ratio.point), low, high, ratio.days)


_Job = tuple[Study, Member, Setting, tuple[Pattern, ...], int]
_Figures = dict[str, float]


def _one_day(job: _Job) -> tuple[_Figures, dict[str, _Figures]]:
    study, member, setting, traffic, day = job
    seed = derive_seed(study.seed, "day", day)
    end_s = study.warmup_s + study.duration_s
    result = simulate(
        # Arrivals go on for another warm-up after the window, so its last requests also meet others.
        arrivals(traffic, end_s + study.warmup_s, seed),
        member.instances(setting.instances, setting.policy, day, seed),
        setting.policy,
        begin_s=study.warmup_s,
        end_s=end_s,
        seed=seed,
    )
    by_pattern = {
        p.name: figures_of(result, study.duration_s, [r for r in result.requests if r.pattern.name == p.name])
        for p in traffic
    }
    return figures_of(result, study.duration_s), by_pattern


def _gathered(config: str, setting: Setting, days: Sequence[tuple[_Figures, dict[str, _Figures]]]) -> Found:
    totals, patterns = zip(*days, strict=True)
    by_pattern = {name: _columns([day[name] for day in patterns]) for name in patterns[0]}
    return Found(config, setting, _columns(totals), by_pattern)


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    return {name: [row[name] for row in rows] for name in rows[0]}
