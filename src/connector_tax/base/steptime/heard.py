"""Whether the recorder of a connector's launch heard its hooks: what nobody recorded is unknown, and not 0
us.

A worker whose step log cannot be written gives up recording and serves on. A connector that was made before
anybody watched for it has its hooks wrapped nowhere, or in one process and not in the other. Either leaves
records that look like plain's.
"""

from collections.abc import Iterable
from typing import Any, Literal

from connector_tax.base.steptime.raw import Header

# On a cell of a connector.
FLAG = "hook_times_unknown"
Unheard = Literal["scheduler_without_hooks", "worker_without_hooks", "worker_without_rows", "no_worker"]
_NO_HOOKS: dict[str, Unheard] = {
    "scheduler": "scheduler_without_hooks",
    "worker": "worker_without_hooks",
}


def unheard(headers: Iterable[Header]) -> dict[str, Unheard]:
    """Process (``scheduler``, ``worker``) -> the code of why its hooks are not known, of a launch with a
    connector.

    Args:
        headers: of its step records. Those of before hooks had names list none, and say nothing; a list that
            is empty does.
    """
    listed: dict[str, list[Any]] = {process: [] for process in _NO_HOOKS}
    for header in headers:
        if header.get("process") in listed:
            listed[header["process"]].append(header.get("hooks"))
    found = {
        process: _NO_HOOKS[process]
        for process, lists in listed.items()
        if lists and all(names == [] for names in lists)
    }
    return found if listed["worker"] else {**found, "worker": "no_worker"}
