"""One real launch of the connector on the virtual GPU by the campaign's own code: a server and a second of
requests."""

import re
from contextlib import suppress

from msgspec import UNSET

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.connector_off import said_in
from connector_tax.base.documents.identity import Settings, differences
from connector_tax.base.plan import read_campaign_file
from connector_tax.check.document import Launched, Switched
from connector_tax.run.measure.preflight import run_preflight
from connector_tax.run.measure.run import measure_run

# vLLM's own word that a connector is on; of a stack one for each.
_CREATED = re.compile(r"[Cc]reating (?:v1 )?connector with name: (\w+)")
# Setting -> what a line that is about it says, in the words of releases 0.27 to 0.32.
WORDS = {
    "scheduler_config.disable_hybrid_kv_cache_manager": r"hybrid",
    "scheduler_config.async_scheduling": r"async\w* scheduling",
    "async_scheduling": r"async\w* scheduling",
    "compilation_config.cudagraph_mode": r"cuda ?graph|piecewise",
    "model_config.enforce_eager": r"eager",
    "cache_config.enable_prefix_caching": r"prefix caching",
    "cache_config.block_size": r"block[_ ]size",
    "scheduler_config.enable_chunked_prefill": r"chunked prefill",
}
# Time, process and place at the beginning of a line of vLLM's log; two launches differ in them.
_PREFIX = re.compile(r"^(\(\w+[^)]*\)\s*)?(DEBUG|INFO|WARNING|ERROR)\s+\d\d-\d\d [\d:.]+\s+\[[^\]]*\]\s*")
MOST_CHARS = 300


def launch_once(folder: CampaignFolder, connector_id: str) -> tuple[Launched, str]:
    """Return what was found, and the engine's log.

    Raises:
        EngineError: the host failed, and not the connector.
    """
    run_preflight(folder.campaign_file, launch="none")
    deaths = measure_run(folder.campaign_file, connector_id, "a")
    run = folder.run(read_campaign_file(folder.campaign_file).date, connector_id, "a")
    receipt = read_receipt(run)
    log = _log(run)
    off = said_in(log.splitlines())
    failure = deaths[0].cause if deaths else receipt.reason if receipt.status != "measured" else None
    cells = [read_cell(cell) for cell in run.finished_cells()]
    if not cells:
        return Launched(failure or "no cell was measured"), log
    (cell,) = cells
    statuses = cell.summary.statuses if cell.summary else {}
    found = Launched(
        failure=failure,
        answered=statuses.get("ok", 0),
        sent=sum(statuses.values()),
        settings={} if cell.engine.settings is UNSET else cell.engine.settings or {},
        created=tuple(dict.fromkeys(_CREATED.findall(log))),
        off=None if off is None else off[1],
        spinning=tuple(cell.cpu.spinning or ()),
        stand_ins=tuple(cell.health.stand_ins or ()),
        versions=cell.engine.versions,
    )
    return found, log


def _log(run: RunFolder) -> str:
    found = []
    for path in (run.stdout, run.stderr):
        with suppress(FileNotFoundError):
            found.append(path.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(found)


def switched(plain: Settings, own: Settings, log: str) -> tuple[Switched, ...]:
    """Return every setting that is not plain's, with what the connector's log says of it."""
    lines = [_PREFIX.sub("", line).strip() for line in log.splitlines() if _PREFIX.match(line)]
    # A dump of the whole configuration names every setting and explains none.
    short = [line for line in dict.fromkeys(lines) if len(line) <= MOST_CHARS]
    return tuple(
        Switched(name, change["plain"], change["own"], tuple(_about(name, short)))
        for name, change in differences(plain, own).items()
    )


def _about(setting: str, lines: list[str]) -> list[str]:
    words = WORDS.get(setting, re.escape(setting.rpartition(".")[2]).replace("_", "[_ ]"))
    return [line for line in lines if re.search(words, line, re.IGNORECASE)]
