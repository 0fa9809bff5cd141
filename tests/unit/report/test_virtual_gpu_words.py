"""What a reader is told of a virtual GPU: before any number, on every picture, and where two of them are compared."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.read.compare.changes import Comparison, Side
from connector_tax.read.compare.comparison import compare
from connector_tax.read.compare.text import comparison_text
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.fig4_tax_bars import Drawn
from connector_tax.read.figures.questions import source_note
from connector_tax.read.figures.style import drawing_style
from connector_tax.read.report.manifest import _gpu

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT
from made_pages import text_of
from virtual_gpus import CLOCK, IDENTITY

EXAMPLE = ROOT / "tests" / "data" / "aggregate_example.json"
Aggregate = dict[str, Any]


@pytest.fixture
def real() -> Aggregate:
    return json.loads(EXAMPLE.read_text())


@pytest.fixture
def virtual(real: Aggregate) -> Aggregate:
    return on(real, IDENTITY)


def on(real: Aggregate, gpu: dict[str, Any]) -> Aggregate:
    found = copy.deepcopy(real)
    found["provenance"] |= {"engine_kind": "virtual_gpu", "gpu": [], "virtual_gpu": copy.deepcopy(gpu)}
    for k, cell in enumerate(found["cells"]):
        if cell["usable"]:
            cell["health"] = {"device_clock": {**CLOCK, "late_share": 0.001 * (k % 5)}}
    return found


def page_of(aggregate: Aggregate) -> str:
    return text_of(aggregate)


def compared(a: Aggregate, b: Aggregate) -> Comparison:
    sides = (Side("A", Path("a"), aggregate_of(a)), Side("B", Path("b"), aggregate_of(b)))
    return compare(*sides, fail_above=0.05, deciding=("ttft_p90", "tpot_p90"))


def test_the_page_begins_with_the_clock_and_what_it_cannot_show(virtual: Aggregate) -> None:
    text = page_of(virtual)
    first = text.index("The device was a clock")
    for words in (
        "profile of the NVIDIA H200 (profile h200, 0123456789abcdef)",
        "7,925 µs, 12.16 µs per prompt token, 295.7 µs per decoding sequence and 0.0256 µs per token of context",
        "It cannot show kernels, memory traffic, transfers of KV",
        "nor what a GPU&#39;s runner prepares on the host, which is set to none",
        "ran late by at most 0.40 % of the device&#39;s time",
        "the host was done 7,000 µs or more before the device",
    ):
        assert first <= text.index(words) < text.index('id="verdicts"')
    assert "On a virtual NVIDIA H200: Merely switching on" in text
    assert "CPU host" not in text


def test_stand_ins_are_listed_by_configuration_before_any_number(virtual: Aggregate) -> None:
    words = "OffloadingConnector: no KV is copied; a copy takes as long as 1.57 MB a block at 53 GB/s"
    label = virtual["configs"]["noop_connector"]["label"]
    assert "Stand-ins" not in page_of(virtual)
    for cell in virtual["cells"]:
        if cell["config"] == "noop_connector":
            cell.setdefault("health", {})["stand_ins"] = [words]
    text = page_of(virtual)
    said = text.index(f"between it and the host: {label} ({words}).")
    assert text.index("The device was a clock") < said < text.index('id="verdicts"')
    assert text.count(words) == 1


def test_busy_time_of_the_host_is_said_where_it_is_set(virtual: Aggregate) -> None:
    virtual["provenance"]["virtual_gpu"]["host"] |= {"before_launch_us": 470.0, "after_launch_us": 80.0}
    text = page_of(virtual)
    assert "is set to 470 µs and 0 µs a sequence before the launch and 80 µs after it" in text
    assert "set to none" not in text


def test_the_page_lists_each_configurations_clock(virtual: Aggregate) -> None:
    text = page_of(virtual)
    assert "The virtual GPU's clock" in text
    assert (
        '<td class="num">80 % to 80 %</td><td class="num">7,000 µs</td><td class="num">8,000 µs</td>' in text
    )


def test_a_campaign_on_a_gpu_has_none_of_this(real: Aggregate, virtual: Aggregate) -> None:
    """What was put in stands for test connectors alone, also on a virtual GPU."""
    text = page_of(real)
    assert not any("What was put in" in t for t in (text, page_of(virtual)))
    assert "clock" not in text.split("</header>")[0]
    assert "The virtual GPU's clock" not in text


def test_every_picture_says_that_the_device_was_a_clock(virtual: Aggregate) -> None:
    """PNGs travel without their page."""
    note = source_note(aggregate_of(virtual))
    assert note.startswith("Virtual NVIDIA H200 (profile h200, 0123456789abcdef): the device was a clock")
    with drawing_style("x"):
        result = FIGURES["fig4_tax_bars"](aggregate_of(virtual))
    assert isinstance(result, Drawn)
    (shown,) = [t for t in result.figure.texts if t.get_text() == note]
    renderer = result.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    assert shown.get_window_extent(renderer).x1 <= result.figure.bbox.x1


def test_a_campaign_without_a_cell_is_named_all_the_same(virtual: Aggregate) -> None:
    """Nothing says yet what the clock went by."""
    del virtual["provenance"]["virtual_gpu"]
    assert source_note(aggregate_of(virtual)).startswith(
        "Virtual unknown (profile unknown, unknown): the device was a clock"
    )
    assert "The device was a clock" in page_of(virtual)


def test_two_days_on_one_virtual_gpu_are_one_engine(virtual: Aggregate) -> None:
    other = copy.deepcopy(virtual)
    other["provenance"]["created_utc"] = "2026-11-21T08:00:00Z"
    text = comparison_text(compared(virtual, other))
    assert "different documents" not in text and "virtual GPU:" not in text
    assert text.splitlines()[-1].startswith("On a virtual NVIDIA H200: No regression")


def test_clocks_of_different_documents_are_different_engines(real: Aggregate, virtual: Aggregate) -> None:
    """Also of one profile, with another model or other numbers."""
    faster = on(real, {**IDENTITY, "sha256": "f" * 16})
    text = comparison_text(compared(virtual, faster))
    assert (
        "Note: The clocks went by different documents, NVIDIA H200 (profile h200, 0123456789abcdef) and"
        in text
    )
    assert (
        f"virtual GPU: NVIDIA H200 (profile h200, 0123456789abcdef) / NVIDIA H200 (profile h200, {'f' * 16})"
        in text
    )


def test_a_clock_and_a_gpu_are_different_engines(real: Aggregate, virtual: Aggregate) -> None:
    text = comparison_text(compared(real, virtual))
    assert "Note: One is of a virtual GPU and the other is not: these are two engines" in text
    assert "engine: vllm / virtual_gpu" in text
    assert text.splitlines()[-1].startswith("A on a real device, B on a virtual NVIDIA H200: ")


def test_a_hostile_name_stays_one_printable_line(virtual: Aggregate) -> None:
    evil = "<script>alert(1)</script>\x1b[2J\n" + "x" * 500
    virtual["provenance"]["virtual_gpu"] |= {"name": evil, "profile": evil}
    text = page_of(virtual)
    assert text.count("<script>") == 1 and "\x1b" not in text.split("</header>")[0]
    assert "\n" not in source_note(aggregate_of(virtual)) and len(source_note(aggregate_of(virtual))) < 400
    assert "\x1b" not in comparison_text(compared(virtual, virtual))


def test_the_manifest_names_the_virtual_card() -> None:
    def on(*gpu: str, **virtual: Any) -> EngineIdentity:
        return msgspec.convert({"versions": {}, "host": {}, "gpu": gpu, **virtual}, EngineIdentity)

    assert _gpu(on(virtual_gpu=IDENTITY)) == "virtual NVIDIA H200 (profile h200, 0123456789abcdef)"
    assert _gpu(on()) == "none"
    assert _gpu(on("GPU 0")) == "GPU 0"
    assert _gpu(None) == "-"
