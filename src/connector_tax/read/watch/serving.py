"""``connector-tax status --web``: the page until Ctrl-C. What it makes lies in a temporary folder, which goes with it."""

import os
import signal
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.errors import ConfigError
from connector_tax.read.watch.making import Maker, When
from connector_tax.read.watch.page import View, view_of
from connector_tax.read.watch.server import LOOPBACK, Server


@dataclass(frozen=True, slots=True)
class Reports:
    """When reports are made; see ``Maker``."""

    when: When
    every_s: float
    during_cells: bool


def config_now(file: Path, campaign: str) -> CampaignConfig | ConfigError:
    """As the file says it now, since it is edited while the page is open; or why it cannot be read."""
    try:
        config = load_campaign(file)
    except ConfigError as error:
        return error
    if config.campaign != campaign:
        return ConfigError(
            f"{file}: is of campaign {config.campaign} now, and this page is of {campaign}. Start the page again."
        )
    return config


def serve(config: CampaignConfig, results: Path, config_file: Path, port: int, reports: Reports) -> None:
    """Show the campaign until this process is interrupted; returns on Ctrl-C.

    Raises:
        EngineError: the port cannot be had.
    """
    # Answers take less than the measurement next to them, whatever asks.
    os.nice(19)
    with tempfile.TemporaryDirectory(prefix="connector-tax-") as made_in:
        folder = CampaignFolder(results / config.campaign, Path(made_in))
        beside = CampaignFolder(folder.root)
        maker = Maker(folder, reports.when, reports.every_s, during_cells=reports.during_cells)

        def view() -> View:
            return view_of(
                beside, config_now(config_file, config.campaign), config_file, maker, datetime.now(UTC)
            )

        def suspended(signum: int, frame: FrameType | None) -> None:
            # Ctrl-Z stops this process, and nobody would look whether a cell is measured beside the report that is made.
            with maker.held():
                os.kill(os.getpid(), signal.SIGSTOP)

        if signal.getsignal(signal.SIGTSTP) != signal.SIG_IGN:
            signal.signal(signal.SIGTSTP, suspended)
        try:
            with Server(port, view, maker) as server:
                print(
                    f"http://{LOOPBACK}:{server.port}/ shows campaign {config.campaign} until Ctrl-C. From another host: "
                    f"ssh -N -L {server.port}:{LOOPBACK}:{server.port} THIS_HOST",
                    flush=True,
                )
                server.serve_forever()
        except KeyboardInterrupt:
            # A second one must not interrupt the clean-up that the first one started.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            print("The page has ended. The campaign goes on as it was.")
        finally:
            maker.close()
