"""What preflight asks of one running engine; each check says what it found."""

import re
import time
from dataclasses import dataclass

import httpx
import numpy as np

from connector_tax.config import CampaignConfig
from connector_tax.engine.process import RunningEngine
from connector_tax.loadgen.sampler import scrape_patiently
from connector_tax.seeds import stream

REQUEST_TIMEOUT_S = 60.0
SHORT_PROMPT_TOKENS = 32
SHORT_OUTPUT_TOKENS = 32
# Longer than two of LMCache's chunks of 256: a shorter prompt never reaches its lookup.
LONG_PROMPT_TOKENS = 600
# A lookup that waits for a server nobody started stalls each prompt for 3 s; a healthy engine needs
# nowhere near that much longer for 600 tokens than for 32.
LONG_PROMPT_EXTRA_S = 2.5
SWITCHED_OFF = re.compile(r"degraded mode|no supported \w+ connector|connector (is )?disabled", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check."""

    check: str
    ok: bool
    detail: str


def short_requests(engine: RunningEngine, config: CampaignConfig, count: int) -> tuple[Finding, float]:
    """``count`` short completions one after the other; also the slowest one's seconds."""
    slowest_s = 0.0
    for index in range(count):
        finding, elapsed_s = _complete(engine, config, SHORT_PROMPT_TOKENS, f"short request {index + 1}")
        slowest_s = max(slowest_s, elapsed_s)
        if not finding.ok:
            return finding, slowest_s
    return Finding("short requests", True, f"{count} answered, slowest {slowest_s:.2f} s"), slowest_s


def long_prompt(engine: RunningEngine, config: CampaignConfig, short_s: float) -> Finding:
    """One prompt longer than a cache chunk, which must not stall."""
    limit = int(config.engine.args.get("max_model_len") or LONG_PROMPT_TOKENS * 2)
    length = min(LONG_PROMPT_TOKENS, limit - SHORT_OUTPUT_TOKENS)
    finding, elapsed_s = _complete(engine, config, length, "long prompt")
    if finding.ok and elapsed_s > short_s + LONG_PROMPT_EXTRA_S:
        return Finding(
            "long prompt",
            False,
            f"{length} tokens took {elapsed_s:.1f} s, a short prompt {short_s:.1f} s: each long prompt stalls",
        )
    return finding


def not_switched_off(engine: RunningEngine) -> Finding:
    """The log does not say that the connector runs without doing its work."""
    found = [line.strip() for line in engine.log_text().splitlines() if SWITCHED_OFF.search(line)]
    if found:
        return Finding(
            "connector switched on", False, f"the engine serves, but its log says: {found[0][:300]}"
        )
    return Finding("connector switched on", True, "no word of degraded mode in the log")


def cache_was_asked(engine: RunningEngine) -> Finding:
    """A cache connector was asked for the prompts: its query counter moved, where there is one."""
    try:
        queries = scrape_patiently(engine.base_url).get("external_prefix_cache_queries")
    except OSError as error:
        return Finding("external cache asked", False, f"its counter cannot be read: {error}")
    if queries is None:
        return Finding("external cache asked", True, "this release does not export the counter")
    if queries == 0:
        return Finding(
            "external cache asked", False, "external_prefix_cache_queries is 0: the connector is inactive"
        )
    return Finding("external cache asked", True, f"{queries:g} tokens looked up")


def alive(engine: RunningEngine) -> Finding:
    """The process lives, ``/health`` says so, and no engine core is counted as failed."""
    death = engine.death()
    if death is not None:
        return Finding("engine alive", False, death)
    try:
        code = httpx.get(f"{engine.base_url}/health", timeout=10).status_code
        failed = scrape_patiently(engine.base_url).get("engine_core_failed", 0.0)
    except (httpx.HTTPError, OSError) as error:
        return Finding("engine alive", False, f"/health or /metrics: {error}")
    if code != 200 or failed:
        return Finding("engine alive", False, f"/health answers {code}, failed engine cores: {failed:g}")
    return Finding("engine alive", True, "/health answers 200")


def _complete(engine: RunningEngine, config: CampaignConfig, length: int, name: str) -> tuple[Finding, float]:
    cell = config.cell
    rng = stream(time.monotonic_ns(), "preflight")
    prompt = rng.integers(cell.token_id_low, cell.token_id_high, length, dtype=np.int64).tolist()
    body = {
        "model": engine.model,
        "prompt": prompt,
        "max_tokens": SHORT_OUTPUT_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
    }
    start = time.monotonic()
    try:
        answer = httpx.post(f"{engine.base_url}/v1/completions", json=body, timeout=REQUEST_TIMEOUT_S)
    except httpx.HTTPError as error:
        cause = engine.death() or f"{type(error).__name__} after {time.monotonic() - start:.1f} s"
        return Finding(name, False, cause), time.monotonic() - start
    elapsed_s = time.monotonic() - start
    if answer.status_code != 200:
        return Finding(name, False, f"HTTP {answer.status_code}: {answer.text[:300]}"), elapsed_s
    return Finding(name, True, f"{length} tokens in {elapsed_s:.2f} s"), elapsed_s
