"""Reads a study from a YAML file."""

from pathlib import Path

from msgspec.structs import replace

from connector_tax.base.config.checked import checked, read_yaml
from connector_tax.base.documents.fleet import Profile, Study
from connector_tax.base.errors import ConfigError


def load_study(path: Path) -> Study:
    """Read and check a study.

    Raises:
        ConfigError: unreadable, not YAML, or not a valid study; names key, value and remedy.
    """
    study = checked(read_yaml(path, "config/fleet_demo.yaml"), Study, str(path))
    if (shortest := 5 * max((p.slo_s or 0.0) for p in study.patterns)) > study.duration_s:
        raise ConfigError(
            f"{path}: duration_s: {study.duration_s:g} is shorter than five times the longest slo_s"
            f" ({shortest:g} s in all); what comes in such a window says nothing of what leaves it."
        )
    names = [p.name for p in study.patterns]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise ConfigError(f"{path}: patterns: {twice[0]!r} is there twice; give each a name of its own.")
    return replace(study, loads=tuple(sorted(study.loads)))


def given_profiles(study: Study, where: str) -> dict[str, list[Profile]]:
    """Return the profiles that a study gives by pattern, the same on every day.

    Raises:
        ConfigError: a pattern has no profile or no SLO.
    """
    profiles = {}
    for pattern in study.patterns:
        if pattern.profile is None or pattern.slo_s is None:
            raise ConfigError(
                f"{where}: patterns: {pattern.name!r} has no profile or no slo_s. Give both for every"
                " pattern, or a measured campaign, from which they are found."
            )
        if pattern.slo_s < pattern.profile.e2e_s:
            raise ConfigError(
                f"{where}: patterns: {pattern.name!r} takes {pattern.profile.e2e_s:g} s by its profile, and"
                f" its slo_s is {pattern.slo_s:g}: every request would miss it. A profile's e2e_s is that at"
                " a rate that keeps the SLO."
            )
        profiles[pattern.name] = [pattern.profile]
    return profiles
