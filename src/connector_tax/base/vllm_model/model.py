"""vLLM's v1 scheduler as a discrete-event model: requests in, steps with durations and tokens out.

It models: first come first served; one token budget per step, for running requests first, then waiting ones;
chunked prefill; KV blocks with preemption of the latest request, which restarts its computation; the first
token at the end of the step that finishes the prompt. Of prefix caching it counts cached blocks; the caller
says which part of a prompt is cached. Not modelled: speculation, several GPUs.
"""

import math
import random
from collections import deque
from dataclasses import dataclass
from functools import lru_cache

from msgspec.structs import replace

from connector_tax.base.records.host import EngineCosts
from connector_tax.base.vllm_model.costs import ConnectorCosts


class Sequence:
    """One request inside the engine."""

    __slots__ = ("blocks", "cached", "computed", "id", "max_tokens", "produced", "prompt", "started")

    def __init__(self, request_id: int, prompt: int, max_tokens: int, *, computed: int = 0) -> None:
        self.id = request_id
        self.prompt = prompt
        self.max_tokens = max_tokens
        self.computed = computed
        # Leading tokens whose full blocks are in the prefix cache.
        self.cached = computed
        self.produced = 0
        self.blocks = 0
        self.started = False


@dataclass(slots=True)
class StepResult:
    """One step.

    Attributes:
        tokens: ids of the requests that got one token each at the end of the step.
        finished: those of them that are complete.
        build_meta_us: the time of build_connector_meta in it.
    """

    duration_ns: int
    tokens: list[int]
    finished: list[int]
    prefill_tokens: int
    decode_tokens: int
    num_running: int
    num_waiting: int
    build_meta_us: float


class EngineModel:
    """The engine's state between steps. Times are durations; the caller keeps the clock."""

    def __init__(
        self,
        costs: EngineCosts,
        connector: ConnectorCosts,
        *,
        max_num_batched_tokens: int,
        seed: int,
        max_num_seqs: int | None = None,
    ) -> None:
        self.costs = costs
        self.connector = connector
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_num_seqs = max_num_seqs or costs.max_num_seqs
        self.free_blocks = costs.kv_blocks
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.preemptions = 0
        # Full blocks computed since the launch; vLLM evicts none while it has room.
        self.cached_blocks = 0
        self._random = random.Random(seed)
        self._sigma, self._mu = _lognormal(costs.jitter_cv)
        sigma, mu = _lognormal(costs.launch_cv)
        self._launch_factor = self._random.lognormvariate(mu, sigma) if sigma else 1.0

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def fits(self, prompt: int, max_tokens: int) -> bool:
        """Return whether this KV cache could ever serve the request."""
        return self._blocks_for(prompt + max_tokens) <= self.costs.kv_blocks

    def add(self, request_id: int, prompt: int, max_tokens: int, *, cached: int = 0) -> None:
        """Queue a request; ``cached`` leading tokens of its prompt need no computation."""
        self.waiting.append(Sequence(request_id, prompt, max_tokens, computed=cached))

    def cancel(self, request_id: int) -> None:
        """Drop a request whose client is gone; unknown ids have finished already."""
        for sequence in [s for s in self.running if s.id == request_id]:
            self._release(sequence)
            self.running.remove(sequence)
        for sequence in [s for s in self.waiting if s.id == request_id]:
            self.waiting.remove(sequence)

    def step(self) -> StepResult:
        """Schedule and run one step; there must be work."""
        scheduled, preempted = self._schedule_running()
        new_requests = 0
        budget = self.max_num_batched_tokens - sum(n for _, n in scheduled)
        # vLLM admits no request in a step with a preemption.
        while not preempted and self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
            sequence = self.waiting[0]
            n = min(sequence.prompt + sequence.produced - sequence.computed, budget)
            if not self._grow(sequence, sequence.computed + n):
                break
            self.waiting.popleft()
            self.running.append(sequence)
            new_requests += not sequence.started
            sequence.started = True
            scheduled.append((sequence, n))
            budget -= n
        return self._run(scheduled, new_requests)

    def _schedule_running(self) -> tuple[list[tuple[Sequence, int]], bool]:
        budget = self.max_num_batched_tokens
        scheduled: list[tuple[Sequence, int]] = []
        preempted = False
        index = 0
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            n = min(sequence.prompt + sequence.produced - sequence.computed, budget)
            while not self._grow(sequence, sequence.computed + n):
                victim = self.running.pop()
                self._preempt(victim)
                preempted = True
                if victim is sequence:
                    break
            else:
                scheduled.append((sequence, n))
                budget -= n
                index += 1
                continue
            break
        return scheduled, preempted

    def _run(self, scheduled: list[tuple[Sequence, int]], new_requests: int) -> StepResult:
        prefill = decode = context = 0
        build_meta_us = self.connector.build_meta_at_us(self.cached_blocks)
        tokens: list[int] = []
        finished: list[int] = []
        for sequence, n in scheduled:
            is_prefill = sequence.computed < sequence.prompt
            context += sequence.computed
            sequence.computed += n
            self._remember(sequence)
            if is_prefill:
                prefill += n
            else:
                decode += n
            if sequence.computed == sequence.prompt + sequence.produced:
                sequence.produced += 1
                tokens.append(sequence.id)
                if sequence.produced == sequence.max_tokens:
                    finished.append(sequence.id)
                    self._release(sequence)
        num_running, num_waiting = len(self.running), len(self.waiting)
        if finished:
            self.running = [s for s in self.running if s.produced < s.max_tokens]
        return StepResult(
            duration_ns=self._duration_ns(prefill, decode, context, new_requests, build_meta_us),
            tokens=tokens,
            finished=finished,
            prefill_tokens=prefill,
            decode_tokens=decode,
            num_running=num_running,
            num_waiting=num_waiting,
            build_meta_us=build_meta_us,
        )

    def _remember(self, sequence: Sequence) -> None:
        """Count newly filled blocks; blocks computed again after a preemption are cached already."""
        size = self.costs.block_size
        new = sequence.computed // size - sequence.cached // size
        if new > 0:
            self.cached_blocks = min(self.cached_blocks + new, self.costs.kv_blocks)
            sequence.cached = sequence.computed

    def _duration_ns(
        self, prefill: int, decode: int, context: int, new_requests: int, build_meta_us: float
    ) -> int:
        costs, connector = self.costs, self.connector
        own_us = (
            costs.base_us
            + costs.per_prefill_token_us * prefill
            + costs.per_decode_seq_us * decode
            + costs.per_context_token_us * context
        )
        if self._sigma:
            own_us *= self._random.lognormvariate(self._mu, self._sigma)
        added_us = (
            connector.per_step_us
            + (build_meta_us - connector.build_meta_us)
            + connector.per_request_us * new_requests
            + connector.per_token_us * (prefill + decode)
        )
        return round((own_us * self._launch_factor * connector.step_factor + added_us) * 1000)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.costs.block_size)

    def _grow(self, sequence: Sequence, tokens: int) -> bool:
        """Give ``sequence`` blocks for ``tokens``; if there are too few, give none and return False."""
        wanted = self._blocks_for(tokens) - sequence.blocks
        if wanted > self.free_blocks:
            return False
        if wanted > 0:
            self.free_blocks -= wanted
            sequence.blocks += wanted
        return True

    def _release(self, sequence: Sequence) -> None:
        self.free_blocks += sequence.blocks
        sequence.blocks = 0

    def _preempt(self, sequence: Sequence) -> None:
        self._release(sequence)
        sequence.computed = 0
        self.preemptions += 1
        self.waiting.appendleft(sequence)


@lru_cache(maxsize=1024)
def idle_request_s(
    costs: EngineCosts,
    connector: ConnectorCosts,
    *,
    prompt: int,
    max_tokens: int,
    max_num_batched_tokens: int,
) -> float:
    """Return the seconds from a request's arrival at the idle engine to its last token, without jitter."""
    exact = replace(costs, jitter_cv=0.0, launch_cv=0.0)
    engine = EngineModel(exact, connector, max_num_batched_tokens=max_num_batched_tokens, seed=0)
    engine.add(0, prompt, max_tokens)
    taken_ns = 0
    while engine.has_work:
        taken_ns += engine.step().duration_ns
    return taken_ns / 1e9


def _lognormal(cv: float) -> tuple[float, float]:
    """Return (sigma, mu) of a lognormal factor with mean 1 and coefficient of variation ``cv``."""
    sigma = math.sqrt(math.log1p(cv * cv))
    return sigma, -sigma * sigma / 2
