"""Returns a campaign as pandas tables, for notebooks: ``connector_tax.read_campaign``."""

import io
from contextlib import ExitStack
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import finalize

import msgspec
import numpy as np
import pandas as pd

from connector_tax.base.documents.aggregate import Aggregate
from connector_tax.base.errors import ArtifactError
from connector_tax.read.bundle import RESULTS, as_folder
from connector_tax.read.ingest import CampaignData, CellData, read_campaign
from connector_tax.read.ingest.steps import KIND_NAMES
from connector_tax.read.stats.aggregate import aggregate
from connector_tax.read.stats.cell_rows import aggregate_csv


class Frames:
    """A campaign. Tables are read on first use; their column ``source`` names the numbers' origin.

    Attributes:
        cells: a row per cell, as in ``aggregate.csv``.
        taxes: a row per tax; of those with ``main`` there is one per configuration, rate of Phase A and
            metric.
        requests: a row per request of every readable cell; latencies count from the intended send.
        steps: a row per engine step with a token, with a column for each connector hook.
    """

    def __init__(self, path: Path) -> None:
        """Open a campaign's folder or archive.

        Raises:
            ArtifactError: there is no campaign.
        """
        # An archive is unpacked into a temporary folder, which is removed with the last reference to the
        # tables.
        unpacked = ExitStack()
        folder = unpacked.enter_context(as_folder(path))
        finalize(self, unpacked.close)
        roots = [
            p.parent
            for p in (folder / "campaign.json", *folder.glob(f"{RESULTS}*/campaign.json"))
            if p.is_file()
        ]
        if len(roots) != 1:
            raise ArtifactError(f"{path}: no campaign. Give its results folder, or a bundle of it.")
        self._root = roots[0]

    @cached_property
    def _data(self) -> CampaignData:
        return read_campaign(self._root)

    @cached_property
    def _aggregate(self) -> Aggregate:
        return aggregate(self._data)

    @cached_property
    def cells(self) -> pd.DataFrame:
        return self._with_source(pd.read_csv(io.StringIO(aggregate_csv(self._aggregate))))

    @cached_property
    def taxes(self) -> pd.DataFrame:
        main = set(self._aggregate.main_taxes)
        others = [row for row in self._aggregate.taxes if row not in main]
        rows: list[Any] = msgspec.to_builtins([*self._aggregate.main_taxes, *others])
        found = pd.DataFrame.from_records(rows)
        found.insert(0, "main", np.arange(len(rows)) < len(self._aggregate.main_taxes))
        return self._with_source(found)

    @cached_property
    def requests(self) -> pd.DataFrame:
        rows = [
            {**asdict(r), **_cell(cell), "in_window": r.phase == "window"}
            | {f"{name}_ms": _ms(getattr(r, f"{name}_ns")) for name in ("ttft", "tpot", "e2e")}
            for cell in self._data.cells()
            for r in cell.requests
        ]
        return self._with_source(pd.DataFrame.from_records(rows))

    @cached_property
    def steps(self) -> pd.DataFrame:
        tables = []
        for cell in self._data.cells():
            if cell.steps is None:
                continue
            table = cell.steps.load()
            columns = {name: value for name, value in asdict(table).items() if isinstance(value, np.ndarray)}
            hooks = {f"{name}_us": table.hooks.us[:, k] for k, name in enumerate(table.hooks.names)}
            kinds = np.array(KIND_NAMES)[table.kind]
            tables.append(pd.DataFrame({**columns, **hooks}).assign(**_cell(cell), kind=kinds))
        return self._with_source(pd.concat(tables, ignore_index=True) if tables else pd.DataFrame())

    def _with_source(self, found: pd.DataFrame) -> pd.DataFrame:
        return found.assign(source=self._aggregate.measured_on.text)


def _cell(cell: CellData) -> dict[str, Any]:
    return {
        "config": cell.config,
        "phase": cell.phase,
        "cell_id": cell.cell_id,
        "rate_per_s": cell.spec.rate_per_s,
        "usable": cell.usable,
    }


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6
