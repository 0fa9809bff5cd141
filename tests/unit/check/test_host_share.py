"""How much of a tax the host's own speed may be: what is left at plain's speed, and what the verdict makes of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made import QUIET, measured

from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.check.document import check_document
from connector_tax.check.findings import Findings, read_findings
from connector_tax.check.load_tax import LoadTax
from connector_tax.check.text import check_text
from connector_tax.check.verdict import ABOVE, judge, verdict


@pytest.fixture(scope="module")
def taxed(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return read_findings(measured(tmp_path_factory.mktemp("taxed"), own=QUIET.taxed(0.05)), {})


def load_tax(work: float | None, share: float, whole: float = 0.0) -> LoadTax:
    known = Estimate(0.1, np.full(100, 0.1), 50)
    return LoadTax(8.0, "ttft_p90", known, known, (1.0, 1.0, 1.1), work, share, whole)


def with_host(findings: Findings, work: float | None, share: float) -> Findings:
    """All of its taxes, as if the host's work had taken so much longer beside the connector."""
    modes = tuple(
        replace(
            m, taxes=tuple(replace(t, host_work=work, host_share=share, host_whole=share) for t in m.taxes)
        )
        for m in findings.modes
    )
    return replace(findings, modes=modes)


@pytest.mark.parametrize(
    ("work", "share", "left"),
    [
        (None, 1.0, 0.1),
        (0.0, 1.0, 0.1),
        (0.1, 1.0, 0.0),  # work took 10 % longer and so did the latency
        (0.1, 0.0, 0.1),
        (0.25, 0.5, 1.1 * 0.8 - 1),  # 20 % less of the host's work, and half of the latency is exposed
        (0.25, 0.1, 1.1 * 0.9 - 1),  # no more goes away than is exposed
        (-0.2, 1.0, 1.1 / 0.8 - 1),
    ],
)
def test_what_is_left_at_plains_speed(work: float | None, share: float, left: float) -> None:
    assert load_tax(work, share).at_equal_speed(0.1) == pytest.approx(left)


@pytest.mark.parametrize(
    ("device_ms", "host_ms", "work"),
    [(9.0, 8.33, 0.2), (9.0, 8.33, -0.2), (9.0, 2.0, -0.3), (9.0, 12.0, 0.5), (9.0, 12.0, -0.5)],
)
def test_a_step_behind_which_host_and_device_work_at_once_holds_the_truth(
    device_ms: float, host_ms: float, work: float
) -> None:
    """Asynchronous: a step lasts as long as the longer of the two. No tax at equal speed; ``host_ms`` is at plain's."""
    plain, own = max(device_ms, host_ms), max(device_ms, host_ms * (1 + work))
    whole = min(1.0, host_ms * (1 + work) / own)
    tax = load_tax(work, 1 - device_ms / own, whole)
    held = sorted((own / plain - 1, tax.at_equal_speed(own / plain - 1)))
    assert held[0] - 1e-9 <= 0.0 <= held[1] + 1e-9


@pytest.mark.parametrize("work", [0.3, -0.3])
def test_a_step_in_which_host_and_device_take_turns_holds_the_truth(work: float) -> None:
    """Synchronous: 8 ms of the device and 2 ms of the host at plain's speed."""
    plain, own = 10.0, 8.0 + 2.0 * (1 + work)
    share = 1 - 8.0 / own
    held = sorted((own / plain - 1, load_tax(work, share, share).at_equal_speed(own / plain - 1)))
    assert held[0] - 1e-9 <= 0.0 <= held[1] + 1e-9


def test_a_host_that_was_slower_beside_the_connector_may_be_the_tax(taxed: Findings) -> None:
    assert verdict(with_host(taxed, None, 1.0), 0.02).exit_code == ABOVE
    slower = with_host(taxed, 0.2, 1.0)
    assert not any(j.told_apart for m in slower.modes for j in judge(m))
    found = verdict(slower, None)
    assert "no tax found" in found.line
    # The interval grows to one side alone: the tax as it was found is still in it.
    before = {j.metric: j for j in judge(taxed.modes[0])}
    for j in judge(slower.modes[0]):
        assert j.high == before[j.metric].high and (j.low or 0.0) < -0.1


def test_a_host_that_was_faster_may_hide_more(taxed: Findings) -> None:
    """The tax stays told apart, and may be larger than it looks."""
    faster = with_host(taxed, -0.2, 1.0)
    assert verdict(faster, 0.02).exit_code == ABOVE
    assert all((j.high or 0.0) > 0.25 for m in faster.modes for j in judge(m))


def test_what_the_host_has_no_share_in_stays_as_it_is(taxed: Findings) -> None:
    assert judge(with_host(taxed, 0.3, 0.0).modes[0]) == judge(with_host(taxed, None, 1.0).modes[0])


def test_text_and_json_say_how_the_host_was(taxed: Findings) -> None:
    found = verdict(taxed, None)
    slower = with_host(taxed, 0.2, 0.25)
    lines = check_text(slower, found, explain=False).splitlines()
    assert any("TPOT p90" in row and row.endswith("+20% x 0.25") for row in lines)
    assert any("TTFT p90" in row and row.endswith(" +20%") for row in lines)
    taxes = check_document(slower, found, None, 1.0).modes["async"].taxes
    assert {(t.host_work, t.host_share, t.host_whole) for t in taxes} == {(0.2, 0.25, 0.25)}


def test_cells_that_do_not_say_have_no_such_number(tmp_path: Path) -> None:
    findings = read_findings(measured(tmp_path), {})
    assert {t.host_work for m in findings.modes for t in m.taxes} == {None}
