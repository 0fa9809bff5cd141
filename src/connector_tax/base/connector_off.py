"""Words by which an engine's log says that its connector is off or runs on a fallback; the cache counter that
proves it on.

Preflight asks them of the engine that it tries, the analysis of every launch that was measured.
"""

import re
from collections.abc import Iterable
from typing import Literal

Said = Literal["off", "fallback"]

EXTERNAL_QUERIES = "external_prefix_cache_queries"
# Lines of LMCache, vLLM and Mooncake. A fallback is LMCache on torch operations where its own are compiled
# for another CUDA.
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
    """What the log says first, and its line; None where it says nothing of the kind."""
    for line in lines:
        for said, words in _WORDS.items():
            if words.search(line):
                return said, line.strip()[:MOST_SAID_CHARS]
    return None
