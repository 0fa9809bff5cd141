"""Turns a measured campaign into fleet members: fits engines, derives SLOs from plain, finds profiles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.documents.fleet import Profile, Study
from connector_tax.base.errors import AnalysisError, ConfigError
from connector_tax.base.parallel import Each
from connector_tax.base.units import token_count
from connector_tax.fleet.calibration import Calibration, calibrate, resolved_of
from connector_tax.fleet.policies import Pattern
from connector_tax.fleet.run import PLAIN, Member, profiles_of, slos
from connector_tax.read.ingest import CampaignData, read_campaign
from connector_tax.read.ingest.cells import CellData

CLOCKED = (
    "measured on a virtual GPU: its steps last as long as a profile says, hooks as long as they took on that"
    " host"
)
# A model with a larger median error is not used to predict other loads.
BELIEVABLE = 0.25


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of the profiles.

    Attributes:
        campaign: None if the profiles were given.
        calibrations: by configuration, excluded ones too.
        left_out: configuration -> reason.
    """

    campaign: str | None
    calibrations: Mapping[str, Calibration]
    left_out: Mapping[str, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """A study's input from a campaign.

    Attributes:
        profiles: by configuration and pattern, one per day; empty if the SLO cannot be kept.
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
        ConfigError: the campaign cannot provide what the study asks for.
        AnalysisError: plain cannot be modelled or cannot keep an SLO, so there is no baseline.
    """
    if with_profiles := [p.name for p in study.patterns if p.profile is not None]:
        raise ConfigError(
            f"pattern {with_profiles[0]!r} has a profile of its own, but a campaign is given, from which"
            " profiles are found. Take the profile out, or leave the campaign out."
        )
    data = read_campaign(root)
    _check_lengths(data, study)
    cells: dict[str, list[CellData]] = {}
    for cell in data.cells():
        cells.setdefault(cell.config, []).append(cell)
    calibrations: dict[str, Calibration] = {}
    left_out: dict[str, str] = {}
    order = [PLAIN, *(connector_id for connector_id in data.config.connector_ids if connector_id != PLAIN)]
    for config in (c for c in order if c in cells):
        try:
            calibration = calibrate(cells[config], resolved_of(data, config), study.seed)
        except AnalysisError as error:
            left_out[config] = str(error)
            continue
        calibrations[config] = calibration
        if too_long := [
            p.name for p in study.patterns if not calibration.engine.fits(p.input_tokens, p.output_tokens)
        ]:
            left_out[config] = f"its KV memory is too small for one request of {', '.join(too_long)}"
        elif calibration.typical_error > BELIEVABLE:
            left_out[config] = (
                f"its model misses the measured latencies by {calibration.typical_error:.0%} at the median;"
                f" up to {BELIEVABLE:.0%} is taken for a likeness"
            )
    believable = {c: calibration.engine for c, calibration in calibrations.items() if c not in left_out}
    if PLAIN not in believable:
        reason = left_out.get(PLAIN, "it has no cells")
        raise AnalysisError(f"{root}: plain cannot be put into a fleet: {reason}")
    patterns = slos(study, believable[PLAIN])
    profiles = profiles_of(believable, patterns, study, each)
    for config, days_by_pattern in profiles.items():
        if unprofiled := [name for name, days in days_by_pattern.items() if not days]:
            left_out[config] = (
                f"cannot keep the SLO of {', '.join(unprofiled)} at any rate, so it has no profile"
            )
    if PLAIN in left_out:
        raise AnalysisError(f"plain {left_out[PLAIN]}. Give a larger slo_s, or slo_factor.")
    members = tuple(
        Member(config, engine, profiles[config])
        for config, engine in believable.items()
        if config not in left_out
    )
    kind = data.config.engine.kind
    clocked = [CLOCKED] if kind == "virtual_gpu" else []
    notes = [
        *clocked,
        *_notes(study, patterns, calibrations[PLAIN], kind == "emulator"),
        *_beyond(calibrations, profiles),
    ]
    source = Source(data.document.campaign, calibrations, left_out, tuple(notes))
    return Measured(source, patterns, profiles, members)


def _check_lengths(data: CampaignData, study: Study) -> None:
    max_model_len = token_count(data.config.engine.args.get("max_model_len"))
    for pattern in study.patterns:
        if max_model_len is not None and pattern.input_tokens + pattern.output_tokens > max_model_len:
            raise ConfigError(
                f"pattern {pattern.name!r} has {pattern.input_tokens} + {pattern.output_tokens} tokens, the"
                f" campaign's engine takes {max_model_len} (max_model_len). Shorten it."
            )


def _notes(study: Study, patterns: Sequence[Pattern], plain: Calibration, modelled: bool) -> list[str]:
    notes = []
    if modelled:
        notes.append("measured on the embedded engine: its taxes are made up")
    low, high = plain.input_lengths[0], plain.input_lengths[-1]
    extrapolated = [f"{p.name} ({p.input_tokens})" for p in patterns if not low <= p.input_tokens <= high]
    if extrapolated:
        measured_range = f"{low}" if low == high else f"{low} to {high}"
        notes.append(
            f"beyond the prompts that were measured ({measured_range} tokens): {', '.join(extrapolated)}"
        )
    if (wanted_s := 5 * max(p.slo_s for p in patterns)) > study.duration_s:
        notes.append(
            f"duration_s {study.duration_s:g} is shorter than five times the longest SLO ({wanted_s:.3g} s):"
            " fleets that keep up may be said not to"
        )
    return notes


def _beyond(
    calibrations: Mapping[str, Calibration], profiles: Mapping[str, Mapping[str, Sequence[Profile]]]
) -> list[str]:
    """Return a note per profile with more requests in flight than ever decoded together."""
    return [
        f"{config}: {capacity:.0f} {name} requests in flight at its profile, at most"
        f" {calibrations[config].most_together} decoded together when it was measured; extrapolated"
        for config, days_by_pattern in profiles.items()
        for name, days in days_by_pattern.items()
        if days
        and (capacity := max(profile.capacity for profile in days)) > calibrations[config].most_together
    ]
