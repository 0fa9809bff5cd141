"""A configuration that cannot be measured is a result with a reason; a host that failed is not, and stops the campaign.

Which of the two it was decides what becomes of a launch that failed twice or an engine that dies in every cell: a ``failed``
receipt, and the campaign goes on without the configuration; or an error that asks a person to mend the host. Plain vLLM has no
such way out, since every tax is taken against it.
"""

import re
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.errors import EngineError
from connector_tax.base.records.cell import Phase, phase_word
from connector_tax.base.records.connector import PLAIN_AGAIN

# What an engine's log says of a host that would have failed any configuration. Memory that somebody else holds is in vLLM's
# words "Free memory on device ... is less than desired GPU memory utilization".
_HOST = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|Read-only file system|Address already in use|Too many open files"
    r"|less than desired GPU memory utilization|CUDA-capable device|which this launch did not start|driver/library version mismatch|uncorrectable ECC"
    r"|No CUDA GPUs are available|CUDA unknown error|GPU is lost|fallen off the bus",
    re.IGNORECASE,
)
PLAINS = ("plain", PLAIN_AGAIN)


class ConfigurationFailed(Exception):
    """One configuration cannot be measured in one phase; the text says why. Never reaches a person as an exception."""


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
            f"{connector_id}: {cause.removeprefix(f'{connector_id}: ')}\nThat is the host and not the configuration. Mend it and start again; finished cells are kept."
        )


def is_of_the_host(cause: str) -> bool:
    return _HOST.search(cause) is not None


def plain_failed(connector_id: str, phase: Phase, reason: str) -> EngineError:
    """The end of the campaign's start: one message, and everything measured is kept."""
    return EngineError(
        f"{connector_id} cannot be measured in phase {phase_word(phase)}, and every tax is taken against plain vLLM: {reason}\n"
        "Nothing else is started. What is measured is kept; mend it and start again, which tries it again."
    )


def earlier_failure(folder: CampaignFolder, date: str, connector_id: str, phase: Phase) -> str | None:
    """Why a configuration need not be launched in ``phase``: it failed in Phase A.

    Failing in another phase is no such reason: Phases B and C ask other shapes, and a configuration that lost a block keeps the others.
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
