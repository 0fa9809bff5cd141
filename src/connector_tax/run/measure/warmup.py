"""The first request of each prompt length, and how long the idle engine takes for the next ones.

Kernels are compiled, captured or tuned when a length is first seen, which takes up to a minute and says nothing about the
engine that serves afterwards. So each length is sent once before anything is judged or measured.
"""

import statistics
import time
from dataclasses import dataclass

import httpx
import numpy as np

from connector_tax.base import direct
from connector_tax.base.config import CampaignConfig
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.secrets import excerpt
from connector_tax.base.seeds import stream
from connector_tax.base.units import token_count
from connector_tax.run.engine.process import RunningEngine
from connector_tax.run.loadgen.sse import MalformedStream, read_completion

# Enough that a step of prefill and steps of decode have run.
WARM_OUTPUT_TOKENS = 4
IDLE_TRIES = 3
DECODE_TOKENS = 64
IDLE_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one request: seconds until it was whole, or why there was none."""

    elapsed_s: float
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Prompt lengths that were sent once.

    Attributes:
        slowest: (length, seconds) of the one that took longest; None where no length was asked for.
        fault: what the first length came to that was not answered; the rest were not sent.
    """

    lengths: tuple[int, ...]
    slowest: tuple[int, float] | None
    fault: str | None

    @property
    def words(self) -> str:
        if self.fault is not None or self.slowest is None:
            return self.fault or "no length to warm"
        names = ", ".join(map(str, self.lengths))
        return (
            f"prompts of {names} tokens; the slowest took {self.slowest[1]:.1f} s ({self.slowest[0]} tokens)"
        )


@dataclass(frozen=True, slots=True)
class IdleTimes:
    """The idle engine, one request at a time.

    Attributes:
        prompt_s: prompt length -> median seconds for one token of output.
        token_s: median seconds per further token, at the shortest length.
    """

    prompt_s: dict[int, float]
    token_s: float


def campaign_lengths(config: CampaignConfig) -> tuple[int, ...]:
    """Every prompt length of Phases A, B and B', ascending; conversations have lengths of their own."""
    shapes = (config.phase_a_shape, *config.phase_b_prime.shapes)
    return tuple(sorted({*config.phase_b_input_tokens, *(s.input_tokens for s in shapes)}))


def warm_up(
    engine: RunningEngine, config: CampaignConfig, lengths: tuple[int, ...], *, timeout_s: float
) -> WarmUp:
    """Send one fresh prompt of each length and wait for its answer, the shortest first."""
    took: dict[int, float] = {}
    for length in sorted(set(lengths)):
        answer = ask(engine, config, length, output_tokens=WARM_OUTPUT_TOKENS, timeout_s=timeout_s)
        if answer.fault is not None:
            return WarmUp(tuple(took), _slowest(took), f"first prompt of {length} tokens: {answer.fault}")
        took[length] = answer.elapsed_s
    return WarmUp(tuple(took), _slowest(took), None)


def idle_times(engine: RunningEngine, config: CampaignConfig) -> IdleTimes | str:
    """Median times of a warm engine that nobody else asks; a sentence where a request was not answered."""
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
    # Two medians may cross where a token takes next to nothing; a token never takes less than that.
    return IdleTimes(prompt_s, max(whole_s - prompt_s[lengths[0]], 0.0) / (DECODE_TOKENS - 1))


def ask(
    engine: RunningEngine, config: CampaignConfig, length: int, *, output_tokens: int, timeout_s: float
) -> Answer:
    """One completion of a prompt of ``length`` random tokens that nobody has sent before.

    Prompt and output are cut to what ``max_model_len`` allows.
    """
    cell = config.cell
    limit = token_count(config.engine.args.get("max_model_len"))
    if limit is not None:
        length = max(1, min(length, limit - output_tokens))
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
    """What making the client takes is none of the engine's time, from which Phase B's rates are made."""
    start = time.monotonic()
    try:
        answer = client.post("/v1/completions", json=body)
    except httpx.TimeoutException:
        return Answer(time.monotonic() - start, engine.death() or f"no answer within {timeout_s:g} s")
    except httpx.HTTPError as error:
        elapsed_s = time.monotonic() - start
        death = engine.death_behind_silence()
        return Answer(elapsed_s, death or f"{type(error).__name__} after {elapsed_s:.1f} s")
    elapsed_s = time.monotonic() - start
    if answer.status_code != 200:
        return Answer(elapsed_s, _http_fault(engine, answer))
    try:
        read_completion(answer.content)
    except MalformedStream as error:
        return Answer(elapsed_s, str(error))
    return Answer(elapsed_s)


def _http_fault(engine: RunningEngine, answer: httpx.Response) -> str:
    """The status, and what the engine's own log says behind it."""
    said = f"HTTP {answer.status_code}"
    if answer.status_code >= 500:
        cause = engine.death_behind_silence() or engine.trouble()
        if cause is not None:
            return f"{said}: {cause}"
    return f"{said}: {excerpt(answer.text, 300)}"


def _median(engine: RunningEngine, config: CampaignConfig, length: int, *, output_tokens: int) -> float | str:
    took = []
    for _ in range(IDLE_TRIES):
        answer = ask(engine, config, length, output_tokens=output_tokens, timeout_s=IDLE_TIMEOUT_S)
        if answer.fault is not None:
            return f"prompt of {length} tokens: {answer.fault}"
        took.append(answer.elapsed_s)
    return statistics.median(took)


def _slowest(took: dict[int, float]) -> tuple[int, float] | None:
    return max(took.items(), key=lambda item: item[1]) if took else None
