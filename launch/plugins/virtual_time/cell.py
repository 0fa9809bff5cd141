"""Runs one cell: requests arrive in virtual time; records when the engine had first and last tokens.

The loop is that of vLLM's ``EngineCoreProc``: take arrivals, step, and sleep for a millisecond if nothing
could run. The work of a server's other threads for a request (HTTP, tokenizing, ZMQ, block hashes) is left
out.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import msgspec
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreRequest

from virtual_time.clock import VirtualTime, cpu_ns

FIRST_TOKEN, LAST_TOKEN = 1_000, 100_000
# vLLM's own pause while it waits for a transfer.
NOTHING_RAN_NS = 1_000_000
NONE_REQUIRED = {f.name: None for f in msgspec.structs.fields(EngineCoreRequest) if f.required}


class Work:
    """A fixed piece of work, timed after each slice: the core's speed, within and beyond its caches."""

    def __init__(self) -> None:
        self._order = list(range(1 << 17))
        random.Random(0).shuffle(self._order)

    def begin(self) -> None:
        self.small_ns: list[int] = []
        self.wide_ns: list[int] = []

    def measure(self) -> None:
        begun = cpu_ns()
        for i in range(1_500):
            str(i)
        done = cpu_ns()
        at, order = 0, self._order
        for _ in range(3_000):
            at = order[at]
        self.small_ns.append(done - begun)
        self.wide_ns.append(cpu_ns() - done)


def run_cell(
    core: Any, time_source: VirtualTime, work: Work, cell: dict[str, Any], each_slice: Callable[[], None]
) -> dict[str, Any]:
    """Run one cell to its last token; time stands still before and after.

    Args:
        cell: ``arrivals_ns`` from its beginning, ``input_tokens``, ``output_tokens``, ``seed`` of the
            prompts, ``name``, ``slice_steps``, ``charges_others``.
        each_slice: called every ``slice_steps`` steps, while time stands still.

    Returns:
        Per request ``looked_ns`` (when the engine took it), ``before_ns`` (time since the engine's previous
        look), ``first_ns``, ``last_ns``, ``tokens``; then sums over the cell. Times are from its beginning.
    """
    work.begin()
    core.reset_prefix_cache()
    draw = random.Random(cell["seed"])
    prompts = iter(lambda: draw.choices(range(FIRST_TOKEN, LAST_TOKEN), k=cell["input_tokens"]), None)
    sampling = SamplingParams(max_tokens=cell["output_tokens"], ignore_eos=True, temperature=0.0)
    begun_ns = time_source.now_ns()
    arrivals = [begun_ns + t for t in cell["arrivals_ns"]]
    n = len(arrivals)
    looked, before, first, last, tokens = [0] * n, [0] * n, [0] * n, [0] * n, [0] * n
    places = {f"{cell['name']}-{i}": i for i in range(n)}
    names = list(places)
    steps = taken = last_look_ns = 0
    time_source.settle()
    jumped_ns, others_ns, waits = time_source.jumped_ns, time_source.others_ns, time_source.waits
    ran_ns, wall_ns = time_source.ran_ns, time_source.wall_ns
    time_source.charges_others = cell["charges_others"]
    scheduler, step, now_ns = core.scheduler, core.step_fn, time_source.now_ns
    time_source.resume()
    while True:
        look_ns = now_ns()
        while taken < n and arrivals[taken] <= look_ns:
            time_source.pause()
            looked[taken] = look_ns - begun_ns
            before[taken] = look_ns - last_look_ns if last_look_ns else 0
            request = {
                "request_id": names[taken],
                "prompt_token_ids": next(prompts),
                "sampling_params": sampling,
                "arrival_time": time.time(),
            }
            prepared = core.preprocess_add_request(EngineCoreRequest(**{**NONE_REQUIRED, **request}))
            taken += 1
            time_source.resume()
            core.add_request(*prepared)
        last_look_ns = look_ns
        if not (core.batch_queue or scheduler.has_requests()):
            if taken == n:
                break
            time_source.sleep_until(arrivals[taken])
            last_look_ns = 0
            continue
        outputs, executed = step()
        core.post_step(executed)
        time_source.pause()
        time_source.settle()
        at_ns = time_source.now_ns() - begun_ns
        for per_client in (outputs or {}).values():
            for output in per_client.outputs:
                if output.new_token_ids:
                    place = places[output.request_id]
                    first[place] = first[place] or at_ns
                    last[place] = at_ns
                    tokens[place] += len(output.new_token_ids)
        steps += executed
        if not executed and scheduler.has_requests():
            time_source.sleep_until(time_source.now_ns() + NOTHING_RAN_NS)
        if executed and steps % cell["slice_steps"] == 0:
            work.measure()
            each_slice()
        time_source.resume()
    time_source.pause()
    time_source.charges_others = False
    others_ns = time_source.others_ns - others_ns
    spent_ns = time_source.now_ns() - begun_ns - (time_source.jumped_ns - jumped_ns)
    return {
        "looked_ns": looked,
        "before_ns": before,
        "first_ns": first,
        "last_ns": last,
        "tokens": tokens,
        "steps": steps,
        "engine_ns": spent_ns - (others_ns if cell["charges_others"] else 0),
        "others_ns": others_ns,
        "waits": time_source.waits - waits,
        "ran_ns": time_source.ran_ns - ran_ns,
        "wall_ns": time_source.wall_ns - wall_ns,
        "small_work_ns": work.small_ns,
        "wide_work_ns": work.wide_ns,
    }
