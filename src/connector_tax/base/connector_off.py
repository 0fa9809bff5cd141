"""Detects in an engine's log that its connector is off or on a fallback; names the counter that proves it on.

Preflight checks the engine that it tries, the analysis every measured launch.
"""

import re
from collections.abc import Iterable
from typing import Literal

Said = Literal["off", "fallback"]

EXTERNAL_QUERIES = "external_prefix_cache_queries"
# Lines of LMCache, vLLM and Mooncake. On a fallback LMCache runs torch operations, because its own were
# compiled for another CUDA.
_WORDS: dict[Said, re.Pattern[str]] = {
    "off": re.compile(
        r"degraded mode|no supported \w+ connector|connector (is |was )?(disabled|inactive|switched off)"
        r"|disabling (the )?(kv )?(connector|cpu offload)|(lmcache|connector)( server)? is unhealthy",
        re.IGNORECASE,
    ),
    "fallback": re.compile(r"stays on the torch baseline|failed to import backend lmcache", re.IGNORECASE),
}
MOST_SAID_CHARS = 300


def said_in(lines: Iterable[str]) -> tuple[Said, str] | None:
    """Return the first finding in the log and its line; None without one."""
    for line in lines:
        for finding, pattern in _WORDS.items():
            if pattern.search(line):
                return finding, line.strip()[:MOST_SAID_CHARS]
    return None
