"""Which engine settings a connector's launch ends up with that plain's does not, and what vLLM's own log says of each."""

import re

from connector_tax.base.documents.settings import Settings, differences
from connector_tax.base.redaction import published_text
from connector_tax.check.document import Switched

# Setting -> what a line that is about it says, in the words of releases 0.27 to 0.32.
WORDS = {
    "scheduler_config.disable_hybrid_kv_cache_manager": r"hybrid",
    "scheduler_config.async_scheduling": r"async\w* scheduling",
    "async_scheduling": r"async\w* scheduling",
    "compilation_config.cudagraph_mode": r"cuda ?graph|piecewise",
    "model_config.enforce_eager": r"eager",
    "cache_config.enable_prefix_caching": r"prefix caching",
    "cache_config.block_size": r"block[_ ]size",
    "scheduler_config.enable_chunked_prefill": r"chunked prefill",
    "log.kv_cache_layout": r"layout",
    "log.attention_backend": r"backend",
}
# Time, process and place at the beginning of a line of vLLM's log; two launches differ in them.
_PREFIX = re.compile(r"^(\(\w+[^)]*\)\s*)?(DEBUG|INFO|WARNING|ERROR)\s+\d\d-\d\d [\d:.]+\s+\[[^\]]*\]\s*")
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
MOST_CHARS = 300


def switched(plain: Settings, own: Settings, plain_log: str, own_log: str) -> tuple[Switched, ...]:
    """Every difference with what the connector's log, and not plain's, says of it."""
    known = {_alike(line) for line in _lines(plain_log)}
    new = [line for line in dict.fromkeys(_lines(own_log)) if _alike(line) not in known]
    return tuple(
        Switched(name, change["plain"], change["own"], tuple(_about(name, new)))
        for name, change in differences(plain, own).items()
    )


def _about(setting: str, lines: list[str]) -> list[str]:
    words = WORDS.get(setting, re.escape(setting.rpartition(".")[2]).replace("_", "[_ ]"))
    found = [line for line in lines if re.search(words, line, re.IGNORECASE)]
    # A dump of the whole configuration names every setting and explains none.
    return [published_text(line) for line in found if len(line) <= MOST_CHARS]


def _lines(log: str) -> list[str]:
    return [_PREFIX.sub("", line).strip() for line in log.splitlines() if _PREFIX.match(line)]


def _alike(line: str) -> str:
    return _NUMBERS.sub("#", line)
