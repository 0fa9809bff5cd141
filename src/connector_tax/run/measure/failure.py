"""Decides whether a cell is valid, and whether a failure is the configuration's or the host's.

A configuration that cannot be measured gets a ``failed`` receipt with the reason, and the campaign continues
without it. A failed host stops the campaign. So does plain vLLM, since every tax is taken against it.
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

# Verdicts: a bad measurement is data, not an exception.

# Sampler and kernel took 1.7 % of two cores (median of 108 cells, at most 4.9 %), less on larger hosts.
MAX_OTHERS_SHARE = 0.1
# Requests that failed for reasons other than load count against throughput. Beyond this share the 95 %
# criterion would call a refusing engine saturated, and p90 would describe survivors.
MAX_REFUSED_SHARE = 0.05
# Statuses that overload does not cause: an overloaded engine lets requests wait (``timeout``),
# and the client drops some.
REFUSED = ("http_error", "connect_error", "malformed", "stream_error", "truncated", "wrong_length")
DIED = "engine died: "
# More than two clocks differ by if the process is preempted between reading them.
MAX_SUSPENDED_S = 1.0
SAID_CHARS = 200


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a cell is valid. ``invalid`` cells stay on disk and are counted, but enter no statistic.

    ``flags`` qualify a valid cell and accompany its numbers.
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
    """Return the verdict of one cell.

    Args:
        health: the load generator's self-check, see ``run/loadgen/health.py``.
        prefix_cache_hits_delta: tokens found in the prefix cache during the cell; None if not exported.
        external_hits_delta: likewise, tokens that a connector reported as cached.
        has_connector: whether a connector could have reported any.
        hits_wanted: the prompts repeat earlier text, as conversations do. Otherwise a hit means
            that a prompt was not new.
        hits_faked: the connector claims tokens that it does not have, by design, so its TTFT is no tax.
        metrics_read: whether the engine's counters were read before and after the cell.
        refused: see ``refused``.
        steps_agree: whether step records match the engine's own count of iterations.
        others_share: share of all cores' time used by neither engine nor client; None if unknown.
        samples_missing: whether the metrics sampler was missing for most of the cell.
        clock_fault: what is wrong with a virtual GPU's clock; None if nothing, or without one.
        suspended_s: how long the host was suspended during the cell, by two clocks read microseconds apart.
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
    """Return why the engine refused over 5 % of the window's requests for reasons other than load, or None.

    Args:
        engine_said: the last error in the engine's log during the cell, if any.
    """
    considered = [request for request in requests if request.phase == "window"] or requests
    failed = [request for request in considered if request.status in REFUSED]
    if len(failed) <= MAX_REFUSED_SHARE * len(considered):
        return None
    first = failed[0]
    message = f"not answered: {len(failed)} of {len(considered)} requests failed, the first as {first.status}"
    message += f" ({_short(first.error)})" if first.error else ""
    return message + (f"; the engine's log says: {_short(engine_said)}" if engine_said else "")


def death_of(judged: CellDocument | Verdict) -> str | None:
    deaths = [reason for reason in judged.reasons if reason.startswith(DIED)]
    return deaths[0].removeprefix(DIED) if deaths else None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SAID_CHARS else line[:SAID_CHARS] + " ..."


# Log messages of a host failure that would hit any configuration. vLLM reports memory held by another process
# as "Free memory on device ... is less than desired GPU memory utilization".
_HOST = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|Read-only file system"
    r"|Address already in use|Too many open files|which this launch did not start"
    r"|less than desired GPU memory utilization|CUDA-capable device|driver/library version mismatch"
    r"|uncorrectable ECC|No CUDA GPUs are available|CUDA unknown error|GPU is lost|fallen off the bus"
    # torch's messages for a missing fabric or driver. Other driver errors may be a connector's fault.
    r"|Failed to infer device type|Error 80[23]: system|driver on your system is too old",
    re.IGNORECASE,
)
PLAINS = ("plain", PLAIN_AGAIN)


class ConfigurationFailed(Exception):
    """One configuration cannot be measured in one phase, for the reason in the text. Always caught."""


class HostFailed(EngineError):
    """The machine failed, not the configuration that was running."""


def blame_the_host(cause: str, connector_id: str) -> None:
    """Raise if ``cause`` is a failure of the host.

    Raises:
        HostFailed: it is one.
    """
    if is_of_the_host(cause):
        # A launch error names the connector already.
        raise HostFailed(
            f"{connector_id}: {cause.removeprefix(f'{connector_id}: ')}\nThat is the host and not the"
            " configuration. Mend it and start again; finished cells are kept."
        )


def is_of_the_host(cause: str) -> bool:
    return _HOST.search(cause) is not None


def plain_failed(connector_id: str, phase: Phase, reason: str) -> EngineError:
    """Return the error that stops the campaign; everything measured is kept."""
    return EngineError(
        f"{connector_id} cannot be measured in phase {phase_word(phase)}, and every tax is taken against"
        f" plain vLLM: {reason}\nNothing else is started. What is measured is kept; mend it and start again,"
        " which tries it again."
    )


def earlier_failure(folder: CampaignFolder, date: str, connector_id: str, phase: Phase) -> str | None:
    """Return why ``phase`` need not launch a configuration: it failed in Phase A.

    Failures in other phases do not count: Phases B and C use other shapes, and a configuration that lost
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
