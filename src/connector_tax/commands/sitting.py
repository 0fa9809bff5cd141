"""``connector-tax run --minutes``: measure a campaign for so many minutes, then stop; the next call goes on
from there.

For hosts that cut long commands, that are lent by the hour, or that can fetch nothing: it needs no Snakemake.
"""

import argparse
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from connector_tax.base.artifacts.archive import pack, take
from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.locks import started_once
from connector_tax.base.plan.named import Named
from connector_tax.base.plan.start import open_campaign
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.run.engine.lifeline import end_in_order, end_with_parent
from connector_tax.run.engine.supervised import clean_logs, end_all_leftovers
from connector_tax.run.measure.locks import held, holder_words
from connector_tax.run.measure.sitting import Sitting, sit


def take_all(campaign: Named, archives: list[Path]) -> int:
    """Take over archives packed on another host; return the exit code."""
    config, folder = load_campaign(campaign.config_file()), CampaignFolder(campaign.root)
    with started_once(folder.start_lock, config.campaign), _alone(config, folder):
        for archive in archives:
            _take(archive, folder)
    return 0


def measure(campaign: Named, args: argparse.Namespace) -> int:
    """Measure for one sitting; return the exit code."""
    config, folder = load_campaign(campaign.config_file()), CampaignFolder(campaign.root)
    if args.minutes <= 0:
        raise ConfigError(f"--minutes {args.minutes:g}: give the minutes that this command may take.")
    end_in_order()
    if args.end_with_parent is not None:
        end_with_parent(args.end_with_parent)
    with started_once(folder.start_lock, config.campaign):
        date = open_campaign(config, folder, say=lambda what: print(what, flush=True))
        with _saved(config, folder, args.save):
            sitting = sit(
                config,
                folder,
                date,
                within_s=args.minutes * 60,
                launch_s=args.launch_s,
                launch=args.preflight,
                say=lambda what: print(what, flush=True),
            )
    print(_words(sitting, campaign))
    return os.EX_TEMPFAIL if sitting.left else 0


def _alone(config: CampaignConfig, folder: CampaignFolder) -> AbstractContextManager[None]:
    """Lock the folder against measuring: a batch system's jobs outlive a killed start."""
    return held(folder.lock, f"campaign {config.campaign}", holder_words(folder.root, config.campaign))


def _take(archive: Path, folder: CampaignFolder) -> None:
    taken = take(archive, folder)
    print(f"{archive}: {len(taken.units)} documents and runs taken into {folder.root}")
    if taken.removed:
        print(
            f"{folder.root}: removed {', '.join(taken.removed)}, which followed from another Phase A than is"
            " there now; the next sitting or start makes it again"
        )
    if taken.kept:
        print(
            f"{archive}: {len(taken.kept)} of its documents and runs went on here since and are kept:"
            f" {', '.join(taken.kept)}"
        )


@contextmanager
def _saved(config: CampaignConfig, folder: CampaignFolder, save: Path | None) -> Iterator[None]:
    """Pack the campaign, however the sitting ends."""
    try:
        yield
    finally:
        if save is not None:
            _without_secrets(config, folder)
            # The random part: clocks may jump and hosts share a folder, but no archive may replace another.
            name = f"{folder.root.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}.tar.gz"
            archive = save / name
            names = pack(folder, archive)
            mib = archive.stat().st_size / 2**20
            print(f"{archive}: {len(names)} documents and runs, {mib:.1f} MiB", file=sys.stderr)


def _without_secrets(config: CampaignConfig, folder: CampaignFolder) -> None:
    """Mask the logs of unfinished runs before they are packed.

    Whoever measured may have been killed, and its engine be about to end.

    Raises:
        EngineError: somebody else measures in the folder.
        ArtifactError: there is no room for a masked log.
    """
    places = [(run.path, run.connector_id) for run in folder.runs() if not run.receipt.exists()]
    places += [(folder.preflight / c, c) for c in config.connector_ids]
    with _alone(config, folder):
        try:
            end_all_leftovers(folder.root, grace_s=config.engine.stop_grace_s)
        except EngineError as error:  # the next start tries again
            print(error, file=sys.stderr)
        for place, connector_id in places:
            if connector_id in (*config.connector_ids, PLAIN_AGAIN):
                clean_logs(place)


def _words(sitting: Sitting, campaign: Named) -> str:
    if not sitting.left:
        return (
            f"{len(sitting.done)} stages done; the campaign is measured. Its report: connector-tax report"
            f" {campaign.given}"
        )
    done = f"{len(sitting.done)} stages done, {len(sitting.left)} left ({sitting.why})"
    return f"{done}; next: {sitting.left[0]}. Go on: {campaign.run_command} --minutes N"
