"""A measured campaign to members of fleets: calibrate, take an SLO from plain, find each profile."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from connector_tax.errors import AnalysisError
from connector_tax.fleet.calibration import Calibration, calibrate
from connector_tax.fleet.patterns import Pattern, Profile
from connector_tax.fleet.run import PLAIN, Member, mean_profile, profiles_of, slos
from connector_tax.fleet.study import Study
from connector_tax.ingest import read_campaign
from connector_tax.ingest.cells import CellData
from connector_tax.processes import Each

# A model that misses what was measured by more than this at the median says nothing of other loads.
BELIEVABLE = 0.25


@dataclass(frozen=True, slots=True)
class Source:
    """Where profiles came from.

    Attributes:
        campaign: None where they were given.
        calibrations: by configuration, those left out too.
        left_out: configuration -> why it is in no fleet.
    """

    campaign: str | None
    calibrations: Mapping[str, Calibration]
    left_out: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a campaign gives a study.

    Attributes:
        profiles: by configuration and pattern, one of each day; none where it misses its SLO even when idle.
        members: plain first.
    """

    source: Source
    patterns: tuple[Pattern, ...]
    profiles: dict[str, dict[str, list[Profile]]]
    members: tuple[Member, ...]


def members_of(root: Path, study: Study, each: Each) -> Measured:
    """Fit every configuration of the campaign at ``root``.

    Raises:
        ArtifactError: there is no campaign.
        AnalysisError: plain cannot be modelled, or misses an SLO even when idle; nothing can be compared then.
    """
    data = read_campaign(root)
    args = data.document["config"]["engine"]["args"]
    cells: dict[str, list[CellData]] = {}
    for cell in data.cells():
        cells.setdefault(cell.config, []).append(cell)
    calibrations: dict[str, Calibration] = {}
    left_out: dict[str, str] = {}
    for config in sorted(cells, key=lambda c: (c != PLAIN, c)):
        try:
            found = calibrate(cells[config], args, study.seed)
        except AnalysisError as error:
            left_out[config] = str(error)
            continue
        calibrations[config] = found
        if not found.typical_error <= BELIEVABLE:
            left_out[config] = (
                f"its model misses the measured latencies by {found.typical_error:.0%} at the median; up to "
                f"{BELIEVABLE:.0%} is taken for a likeness"
            )
    believable = {c: found.engine for c, found in calibrations.items() if c not in left_out}
    if PLAIN not in believable:
        raise AnalysisError(
            f"{root}: plain cannot be put into a fleet: {left_out.get(PLAIN, 'it has no cells')}"
        )
    patterns = slos(study, believable[PLAIN])
    profiles = profiles_of(believable, patterns, study, each)
    for config, own in profiles.items():
        if missing := [name for name, days in own.items() if not days]:
            left_out[config] = f"misses the SLO of {', '.join(missing)} even when idle, so it has no profile"
    if PLAIN in left_out:
        raise AnalysisError(f"plain {left_out[PLAIN]}. Give a larger slo_s, or slo_factor.")
    members = tuple(
        Member(config, engine, {name: mean_profile(days) for name, days in profiles[config].items()})
        for config, engine in believable.items()
        if config not in left_out
    )
    source = Source(str(data.document["campaign"]), calibrations, left_out)
    return Measured(source, patterns, profiles, members)
