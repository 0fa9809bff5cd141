"""Test connectors on a virtual GPU: what follows from a burn, of which numbers nothing does, and whom nothing is known of."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from builders import SMALL, Campaign, campaign_config
from mutations import BURNING, BURNT, PLAIN

from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.aggregate import Burns
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.base.records.request import RequestRecord
from connector_tax.read.ingest import read_campaign
from connector_tax.read.stats.cells import CellEstimates, Estimates, estimate_cells
from connector_tax.read.stats.injected import FIRST_TOKEN, HIDDEN, OVERLAP, injected_delays, known_delays_us

RATES = ReferenceRatesFile(ref_safe_per_s=2.0, ref_load_per_s=2.0, b_prime_needed=False)
FOLLOWING = ("hooks_p50_us", "step_p50_us", "tpot_p50_us", "tpot_p90_us")
TEST_CONNECTOR = {"kv_connector": "BurningConnector", "kv_connector_module_path": "burning_connector"}
Found = dict[tuple[str, str, str], CellEstimates]
Measured = tuple[CampaignConfig, Found]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """The campaign, and its cells."""
    config = campaign_config(**{**SMALL, **BURNING, "repeats": 1})
    behaviours = {"plain": PLAIN, "plain_again": PLAIN, **BURNT}
    campaign = Campaign(tmp_path_factory.mktemp("burns") / "c", config, behaviours, max_steps=60)
    campaign.measure_everything()
    data = read_campaign(campaign.root)
    cells = estimate_cells(data.cells(), 1, 50, confidence=0.95)
    return data.config, {(e.cell.config, e.cell.phase, e.cell.cell_id): e for e in cells}


def of(config: CampaignConfig, found: Estimates) -> Burns:
    return injected_delays(config, found, RATES, 0.95)  # type: ignore[return-value]


def reasons(value: Burns, config: str = "burning_200") -> dict[str, str | None]:
    return {row.metric: row.reason for row in value.rows if row.config == config}


def with_engine(config: CampaignConfig, **changes: Any) -> CampaignConfig:
    engine = msgspec.structs.replace(config.engine, **changes)
    return msgspec.structs.replace(config, engine=engine)


def with_connectors(**transfers: Any) -> CampaignConfig:
    """A campaign on a virtual GPU with these alone."""
    own = tuple(ConnectorSpec(id=i, label=i, kv_transfer_config=kv) for i, kv in transfers.items())
    return msgspec.structs.replace(with_engine(campaign_config(), kind="virtual_gpu"), connectors=own)


def test_what_follows_from_a_burn_stands_beside_what_was_found(
    measured: Measured,
) -> None:
    """One rate under two names is asked once; the first token is nobody's."""
    value = of(*measured)
    rows = {(row.config, row.metric): row for row in value.rows}
    assert value.base == "burning_0" and len(rows) == len(value.rows) == 10
    for config, burn_us in (("burning_200", 200.0), ("burning_1000", 1000.0)):
        for metric in FOLLOWING:
            row = rows[config, metric]
            assert (row.put_in_us, row.reason, row.found.n) == (burn_us, None, 3)
        first = rows[config, "ttft_p90_us"]
        assert (first.put_in_us, first.reason, first.held) == (None, FIRST_TOKEN, None)
        assert first.found.point is not None
    # It took 1 us more than it burnt, in every step.
    assert rows["burning_200", "hooks_p50_us"].found.point == pytest.approx(201)
    assert rows["burning_200", "hooks_p50_us"].held is False
    assert rows["burning_1000", "hooks_p50_us"].held is True
    told = [row.held for row in value.rows if row.held is not None]
    assert (value.asked, value.held) == (8, sum(told)) == (len(told), sum(told))


def test_a_number_of_latency_is_in_microseconds(measured: Measured) -> None:
    config, found = measured
    own = {row.metric: row.found.point for row in of(config, found).rows if row.config == "burning_1000"}
    by_hand = [
        found["burning_1000", phase, "r2_256x16"].latency("tpot_ms", 90.0).point
        - found["burning_0", phase, "r2_256x16"].latency("tpot_ms", 90.0).point  # type: ignore[operator]
        for phase in ("a", "b", "r1")
    ]
    assert own["tpot_p90_us"] == pytest.approx(1e3 * float(np.mean(by_hand)))


@pytest.mark.parametrize("late", ["ended later", "never ended"])
def test_where_requests_run_side_by_side_a_step_does_not_follow(measured: Measured, late: str) -> None:
    """One that was sent a moment too early is enough, in any cell of either side; one that was never sent runs beside none."""
    config, found = measured
    key = ("burning_0", "r1", "r2_256x16")
    first, second, *others = found[key].cell.requests

    def reasons_with(one: RequestRecord) -> dict[str, str | None]:
        cell = replace(found[key].cell, requests=[*others, second, one])
        return reasons(of(config, {**found, key: replace(found[key], cell=cell)}))

    end_ns = None if late == "never ended" else second.t_send_ns + 1
    told = reasons_with(replace(first, t_end_ns=end_ns))
    assert told == {**dict.fromkeys(FOLLOWING, OVERLAP), "hooks_p50_us": None, "ttft_p90_us": FIRST_TOKEN}
    dropped = replace(first, t_send_ns=None, t_end_ns=None, status="dropped")
    assert reasons_with(dropped)["tpot_p90_us"] is None


@pytest.mark.parametrize("args", [{}, {"async_scheduling": True}, {"async_scheduling": None}])
def test_under_asynchronous_scheduling_the_hooks_alone_follow(
    measured: Measured, args: dict[str, Any]
) -> None:
    """Also where nobody says which it is: vLLM chooses that."""
    config, found = measured
    told = reasons(of(with_engine(config, args=args), found))
    assert told == {**dict.fromkeys(FOLLOWING, HIDDEN), "hooks_p50_us": None, "ttft_p90_us": FIRST_TOKEN}


@pytest.mark.parametrize("where", ["engine", "burning_200", "burning_0"])
def test_an_argument_that_is_appended_may_say_that_scheduling_is_asynchronous(
    measured: Measured, where: str
) -> None:
    """vLLM takes the last of two; on either side of the difference."""
    config, found = measured
    extra = ("--async-scheduling",)
    connectors = tuple(
        msgspec.structs.replace(c, extra_args=extra) if c.id == where else c for c in config.connectors
    )
    changed = msgspec.structs.replace(config, connectors=connectors)
    if where == "engine":
        changed = with_engine(config, extra_args=extra)
    assert reasons(of(changed, found))["step_p50_us"] == HIDDEN
    of_other = reasons(of(changed, found), "burning_1000")["step_p50_us"]
    assert of_other == (None if where == "burning_200" else HIDDEN)


def test_two_blocks_have_no_interval(measured: Measured) -> None:
    config, found = measured
    fewer = {key: own for key, own in found.items() if key[:2] != ("burning_0", "b")}
    value = of(config, fewer)
    assert (value.asked, value.held) == (0, 0)
    assert {(row.found.reason, row.found.n) for row in value.rows} == {("few_blocks", 2)}


def test_nothing_is_known_of_other_connectors_and_other_engines(
    measured: Measured,
) -> None:
    config, found = measured
    assert known_delays_us(config) == {"burning_0": 0.0, "burning_200": 200.0, "burning_1000": 1000.0}
    assert injected_delays(config, found, None, 0.95) is None
    for kind in ("vllm", "emulator"):
        assert injected_delays(with_engine(config, kind=kind), found, RATES, 0.95) is None
    without_base = tuple(c for c in config.connectors if c.id != "burning_0")
    other = msgspec.structs.replace(config, connectors=without_base)
    assert injected_delays(other, found, RATES, 0.95) is None


@pytest.mark.parametrize(
    "extra",
    [
        None,
        {},
        {"burn_us": {"get_finished": 200}},
        {"burn_us": {"build_connector_meta": 200, "get_finished": 200}},
        {"burn_us": {"build_connector_meta": 200}, "per_running_us": 3},
        {"burn_us": {"build_connector_meta": "200"}},
    ],
    ids=json.dumps,
)
def test_a_burn_that_no_step_has_once_is_not_known(extra: Any) -> None:
    """Another hook may be called more than once in a step, or in none; what grows with the load is no one number."""
    transfer = {**TEST_CONNECTOR, "kv_connector_extra_config": extra}
    real = {
        "kv_connector": "NixlConnector",
        "kv_connector_extra_config": {"burn_us": {"build_connector_meta": 200}},
    }
    assert known_delays_us(with_connectors(plain=None, x=transfer, nixl=real)) == {}


@pytest.mark.parametrize("module", ["of_somebody_else", None])
def test_a_connector_of_that_name_from_elsewhere_is_not_known(module: str | None) -> None:
    assert known_of({"kv_connector_module_path": module}) == {}


def test_what_grows_with_the_load_may_be_told_as_nothing() -> None:
    """As the connector's own docstring writes it."""
    nothing = {"burn_us": {"build_connector_meta": 200}, "per_cached_block_us": 0, "per_running_us": 0}
    assert known_of({"kv_connector_extra_config": nothing}) == {"x": 200.0}


def known_of(changed: dict[str, Any]) -> dict[str, float]:
    extra = {"kv_connector_extra_config": {"burn_us": {"build_connector_meta": 200}}}
    return known_delays_us(with_connectors(x={**TEST_CONNECTOR, **extra, **changed}))
