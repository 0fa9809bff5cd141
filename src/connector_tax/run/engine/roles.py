"""An engine's processes by what each is for: the API server, engine cores, workers."""

import psutil


def processes_below(root: int) -> dict[str, psutil.Process]:
    """By role; a second one of the same role has its pid in its name.

    Raises:
        psutil.NoSuchProcess: ``root`` is gone.
    """
    found: dict[str, psutil.Process] = {}
    for process in psutil.Process(root).children(recursive=True):
        try:
            role = _role(process)
        except psutil.Error:
            continue  # ended between the listing and the question
        found[role if role not in found else f"{role}#{process.pid}"] = process
    return found


def _role(process: psutil.Process) -> str:
    """``api_server``, ``engine_core``, ``worker``, ...: vLLM names its processes by title."""
    title = " ".join(process.cmdline()) or process.name()
    for word, role in (
        ("EngineCore", "engine_core"),
        ("Worker", "worker"),
        ("resource_tracker", "resource_tracker"),
    ):
        if word in title:
            return role
    # `APIServer` is the title that vLLM gives each of several; a single one keeps its command.
    if any(word in title for word in ("vllm_serve", "APIServer", "connector_tax.run.emulator")):
        return "api_server"
    return process.name()
