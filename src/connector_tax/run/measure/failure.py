"""A configuration that cannot be measured is a result with a reason; a host that failed is not, and stops the
campaign.

Which of the two it was decides what becomes of a launch that failed twice or an engine that dies in every
cell: a ``failed`` receipt, and the campaign goes on without the configuration; or an error that asks a person
to mend the host. Plain vLLM has no such way out, since every tax is taken against it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.documents.cell import CellDocument, Health, VerdictWord
from connector_tax.base.errors import EngineError
from connector_tax.base.records.cell import CellWindow, Phase, phase_word
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.records.request import RequestRecord

# Whether a cell may enter the statistics: a bad measurement is data, not an exception.

# Sampler and kernel took 1.7 % of two cores (median of 108 cells, at most 4.9 %); of a larger host it is
# less.
MAX_OTHERS_SHARE = 0.1
# Requests that failed for reasons other than load do not count as throughput; beyond this share of them the
# criterion of 95 % would call an engine saturated that refuses, and a p90 would soon be one of survivors.
MAX_REFUSED_SHARE = 0.05
# What an engine that is merely overloaded does not do: it lets requests wait (``timeout``), and the client
# drops some.
REFUSED = ("http_error", "connect_error", "malformed", "stream_error", "truncated", "wrong_length")
DIED = "engine died: "
# Beyond what two clocks that are read one after the other differ by when the process is put aside in between.
MAX_SUSPENDED_S = 1.0
SAID_CHARS = 200


@dataclass(frozen=True, slots=True)
class Verdict:
    """``invalid`` cells stay on disk, are counted in the report and left out of every statistic.

    ``flags`` qualify a valid cell; they travel with its numbers.
    """

    valid: bool
    reasons: tuple[str, ...]
    flags: tuple[str, ...]

    @property
    def word(self) -> VerdictWord:
        return "valid" if self.valid else "invalid"


def judge(
    window: CellWindow,
    health: Health,
    *,
    prefix_cache_hits_delta: float | None,
    external_hits_delta: float | None = None,
    has_connector: bool = False,
    hits_wanted: bool = False,
    hits_faked: bool = False,
    metrics_read: bool = True,
    refused: str | None = None,
    steps_agree: bool = True,
    others_share: float | None = None,
    samples_missing: bool = False,
    clock_fault: str | None = None,
    suspended_s: float = 0.0,
    engine_death: str | None,
) -> Verdict:
    """The verdict of one cell.

    Args:
        health: the load generator's proof of itself, see ``run/loadgen/health.py``.
        prefix_cache_hits_delta: tokens found in the prefix cache during the cell; None where the
            engine does not export the counter.
        external_hits_delta: tokens that a connector said it had, likewise.
        has_connector: whether anybody could have said so.
        hits_wanted: the cell's prompts repeat what was said before, as conversations do; elsewhere a hit
            means that a prompt was not new, and the cell measured something else.
        hits_faked: the connector claims tokens that it does not have, by design; its TTFT is no tax then.
        metrics_read: whether the engine's counters could be read before and after the cell.
        refused: see ``refused``.
        steps_agree: whether there are as many step records as iterations by the engine's own count.
        others_share: of all cores' time, what neither engine nor client took; None where that is not known.
        samples_missing: whether the sampler of the engine's metrics was not there for most of the cell.
        clock_fault: why a virtual GPU's clock was none; None where it was, and of an engine with a device of
            its own.
        suspended_s: how long the host was suspended meanwhile; both clocks are read some microseconds apart.
        engine_death: the root cause if the engine died in this cell.
    """
    reasons = []
    flags = []
    if engine_death is not None:
        reasons.append(f"{DIED}{engine_death}")
    if refused is not None:
        reasons.append(refused)
    if health.given_up and not window.overloaded:
        reasons.append(f"given up: {health.given_up}")
    if suspended_s > MAX_SUSPENDED_S:
        reasons.append(f"the host was suspended for {suspended_s:.1f} s in the middle of it")
    if clock_fault is not None:
        reasons.append(clock_fault)
    if hits_wanted and prefix_cache_hits_delta == 0:
        flags.append("prefix_cache_never_hit")
    if not hits_wanted and prefix_cache_hits_delta is not None and prefix_cache_hits_delta != 0:
        reasons.append(
            f"prefix cache hits: {prefix_cache_hits_delta:g} tokens of prompts that should be new were cached"
        )
    if external_hits_delta and hits_faked:
        flags.append("external_hits_faked")
    elif external_hits_delta and not hits_wanted:
        reasons.append(
            f"external cache hits: {external_hits_delta:g} tokens of prompts that should be new came out of a"
            " store"
        )
    if not metrics_read:
        flags.append("metrics_unreadable")
    if samples_missing:
        flags.append("samples_missing")
    if prefix_cache_hits_delta is None:
        flags.append("prefix_cache_unchecked")
    if external_hits_delta is None and has_connector:
        flags.append("external_cache_unchecked")
    if not steps_agree:
        flags.append("step_records_incomplete")
    reasons += health.bottleneck or ()
    if not reasons and health.statuses and not health.statuses.get("ok"):
        reasons.append("no request completed")
    if others_share is not None and others_share > MAX_OTHERS_SHARE:
        flags.append("host_busy")
    flags += window.flags
    flags += [flag for flag in ("client_limited", "client_stalled") if getattr(health, flag)]
    if health.cores_shared:
        flags.append("cores_shared")
    return Verdict(not reasons, tuple(reasons), tuple(flags))


def refused(requests: list[RequestRecord], engine_said: str | None) -> str | None:
    """Why the engine did not answer, where over 5 % of a window's requests failed in a way that no load
    explains; else None.

    Args:
        engine_said: the last error of the engine's own log during the cell, if it has one.
    """
    asked = [r for r in requests if r.phase == "window"] or requests
    failed = [r for r in asked if r.status in REFUSED]
    if len(failed) <= MAX_REFUSED_SHARE * len(asked):
        return None
    first = failed[0]
    text = f"not answered: {len(failed)} of {len(asked)} requests failed, the first as {first.status}"
    text += f" ({_short(first.error)})" if first.error else ""
    return text + (f"; the engine's log says: {_short(engine_said)}" if engine_said else "")


def death_of(judged: CellDocument | Verdict) -> str | None:
    """The root cause in the reasons of a cell in which the engine died; None of any other."""
    found = [reason for reason in judged.reasons if reason.startswith(DIED)]
    return found[0].removeprefix(DIED) if found else None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SAID_CHARS else line[:SAID_CHARS] + " ..."


# What an engine's log says of a host that would have failed any configuration. Memory that somebody else
# holds is in vLLM's words "Free memory on device ... is less than desired GPU memory utilization".
_HOST = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|Read-only file system"
    r"|Address already in use|Too many open files|which this launch did not start"
    r"|less than desired GPU memory utilization|CUDA-capable device|driver/library version mismatch"
    r"|uncorrectable ECC|No CUDA GPUs are available|CUDA unknown error|GPU is lost|fallen off the bus"
    # A fabric or driver that is not up, in torch's words. Others of a driver may be of what a connector did.
    r"|Failed to infer device type|Error 80[23]: system|driver on your system is too old",
    re.IGNORECASE,
)
PLAINS = ("plain", PLAIN_AGAIN)


class ConfigurationFailed(Exception):
    """One configuration cannot be measured in one phase; the text says why. Never reaches a person as an
    exception."""


class HostFailed(EngineError):
    """The machine failed, and not the configuration that met it."""


def blame_the_host(cause: str, connector_id: str) -> None:
    """Raise if ``cause`` is one that no configuration is to blame for.

    Raises:
        HostFailed: it is.
    """
    if is_of_the_host(cause):
        # What is said of its launch names it already.
        raise HostFailed(
            f"{connector_id}: {cause.removeprefix(f'{connector_id}: ')}\nThat is the host and not the"
            " configuration. Mend it and start again; finished cells are kept."
        )


def is_of_the_host(cause: str) -> bool:
    return _HOST.search(cause) is not None


def plain_failed(connector_id: str, phase: Phase, reason: str) -> EngineError:
    """The end of the campaign's start: one message, and everything measured is kept."""
    return EngineError(
        f"{connector_id} cannot be measured in phase {phase_word(phase)}, and every tax is taken against"
        f" plain vLLM: {reason}\nNothing else is started. What is measured is kept; mend it and start again,"
        " which tries it again."
    )


def earlier_failure(folder: CampaignFolder, date: str, connector_id: str, phase: Phase) -> str | None:
    """Why a configuration need not be launched in ``phase``: it failed in Phase A.

    Failing in another phase is no such reason: Phases B and C ask other shapes, and a configuration that lost
    a block keeps the others.
    """
    if phase == "a" or connector_id in PLAINS:
        return None
    run = folder.run(date, connector_id, "a")
    receipt = read_receipt(run) if run.receipt.is_file() else None
    if receipt is not None and receipt.status == "failed":
        return f"failed in phase {phase_word('a')}: {receipt.reason}"
    return None


def how_to_try_again(receipt: Path) -> str:
    return f"The campaign goes on without it; to have it tried again, remove {receipt} and start again"
