"""Turns the scheduler's output into a step's work: prompt tokens, and which requests get a token."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Batch:
    """One step.

    ``req_ids``, ``idx_mapping`` and ``num_tokens`` are named as in vLLM's input batch, since connectors get
    this object.

    Attributes:
        sampled: whether each request gets a token; a prompt that continues in the next step does not.
        positions: position of each request's token.
        context_tokens: computed before this step, over all sequences.
    """

    req_ids: list[str]
    idx_mapping: Any
    num_tokens: int
    sampled: list[bool]
    positions: list[int]
    prefill_tokens: int
    decode_seqs: int
    context_tokens: int

    @property
    def uniform_decode(self) -> bool:
        """Whether every sequence has one token, as a full CUDA graph is captured for."""
        return self.prefill_tokens == 0


class Batches:
    """The requests on the device, with the tokens that each must have computed before it gets a new one.

    These are the prompt's, and for a preempted request that resumes, also those of its answer so far.
    """

    def __init__(self) -> None:
        self._known_tokens: dict[str, int] = {}

    def batch(self, scheduled: Any) -> Batch:
        for request_id in scheduled.finished_req_ids:
            self._known_tokens.pop(request_id, None)
        done = {}
        for request in scheduled.scheduled_new_reqs:
            # Under model runner V2 a resumed request is a new one that brings its answer so far.
            known = getattr(request, "prefill_token_ids", None) or request.prompt_token_ids
            self._known_tokens[request.req_id] = len(known)
            done[request.req_id] = request.num_computed_tokens
        cached = scheduled.scheduled_cached_reqs
        done.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for request_id in cached.resumed_req_ids:  # under V1
            self._known_tokens[request_id] = len(cached.all_token_ids[request_id])
        req_ids, sampled, positions, prefill, decode, context = [], [], [], 0, 0, 0
        for request_id, tokens in scheduled.num_scheduled_tokens.items():
            computed, known = done[request_id], self._known_tokens[request_id]
            end = computed + tokens
            if computed < known:
                prefill += tokens
            else:
                decode += 1
            context += computed
            req_ids.append(request_id)
            sampled.append(end >= known)
            positions.append(end)
        mapping = list(range(len(req_ids)))
        return Batch(
            req_ids,
            mapping,
            scheduled.total_num_scheduled_tokens,
            sampled,
            positions,
            prefill,
            decode,
            context,
        )
