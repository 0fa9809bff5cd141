"""Runs a campaign in sittings: one (configuration, phase) after another for some minutes, continued later.

For hosts that cut long commands or lack Snakemake. The stages are the Snakefile's scripts in its order. A
stage whose product exists is done, so a sitting continues where the last one ended, even on another host.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_launches
from connector_tax.base.config import CampaignConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import EngineError
from connector_tax.base.plan import run_order
from connector_tax.base.plan.duration import LAUNCH_S, RELEASE_S
from connector_tax.base.records.cell import phase_word
from connector_tax.base.units import duration_text
from connector_tax.run.engine.container import grace_s
from connector_tax.run.measure.preflight import Launching

SCRIPTS = PROJECT_ROOT / "scripts"
# Beside the engine's grace: the kill, the masking of its log, packing.
ENDING_S = 3.0


@dataclass(frozen=True, slots=True)
class Stage:
    """One script of the campaign.

    Attributes:
        arguments: the script's name first.
        product: the file that it writes last.
        run: whose cells it measures; None if none.
        launches: whether it launches engines and takes a time limit.
    """

    what: str
    arguments: tuple[str, ...]
    product: Path
    run: RunFolder | None = None
    launches: bool = True


@dataclass(frozen=True, slots=True)
class Sitting:
    """The outcome of a sitting.

    Attributes:
        done: stages finished in it.
        left: remaining stages, in order.
        why: reason for the end if some are left.
    """

    done: tuple[str, ...]
    left: tuple[str, ...]
    why: str


def stages(
    config: CampaignConfig, folder: CampaignFolder, date: str, launch: Launching = "all"
) -> Iterator[Stage]:
    """Yield every measuring stage in order.

    Plain comes first in each phase, since a sitting may end after any launch and without plain there is no
    tax. The others follow in their random order.

    Args:
        launch: which configurations preflight launches; see ``run_preflight``.
    """
    campaign_file, parent_arguments = str(folder.campaign_file), ("--end-with-parent", str(os.getpid()))
    yield Stage(
        "preflight",
        ("preflight.py", "--campaign-file", campaign_file, "--launch", launch, *parent_arguments),
        folder.preflight_status,
    )
    for phase in config.phases:
        for connector_id in sorted(run_order(config, phase), key=lambda c: c != "plain"):
            run = folder.run(date, connector_id, phase)
            yield Stage(
                f"phase {phase_word(phase)} of {connector_id}",
                (
                    *("measure.py", "--campaign-file", campaign_file, *parent_arguments),
                    "--connector",
                    connector_id,
                    "--phase",
                    phase,
                ),
                run.receipt,
                run,
            )
        if phase == "a":
            root = str(folder.root)
            yield Stage(
                "reference rates",
                ("select_reference_rates.py", "--root", root),
                folder.reference_rates,
                launches=False,
            )
            if config.engine.kind == "emulator":
                yield Stage(
                    "taxes of the model", ("put_in.py", "--root", root), folder.put_in, launches=False
                )


def sit(
    config: CampaignConfig,
    folder: CampaignFolder,
    date: str,
    *,
    within_s: float,
    launch_s: float | None,
    launch: Launching,
    say: Callable[[str], None],
) -> Sitting:
    """Run the remaining stages until one does not fit.

    Args:
        within_s: when everything must be over, including the last engine's end.
        launch_s: expected time per launch; None: the default for this engine kind.
        launch: which configurations preflight launches if it has not run yet.

    Raises:
        EngineError: a stage failed, or the sitting is too short for a single cell.
    """
    launch_s = LAUNCH_S[config.engine.kind] if launch_s is None else launch_s
    begun_s = monotonic()
    # An unfinished stage is then told to end and has the engine's grace.
    end_s = begun_s + within_s - grace_s(config.engine) - ENDING_S
    engine_end_s = ending_s(config, folder)
    if end_s - engine_end_s - begun_s < launch_s:
        reserved_s = begun_s + within_s - end_s + engine_end_s
        raise EngineError(
            f"--minutes {within_s / 60:g}: a launch takes {duration_text(launch_s)} here and"
            f" {duration_text(reserved_s)} are kept for its end, so nothing would be measured. Give more than"
            f" {(launch_s + reserved_s) / 60:.1f}."
        )
    done: list[str] = []
    stop_reason = ""
    for stage in stages(config, folder, date, launch):
        if stage.product.is_file():
            continue
        until_s = end_s - ending_s(config, folder)
        if until_s <= monotonic():
            stop_reason = "the time is over"
            break
        say(stage.what)
        nothing_done, cells = not done, _finished_cells(stage)
        if _finished(stage, until_s, end_s, launch_s):
            done.append(stage.what)
            continue
        if nothing_done and _finished_cells(stage) == cells:
            raise EngineError(
                f"{stage.what}: nothing of it was finished in the whole of this sitting; see above for what"
                " it needs, or for whom it waited. Where the sitting was too short, give more than --minutes"
                f" {within_s / 60:g}."
            )
        stop_reason = f"{stage.what} did not fit any more"
        break
    remaining = tuple(s.what for s in stages(config, folder, date) if not s.product.is_file())
    return Sitting(tuple(done), remaining, stop_reason)


def ending_s(config: CampaignConfig, folder: CampaignFolder) -> float:
    """Return the longest time that this campaign's engines took to end and release the card, or a default."""
    ends = (launch.ending_s for run in folder.runs() for launch in read_launches(run.launches))
    return max((s for s in ends if isinstance(s, float)), default=RELEASE_S[config.engine.kind])


def _finished_cells(stage: Stage) -> int:
    return 0 if stage.run is None else len(stage.run.finished_cells())


def _finished(stage: Stage, until_s: float, end_s: float, launch_s: float) -> bool:
    """Run the stage; return False if time ran out.

    Args:
        until_s: when its engine should be told to end; no cell begins that ends later.
        end_s: when the stage must be over.

    Raises:
        EngineError: it failed.
    """
    script, *arguments = stage.arguments
    if stage.launches:
        arguments += ["--within-s", f"{until_s - monotonic():.1f}", "--launch-s", f"{launch_s:g}"]
    with subprocess.Popen([sys.executable, str(SCRIPTS / script), *arguments]) as process:
        try:
            code = process.wait(max(end_s - monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            process.terminate()  # SIGTERM: it ends its engine in order
            process.wait()
            return False
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code == os.EX_TEMPFAIL:
        return False
    if code != 0 or not stage.product.is_file():
        raise EngineError(f"{stage.what} failed (exit code {code}); see above. What was finished is kept.")
    return True
