"""A campaign of several cards: which cells may be compared with one another, and what the analysis says of the cards."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import ENGINE, SMALL, Campaign, campaign_config
from msgspec.structs import replace

from connector_tax.base.files import read_json, write_json
from connector_tax.read.figures.words import problem_text
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.provenance import provenance

TWO = ("GPU 0: NVIDIA H20 (UUID: GPU-1)", "GPU 1: NVIDIA H20 (UUID: GPU-2)")
L4 = "GPU 1: NVIDIA L4 (UUID: GPU-9)"


def campaign(
    tmp_path: Path, mix: bool | None = None, gpus: tuple[int, ...] | None = (0, 1), kind: str = "emulator"
) -> Campaign:
    config = campaign_config(
        **{**SMALL, "connectors": ["plain", "nixl_both"], "phase_b_prime": {"configs": [], "shapes": []}}
    )
    engine = replace(config.engine, gpus=gpus, mix_cards=mix, kind=kind)
    return Campaign(tmp_path / config.campaign, replace(config, engine=engine))


def on(slot: int, *gpu: str) -> dict[str, Any]:
    return {**ENGINE, "gpu": list(gpu), "slot": slot}


def said(root: Path) -> str:
    return "\n".join(f"{p.subject}: {problem_text(p)}" for p in read_campaign(root).problems)


def usable(root: Path) -> int:
    return sum(cell.usable for cell in read_campaign(root).cells())


@pytest.mark.parametrize(
    ("kind", "mix", "cards", "kept", "words"),
    [
        (
            "emulator",
            False,
            TWO,
            1,
            f"not comparable: GPU ['{TWO[1]}'] / ['{TWO[0]}'] not as in plain's cell",
        ),
        ("emulator", True, TWO, 2, ""),
        ("emulator", True, (TWO[0], L4), 1, "GPU ['NVIDIA L4'] / ['NVIDIA H20'] not as in plain's cell"),
        ("emulator", None, TWO, 2, ""),
        ("vllm", None, TWO, 1, "not comparable: GPU"),
        ("emulator", None, (), 2, ""),
        ("emulator", False, (), 1, "engine.gpu 1 / 0 not as in plain's cell"),
    ],
)
def test_another_card_than_plains_is_compared_where_config_and_kind_allow_it(
    tmp_path: Path, kind: str, mix: bool | None, cards: tuple[str, ...], kept: int, words: str
) -> None:
    """Where nothing is asked for, real cards are not mixed; places without a card are told apart by their number."""
    found = campaign(tmp_path, mix=mix, kind=kind)
    each = len(found.measure("plain", engine=on(0, *cards[:1])))
    found.measure("nixl_both", engine=on(1, *cards[1:]))
    assert usable(found.root) == kept * each
    assert words in said(found.root) and (kept == 1 or not said(found.root))
    about = provenance(read_campaign(found.root))
    if cards == TWO:
        assert (about.mixed_cards, about.cards) == (("a",), {TWO[0]: ("a",), TWO[1]: ("a",)})


def test_phases_on_cards_of_their_own_are_no_problem(tmp_path: Path) -> None:
    """Each comparison stays on one card, so all is well; and a campaign of one card says that it had two."""
    found = campaign(tmp_path, mix=False)
    for connector in ("plain", "nixl_both"):
        found.measure(connector, engine=on(0, TWO[0]))
        found.measure(connector, "b", rates=(2.0, 2.0), engine=on(1, TWO[1]))
    assert said(found.root) == ""
    about = provenance(read_campaign(found.root))
    assert about.cards == {TWO[0]: ("a",), TWO[1]: ("b",)}
    assert about.mixed_cards == ()
    assert about.side_by_side == about.engines_at_once == 1, "one cell was measured after the other"
    alone = campaign(tmp_path / "alone", gpus=None)
    for connector in ("plain", "nixl_both"):
        alone.measure(connector, engine={**ENGINE, "gpu": [TWO[0]]})
        alone.measure(connector, "b", rates=(2.0, 2.0), engine={**ENGINE, "gpu": [TWO[1]]})
    assert "measured on several hosts or GPUs, " in said(alone.root)


def test_a_campaign_of_one_card_says_nothing_of_cards(tmp_path: Path) -> None:
    found = campaign(tmp_path, gpus=None)
    found.measure("plain")
    about = read_campaign(found.root)
    assert not provenance(about).cards and not provenance(about).mixed_cards
    assert (provenance(about).side_by_side, provenance(about).engines_at_once) == (msgspec.UNSET, 1)


def test_engines_that_were_asked_at_the_same_time_are_counted(tmp_path: Path) -> None:
    """On two cards; what ends when another begins was not beside it, and neither are two cells of one card."""
    found = campaign(tmp_path, mix=True)
    for slot, connector in enumerate(("plain", "nixl_both")):
        found.measure(connector, engine=on(slot, TWO[slot]))
    cells = sorted(found.root.glob("*/phase_a/cells/*/cell.json"))
    window = {"t0_ns": 10**15, "window_start_ns": 10**15, "t_stop_ns": 10**15 + 10, "drained_ns": 10**15 + 20}

    def begun(*after_ns: int) -> int:
        for cell, ns in zip(cells, after_ns, strict=True):
            document = read_json(cell)
            document["window"] |= {name: at + ns for name, at in window.items()}
            document["clock"] = {"monotonic_ns": 5, "utc_ns": 7}
            write_json(cell, document)
        return provenance(read_campaign(found.root)).engines_at_once

    n = len(cells) // 2
    first, second = range(0, 100 * n, 100), range(20, 100 * n + 20, 100)
    assert begun(*first, *second) == 1
    assert begun(*first, *(at - 1 for at in second)) == 2
    assert begun(*[0] * n, *[1000] * n) == 1
