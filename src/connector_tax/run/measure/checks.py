"""Preflight's checks of a running engine; each returns what it found."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from connector_tax.base import direct
from connector_tax.base.artifacts.layout import DEVICE_CLOCK
from connector_tax.base.config import CampaignConfig
from connector_tax.base.connector_off import EXTERNAL_QUERIES, said_in
from connector_tax.base.documents.cell import Cache
from connector_tax.base.documents.receipt import CACHE_ASKED, Finding
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.base.secrets import excerpt
from connector_tax.base.seeds import derive_seed, stream
from connector_tax.base.units import token_count
from connector_tax.run.engine.process import RunningEngine
from connector_tax.run.loadgen.sse import MalformedStream, read_completion
from connector_tax.run.sampler.sampler import scrape_patiently

# Priming: fill the engine's prefix cache to a level before a cell, and report how full it is.

# Length of a priming prompt, if the engine accepts it.
PROMPT_TOKENS = 2048
TIMEOUT_S = 120.0
# Counters at the cell's start that its document keeps.
KEPT = (
    "prompt_tokens",
    "generation_tokens",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "external_prefix_cache_hits",
    "kv_cache_usage",
    "num_preemptions",
)
NOT_FULL = "cache_below_level"

Counters = dict[str, float]


def prime_cache(spec: CellSpec, engine: RunningEngine, counters: Callable[[], Counters]) -> Cache:
    """Send fresh prompts with one output token each until ``spec.cached_tokens`` were computed since launch.

    The first failure ends it; the cell then records it and the fill level, which the analysis uses.

    Args:
        counters: the engine's, under canonical names; empty once it has died.

    Returns:
        ``cache`` of ``cell.json``.
    """
    assert spec.cached_tokens is not None, "only cells of Phase D have a level"
    start_s = time.monotonic()
    cache_sizes = cache_size(engine.base_url)
    tokens_before = computed_tokens(counters())
    longest = _longest_prompt(engine)
    prompt_lengths, failed = _send(spec, engine, spec.cached_tokens - (tokens_before or 0), longest)
    counters_after = counters()
    computed = computed_tokens(counters_after)
    return Cache(
        wanted_tokens=spec.cached_tokens,
        primed_tokens=sum(prompt_lengths),
        prompts=len(prompt_lengths),
        longest_prompt=longest,
        primed_s=time.monotonic() - start_s,
        failed=failed,
        computed_tokens=computed,
        block_size=cache_sizes.get("block_size"),
        kv_blocks=cache_sizes.get("num_gpu_blocks"),
        counters={name: counters_after[name] for name in KEPT if name in counters_after},
    )


def cache_flags(cache: Cache) -> list[str]:
    return [NOT_FULL] if _held_tokens(cache) < (cache.wanted_tokens or 0) else []


def _held_tokens(cache: Cache) -> float:
    capacity_tokens = cache.kv_blocks * cache.block_size if cache.kv_blocks and cache.block_size else None
    tokens = (cache.primed_tokens if cache.computed_tokens is None else cache.computed_tokens) or 0
    return tokens if capacity_tokens is None else min(tokens, capacity_tokens)


def computed_tokens(counters: Counters) -> int | None:
    """Return the tokens computed since launch; None if the engine does not count them."""
    if "prompt_tokens" not in counters or "generation_tokens" not in counters:
        return None
    hits = counters.get("prefix_cache_hits", 0.0)
    return int(counters["prompt_tokens"] + counters["generation_tokens"] - hits)


def cache_size(base_url: str) -> dict[str, int]:
    """Return ``block_size`` and ``num_gpu_blocks`` from ``vllm:cache_config_info``, as far as present."""
    try:
        response = direct.get(f"{base_url}/metrics", timeout_s=TIMEOUT_S)
        response.raise_for_status()
        return parse_cache_size(response.text)
    except (httpx.HTTPError, ValueError):
        return {}  # the counters, read next, reveal a dead engine


def parse_cache_size(page: str) -> dict[str, int]:
    """Parse a ``/metrics`` page; label values are text, ``None`` if a release does not know its own."""
    sizes: dict[str, int] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == "vllm:cache_config_info":
                for name in ("block_size", "num_gpu_blocks"):
                    if sample.labels.get(name, "").isdigit():
                        sizes[name] = int(sample.labels[name])
    return sizes


def _longest_prompt(engine: RunningEngine) -> int:
    """Return the length of every priming prompt but the last, which is the rest."""
    max_model_len = token_count(engine.request.engine.args.get("max_model_len"))
    return min(PROMPT_TOKENS, max_model_len - 1) if max_model_len else PROMPT_TOKENS


def _send(
    spec: CellSpec, engine: RunningEngine, missing_tokens: int, longest_tokens: int
) -> tuple[list[int], str | None]:
    """Return the lengths of the answered prompts, and the first failure."""
    rng = stream(derive_seed(spec.seed, "priming"))
    answered_lengths: list[int] = []
    with direct.Client(base_url=engine.base_url, timeout_s=TIMEOUT_S, headers=engine.headers) as client:
        while missing_tokens > 0:
            length = min(longest_tokens, missing_tokens)
            prompt = rng.integers(spec.token_id_low, spec.token_id_high, length, dtype=np.int64).tolist()
            failed = _ask(client, engine.model, prompt)
            if failed is not None:
                return answered_lengths, failed
            answered_lengths.append(length)
            missing_tokens -= length + 1
    return answered_lengths, None


def _ask(client: direct.Client, model: str, prompt: list[int]) -> str | None:
    body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True}
    try:
        response = client.post("/v1/completions", json=body)
    except httpx.HTTPError as error:
        return f"{type(error).__name__}: {error}"
    return (
        None if response.status_code == 200 else f"HTTP {response.status_code}: {excerpt(response.text, 300)}"
    )


# Enough for a prefill step and several decode steps.
WARM_OUTPUT_TOKENS = 4
IDLE_TRIES = 3
DECODE_TOKENS = 64
IDLE_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One request: seconds to its complete answer, or why there was none."""

    elapsed_s: float
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Prompt lengths that were sent once.

    Attributes:
        slowest: (length, seconds); None without lengths.
        fault: of the first length that was not answered, which ended the warm-up.
    """

    lengths: tuple[int, ...]
    slowest: tuple[int, float] | None
    fault: str | None

    @property
    def words(self) -> str:
        if self.fault is not None or self.slowest is None:
            return self.fault or "no length to warm"
        warmed = ", ".join(map(str, self.lengths))
        return (
            f"prompts of {warmed} tokens; the slowest took {self.slowest[1]:.1f} s ({self.slowest[0]} tokens)"
        )


@dataclass(frozen=True, slots=True)
class IdleTimes:
    """Times of the idle engine, one request at a time.

    Attributes:
        prompt_s: prompt length -> median seconds for one output token.
        token_s: median seconds per further token, at the shortest length.
    """

    prompt_s: dict[int, float]
    token_s: float


def campaign_lengths(config: CampaignConfig) -> tuple[int, ...]:
    """Return all prompt lengths of Phases A, B and B', ascending; conversations have their own."""
    shapes = (config.phase_a_shape, *config.phase_b_prime.shapes)
    return tuple(sorted({*config.phase_b_input_tokens, *(shape.input_tokens for shape in shapes)}))


def warm_up(
    engine: RunningEngine, config: CampaignConfig, lengths: tuple[int, ...], *, timeout_s: float
) -> WarmUp:
    """Send one fresh prompt of each length and wait for its answer, shortest first."""
    took_s: dict[int, float] = {}
    for length in sorted(set(lengths)):
        answer = ask(engine, config, length, output_tokens=WARM_OUTPUT_TOKENS, timeout_s=timeout_s)
        if answer.fault is not None:
            return WarmUp(tuple(took_s), _slowest(took_s), f"first prompt of {length} tokens: {answer.fault}")
        took_s[length] = answer.elapsed_s
    return WarmUp(tuple(took_s), _slowest(took_s), None)


def idle_times(engine: RunningEngine, config: CampaignConfig) -> IdleTimes | str:
    """Return a warm engine's median times without other load, or a message if a request failed."""
    lengths = campaign_lengths(config)
    prompt_s: dict[int, float] = {}
    for length in lengths:
        median_s = _median(engine, config, length, output_tokens=1)
        if isinstance(median_s, str):
            return median_s
        prompt_s[length] = median_s
    whole_s = _median(engine, config, lengths[0], output_tokens=DECODE_TOKENS)
    if isinstance(whole_s, str):
        return whole_s
    # Noise may make the difference of two medians negative.
    return IdleTimes(prompt_s, max(whole_s - prompt_s[lengths[0]], 0.0) / (DECODE_TOKENS - 1))


def ask(
    engine: RunningEngine, config: CampaignConfig, length: int, *, output_tokens: int, timeout_s: float
) -> Answer:
    """Send one completion request with ``length`` fresh random tokens.

    Prompt and output are cut to what ``max_model_len`` allows.
    """
    cell = config.cell
    max_model_len = token_count(config.engine.args.get("max_model_len"))
    if max_model_len is not None:
        length = max(1, min(length, max_model_len - output_tokens))
    rng = stream(time.monotonic_ns(), "preflight")
    prompt = rng.integers(cell.token_id_low, cell.token_id_high, length, dtype=np.int64).tolist()
    body = {
        "model": engine.model,
        "prompt": prompt,
        "max_tokens": output_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    with direct.Client(base_url=engine.base_url, headers=engine.headers, timeout_s=timeout_s) as client:
        return _timed(engine, client, body, timeout_s)


def _timed(engine: RunningEngine, client: direct.Client, body: Foreign, timeout_s: float) -> Answer:
    """Time one request, without the client's set-up: Phase B's rates derive from it."""
    start_s = time.monotonic()
    try:
        response = client.post("/v1/completions", json=body)
    except httpx.TimeoutException:
        return Answer(time.monotonic() - start_s, engine.death() or f"no answer within {timeout_s:g} s")
    except httpx.HTTPError as error:
        elapsed_s = time.monotonic() - start_s
        death = engine.death_behind_silence()
        return Answer(elapsed_s, death or f"{type(error).__name__} after {elapsed_s:.1f} s")
    elapsed_s = time.monotonic() - start_s
    if response.status_code != 200:
        return Answer(elapsed_s, _http_fault(engine, response))
    try:
        read_completion(response.content)
    except MalformedStream as error:
        return Answer(elapsed_s, str(error))
    return Answer(elapsed_s)


def _http_fault(engine: RunningEngine, response: httpx.Response) -> str:
    """Return the status with the cause from the engine's log."""
    status = f"HTTP {response.status_code}"
    if response.status_code >= 500:
        cause = engine.death_behind_silence() or engine.trouble()
        if cause is not None:
            return f"{status}: {cause}"
    return f"{status}: {excerpt(response.text, 300)}"


def _median(engine: RunningEngine, config: CampaignConfig, length: int, *, output_tokens: int) -> float | str:
    elapsed_s = []
    for _ in range(IDLE_TRIES):
        answer = ask(engine, config, length, output_tokens=output_tokens, timeout_s=IDLE_TIMEOUT_S)
        if answer.fault is not None:
            return f"prompt of {length} tokens: {answer.fault}"
        elapsed_s.append(answer.elapsed_s)
    return statistics.median(elapsed_s)


def _slowest(took_s: dict[int, float]) -> tuple[int, float] | None:
    return max(took_s.items(), key=lambda item: item[1]) if took_s else None


REQUEST_TIMEOUT_S = 60.0
SHORT_PROMPT_TOKENS = 32
LONG_OUTPUT_TOKENS = 32
# Longer than two of LMCache's chunks of 256; shorter prompts never reach its lookup.
LONG_PROMPT_TOKENS = 600
# A lookup at a server that nobody started stalls each prompt for 3 s. A healthy engine needs far less extra
# time for 600 tokens than for 32.
LONG_PROMPT_EXTRA_S = 2.5
SWITCHED_ON, COMPILED = "connector switched on", "compiled operations"


def verify_lengths(config: CampaignConfig) -> tuple[int, ...]:
    return (SHORT_PROMPT_TOKENS, long_length(config))


def short_requests(
    engine: RunningEngine, config: CampaignConfig, connector: ConnectorSpec
) -> tuple[Finding, float]:
    """Send the connector's short completions within its limit; also return the slowest one's seconds."""
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
    total_s = sum(answer.elapsed_s for answer in answers)
    return (
        Finding(
            "short requests",
            total_s < limit_s,
            f"{count} of {tokens} output tokens answered in {total_s:.2f} s together (limit {limit_s:g} s)",
        ),
        max(answer.elapsed_s for answer in answers),
    )


def long_prompt(engine: RunningEngine, config: CampaignConfig, short_s: float) -> Finding:
    """Send one prompt longer than a cache chunk; it must not stall."""
    length = long_length(config)
    answer = ask(engine, config, length, output_tokens=LONG_OUTPUT_TOKENS, timeout_s=REQUEST_TIMEOUT_S)
    if answer.fault is not None:
        return Finding("long prompt", False, answer.fault)
    stalls = answer.elapsed_s > short_s + LONG_PROMPT_EXTRA_S
    stall_detail = (
        f"{length} tokens took {answer.elapsed_s:.1f} s, a short prompt {short_s:.1f} s: each long prompt"
        " stalls"
    )
    return Finding(
        "long prompt", not stalls, stall_detail if stalls else f"{length} tokens in {answer.elapsed_s:.2f} s"
    )


def long_length(config: CampaignConfig) -> int:
    max_tokens = token_count(config.engine.args.get("max_model_len")) or LONG_PROMPT_TOKENS * 2
    return min(LONG_PROMPT_TOKENS, max_tokens - LONG_OUTPUT_TOKENS)


def not_switched_off(engine: RunningEngine) -> Finding:
    """Check that the log does not report a connector in degraded mode or on a fallback."""
    log_finding = said_in(engine.log_text().splitlines())
    if log_finding is None:
        return Finding(SWITCHED_ON, True, "no word of degraded mode in the log")
    check = SWITCHED_ON if log_finding[0] == "off" else COMPILED
    return Finding(check, False, f"the engine serves, but its log says: {log_finding[1]}")


def cache_was_asked(engine: RunningEngine) -> Finding:
    """Check that a cache connector looked up the prompts: its query counter, if exported, moved."""
    try:
        queries = scrape_patiently(engine.base_url).get(EXTERNAL_QUERIES)
    except OSError as error:
        fault = engine.death_behind_silence() or f"its counter cannot be read: {error}"
        return Finding(CACHE_ASKED, False, fault)
    if queries is None:
        return Finding(CACHE_ASKED, True, "this release does not export the counter")
    if queries == 0:
        return Finding(CACHE_ASKED, False, f"{EXTERNAL_QUERIES} is 0: the connector is inactive")
    return Finding(CACHE_ASKED, True, f"{queries:g} tokens looked up")


def counters(engine: RunningEngine) -> dict[str, float]:
    """Return every exported counter; empty if the engine does not answer, which another check reports."""
    try:
        return scrape_patiently(engine.base_url, all_counters=True)
    except OSError:
        return {}


def clock_at_work(engine: RunningEngine) -> Finding:
    """Check that vLLM runs on the virtual GPU: its clock has begun its log."""
    if (engine.request.folder / DEVICE_CLOCK).is_file():
        return Finding("virtual GPU", True, "its clock writes its log")
    fault = (
        "the engine serves, but no clock writes a log: vLLM did not load the plugin in"
        " launch/plugins/virtual_gpu, or this release asks for another worker. Look for virtual_gpu in"
        " its log"
    )
    return Finding("virtual GPU", False, fault)


def alive(engine: RunningEngine) -> Finding:
    """Check that the process lives, ``/health`` answers, and no engine core counts as failed."""
    death = engine.death()
    if death is not None:
        return Finding("engine alive", False, death)
    try:
        status_code = direct.get(f"{engine.base_url}/health", timeout_s=10).status_code
        failed_cores = scrape_patiently(engine.base_url).get("engine_core_failed", 0.0)
    except (httpx.HTTPError, OSError) as error:
        fault = engine.death_behind_silence() or f"/health or /metrics: {error}"
        return Finding("engine alive", False, fault)
    if status_code != 200 or failed_cores:
        return Finding(
            "engine alive", False, f"/health answers {status_code}, failed engine cores: {failed_cores:g}"
        )
    return Finding("engine alive", True, "/health answers 200")
