"""Where a campaign stands, and how a start of it begins: which results on disk are true, and what is left to
measure.

A campaign does not change: what enters the hash of a launch or a cell is as it was when the first cell was
measured. So a receipt is true as long as the cells that it lists lie on disk with the sizes that it lists,
whatever times files have and whatever Snakemake remembers. Any other receipt is void: the next start removes
it, and measures the cells that are missing. Checksums are for ``verify`` and the analysis.
"""

import json
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from connector_tax.base.artifacts.cells import damage, read_cell
from connector_tax.base.artifacts.layout import CampaignFolder, RunFolder
from connector_tax.base.artifacts.parcel import put_back
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.config import CampaignConfig
from connector_tax.base.config.model import without_free_keys
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.receipt import PreflightStatus, Receipt
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import read_document, shown, to_json, write_text_if_changed
from connector_tax.base.plan.campaign import campaign_document, config_of, read_campaign_file
from connector_tax.base.plan.cells import cells_of, spec_hash
from connector_tax.base.records.cell import Phase
from connector_tax.base.records.rates import ReferenceRates

# Of a connector's entry, what its launch is made of.
LAUNCHED = ("kv_transfer_config", "env", "extra_args", "matches")


@dataclass(frozen=True, slots=True)
class Standing:
    """
    Attributes:
        left: the configurations of each phase that have no true receipt, in order; phases that have ended are
            not in it.
        void: what is on disk and not true any more, and why; the next start removes it.
        kept: whether reference rates stand although some of Phase A is to be measured again: later phases
            have cells at them.
        rates: None before all of Phase A has ended, unless they are kept.
        failed: configurations that failed in Phase A.
    """

    left: dict[Phase, tuple[str, ...]] = field(default_factory=dict)
    void: dict[Path, str] = field(default_factory=dict)
    kept: bool = False
    preflight: PreflightStatus | None = None
    rates: ReferenceRates | None = None
    failed: frozenset[str] = frozenset()

    def ends_at_once(self, connector_id: str) -> bool:
        """Whether it is not launched any more: preflight skipped it, or it failed in Phase A."""
        return connector_id in self.failed or (
            self.preflight is not None and self.preflight.skips(connector_id)
        )

    def said(self, folder: CampaignFolder) -> list[str]:
        """What the next start makes again, a line each."""
        lines = [f"void, and made again: {why}" for why in self.void.values()]
        if self.kept:
            lines.append(
                f"{folder.reference_rates}: stands, since later phases were measured at it; phase A is"
                f" measured again of {', '.join(self.left['a'])}"
            )
        return lines


def standing(config: CampaignConfig, folder: CampaignFolder, date: str, *, changed: bool = False) -> Standing:
    """Reads files only: sizes are held against the disk, contents are not.

    Args:
        changed: whether preflight was made for another config.
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
        """Whether what a receipt without cells followed from is there."""
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
    return Standing(left, void, kept, preflight, rates, frozenset(failed))


def open_campaign(
    config: CampaignConfig,
    folder: CampaignFolder,
    date: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> str:
    """Begin a start that measures: remove what is void, and write ``campaign.json``; returns the campaign's
    date.

    Only who holds the campaign's start lock may.

    Args:
        date: of the first start, where it was drawn already.
        say: told what is made again.

    Raises:
        ArtifactError: ``campaign.json`` cannot be read, or a receipt is another campaign's.
        ConfigError: the config has changed since the campaign was begun; names the key, or a cell where
            ``campaign.json`` is gone.
    """
    put_back(folder)
    earlier = read_campaign_file(folder.campaign_file) if folder.campaign_file.exists() else None
    date = date_of(folder, earlier) if date is None else date
    changed = earlier is not None and refuse_change(config, earlier, folder)
    _refuse_another_campaign(config, folder)
    if earlier is None:
        _refuse_other_cells(config, folder)
    found = standing(config, folder, date, changed=changed)
    for line in found.said(folder):
        say(line)
    for path in found.void:
        path.unlink(missing_ok=True)
    _write_campaign(config, folder, date, earlier)
    return date


def begin_campaign(config: CampaignConfig, root: Path) -> Path:
    """Write ``campaign.json`` of a campaign that nobody starts meanwhile; returns where it lies."""
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
    if earlier is not None:  # one that was thinned stays so
        document = msgspec.structs.replace(document, thinned=earlier.thinned)
    write_text_if_changed(folder.campaign_file, to_json(document))


def take_over_analysis(config: CampaignConfig, folder: CampaignFolder) -> None:
    """Write the settings of the analysis into ``campaign.json``, where there is one.

    The rest of it says how the results came about, whatever the config says today.

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
    """Of the campaign's first start, which names its folders; today before there was one."""
    return earlier.date if earlier is not None else folder.measured_on() or f"{datetime.now(UTC):%Y-%m-%d}"


def refuse_change(config: CampaignConfig, earlier: CampaignDocument, folder: CampaignFolder) -> bool:
    """Whether the config is another than the campaign was begun with, where nothing was measured by what is
    another.

    Raises:
        ArtifactError: another version wrote ``campaign.json``.
        ConfigError: something was; names the key.
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
    """Keys that enter a hash and are another in ``config`` than in ``earlier``, with both values; none is a
    secret's.

    Connectors that ``earlier`` has not are no change: no cell of the others is another for them.

    Args:
        measured: connectors that have a cell, and alone are compared then; None compares all.

    Raises:
        ArtifactError: another version wrote ``earlier``.
    """
    then = _hashed(config_of(earlier).to_json())
    # As a file has it.
    now = _hashed(json.loads(to_json(config)))
    if measured is not None:
        then["connectors"] = {c: entry for c, entry in then["connectors"].items() if c in measured}
    now["connectors"] = {c: entry for c, entry in now["connectors"].items() if c in then["connectors"]}
    yield from differing(then, now, "")


def _hashed(config: dict[str, Any]) -> dict[str, Any]:
    connectors = {c["id"]: {key: c[key] for key in LAUNCHED} for c in config["connectors"]}
    return {**without_free_keys(config), "connectors": connectors}


def differing(then: Any, now: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield keys whose values are two, with both; a key that is not there is null."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted({*then, *now}):
            yield from differing(then.get(key), now.get(key), f"{place}.{key}".lstrip("."))
    # ``true``, ``1`` and ``1.0`` are one to Python, and three to an engine's command line and to a hash.
    elif len({json.dumps(value, sort_keys=True, default=str) for value in (then, now)}) > 1:
        yield place, then, now


def _readable(path: Path, kind: Any, void: dict[Path, str]) -> Any:
    """The document; None where there is none, or one that cannot be read, which is void."""
    try:
        return read_document(path, kind) if path.exists() else None
    except ArtifactError as error:
        void[path] = f"cannot be read: {error}"
        return None


def _true_receipt(
    config: CampaignConfig, run: RunFolder, void: dict[Path, str]
) -> tuple[Receipt | None, str]:
    """The receipt, where its cells are on disk; else why it is void, empty where there is none.

    Args:
        void: gets each ``cell.json`` that is not as the receipt lists it. It lists the cell's other files,
            and nobody else says what it was.
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
            # Not what lies behind a link.
            if damage(folder, {}) is None and folder.cell_json.is_file() and damage(folder, own) is not None:
                void[folder.cell_json] = f"{folder.cell_json}: is not as {run.receipt.name} lists it"
    if lost:
        cell_id, why = next(iter(lost.items()))
        return None, f"{run.receipt}: cell {cell_id}: {why}"
    return receipt, ""


def _refuse_another_campaign(config: CampaignConfig, folder: CampaignFolder) -> None:
    """Cells name their campaign, and those of another are left out of the analysis.

    Raises:
        ArtifactError: a receipt is another campaign's.
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
    """Without ``campaign.json`` cells say themselves what they were measured by. Those of Phase A do, since
    their plan follows from nothing that was measured; not those of a matched baseline, whose launch follows
    from another's.

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
            except ArtifactError:  # lost, and measured again
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
    """Of a run that has not ended, its finished cells that are of the plan.

    Args:
        rates: None where they are not known; nothing is told then of a phase that has none of its own.
    """
    if rates is None and run.phase not in ("a", "d"):
        return frozenset()
    planned = {cell.cell_id for cell in cells_of(config, run.connector_id, run.phase, rates)}
    return frozenset(cell.cell_id for cell in run.finished_cells() if cell.cell_id in planned)
