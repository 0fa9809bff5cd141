"""``aggregate.json`` of one campaign as one frozen object: read, asked and written.

Every number with its interval. Definitions: docs/measurement.md; what may change under one ``schema_version``: docs/formats.md.
A file of an earlier version lacks keys; each has the value here that its readers would take it for. Keys that are not known are left out.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import msgspec

from connector_tax.base.documents.aggregate.blocks import FailedBlock, HostDrift, Power, Repeats
from connector_tax.base.documents.aggregate.cells import Cell, MeasuredCell, cell_of
from connector_tax.base.documents.aggregate.connectors import ConnectorRow, MeasuredOn
from connector_tax.base.documents.aggregate.growth import Growth
from connector_tax.base.documents.aggregate.hypotheses import Hypothesis
from connector_tax.base.documents.aggregate.provenance import Provenance
from connector_tax.base.documents.aggregate.put_in import Burns, PutIn
from connector_tax.base.documents.aggregate.taxes import (
    Amplification,
    Attribution,
    Decomposition,
    MainTaxRow,
    ObserverEffect,
    TaxRow,
    TwoParts,
)
from connector_tax.base.documents.aggregate.words import ConfigStatus, Count, Phase
from connector_tax.base.documents.rates import ReferenceRatesFile, SaturationOf
from connector_tax.base.documents.settings import Change
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import read_json
from connector_tax.base.opening import printable

SCHEMA_VERSION: Literal[1] = 1
PLAIN = "plain"


class ConfigState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a configuration got.

    Attributes:
        ttft_is_no_tax: why, where it fakes cache hits.
        copies_kv: where it copies the KV of prompts that nobody fetches.
    """

    label: str
    status: ConfigStatus
    reason: str | None
    install: str | None = None
    note: str = ""
    ttft_is_no_tax: str | None = None
    copies_kv: str | None = None

    @property
    def bare_reason(self) -> str:
        """The reason without the status that it may repeat in front; empty where there is none."""
        return (self.reason or "").removeprefix(f"{self.status}: ")


class FirstDifference(msgspec.Struct, frozen=True, kw_only=True):
    prompt: Count
    token: int | None


OutputsVerdict = Literal["reference", "same", "differs", "not repeatable", "failed"]
CriterionWord = Literal["reported", "met", "not met", "undetermined"]


class Outputs(msgspec.Struct, frozen=True, kw_only=True):
    """Answers of a configuration's launch against plain's."""

    config: str
    phase: Phase
    n_prompts: Count
    n_same: int
    n_failed: Count
    first_difference: FirstDifference | None
    verdict: OutputsVerdict


class CriterionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One of the success criteria of the published experiment."""

    number: Annotated[int, msgspec.Meta(ge=1)]
    title: str
    outcome: CriterionWord
    evidence: str


class ProblemRow(msgspec.Struct, frozen=True, kw_only=True):
    where: str
    what: str


class Aggregate(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        date: of the first start.
        step_timing_reason: why no cell has step records; null where one has.
        source: where its numbers come from; null in an aggregate of an earlier version, whose ``measured_on`` tells it.
        connectors: at ``ref_safe``, in the campaign's order; empty in an aggregate of an earlier version.
        configs: by configuration id.
        cells: those that statistics use are ``MeasuredCell``.
        saturation: by configuration.
        reference_rates: null until Phase A of plain has a usable cell.
        main_taxes: null in an aggregate that was made before there were any; see ``chosen_taxes``.
        engine_diff: configuration -> settings that its engine resolved otherwise than plain's; null where they were not seen.
        growth: Phase D, one entry for each configuration; empty without it.
        put_in: on the embedded engine, what its model gives; null elsewhere, and in a campaign of an earlier version.
        burns: of test connectors on a virtual GPU, what their burns give; null elsewhere.
    """

    schema_version: Literal[1]
    campaign: Annotated[str, msgspec.Meta(min_length=1)]
    date: Annotated[str, msgspec.Meta(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    provenance: Provenance
    source: MeasuredOn | None = None
    step_timing_available: bool = False
    step_timing_reason: str | None = None
    configs: dict[str, ConfigState]
    connectors: tuple[ConnectorRow, ...] = ()
    cells: tuple[Cell, ...]
    saturation: dict[str, SaturationOf] = {}
    reference_rates: ReferenceRatesFile | None = None
    taxes: tuple[TaxRow, ...]
    main_taxes: tuple[MainTaxRow, ...] | None = None
    attribution: tuple[Attribution, ...] = ()
    engine_diff: dict[str, dict[str, Change] | None] = {}
    decomposition: tuple[Decomposition, ...] = ()
    two_parts: tuple[TwoParts, ...] = ()
    repeats: tuple[Repeats, ...] = ()
    failed_blocks: tuple[FailedBlock, ...] = ()
    host_drift: tuple[HostDrift, ...] = ()
    power: tuple[Power, ...] = ()
    observer_effect: tuple[ObserverEffect, ...] = ()
    growth: tuple[Growth, ...] = ()
    put_in: PutIn | None = None
    burns: Burns | None = None
    amplification: tuple[Amplification, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    outputs: tuple[Outputs, ...] = ()
    criteria: tuple[CriterionOutcome, ...] = ()
    problems: tuple[ProblemRow, ...] = ()

    @property
    def chosen_taxes(self) -> tuple[TaxRow | MainTaxRow, ...]:
        """``main_taxes``; of an aggregate that was made before there were any, the taxes of Phase A's cells."""
        if self.main_taxes is not None:
            return self.main_taxes
        return tuple(t for t in self.taxes if t.headline)

    @property
    def measured_on(self) -> MeasuredOn:
        return self.source or self.provenance.measured_on

    @property
    def config_ids(self) -> tuple[str, ...]:
        """Plain first, then as the campaign lists them."""
        return tuple(sorted(self.configs, key=lambda i: i != PLAIN))

    def label_of(self, config: str) -> str:
        return self.configs[config].label if config in self.configs else config

    def measured(self, phase: str | None = None, config: str | None = None) -> Iterator[MeasuredCell]:
        """Cells that statistics use."""
        for cell in self.cells:
            if (
                isinstance(cell, MeasuredCell)
                and phase in (None, cell.phase)
                and config in (None, cell.config)
            ):
                yield cell

    def hypothesis(self, name: str, subject: str) -> Hypothesis | None:
        return next((h for h in self.hypotheses if (h.id, h.subject) == (name, subject)), None)


class _Raw(msgspec.Struct, frozen=True):
    cells: list[Any]


def aggregate_of(value: object) -> Aggregate:
    """
    Args:
        value: parsed JSON.

    Raises:
        msgspec.ValidationError: it is of another form; says which place.
    """
    head = msgspec.convert(value, Aggregate)
    _ = head.provenance.clock  # read on demand, so that it is looked at here
    cells = []
    for k, cell in enumerate(msgspec.convert(value, _Raw).cells):
        try:
            cells.append(cell_of(cell))
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(f"{error} (of `$.cells[{k}]`)") from error
    return msgspec.structs.replace(head, cells=tuple(cells))


def read_aggregate(path: Path) -> Aggregate:
    """
    Raises:
        ArtifactError: missing, not JSON, of another schema, or of another form; names file and place.
    """
    if not os.path.lexists(path) and (path.parent / "campaign.json").is_file():
        raise ArtifactError(
            f"{path}: no such file: this campaign has not been analysed. Analyse it first: connector-tax analyze --root {quote(str(path.parent))}"
        )
    value = read_json(path)
    version = value.get("schema_version") if isinstance(value, dict) else None
    if version != SCHEMA_VERSION:
        raise ArtifactError(
            f"{path}: schema {version!r}, this version reads {SCHEMA_VERSION}. Make it again with connector-tax analyze."
        )
    try:
        return aggregate_of(value)
    except msgspec.ValidationError as error:
        raise ArtifactError(
            f"{path}: {printable(str(error), 300)}. Make it again with connector-tax analyze."
        ) from error


def written(aggregate: Aggregate) -> Any:
    """What ``to_json`` takes: objects, lists and what JSON holds beside them."""
    return msgspec.to_builtins(aggregate)
