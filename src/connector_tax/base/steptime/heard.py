"""Whether the recorder of a connector's launch heard its hooks: what nobody recorded is unknown, and not 0 us.

A worker whose step log cannot be written gives up recording and serves on. A connector that was made before anybody watched
for it has its hooks wrapped nowhere, or in one process and not in the other. Either leaves records that look like plain's.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from connector_tax.base.steptime.raw import Header

# On a cell of a connector, and before what was not heard.
FLAG = "hook_times_unknown"
NOT_KNOWN = "hook times are not known: "
NO_ROWS = "no step has a record of the worker"
_NO_WORKER = "no worker process recorded anything"
_NO_HOOKS = "the {process} recorded none of the connector's hooks"


def unheard(headers: Iterable[Header]) -> dict[str, str]:
    """Process (``scheduler``, ``worker``) -> why its hooks are not known, of a launch with a connector.

    Args:
        headers: of its step records. Those of before hooks had names list none, and say nothing; a list that is empty does.
    """
    listed: dict[str, list[Any]] = {"scheduler": [], "worker": []}
    for header in headers:
        if header.get("process") in listed:
            listed[header["process"]].append(header.get("hooks"))
    found = {
        process: _NO_HOOKS.format(process=process)
        for process, lists in listed.items()
        if lists and all(names == [] for names in lists)
    }
    return found if listed["worker"] else {**found, "worker": _NO_WORKER}


def words(silent: Mapping[str, str]) -> str | None:
    """One sentence of ``unheard``; None where all were heard."""
    return NOT_KNOWN + " and ".join(silent.values()) if silent else None
