"""Whether a run that has a receipt has ended for the plan as it is now: an edit leaves receipts of an earlier plan until it is measured again."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from connector_tax.base.artifacts.cells import read_cell
from connector_tax.base.artifacts.layout import CampaignFolder, CellFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.preflight import PreflightStatus
from connector_tax.base.documents.receipt import Receipt
from connector_tax.base.errors import ArtifactError
from connector_tax.base.plan.belonging import Belonging
from connector_tax.base.plan.cells import cells_of, spec_hash
from connector_tax.base.records.cell import CellSpec, Phase
from connector_tax.base.records.rates import ReferenceRates


def of_plan(config: CampaignConfig, run: RunFolder, receipt: Receipt, rates: ReferenceRates | None) -> bool:
    """Whether the receipt's cells are those of ``config``, all of them where it was measured; one without cells says nothing of its plan.

    Args:
        rates: None where they are not known; a cell's own are taken then.
    """
    if (receipt.campaign, receipt.connector, receipt.phase) != (config.campaign, run.connector_id, run.phase):
        return False
    if receipt.status in ("skipped", "not_needed"):
        return True
    ids = {cell.cell_id for cell in receipt.cells}
    planned: dict[str, CellSpec] = {}
    if rates is not None or run.phase in ("a", "d"):
        planned = {cell.cell_id: cell for cell in cells_of(config, run.connector_id, run.phase, rates)}
        # A sweep of rates may end before its last one.
        all_of_them = receipt.status == "measured" and not (
            run.phase == "a" and config.phase_a_stop_after_overloaded
        )
        if ids and (ids - planned.keys() or (all_of_them and planned.keys() - ids)):
            return False
    hashes = {cell.cell_id: cell.spec_hash for cell in receipt.cells}
    unlike = [
        i for i in ids if i not in planned or hashes[i] != spec_hash(config, run.connector_id, planned[i])
    ]
    return all(_belongs(config, run, run.cell(i)) for i in unlike)


def has_ended(config: CampaignConfig, run: RunFolder, rates: ReferenceRates | None) -> bool:
    """Whether it has a receipt, and that is of ``config``; of one that cannot be read somebody else says why.

    Args:
        config: as ``campaign.json`` has it.
        rates: as above.
    """
    if run.is_link or not run.receipt.exists():
        return False
    try:
        return of_plan(config, run, read_receipt(run), rates)
    except ArtifactError:
        return True


def of_another_config(
    config: CampaignConfig, stored: CampaignConfig, runs: Iterable[RunFolder], rates: ReferenceRates | None
) -> list[RunFolder]:
    """Those of ``runs`` that have a receipt, and one that is not of ``config``.

    Args:
        stored: the same as ``campaign.json`` has it, without secrets: hashes are made with them, documents have none.
        rates: as above.
    """
    return [
        run
        for run in runs
        if run.receipt.is_file() and not any(has_ended(c, run, rates) for c in (config, stored))
    ]


def own_cells(
    config: CampaignConfig, run: RunFolder, found: Iterable[CellFolder], planned: Iterable[CellSpec]
) -> frozenset[str]:
    """Which of the finished cells are of the plan; what lies there of an earlier one, at other rates or shapes or of another launch, is not."""
    ids = {cell.cell_id for cell in planned}
    return frozenset(cell.cell_id for cell in found if cell.cell_id in ids and _belongs(config, run, cell))


def cells_there(config: CampaignConfig, run: RunFolder, rates: ReferenceRates | None) -> frozenset[str]:
    """Of a run that has not ended, its finished cells that are of the plan.

    Args:
        rates: None where they are not known; nothing is told then of a phase that has none of its own.
    """
    if run.is_link or (rates is None and run.phase not in ("a", "d")):
        return frozenset()
    return own_cells(config, run, run.finished_cells(), cells_of(config, run.connector_id, run.phase, rates))


def ends_at_once(
    config: CampaignConfig,
    folder: CampaignFolder,
    date: str,
    preflight: PreflightStatus,
    left: Mapping[Phase, Sequence[str]],
) -> Callable[[str], bool]:
    """Whether a configuration is not launched any more: preflight skipped it, or it failed in Phase A.

    Args:
        left: whose receipts are missing or of an earlier plan.
    """
    ended = [folder.run(date, c, "a") for c in config.connector_ids if c not in left.get("a", ())]
    failed = {run.connector_id for run in ended if _failed(run)}
    return lambda c: c in failed or preflight.skips(c)


def _failed(run: RunFolder) -> bool:
    try:
        return not run.is_link and run.receipt.is_file() and read_receipt(run).status == "failed"
    except ArtifactError:
        return False  # status and the analysis say why


def _belongs(config: CampaignConfig, run: RunFolder, cell: CellFolder) -> bool:
    """By its own words, since a hash does not say what differs: secrets that a file does not carry, or what preflight put into the launch."""
    if cell.path.is_symlink() or cell.path.parent.is_symlink():
        return True  # nobody follows it, and the analysis names it
    try:
        document = read_cell(cell)
    except ArtifactError:
        return True  # the analysis says why it is left out
    return not Belonging(config.campaign, config).faults(run, cell, document)
