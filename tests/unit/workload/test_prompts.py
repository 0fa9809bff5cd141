"""Prompts have the length that was asked for, repeat for the same seed and share nothing otherwise."""

import json
from dataclasses import replace

import numpy as np
import pytest

from connector_tax.base.records.cell import CellSpec
from connector_tax.base.records.target import Target
from connector_tax.run.workload.prompts import IdPrompts, RequestRenderer

SPEC = CellSpec("a", 1.0, 300, 16, "fixed", 1, 1, 1, 10, 1, 4, 7, 5, 1000)


def renderer(*, input_tokens: int = 300, seed: int = 7, low: int = 5, high: int = 1000) -> RequestRenderer:
    spec = CellSpec("a", 1.0, input_tokens, 16, "fixed", 1, 1, 1, 10, 1, 4, seed, low, high)
    return RequestRenderer(spec, Target("127.0.0.1", 8000, 'a "quoted" model'))


def parsed(request: bytes) -> tuple[str, dict[str, object]]:
    head, _, body = request.partition(b"\r\n\r\n")
    return head.decode(), json.loads(body)


def test_the_body_asks_for_what_the_cell_says() -> None:
    head, body = parsed(renderer().render(0))
    assert head.startswith("POST /v1/completions HTTP/1.1\r\n")
    assert body["model"] == 'a "quoted" model'
    assert body["max_tokens"] == 16
    assert body["temperature"] == 0
    assert body["ignore_eos"] is True
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


def test_the_prompt_is_the_drawn_ids() -> None:
    made = renderer()
    _, body = parsed(made.render(3))
    assert body["prompt"] == IdPrompts(SPEC, 300).ids(3, 300).tolist()
    assert len(body["prompt"]) == 300  # type: ignore[arg-type]


def test_content_length_is_exact() -> None:
    head, _ = parsed(renderer(low=9, high=12).render(0))
    stated = int(head.split("Content-Length: ")[1].split("\r\n")[0])
    assert stated == len(renderer(low=9, high=12).render(0).partition(b"\r\n\r\n")[2])


def test_ids_stay_inside_their_range() -> None:
    ids = np.concatenate(
        [IdPrompts(replace(SPEC, token_id_low=98, token_id_high=103), 300).ids(k, 300) for k in range(50)]
    )
    assert set(ids.tolist()) == {98, 99, 100, 101, 102}


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert renderer().render(11) == renderer().render(11)


@pytest.mark.parametrize("block", [16])
def test_no_two_prompts_share_a_first_block(block: int) -> None:
    """A shared first block would be a prefix-cache hit."""
    firsts = {tuple(IdPrompts(SPEC, 300).ids(k, 300)[:block]) for k in range(2000)}
    assert len(firsts) == 2000
