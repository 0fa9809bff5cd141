"""What an engine resolved its settings to, how two engines differ, and the flags that make one like the other.

Switching a connector on also switches engine settings. Most are read from inside the engine (the header of its step
records), the rest from what it logs at start.
"""

import json
import re
from pathlib import Path

from connector_tax.base.documents.settings import Change, Settings
from connector_tax.base.records.settings import CONSEQUENCES
from connector_tax.base.steptime import headers_of

_LOGGED = {
    # Before 0.29 a connector or a variable that asks for a layout is told, and the default is not.
    "log.kv_cache_layout": re.compile(r"Using (\w+) KV cache layout|[Ss]etting KV cache layout to (\w+)"),
    "log.attention_backend": re.compile(r"Using (\w+)(?: \w+)* (?:attention )?backend", re.IGNORECASE),
    "log.kv_cache_tokens": re.compile(r"KV cache size: ([\d,]+) tokens"),
}


def resolved_settings(step_files: list[Path], log_text: str) -> Settings:
    """Name -> value; a name that neither the step records nor the log tells is left out."""
    found: Settings = {}
    for path in step_files:
        for header in headers_of(path):
            found |= {k: v for k, v in (header.get("settings") or {}).items() if v is not None}
    for name, pattern in _LOGGED.items():
        if match := pattern.search(log_text):
            found[name] = match.group(match.lastindex or 1)
    return found


def differences(plain: Settings, own: Settings) -> dict[str, Change]:
    """``{setting: {"plain": ..., "own": ...}}`` where the two are not the same; None for what one does not tell.

    What follows from other settings is no setting: another number of KV blocks is no difference.
    """
    return {
        name: {"plain": plain.get(name), "own": own.get(name)}
        for name in sorted({*plain, *own} - CONSEQUENCES)
        if plain.get(name) != own.get(name)
    }


def pinned(plain: Settings, own: Settings) -> dict[str, Change]:
    """What a matched launch is given beside the differences, so that both have the same room for KV blocks."""
    name = "cache_config.num_gpu_blocks"
    if own.get(name) is None or plain.get(name) == own[name]:
        return {}
    return {name: {"plain": plain.get(name), "own": own[name]}}


def matching_flags(changes: dict[str, Change]) -> tuple[list[str], dict[str, str], list[str]]:
    """(arguments, environment, settings that no flag sets) for a launch of plain vLLM that ends up like the other."""
    arguments: list[str] = []
    environment: dict[str, str] = {}
    unmatched = []
    for name, change in changes.items():
        value = change["own"]
        if name in _SWITCHES and isinstance(value, bool):
            arguments.append(("--" if value else "--no-") + _SWITCHES[name])
        elif name in _VALUES and value is not None:
            arguments += ["--" + _VALUES[name], str(value)]
        elif name == "compilation_config.cudagraph_mode" and value is not None:
            arguments += [
                "--compilation-config",
                json.dumps({"cudagraph_mode": str(value).rpartition(".")[2]}),
            ]
        elif name == "log.kv_cache_layout" and value is not None:
            environment["VLLM_KV_CACHE_LAYOUT"] = value
        else:
            unmatched.append(name)
    return arguments, environment, unmatched


_SWITCHES = {
    "scheduler_config.disable_hybrid_kv_cache_manager": "disable-hybrid-kv-cache-manager",
    "scheduler_config.async_scheduling": "async-scheduling",
    "scheduler_config.enable_chunked_prefill": "enable-chunked-prefill",
    "cache_config.enable_prefix_caching": "enable-prefix-caching",
    "model_config.enforce_eager": "enforce-eager",
}
_VALUES = {
    "cache_config.num_gpu_blocks": "num-gpu-blocks-override",
    "cache_config.block_size": "block-size",
    "scheduler_config.max_num_seqs": "max-num-seqs",
    "scheduler_config.max_num_batched_tokens": "max-num-batched-tokens",
    "log.attention_backend": "attention-backend",
}
