"""Two further launches, of plain and of the connector, in which one thing after the other is changed from outside vLLM.

At the middle load, in the way of scheduling in which the connector costs most. Between the changes stand cells with nothing changed.
"""

import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.config import parse_campaign
from connector_tax.base.files import read_json, write_json
from connector_tax.check.campaigns import Campaigns, campaign_yaml, mode_words, write_campaign
from connector_tax.check.findings import PLAIN, Findings
from connector_tax.check.lateness import only_late
from connector_tax.check.request import SYNC
from connector_tax.check.verdict import judge, looked_at
from connector_tax.run.engine.threads import Census
from connector_tax.run.measure.arranged import (
    BUSY_BESIDE,
    ENGINE_ALONE,
    HELPERS_IDLE,
    UNPINNED,
    UNTOUCHED,
    Arrangement,
    measure_arranged,
)

# Longer than the check's own cells: a hook's CPU time is asked for in one step of sixteen.
DURATION_S = 6.0
UNTOUCHED_AGAIN = f"{UNTOUCHED}_again"
# Folder -> what is changed, in the order of each launch. What cannot be undone comes last.
OF_PLAIN = {
    UNTOUCHED: UNTOUCHED,
    ENGINE_ALONE: ENGINE_ALONE,
    UNTOUCHED_AGAIN: UNTOUCHED,
    BUSY_BESIDE: BUSY_BESIDE,
}
OF_CONNECTOR = {
    UNTOUCHED: UNTOUCHED,
    UNPINNED: UNPINNED,
    ENGINE_ALONE: ENGINE_ALONE,
    UNTOUCHED_AGAIN: UNTOUCHED,
    HELPERS_IDLE: HELPERS_IDLE,
}


@dataclass(frozen=True, slots=True)
class Experiments:
    """
    Attributes:
        mode: of scheduling.
        folders: a campaign of each of ``OF_PLAIN`` and ``OF_CONNECTOR``.
    """

    mode: str
    rate_per_s: float
    connector_id: str
    folders: dict[str, CampaignFolder]


def dearest_mode(findings: Findings) -> str | None:
    """Where the largest tax is that is told apart from none; without one, synchronous scheduling if it was measured.

    None where the connector does not serve in any.
    """
    serving = [m for m in findings.modes if m.failure is None]
    taxes = [(j.point, m.mode) for m in serving for j in judge(m, looked_at(findings)) if j.told_apart]
    if taxes:
        return max(taxes)[1]
    modes = [m.mode for m in serving]
    return SYNC if SYNC in modes else (modes[0] if modes else None)


def write_experiments(campaigns: Campaigns, mode: str, root: Path) -> Experiments:
    """A campaign of one cell for each arrangement. Each has a seed of its own: a prompt that came before would be in the prefix cache."""
    rate = campaigns.rates_per_s[len(campaigns.rates_per_s) // 2]
    request = replace(campaigns.request, growth=False, duration_s=DURATION_S)
    main = campaigns.folders[mode]
    seed = int(read_json(main.campaign_file)["config"]["seed"])
    folders = {}
    for k, name in enumerate(dict.fromkeys((*OF_PLAIN, *OF_CONNECTOR)), start=1):
        document = campaign_yaml(request, mode, root.absolute() / "connectors.yaml", (rate,))
        document |= {"campaign": f"confirm-{mode}-{name.replace('_', '-')}", "seed": seed + k}
        folders[name] = write_campaign(parse_campaign(document, "check"), root, (rate,))
        # The same engine and the same connector as the check's, just now.
        write_json(folders[name].preflight_status, read_json(main.preflight_status))
    return Experiments(mode, rate, campaigns.request.connector_id, folders)


def measure_experiments(experiments: Experiments, log: Path, label: str, say: Callable[[str], None]) -> None:
    """Plain first: whose threads are the connector's own is told by plain's.

    Raises:
        EngineError: another measurement runs.
    """
    threads: Census = {}
    with open(log, "a", encoding="utf-8", errors="backslashreplace") as out:
        for config, changes in ((PLAIN, OF_PLAIN), (experiments.connector_id, OF_CONNECTOR)):
            arranged = [
                Arrangement(experiments.folders[name].campaign_file, change)
                for name, change in changes.items()
            ]
            what = f"{'plain' if config == PLAIN else label}, {mode_words(experiments.mode)} scheduling: experiments"
            say(f"        {what}")
            with redirect_stdout(out), redirect_stderr(out):
                found = measure_arranged(arranged, config, threads)
            if _spoilt(experiments, config):
                say(f"        its cells with nothing changed do not count, once more: {what}")
                for folder in experiments.folders.values():
                    shutil.rmtree(_run_folder(folder, config).path, ignore_errors=True)
                with redirect_stdout(out), redirect_stderr(out):
                    found = measure_arranged(arranged, config, threads)
            threads = found
            if not threads:
                return  # no launch of plain's, and so nothing to hold the connector's against


def _spoilt(experiments: Experiments, config: str) -> bool:
    """Whether something else on the host took from the cells that all others are held against.

    To take a core away makes the clock late on a host with few of them, whoever takes it; that is what is looked at here, so such a
    cell is one of an experiment. How late it ran is printed with the cell.
    """
    runs = [_run_folder(experiments.folders[name], config) for name in (UNTOUCHED, UNTOUCHED_AGAIN)]
    return any(not only_late(read_cell(cell)) for run in runs for cell in run.finished_cells())


def _run_folder(folder: CampaignFolder, config: str) -> RunFolder:
    return folder.run(read_json(folder.campaign_file)["date"], config, "a")
