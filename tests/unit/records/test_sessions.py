"""Session files: what a conversation is, and what is said of one that is none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_graphs import fan_out_and_in, linear

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.sessions import Turn, read_sessions
from connector_tax.base.records.target import Target
from connector_tax.run.workload.prompts import ConversationRenderer

SPEC = CellSpec("a", 1, 0, 0, "fixed", 1, 1, 1, 9, 1, 9, 7, 1000, 9000)


def written(path: Path, *lines: Any) -> Path:
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return path


def test_a_file_holds_chains_branches_and_joins(tmp_path: Path) -> None:
    join = {"turns": [
        {"new_tokens": 9, "output_tokens": 1},
        {"new_tokens": 2, "output_tokens": 3, "after": [0], "history": 0, "wait_s": 0.5},
        {"new_tokens": 2, "output_tokens": 3, "after": [0], "history": 0, "wait_s": 0.5},
        {"new_tokens": 2, "output_tokens": 3, "after": [1, 2], "history": 1, "wait_s": 0.5},
    ]}  # fmt: skip
    (found,) = read_sessions(written(tmp_path / "s.jsonl", join))
    expected = fan_out_and_in(2, first_tokens=9, next_tokens=2, output_tokens=3, wait_s=0.5)
    assert found.turns[1:] == expected.turns[1:]
    assert linear(3, first_tokens=9, next_tokens=2, output_tokens=3, wait_s=1).turns[2] == Turn(
        2, 3, (1,), (1,), 1
    )


def test_a_mooncake_trace_keeps_its_times_lengths_and_shared_blocks(tmp_path: Path) -> None:
    lines = [
        {"timestamp": 0, "input_length": 1300, "output_length": 5, "hash_ids": [46, 47, 48]},
        {"timestamp": 27482, "input_length": 600, "output_length": 0, "hash_ids": [46, 99]},
    ]
    first, second = read_sessions(written(tmp_path / "trace.jsonl", *lines))
    assert (first.arrival_s, second.arrival_s) == (0, 27.482)
    assert first.turns == (Turn(1300, 5, blocks=(46, 47)),)
    assert second.turns == (Turn(600, 1, blocks=(46,)),)
    renderer = ConversationRenderer(
        SPEC, Target("h", 80, "m"), turn_of=lambda seq: (seq, 0), session_of=lambda n: (first, second)[n]
    )
    prompts = [prompt_of(renderer.render(seq)) for seq in (0, 1)]
    assert [len(p) for p in prompts] == [1300, 600]
    assert prompts[0][:512] == prompts[1][:512], "the block that both name"
    assert prompts[0][512:600] != prompts[1][512:600]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({}, "'turns' is missing"),
        ({"turns": [{"new_tokens": 3, "output_tokens": 1, "wait": 1}]}, "unknown key 'wait'. Allowed: after, history"),
        ({"turns": [{"new_tokens": 3, "output_tokens": 1, "after": [0]}]}, "give indices of earlier turns"),
        (
            {"turns": [{"new_tokens": 1, "output_tokens": 1}] * 2 + [{"new_tokens": 1, "output_tokens": 1, "after": [1], "history": 0}]},
            "history [0] is not among the turns it comes after",
        ),
        (7, "not"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_session_is_named(tmp_path: Path, line: Any, message: str) -> None:
    good = {"turns": [{"new_tokens": 1, "output_tokens": 1}]}
    path = written(tmp_path / "s.jsonl", good, line)
    with pytest.raises(ConfigError, match="line 2") as refused:
        read_sessions(path)
    assert message in str(refused.value)


def test_an_empty_or_missing_file_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ConfigError, match="holds nothing"):
        read_sessions(tmp_path / "empty.jsonl")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_sessions(tmp_path / "nowhere.jsonl")


def prompt_of(request: bytes) -> list[int]:
    head, _, body = request.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    return list(json.loads(body)["prompt"])


def test_a_turn_begins_with_what_was_said_before() -> None:
    """Prompt of the second = prompt of the first, its answer, and then tokens of its own."""
    session = linear(3, first_tokens=1000, next_tokens=4, output_tokens=3, wait_s=0)
    renderer = ConversationRenderer(
        SPEC, Target("h", 80, "m"), turn_of=lambda seq: (5, seq), session_of=lambda n: session
    )
    first = prompt_of(renderer.render(0))
    renderer.answered(0, [11, 12, 999_999])
    second = prompt_of(renderer.render(1))
    assert len(first) == 1000
    assert second[:1003] == [*first, 11, 12, 999_999]
    assert renderer.lengths(1) == (1007, 3)
    renderer.answered(1, [1, 2, 3])
    third = prompt_of(renderer.render(2))
    assert third[: len(second) + 3] == [*second, 1, 2, 3]
    assert len(set(np.array(third[-4:])) & set(second[-4:])) < 4
    renderer.forget(5)
    with pytest.raises(KeyError):
        renderer.render(1)


def test_several_turns_may_be_the_history_of_one(tmp_path: Path) -> None:
    """Each turn that was said before stands once and in order, though both branches know the root."""
    branch = {"new_tokens": 2, "output_tokens": 3, "after": [0], "history": 0}
    join = {"new_tokens": 5, "output_tokens": 7, "after": [1, 2], "history": [2, 1]}
    line = {"turns": [{"new_tokens": 10, "output_tokens": 1}, branch, branch, join]}
    (session,) = read_sessions(written(tmp_path / "s.jsonl", line))
    renderer = ConversationRenderer(
        SPEC, Target("h", 80, "m"), turn_of=lambda seq: (5, seq), session_of=lambda n: session
    )
    prompts = []
    for seq, answer in enumerate(([900], [1, 2, 3], [4, 5, 6])):
        prompts.append(prompt_of(renderer.render(seq)))
        renderer.answered(seq, answer)
    found = prompt_of(renderer.render(3))
    own = [prompts[1][11:], prompts[2][11:]]
    assert found[:-5] == [*prompts[0], 900, *own[0], 1, 2, 3, *own[1], 4, 5, 6]
    assert session.longest_tokens() == len(found) + 7 == 11 + 5 + 5 + 5 + 7
