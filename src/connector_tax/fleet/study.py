"""What is to be simulated: one YAML file to a frozen study."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector_tax.base.config.checked import checked, read_yaml
from connector_tax.base.errors import ConfigError
from connector_tax.fleet.patterns import Profile
from connector_tax.fleet.simulation import Policy


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pattern as it was asked for.

    Attributes:
        weight: arrivals relative to those of the other patterns.
        slo_s, profile: None where a campaign is to say.
    """

    name: str
    input_tokens: int
    output_tokens: int
    weight: float
    slo_s: float | None
    profile: Profile | None


@dataclass(frozen=True, slots=True)
class Study:
    """Every fleet, load and policy; names as in ``workflow/schemas/fleet.schema.yaml``."""

    seed: int
    instances: tuple[int, ...]
    patterns: tuple[Wanted, ...]
    slo_factor: float
    violations_allowed: float
    loads: tuple[float, ...]
    policies: tuple[Policy, ...]
    warmup_s: float
    duration_s: float
    days: int
    confidence: float


def load_study(path: Path) -> Study:
    """Read and check one file.

    Raises:
        ConfigError: unreadable, not YAML, or not a valid study; names key, value and remedy.
    """
    value = checked(read_yaml(path), "fleet", str(path))
    patterns = tuple(_wanted(p) for p in value["patterns"])
    if (shortest := 5 * max((p.slo_s or 0.0) for p in patterns)) > value["duration_s"]:
        raise ConfigError(
            f"{path}: duration_s: {value['duration_s']:g} is shorter than five times the longest slo_s ({shortest:g} s in all); "
            "what comes in such a window says nothing of what leaves it."
        )
    names = [p.name for p in patterns]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise ConfigError(f"{path}: patterns: {twice[0]!r} is there twice; give each a name of its own.")
    return Study(
        **{
            **value,
            "instances": tuple(value["instances"]),
            "patterns": patterns,
            "loads": tuple(sorted(map(float, value["loads"]))),
            "policies": tuple(Policy(**p) for p in value["policies"]),
        }
    )


def given_profiles(study: Study, where: str) -> dict[str, list[Profile]]:
    """Profiles by pattern, the same on every day, of a study that needs no campaign.

    Raises:
        ConfigError: a pattern has no profile or no SLO.
    """
    found = {}
    for pattern in study.patterns:
        if pattern.profile is None or pattern.slo_s is None:
            raise ConfigError(
                f"{where}: patterns: {pattern.name!r} has no profile or no slo_s. Give both for every pattern, or a "
                "measured campaign with --root, from which they are found."
            )
        if pattern.slo_s < pattern.profile.e2e_s:
            raise ConfigError(
                f"{where}: patterns: {pattern.name!r} takes {pattern.profile.e2e_s:g} s by its profile, and its slo_s is "
                f"{pattern.slo_s:g}: every request would miss it. A profile's e2e_s is that at a rate that keeps the SLO."
            )
        found[pattern.name] = [pattern.profile]
    return found


def _wanted(value: dict[str, Any]) -> Wanted:
    profile = value["profile"]
    return Wanted(**{**value, "profile": None if profile is None else Profile(**profile)})
