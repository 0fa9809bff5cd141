"""Whether the recorder of a connector's launch heard its hooks: what nobody recorded is unknown, and not 0 us.

A worker whose step log cannot be written gives up recording and serves on. A connector that was made before anybody watched
for it has its hooks wrapped nowhere, or in one process and not in the other. Either leaves records that look like plain's.
"""

from collections.abc import Iterable, Mapping
from typing import Any

PROCESSES = ("scheduler", "worker")
NO_WORKER = "no worker process recorded anything"
NO_HOOKS = "the {process} recorded none of the connector's hooks"
NO_ROWS = "no step has a record of the worker"
# On a cell of a connector.
FLAG = "hook_times_unknown"


def unheard(headers: Iterable[Mapping[str, Any]]) -> str | None:
    """Why the hooks of a launch with a connector are not known, from the headers of its step records; None where they are.

    Headers of before hooks had names name none, and say nothing of them; what lists them and has none does.
    """
    named: dict[str, list[Any]] = {}
    for header in headers:
        named.setdefault(str(header.get("process")), []).append(header.get("hooks"))
    for process in PROCESSES:
        # In the longest list of a process, since names are only ever added.
        lists = named.get(process, ())
        if process == "worker" and not lists:
            return NO_WORKER
        if lists and all(names is not None and not names for names in lists):
            return NO_HOOKS.format(process=process)
    return None
