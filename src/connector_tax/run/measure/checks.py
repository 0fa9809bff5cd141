"""What preflight asks of one running engine; each check says what it found."""

import httpx

from connector_tax.base import direct
from connector_tax.base.artifacts.layout import DEVICE_CLOCK
from connector_tax.base.config import CampaignConfig
from connector_tax.base.connector_off import EXTERNAL_QUERIES, said_in
from connector_tax.base.documents.preflight import CACHE_ASKED, Finding
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.base.units import token_count
from connector_tax.run.engine.process import RunningEngine
from connector_tax.run.measure.warmup import Answer, ask
from connector_tax.run.sampler.sampler import scrape_patiently

REQUEST_TIMEOUT_S = 60.0
SHORT_PROMPT_TOKENS = 32
LONG_OUTPUT_TOKENS = 32
# Longer than two of LMCache's chunks of 256: a shorter prompt never reaches its lookup.
LONG_PROMPT_TOKENS = 600
# A lookup that waits for a server nobody started stalls each prompt for 3 s; a healthy engine needs
# nowhere near that much longer for 600 tokens than for 32.
LONG_PROMPT_EXTRA_S = 2.5
SWITCHED_ON, COMPILED = "connector switched on", "compiled operations"


def verify_lengths(config: CampaignConfig) -> tuple[int, ...]:
    """Prompt lengths that the checks send, so that they can be warmed before."""
    return (SHORT_PROMPT_TOKENS, long_length(config))


def short_requests(
    engine: RunningEngine, config: CampaignConfig, connector: ConnectorSpec
) -> tuple[Finding, float]:
    """The connector's short completions one after the other, all within its limit; also the slowest one's seconds."""
    count, tokens, limit_s = (
        connector.verify_requests,
        connector.verify_output_tokens,
        connector.verify_within_s,
    )
    answers: list[Answer] = []
    for index in range(count):
        answers.append(ask(engine, config, SHORT_PROMPT_TOKENS, output_tokens=tokens, timeout_s=limit_s))
        if answers[-1].fault is not None:
            return Finding(f"short request {index + 1}", False, answers[-1].fault), 0.0
    total_s = sum(a.elapsed_s for a in answers)
    return (
        Finding(
            "short requests",
            total_s < limit_s,
            f"{count} of {tokens} output tokens answered in {total_s:.2f} s together (limit {limit_s:g} s)",
        ),
        max(a.elapsed_s for a in answers),
    )


def long_prompt(engine: RunningEngine, config: CampaignConfig, short_s: float) -> Finding:
    """One prompt longer than a cache chunk, which must not stall."""
    length = long_length(config)
    answer = ask(engine, config, length, output_tokens=LONG_OUTPUT_TOKENS, timeout_s=REQUEST_TIMEOUT_S)
    if answer.fault is not None:
        return Finding("long prompt", False, answer.fault)
    stalls = answer.elapsed_s > short_s + LONG_PROMPT_EXTRA_S
    words = f"{length} tokens took {answer.elapsed_s:.1f} s, a short prompt {short_s:.1f} s: each long prompt stalls"
    return Finding(
        "long prompt", not stalls, words if stalls else f"{length} tokens in {answer.elapsed_s:.2f} s"
    )


def long_length(config: CampaignConfig) -> int:
    """Tokens of that prompt: as long as it should be, where the engine takes it."""
    limit = token_count(config.engine.args.get("max_model_len")) or LONG_PROMPT_TOKENS * 2
    return min(LONG_PROMPT_TOKENS, limit - LONG_OUTPUT_TOKENS)


def not_switched_off(engine: RunningEngine) -> Finding:
    """The log does not say that the connector runs without doing its work, or on a fallback."""
    found = said_in(engine.log_text().splitlines())
    if found is None:
        return Finding(SWITCHED_ON, True, "no word of degraded mode in the log")
    check = SWITCHED_ON if found[0] == "off" else COMPILED
    return Finding(check, False, f"the engine serves, but its log says: {found[1]}")


def cache_was_asked(engine: RunningEngine) -> Finding:
    """A cache connector was asked for the prompts: its query counter moved, where there is one."""
    try:
        queries = scrape_patiently(engine.base_url).get(EXTERNAL_QUERIES)
    except OSError as error:
        why = engine.death_behind_silence() or f"its counter cannot be read: {error}"
        return Finding(CACHE_ASKED, False, why)
    if queries is None:
        return Finding(CACHE_ASKED, True, "this release does not export the counter")
    if queries == 0:
        return Finding(CACHE_ASKED, False, f"{EXTERNAL_QUERIES} is 0: the connector is inactive")
    return Finding(CACHE_ASKED, True, f"{queries:g} tokens looked up")


def counters(engine: RunningEngine) -> dict[str, float]:
    """Every counter that the engine exports; none where it cannot be asked, which another check says."""
    try:
        return scrape_patiently(engine.base_url, all_counters=True)
    except OSError:
        return {}


def clock_at_work(engine: RunningEngine) -> Finding:
    """vLLM took the virtual GPU and no other device: its clock has begun its log."""
    if (engine.request.folder / DEVICE_CLOCK).is_file():
        return Finding("virtual GPU", True, "its clock writes its log")
    words = (
        "the engine serves, but no clock writes a log: vLLM did not load the plugin in launch/plugins/virtual_gpu, or this release "
        "asks for another worker. Look for virtual_gpu in its log"
    )
    return Finding("virtual GPU", False, words)


def alive(engine: RunningEngine) -> Finding:
    """The process lives, ``/health`` says so, and no engine core is counted as failed."""
    death = engine.death()
    if death is not None:
        return Finding("engine alive", False, death)
    try:
        code = direct.get(f"{engine.base_url}/health", timeout_s=10).status_code
        failed = scrape_patiently(engine.base_url).get("engine_core_failed", 0.0)
    except (httpx.HTTPError, OSError) as error:
        why = engine.death_behind_silence() or f"/health or /metrics: {error}"
        return Finding("engine alive", False, why)
    if code != 200 or failed:
        return Finding("engine alive", False, f"/health answers {code}, failed engine cores: {failed:g}")
    return Finding("engine alive", True, "/health answers 200")
