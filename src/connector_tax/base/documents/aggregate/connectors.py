"""``connectors`` of ``aggregate.json``: what stands for each connector, as codes, and where the numbers come from."""

from typing import Literal, get_args

import msgspec

from connector_tax.base.documents.aggregate.words import LatencyMetric

SourceKind = Literal["embedded_engine", "virtual_gpu", "gpu", "cpu", "unknown"]
RowVerdict = Literal["tax", "gain", "noise", "none", "open", "failed", "skipped", "missing"]
ReasonCode = Literal[
    "skipped",
    "run_failed",
    "not_measured",
    "plain_missing",
    "no_reference_rate",
    "answers_differ",
    "ttft_excluded",
    "requests_failed",
    "saturated",
    "cell_left_out",
    "no_number",
]
# In the order in which the page's footnotes stand.
Mark = Literal[
    "partial",
    "overloaded",
    "other_phase",
    "fewer_blocks",
    "open_interval",
    "ttft_excluded",
    "answers_differ",
    "copies_kv",
    "copy_clocked",
    "spins",
    "hooks_unknown",
]
MARKS: tuple[Mark, ...] = get_args(Mark)


class MeasuredOn(msgspec.Struct, frozen=True, kw_only=True):
    """Where a campaign's numbers come from.

    Attributes:
        device: the card, the card that a virtual GPU's clock went by, or the CPU; empty where nobody knows.
    """

    kind: SourceKind
    device: str = ""

    @property
    def text(self) -> str:
        """As the ``source`` column of a CSV has it."""
        return f"{self.kind}: {self.device}" if self.device else self.kind


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a number is missing.

    Attributes:
        subject: the configuration that it is about.
    """

    code: ReasonCode
    subject: str


class ConnectorRow(msgspec.Struct, frozen=True, kw_only=True):
    """One connector at ``ref_safe``, judged by its taxes in ``main_taxes`` and plain against itself in ``repeats``.

    Attributes:
        verdict: ``tax`` or ``gain`` where an interval excludes zero and its estimate lies outside the noise floor; ``noise`` where it lies
            inside; ``open`` where an interval has an open end, is too wide, or a latency has no number.
        clear: the latencies that decide a ``tax`` or ``gain``.
        reason: why a latency has no number; null where both have one.
        marks: what qualifies the row.
    """

    config: str
    verdict: RowVerdict
    clear: tuple[LatencyMetric, ...] = ()
    reason: Reason | None = None
    marks: tuple[Mark, ...] = ()
