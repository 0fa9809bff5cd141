"""The state of a campaign on disk: which results are true, what is left to measure, and how a start begins.

A campaign does not change: what enters the hash of a launch or a cell keeps the value that it had when the
first cell was measured. So a receipt is true while its cells are on disk with the listed sizes. Time
stamps and Snakemake's records do not matter. Any other receipt is void: the next start removes it and
measures the missing cells again. ``verify`` and the analysis check the checksums.
"""

import json
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from connector_tax.base.artifacts.archive import put_back
from connector_tax.base.artifacts.cells import damage, read_cell
from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.config import CampaignConfig
from connector_tax.base.config.model import without_free_keys
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.receipt import PreflightStatus, Receipt
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import read_document, shown, to_json, write_text_if_changed
from connector_tax.base.plan.cells import (
    campaign_document,
    cells_of,
    config_of,
    read_campaign_file,
    spec_hash,
)
from connector_tax.base.records.cell import Phase
from connector_tax.base.records.rates import ReferenceRates

# The keys of a connector's entry that shape its launch.
LAUNCHED = ("kv_transfer_config", "env", "extra_args", "matches")


@dataclass(frozen=True, slots=True)
class CampaignState:
    """The state of a campaign on disk.

    Attributes:
        left: phase -> its configurations without a true receipt, in order; finished phases are missing.
        void: files that are no longer true -> the reason; the next start removes them.
        kept: whether the reference rates stay although parts of Phase A are measured again, because later
            phases have cells at these rates.
        rates: None until all of Phase A has ended, unless they are kept.
        failed: configurations that failed in Phase A.
    """

    left: dict[Phase, tuple[str, ...]] = field(default_factory=dict)
    void: dict[Path, str] = field(default_factory=dict)
    kept: bool = False
    preflight: PreflightStatus | None = None
    rates: ReferenceRates | None = None
    failed: frozenset[str] = frozenset()

    def ends_at_once(self, connector_id: str) -> bool:
        """Return whether it is no longer launched: preflight skipped it, or it failed in Phase A."""
        return connector_id in self.failed or (
            self.preflight is not None and self.preflight.skips(connector_id)
        )

    def said(self, folder: CampaignFolder) -> list[str]:
        """Return one line for everything that the next start makes again."""
        lines = [f"void, and made again: {why}" for why in self.void.values()]
        if self.kept:
            lines.append(
                f"{folder.reference_rates}: stands, since later phases were measured at it; phase A is"
                f" measured again of {', '.join(self.left['a'])}"
            )
        return lines


def state_of(
    config: CampaignConfig, folder: CampaignFolder, date: str, *, changed: bool = False
) -> CampaignState:
    """Return the campaign's state. Compares sizes with the disk; reads no contents of cells.

    Args:
        changed: whether preflight ran with another config.
    """
    void: dict[Path, str] = {}
    preflight = _readable(folder.preflight_status, PreflightStatus, void)
    if preflight is not None:
        unasked = sorted(set(config.connector_ids) - preflight.configs.keys())
        if changed or unasked:
            why = "made for another config" if changed else f"says nothing of {', '.join(unasked)}"
            void[folder.preflight_status] = f"{folder.preflight_status}: {why}"
            preflight = None
    rates_file = _readable(folder.reference_rates, ReferenceRatesFile, void)
    left: dict[Phase, tuple[str, ...]] = {}
    failed: set[str] = set()
    kept = False

    def follows(receipt: Receipt) -> bool:
        """Return whether the reason for a receipt without cells still holds."""
        if receipt.cells or receipt.status == "measured":
            return True
        if receipt.status == "not_needed":
            return rates_file is not None
        known = preflight is not None
        skipped = known and (preflight.skips(receipt.connector) or receipt.connector in failed)
        return known and (receipt.status == "failed" or skipped)

    for phase in config.phases:
        ids = []
        for connector_id in config.members(phase):
            run = folder.run(date, connector_id, phase)
            receipt, why = _true_receipt(config, run, void)
            if receipt is not None and not follows(receipt):
                why = f"{run.receipt}: {receipt.status}, which followed from what is not there any more"
                receipt = None
            if receipt is None:
                ids.append(connector_id)
                void |= {run.receipt: why} if why else {}
            elif phase == "a" and receipt.status == "failed":
                failed.add(connector_id)
        if ids:
            left[phase] = tuple(ids)
        if phase == "a" and ids and rates_file is not None:
            kept = any(run.phase not in ("a", "d") and run.finished_cells() for run in folder.runs())
            if not kept:
                rates_file = None
                void[folder.reference_rates] = (
                    f"{folder.reference_rates}: made before all of phase A was there"
                )
    if rates_file is None and folder.put_in.exists():
        void[folder.put_in] = f"{folder.put_in}: made of reference rates that are not there"
    rates = None if rates_file is None else rates_file.rates
    return CampaignState(left, void, kept, preflight, rates, frozenset(failed))


def open_campaign(
    config: CampaignConfig,
    folder: CampaignFolder,
    date: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> str:
    """Begin a start that measures: remove what is void, write ``campaign.json``, return the campaign's date.

    The caller must hold the campaign's start lock.

    Args:
        date: of the first start, if the caller knows it.
        say: called with each line about what is made again.

    Raises:
        ArtifactError: ``campaign.json`` cannot be read, or a receipt belongs to another campaign.
        ConfigError: the config has changed since the campaign was begun; names the key, or a cell if
            ``campaign.json`` is missing.
    """
    put_back(folder)
    earlier = read_campaign_file(folder.campaign_file) if folder.campaign_file.exists() else None
    date = date_of(folder, earlier) if date is None else date
    changed = earlier is not None and refuse_change(config, earlier, folder)
    _refuse_another_campaign(config, folder)
    if earlier is None:
        _refuse_other_cells(config, folder)
    found = state_of(config, folder, date, changed=changed)
    for line in found.said(folder):
        say(line)
    for path in found.void:
        path.unlink(missing_ok=True)
    _write_campaign(config, folder, date, earlier)
    return date


def begin_campaign(config: CampaignConfig, root: Path) -> Path:
    """Write ``campaign.json`` of a campaign that nobody else is starting, and return its path."""
    folder = CampaignFolder(root / config.campaign)
    path = folder.campaign_file
    earlier = read_campaign_file(path) if path.exists() else None
    if earlier is not None and refuse_change(config, earlier, folder):
        folder.preflight_status.unlink(missing_ok=True)
    _write_campaign(config, folder, date_of(folder, earlier), earlier)
    return path


def _write_campaign(
    config: CampaignConfig, folder: CampaignFolder, date: str, earlier: CampaignDocument | None
) -> None:
    created = (earlier and earlier.created_utc) or f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    document = campaign_document(config, date=date, created_utc=created)
    if earlier is not None:  # a compacted campaign stays one
        document = msgspec.structs.replace(document, thinned=earlier.thinned)
    write_text_if_changed(folder.campaign_file, to_json(document))


def take_over_analysis(config: CampaignConfig, folder: CampaignFolder) -> None:
    """Write the config's ``analysis`` into ``campaign.json``, if there is one.

    The rest of the file records how the results were measured and stays.

    Raises:
        ArtifactError: another version wrote it.
    """
    path = folder.campaign_file
    if path.exists():
        document = read_campaign_file(path)
        config_of(document)
        analysis = config.to_json()["analysis"]
        document = msgspec.structs.replace(document, config={**document.config, "analysis": analysis})
        write_text_if_changed(path, to_json(document))


def date_of(folder: CampaignFolder, earlier: CampaignDocument | None) -> str:
    """Return the date of the first start, which names the folders; today before the first start."""
    return earlier.date if earlier is not None else folder.measured_on() or f"{datetime.now(UTC):%Y-%m-%d}"


def refuse_change(config: CampaignConfig, earlier: CampaignDocument, folder: CampaignFolder) -> bool:
    """Return whether the config differs from the one that the campaign was begun with.

    Raises:
        ArtifactError: another version wrote ``campaign.json``.
        ConfigError: a cell was measured with a key that differs; names the key.
    """
    measured = {run.connector_id for run in folder.runs() if run.finished_cells()}
    if not measured:
        try:
            return any(True for _ in changed_keys(config, earlier))
        except ArtifactError:
            return True
    changed = list(changed_keys(config, earlier, measured))
    if changed:
        key, was, now = changed[0]
        more = f" ({len(changed) - 1} more keys changed)" if len(changed) > 1 else ""
        raise ConfigError(
            f"{folder.campaign_file}: {key}: was {shown(was)} when campaign {earlier.campaign} was begun, and"
            f" is {shown(now)} in the config{more}. What is measured by it is another campaign: undo the"
            " edit, or give the campaign another name."
        )
    return any(True for _ in changed_keys(config, earlier))


def changed_keys(
    config: CampaignConfig, earlier: CampaignDocument, measured: Container[str] | None = None
) -> Iterator[tuple[str, Any, Any]]:
    """Yield each hashed key that differs between ``earlier`` and ``config``, with both values.

    No such key holds a secret. A connector that ``earlier`` lacks is no change: it affects no cell of others.

    Args:
        measured: compare only these connectors, which have cells; None compares all.

    Raises:
        ArtifactError: another version wrote ``earlier``.
    """
    then = _hashed(config_of(earlier).to_json())
    # Through JSON, so that both have the types of a file.
    now = _hashed(json.loads(to_json(config)))
    if measured is not None:
        then["connectors"] = {c: entry for c, entry in then["connectors"].items() if c in measured}
    now["connectors"] = {c: entry for c, entry in now["connectors"].items() if c in then["connectors"]}
    yield from differing(then, now, "")


def _hashed(config: dict[str, Any]) -> dict[str, Any]:
    connectors = {c["id"]: {key: c[key] for key in LAUNCHED} for c in config["connectors"]}
    return {**without_free_keys(config), "connectors": connectors}


def differing(then: Any, now: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield each key whose two values differ, with both values; a missing key counts as null."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted({*then, *now}):
            yield from differing(then.get(key), now.get(key), f"{place}.{key}".lstrip("."))
    # Python takes ``true``, ``1`` and ``1.0`` as equal; an engine's command line and a hash do not.
    elif len({json.dumps(value, sort_keys=True, default=str) for value in (then, now)}) > 1:
        yield place, then, now


def _readable(path: Path, kind: Any, void: dict[Path, str]) -> Any:
    """Return the document; None if there is none or if it cannot be read, which makes it void."""
    try:
        return read_document(path, kind) if path.exists() else None
    except ArtifactError as error:
        void[path] = f"cannot be read: {error}"
        return None


def _true_receipt(
    config: CampaignConfig, run: RunFolder, void: dict[Path, str]
) -> tuple[Receipt | None, str]:
    """Return the receipt if its cells are on disk, else the reason why it is void (empty without a receipt).

    Args:
        void: gets each ``cell.json`` that differs from the receipt's entry. ``cell.json`` lists the cell's
            other files, and only the receipt knows its own size.
    """
    if not run.receipt.is_file():
        return None, ""
    try:
        receipt = read_receipt(run)
    except ArtifactError as error:
        return None, f"cannot be read: {error}"
    named = (receipt.campaign, receipt.connector, receipt.phase)
    if named != (config.campaign, run.connector_id, run.phase):
        return None, f"{run.receipt}: is of {' '.join(named)}"
    lost: dict[str, str] = {}
    for cell in receipt.cells:
        folder = run.cell(cell.cell_id)
        if (why := damage(folder, cell.files)) is not None:
            lost[cell.cell_id] = why
            own = {name: entry for name, entry in cell.files.items() if name == folder.cell_json.name}
            # A link's target is left alone.
            if damage(folder, {}) is None and folder.cell_json.is_file() and damage(folder, own) is not None:
                void[folder.cell_json] = f"{folder.cell_json}: is not as {run.receipt.name} lists it"
    if lost:
        cell_id, why = next(iter(lost.items()))
        return None, f"{run.receipt}: cell {cell_id}: {why}"
    return receipt, ""


def _refuse_another_campaign(config: CampaignConfig, folder: CampaignFolder) -> None:
    """Refuse a folder with receipts of another campaign, whose cells the analysis would leave out.

    Raises:
        ArtifactError: a receipt belongs to another campaign.
    """
    for run in folder.runs():
        named = _campaign_of(run)
        if named not in (None, config.campaign):
            raise ArtifactError(
                f"{run.receipt}: is of campaign {shown(named)}, and this is {config.campaign}. Give the"
                " folder and `campaign` in the config that name back, or move what is of the other campaign"
                " away."
            )


def _refuse_other_cells(config: CampaignConfig, folder: CampaignFolder) -> None:
    """Refuse cells of another config in a folder without ``campaign.json``.

    Only Phase A is compared: its plan depends on no measurement. A matched baseline is not compared, since
    its launch depends on another launch.

    Raises:
        ConfigError: a cell was measured by another config.
    """
    for run in folder.runs():
        known = run.connector_id in config.members("a") and config.connector(run.connector_id).matches is None
        if not known or run.phase != "a":
            continue
        planned = {
            c.cell_id: spec_hash(config, run.connector_id, c) for c in cells_of(config, run.connector_id, "a")
        }
        for cell in run.finished_cells():
            try:
                same = read_cell(cell).spec_hash == planned.get(cell.cell_id)
            except ArtifactError:  # damaged, so it is measured again
                same = True
            if not same:
                raise ConfigError(
                    f"{cell.path}: was measured by another config than is given, and {folder.campaign_file},"
                    " which says by which, is gone. Give the config that it was measured by, or give the"
                    " campaign another name."
                )


def _campaign_of(run: RunFolder) -> str | None:
    try:
        return read_receipt(run).campaign
    except ArtifactError:
        return None


def cells_there(config: CampaignConfig, run: RunFolder, rates: ReferenceRates | None) -> frozenset[str]:
    """Return the planned cells of an unfinished run that are finished.

    Args:
        rates: None while they are unknown; phases that depend on them then have no cells.
    """
    if rates is None and run.phase not in ("a", "d"):
        return frozenset()
    planned = {cell.cell_id for cell in cells_of(config, run.connector_id, run.phase, rates)}
    return frozenset(cell.cell_id for cell in run.finished_cells() if cell.cell_id in planned)
