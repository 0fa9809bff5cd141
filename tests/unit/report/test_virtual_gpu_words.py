"""What a reader is told of a virtual GPU: before any number, on every picture, and where two of them are compared."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from matplotlib.text import Text

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.read.compare.comparison import Comparison, Side, compare
from connector_tax.read.compare.text import comparison_text
from connector_tax.read.figures.draw_all import FIGURES
from connector_tax.read.figures.style import Drawn, drawing_style
from connector_tax.read.figures.words import source_note
from connector_tax.read.report.manifest import _gpu

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT
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


def compared(a: Aggregate, b: Aggregate) -> Comparison:
    sides = (Side("A", Path("a"), aggregate_of(a)), Side("B", Path("b"), aggregate_of(b)))
    return compare(*sides, fail_above=0.05, deciding=("ttft_p90", "tpot_p90"))


def test_every_picture_says_that_the_device_was_a_clock(virtual: Aggregate) -> None:
    """PNGs travel without their page."""
    note = source_note(aggregate_of(virtual))
    assert note.startswith("Virtual NVIDIA H200 (profile h200, 0123456789abcdef): the device was a clock")
    with drawing_style("x"):
        result = FIGURES["fig4_tax_bars"](aggregate_of(virtual))
    assert isinstance(result, Drawn)
    (shown,) = [t for t in result.figure.findobj(Text) if t.get_text().replace("\n", " ") == note]
    renderer = result.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    assert shown.get_window_extent(renderer).x1 <= result.figure.bbox.x1


def test_two_days_on_one_virtual_gpu_are_one_engine(virtual: Aggregate) -> None:
    other = copy.deepcopy(virtual)
    other["provenance"]["created_utc"] = "2026-11-21T08:00:00Z"
    text = comparison_text(compared(virtual, other))
    assert "two engines" not in text and "virtual_gpu:" not in text
    assert text.splitlines()[-1].startswith(
        "No regression: no tax of 12 is known to have risen by more than 5 pp (Virtual GPU NVIDIA H200)"
    )


def test_clocks_of_different_documents_are_different_engines(real: Aggregate, virtual: Aggregate) -> None:
    """Also of one profile, with another model or other numbers."""
    faster = on(real, {**IDENTITY, "sha256": "f" * 16})
    text = comparison_text(compared(virtual, faster))
    assert "Note: A and B were measured on two engines" in text
    assert (
        f"virtual_gpu: NVIDIA H200 (profile h200, 0123456789abcdef) / NVIDIA H200 (profile h200, {'f' * 16})"
        in text
    )


def test_a_clock_and_a_gpu_are_different_engines(real: Aggregate, virtual: Aggregate) -> None:
    text = comparison_text(compared(real, virtual))
    assert "Note: A and B were measured on two engines" in text
    assert "engine_kind: vllm / virtual_gpu" in text
    assert "B on Virtual GPU NVIDIA H200)" in text.splitlines()[-1]


def test_the_manifest_names_the_virtual_card() -> None:
    def on(*gpu: str, **virtual: Any) -> EngineIdentity:
        return msgspec.convert({"versions": {}, "host": {}, "gpu": gpu, **virtual}, EngineIdentity)

    assert _gpu(on(virtual_gpu=IDENTITY)) == "virtual NVIDIA H200 (profile h200, 0123456789abcdef)"
    assert _gpu(on()) == "none"
    assert _gpu(on("GPU 0")) == "GPU 0"
    assert _gpu(None) == "-"
