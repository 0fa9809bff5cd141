"""Tells whether a connector's hooks were recorded; unrecorded hooks are unknown, not 0 us.

A worker that cannot write its step log stops recording and serves on. A connector created before the recorder
was installed has unwrapped hooks, in all processes or in some. Either leaves records that look like plain's.
"""

from collections.abc import Iterable
from typing import Any, Literal

from connector_tax.base.steptime.share import Header

# Flag of a connector's cell.
FLAG = "hook_times_unknown"
Unheard = Literal["scheduler_without_hooks", "worker_without_hooks", "worker_without_rows", "no_worker"]
_NO_HOOKS: dict[str, Unheard] = {
    "scheduler": "scheduler_without_hooks",
    "worker": "worker_without_hooks",
}


def unheard(headers: Iterable[Header]) -> dict[str, Unheard]:
    """Return process (``scheduler``, ``worker``) -> why its hooks are unknown, in a launch with a connector.

    Args:
        headers: of its step records. Headers from before hooks were named have no list and prove nothing; an
            empty list does.
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
