"""``connector-tax check --json``: what a check measured and what it says of it."""

from typing import Any, Literal

import msgspec

from connector_tax.base.documents.aggregate import TaxRow
from connector_tax.base.records.bounds import Foreign

ABOVE, NOT_ABOVE, MEASURED = "above", "not_above", "measured"
NOT_SERVED, NOT_JUDGED = "not_served", "not_judged"
EXIT_CODES = {ABOVE: 1, NOT_ABOVE: 0, MEASURED: 0, NOT_SERVED: 2, NOT_JUDGED: 2}


class Connector(msgspec.Struct, frozen=True):
    """What was checked; ``notes`` are what was changed of it for a host without a GPU."""

    id: str
    label: str
    kv_transfer_config: Foreign
    notes: tuple[str, ...]


class Switched(msgspec.Struct, frozen=True):
    """One engine setting that is not plain's.

    Attributes:
        plain, own: its values, which are vLLM's.
        reasons: lines of the connector's log about it that plain's log does not have; none where vLLM does not say why.
    """

    setting: str
    plain: Any
    own: Any
    reasons: tuple[str, ...]


class RealTime(msgspec.Struct, frozen=True):
    """A campaign in real time.

    Attributes:
        taxes: of the connector, and of ``again``: what plain differs from itself by.
        lost: cells that do not count, with the reasons.
        failure: why the connector was not measured; None where it was.
    """

    taxes: tuple[TaxRow, ...]
    lost: tuple[str, ...]
    failure: str | None


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The whole.

    Attributes:
        verdict: one of ``EXIT_CODES``.
        fail_above: as a ratio; None: no tax is too large.
    """

    schema: Literal[2] = 2
    verdict: str
    exit_code: int
    fail_above: float | None
    connector: Connector
    model: str
    gpu: str
    elapsed_s: float
    real_time: RealTime | None
