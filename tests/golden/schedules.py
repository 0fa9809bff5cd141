"""When requests are sent: offsets of every arrival process, closed loop, session schedule and trace."""

import hashlib
import heapq
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import adapters

TARGET = adapters.target_of("http://127.0.0.1:8000", "m")
# Two blocks of a process that is drawn in blocks of 1,024, and a bit.
N = 2500
MS = 1_000_000

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:04.0783490,110,27
2023-11-16 18:17:09.5000000,7433,14
"""
# Sorted by time when it is read; the blocks are those of the first prompt, and of another one that begins as that does.
MOONCAKE = "\n".join(
    json.dumps({"timestamp": at, "input_length": n, "output_length": out, "hash_ids": ids})
    for at, n, out, ids in (
        (27482, 1600, 52, [46, 47, 48, 49]),
        (30535, 1300, 26, [46, 47, 57]),
        (27482, 100, 5, [60]),
        (31000, 1024, 7, [46, 61]),
    )
)


def turn(new: int, out: int, **more: Any) -> dict[str, Any]:
    return {"new_tokens": new, "output_tokens": out, **more}


# A chain with think times; a fan out and in whose last turn begins with all that its parents said; two roots.
SESSIONS: list[dict[str, Any]] = [
    {
        "turns": [
            turn(40, 5),
            turn(10, 6, after=[0], history=0, wait_s=0.25),
            turn(7, 4, after=[1], history=1),
        ]
    },
    {
        "turns": [
            turn(30, 4),
            *(turn(8, 3, after=[0], history=0, wait_s=0.1) for _ in range(3)),
            turn(9, 5, after=[1, 2, 3], history=[1, 2, 3]),
            turn(5, 2, after=[4], wait_s=0.05),
        ]
    },
    {"turns": [turn(12, 3), turn(14, 3, wait_s=0.4), turn(6, 2, after=[0, 1], history=[0, 1])]},
]
TIMED = [{**s, "arrival_s": at} for s, at in zip(SESSIONS, (5.0, 5.0, 6.5), strict=True)]


def lines(values: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def files_in(folder: Path) -> dict[str, str]:
    """Write the traces and sessions; the name that options have for each -> its path."""
    contents = {"azure.csv": AZURE, "mooncake.jsonl": MOONCAKE}
    contents |= {"sessions.jsonl": lines(SESSIONS), "timed.jsonl": lines(TIMED)}
    for name, text in contents.items():
        (folder / name).write_text(text)
    return {name: str(folder / name) for name in contents}


def play(
    scheduler: adapters.Scheduler,
    n: int,
    *,
    took_ns: Callable[[int], int] = lambda seq: (20 + seq * 7919 % 180) * MS,
    ok: Callable[[int], bool] = lambda seq: True,
    on_send: Callable[[int], None] = lambda seq: None,
    on_end: Callable[[int, bool], None] = lambda seq, ok: None,
) -> tuple[list[int], list[int]]:
    """Send ``n`` samples to a server that takes ``took_ns`` for each, in virtual time; their offsets and numbers, in the order of sending."""
    offsets: list[int] = []
    order: list[int] = []
    flying: list[tuple[int, int]] = []
    while len(offsets) < n:
        due_ns = scheduler.next_due_ns()
        if flying and (due_ns is None or flying[0][0] <= due_ns):
            end_ns, seq = heapq.heappop(flying)
            on_end(seq, ok(seq))
            scheduler.ended(seq, ok(seq), end_ns)
        elif due_ns is None:
            break
        else:
            due = scheduler.take()
            on_send(due.seq)
            offsets.append(due.offset_ns)
            order.append(due.seq)
            heapq.heappush(flying, (due.offset_ns + took_ns(due.seq), due.seq))
    return offsets, order


def facts(offsets: list[int], order: list[int]) -> dict[str, Any]:
    def sha(values: list[int]) -> str:
        return hashlib.sha256(np.array(values, dtype="<i8").tobytes()).hexdigest()

    return {
        "n": len(offsets),
        "first_ns": offsets[0],
        "last_ns": offsets[-1],
        "mean_ns": sum(offsets) // len(offsets),
        "sha256": sha(offsets),
        "order_sha256": sha(order),
    }


# Options of `connector-tax load` for each.
OPTIONS = {
    "fixed": "--rate 3",
    "fixed, fast": "--rate 1234.5",
    "fixed, an interval": "--interval 0.35",
    "fixed, ramp": "--rate 20 --ramp-from 2 --ramp-up 15",
    "poisson": "--rate 4 --arrival poisson",
    "poisson, another seed": "--rate 4 --arrival poisson --seed 1",
    "poisson, ramp down": "--rate 2 --arrival poisson --ramp-from 40 --ramp-up 30",
    "gamma, bursty": "--rate 4 --arrival gamma --gamma-shape 0.4",
    "gamma, regular": "--rate 4 --arrival gamma --gamma-shape 5",
    "a fixed number": "--rate 50 --arrival poisson --num-prompts 77",
    "offline": "--offline --num-prompts 100",
    "concurrency": "--concurrency 8",
    "concurrency, ramp": "--concurrency 8 --ramp-up 2",
    "max throughput": "--max-throughput --inflight-cap 32",
    "sessions, poisson": "--rate 2 --arrival poisson --sessions sessions.jsonl",
    "sessions, concurrency": "--concurrency 3 --sessions sessions.jsonl",
    "trace, Azure": "--trace azure.csv",
    "trace, Azure, twice as fast": "--trace azure.csv --speed 2",
    "trace, Mooncake": "--trace mooncake.jsonl",
    "trace, conversations": "--trace timed.jsonl --speed 0.5",
}


def build(folder: Path) -> dict[str, Any]:
    names = files_in(folder)

    def scheduler_of(options: str, share: tuple[int, int] = (0, 1)) -> adapters.Scheduler:
        words = [names.get(word, word) for word in options.split()]
        (spec,) = adapters.load_cells([*words, "--nonce", "7"], folder)
        return adapters.work_of(spec, TARGET, share)[0]

    found = {name: facts(*play(scheduler_of(options), N)) for name, options in OPTIONS.items()}
    for index in range(3):
        shared = scheduler_of(OPTIONS["poisson"], (index, 3))
        found[f"poisson, worker {index} of 3"] = facts(*play(shared, N // 3))
        shared = scheduler_of(OPTIONS["sessions, concurrency"], (index, 3))
        found[f"sessions, concurrency, worker {index} of 3"] = facts(*play(shared, N // 3))
    found["campaign"] = facts(*play(adapters.work_of(adapters.campaign_cell(), TARGET)[0], N))
    # A server that refuses: slots wait ever longer, and not at all once it answers.
    refused = play(scheduler_of("--concurrency 4"), 200, took_ns=lambda seq: MS, ok=lambda seq: seq >= 100)
    found["concurrency, refused at first"] = facts(*refused)
    for name, more in (("cancelled", ""), ("kept", " --keep-failed-sessions")):
        failing = scheduler_of(OPTIONS["sessions, poisson"] + more)
        found[f"sessions, every fifth turn fails, {name}"] = facts(
            *play(failing, 500, ok=lambda seq: seq % 5 > 0)
        )
    return found
