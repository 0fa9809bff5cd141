"""The virtual GPU's own arithmetic: what a step has to do, how long it takes, and when it is done. Without vLLM."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from virtual_gpu.batches import Batches
from virtual_gpu.clock import Clock, keep_cpus_awake
from virtual_gpu.device import Step, read_device
from virtual_gpu.registration import VARIABLE, platform

DOCUMENT: dict[str, Any] = {
    "schema": 1,
    "name": "NVIDIA H200",
    "compute_capability": [9, 0],
    "memory_bytes": 150_754_820_096,
    "kv_cache_bytes": 60_000_000_000,
    "step": {
        "base_us": 4000,
        "per_prefill_token_us": 15,
        "per_decode_seq_us": 20,
        "per_context_token_us": 0.02,
    },
    "host": {"before_launch_us": 0, "before_launch_per_seq_us": 0, "after_launch_us": 0},
}


def scheduled(
    new: dict[str, tuple[int, int]],
    cached: dict[str, int],
    tokens: dict[str, int],
    finished: tuple[str, ...] = (),
    *,
    answered: dict[str, int] | None = None,
    resumed: dict[str, int] | None = None,
) -> Any:
    """A scheduler's output: (prompt tokens, computed) of new requests, computed of cached ones, and tokens of this step.

    Args:
        answered: tokens of its answer that a new request brings, as one that resumes does under V2.
        resumed: tokens, prompt and answer, of cached requests that resume, as under V1.
    """
    return SimpleNamespace(
        scheduled_new_reqs=[
            SimpleNamespace(
                req_id=r,
                prompt_token_ids=[0] * n,
                prefill_token_ids=[0] * (n + (answered or {}).get(r, 0)),
                num_computed_tokens=done,
            )
            for r, (n, done) in new.items()
        ],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=list(cached),
            num_computed_tokens=list(cached.values()),
            resumed_req_ids=set(resumed or ()),
            all_token_ids={r: [0] * n for r, n in (resumed or {}).items()},
        ),
        num_scheduled_tokens=tokens,
        total_num_scheduled_tokens=sum(tokens.values()),
        finished_req_ids=set(finished),
    )


@pytest.mark.parametrize("runner", ["V1", "V2"])
def test_a_preempted_request_gets_its_next_token_after_its_answer_was_computed_again(runner: str) -> None:
    """It has a prompt of 100 tokens and an answer of 50 so far; each chunk of the replay is prompt work, and no CUDA graph of decodes."""
    batches = Batches()
    batches.batch(scheduled({"a": (100, 0)}, {}, {"a": 100}))
    if runner == "V2":
        first = batches.batch(scheduled({"a": (100, 0)}, {}, {"a": 120}, answered={"a": 50}))
    else:
        first = batches.batch(scheduled({}, {"a": 0}, {"a": 120}, resumed={"a": 150}))
    second = batches.batch(scheduled({}, {"a": 120}, {"a": 30}))
    third = batches.batch(scheduled({}, {"a": 150}, {"a": 1}))
    assert [b.sampled for b in (first, second, third)] == [[False], [True], [True]]
    assert [b.prefill_tokens for b in (first, second, third)] == [120, 30, 0]
    assert [b.decode_seqs for b in (first, second, third)] == [0, 0, 1]
    assert [b.uniform_decode for b in (first, second, third)] == [False, False, True]
    assert second.positions == [150], "the token after the 150 known ones"


def test_a_prompt_in_two_chunks_gets_its_token_after_the_second() -> None:
    batches = Batches()
    first = batches.batch(scheduled({"a": (100, 0)}, {}, {"a": 60}))
    assert (first.prefill_tokens, first.decode_seqs, first.context_tokens, first.sampled) == (
        60,
        0,
        0,
        [False],
    )
    second = batches.batch(scheduled({}, {"a": 60}, {"a": 40}))
    assert (second.prefill_tokens, second.decode_seqs, second.context_tokens, second.sampled) == (
        40,
        0,
        60,
        [True],
    )
    third = batches.batch(scheduled({}, {"a": 100}, {"a": 1}))
    assert (third.prefill_tokens, third.decode_seqs, third.context_tokens, third.positions) == (
        0,
        1,
        100,
        [101],
    )
    assert third.uniform_decode and not second.uniform_decode


def test_what_the_prefix_cache_holds_is_context_and_no_prompt() -> None:
    batch = Batches().batch(scheduled({"a": (100, 96)}, {}, {"a": 4}))
    assert (batch.prefill_tokens, batch.context_tokens, batch.sampled) == (4, 96, [True])


def test_the_last_token_of_a_prompt_alone_is_still_prompt() -> None:
    """Of a prompt that the cache holds but for one token, the step is no decode step."""
    batch = Batches().batch(scheduled({"a": (97, 96)}, {}, {"a": 1}))
    assert (batch.prefill_tokens, batch.decode_seqs) == (1, 0)


def test_a_mixed_step_counts_both_and_forgets_who_finished() -> None:
    batches = Batches()
    batches.batch(scheduled({"a": (8, 0), "b": (8, 0)}, {}, {"a": 8, "b": 8}))
    mixed = batches.batch(scheduled({"c": (50, 0)}, {"a": 8}, {"a": 1, "c": 50}, finished=("b",)))
    assert (mixed.prefill_tokens, mixed.decode_seqs, mixed.context_tokens) == (50, 1, 8)
    assert (mixed.req_ids, mixed.num_tokens) == (["a", "c"], 51)
    with pytest.raises(KeyError):
        batches.batch(scheduled({}, {"b": 8}, {"b": 1}))


def test_a_step_lasts_what_it_has_to_do() -> None:
    step = Step(**DOCUMENT["step"])
    assert step.duration_ns(100, 8, 10_000) == 1000 * (4000 + 1500 + 160 + 200)


def test_steps_queue_on_the_device_and_each_is_on_record(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock.jsonl")
    before = time.monotonic_ns()
    one, other = clock.launch(3_000_000), clock.launch(2_000_000)
    assert other.t_due_ns == one.t_due_ns + 2_000_000
    assert one.t_due_ns == one.t_launch_ns + 3_000_000 >= before + 3_000_000
    clock.wait(one)
    clock.wait(other)
    clock.flush()
    header, *lines = map(json.loads, (tmp_path / "clock.jsonl").read_text().splitlines())
    assert header["kind"] == "header"
    rows = [row for line in lines for row in line]
    assert [row[1] for row in rows] == [one.t_due_ns, other.t_due_ns]
    assert all(launched <= asked <= done and due <= done for launched, due, asked, done in rows)


def test_a_step_is_not_done_before_the_host_has_launched_all_of_it(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock.jsonl")
    step = clock.launch(0)
    time.sleep(0.002)
    clock.host_is_behind(step)
    assert step.t_due_ns >= step.t_launch_ns + 2_000_000
    assert clock.launch(0).t_due_ns >= step.t_due_ns


def test_the_device_is_read_whole_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "virtual_gpu.json"
    monkeypatch.setenv(VARIABLE, str(path))
    path.write_text(json.dumps({**DOCUMENT, "clock_log": str(tmp_path / "clock.jsonl")}))
    device = read_device()
    assert (device.compute_capability, device.step.base_us) == ((9, 0), 4000)
    assert platform() == "virtual_gpu.platform.VirtualGpuPlatform"
    for wrong in ({"schema": 2}, {"step": {"base_us": 1}}, {"compute_capability": 9}):
        path.write_text(json.dumps({**DOCUMENT, "clock_log": "x", **wrong}))
        with pytest.raises(RuntimeError, match=r"virtual_gpu\.json: no virtual GPU can be read there"):
            read_device()
    monkeypatch.delenv(VARIABLE)
    assert platform() is None


def test_a_host_that_lets_its_cpus_sleep_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only root may keep them awake; everybody else's clock runs later, and the log says why."""
    assert keep_cpus_awake(tmp_path / "cpu_dma_latency") is None
    assert "cpu_dma_latency: No such file or directory" in capsys.readouterr().err
    device = tmp_path / "device"
    device.touch()
    descriptor = keep_cpus_awake(device)
    assert descriptor is not None and device.read_bytes() == bytes(4)
    os.close(descriptor)
