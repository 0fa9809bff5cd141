"""``sweeps/<sweep>/ends.json``: how each campaign's last start by a sweep ended."""

from typing import ClassVar, Literal

from connector_tax.base.records.record import Record


class End(Record, frozen=True, kw_only=True):
    """
    Attributes:
        code: of Snakemake; below zero the signal that ended it.
        utc: ``YYYY-MM-DDTHH:MM:SSZ``.
    """

    code: int
    utc: str


class SweepEnds(Record, frozen=True, kw_only=True):
    """
    Attributes:
        ends: by campaign; none of a campaign that was interrupted, or was not started yet.
    """

    REMEDY: ClassVar[str] = "Remove it; the next run of the sweep writes it anew."

    schema: Literal[1] = 1
    sweep: str
    ends: dict[str, End]
