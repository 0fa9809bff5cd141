"""Before anything is measured: the time that status, a sweep's plan and lines of progress count, against the rehearsed campaign."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import read_document
from connector_tax.base.plan import config_of, read_campaign_file, wall_s
from connector_tax.base.plan.duration import GAP_S, expected_run_s
from connector_tax.base.plan.estimate import Expected, estimated_rates, expected_of
from connector_tax.base.records.cell import Shape
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.base.vllm_model.costs import ConnectorCosts, load_cost_model
from connector_tax.read.report.status import seconds_left
from connector_tax.run.rehearsal.campaign import DATE, measuring_s, preflight_s, rehearse

MODEL = (
    "engine: {base_us: 10, per_prefill_token_us: 1, per_decode_seq_us: 1, per_context_token_us: 1, schedule_us: 1, update_us: 1,"
    " jitter_cv: 0, launch_cv: 0, max_num_seqs: 8, kv_blocks: 1000, block_size: 16}\nconnectors: {}"
)
# What a simulation has and a sum has not: queues, looks of the stopping rule, and when a queue is seen to grow.
WITHIN = 0.15


def few_of(name: str, *connectors: str) -> CampaignConfig:
    """Some configurations and no blocks: what is left out is more of the same, and a simulation of all of it takes a minute."""
    config = load_campaign(PROJECT_ROOT / "config" / f"{name}.yaml")
    return msgspec.structs.replace(config, connectors=tuple(map(config.connector, connectors)), repeats=0)


def few_of_h200() -> CampaignConfig:
    few = few_of("h200", "plain", "nixl_both")
    return msgspec.structs.replace(few, phase_a_rates_per_s=(1, 2, 4, 8), phase_b_output_tokens=(64,))


CAMPAIGNS = {"demo": lambda: few_of("demo", "plain", "mooncake_both"), "h200": few_of_h200}


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_before_anything_is_measured_status_and_the_rehearsal_agree(tmp_path: Path, name: str) -> None:
    """On one card and on several. A guess of one rate for all shapes was a half to two thirds of it."""
    config = CAMPAIGNS[name]()
    root, times = rehearse(config, tmp_path, processes=1)
    found = read_document(CampaignFolder(root).reference_rates, ReferenceRatesFile).rates
    assert estimated_rates(config, expected_of(config)) == found
    for gpus in ((0,), (0, 1), (0, 1, 2, 3)):
        engine = msgspec.structs.replace(config.engine, gpus=gpus)
        for own in (engine, msgspec.structs.replace(engine, mix_cards=True)):
            cards = msgspec.structs.replace(config, engine=own)
            rehearsed_s = preflight_s(times) + wall_s(cards, measuring_s(times))
            assert seconds_left(cards, CampaignFolder(tmp_path / "none")) == pytest.approx(
                rehearsed_s, rel=WITHIN
            )


def test_with_each_run_that_ends_less_is_left(tmp_path: Path) -> None:
    """Receipts are taken away from the last to the first; rates that are known are those of the guess, so no step is upwards."""
    root, _ = rehearse(CAMPAIGNS["demo"](), tmp_path, processes=1)
    folder, config = CampaignFolder(root), config_of(read_campaign_file(root / "campaign.json"))
    runs = [folder.run(DATE, c, phase) for phase in config.phases for c in config.members(phase)]
    left_s = [seconds_left(config, folder)]
    for run in reversed(runs):
        run.receipt.unlink()
        left_s.append(seconds_left(config, folder))
    assert left_s[0] == 0 and left_s == sorted(set(left_s))
    # Finished cells of runs that have not ended are not left: of Phase A all are there, of the others nothing is said without rates.
    for cell in folder.run(DATE, "plain", "a").finished_cells()[1:]:
        shutil.rmtree(cell.path)
    more_s = seconds_left(config, folder)
    assert more_s == pytest.approx(left_s[-1] + 2 * (0.3 + 1.0 + GAP_S), abs=0.5)
    folder.preflight_status.unlink()
    assert seconds_left(config, folder) > left_s[-1]


def test_a_rate_that_is_not_held_and_not_too_much_ends_no_sweep() -> None:
    """At 0.89 of its capacity plain is saturated, since answers pile up, and no queue grows: the rate above is measured as well."""
    config = msgspec.structs.replace(few_of_h200(), phase_a_rates_per_s=(1.25, 2.5, 5))
    expected = expected_of(config)
    assert expected is not None and 0.85 < expected.use("plain", 2.5, config.phase_a_shape) < 1
    rates = estimated_rates(config, expected)
    assert rates.ref_safe_per_s == 1.25
    without = msgspec.structs.replace(config, phase_a_rates_per_s=(1.25, 2.5))
    took_s = [expected_run_s(c, "plain", "a", rates, expected=expected) for c in (config, without)]
    assert took_s[0] - took_s[1] == pytest.approx(config.cell.warmup_s + config.cell.duration_s + GAP_S)


def test_what_preflight_skipped_has_no_say_in_the_guessed_rates() -> None:
    config = few_of_h200()
    expected = expected_of(config)
    engine, _ = expected.costs_of("plain")
    slow = replace(expected, costs={**expected.costs, "nixl_both": (engine, ConnectorCosts(step_factor=3.0))})
    assert estimated_rates(config, slow).ref_safe_per_s < 2.0
    assert estimated_rates(config, slow, lambda c: c == "nixl_both") == ReferenceRates(
        2.0, 2.0, *(getattr(estimated_rates(config, expected), k) for k in ("safe_by_shape", "load_by_shape"))
    )


@pytest.mark.parametrize(
    "text",
    [
        "a: 2020-13-45",
        MODEL.replace("kv_blocks: 1000", "kv_blocks: 1" + "0" * 400),
        MODEL.replace("per_decode_seq_us: 1", "per_decode_seq_us: 1.0e+308"),
        MODEL.replace("{}", "{NoOpConnector/kv_both: {step_factor: -1}}"),
    ],
)
def test_a_broken_cost_model_takes_no_status_away(tmp_path: Path, text: str) -> None:
    """The first three ended status, and a line of progress with its measurement, in a traceback; the others made times negative or endless."""
    path = tmp_path / "model.yaml"
    path.write_text(text)
    config = few_of_h200()
    config = msgspec.structs.replace(
        config, engine=msgspec.structs.replace(config.engine, model_file=str(path))
    )
    with pytest.raises(ConfigError, match="not a cost model"):
        load_cost_model(path)
    assert expected_of(config) is None
    assert seconds_left(config, CampaignFolder(tmp_path)) > 0


def test_without_a_cost_model_the_middle_of_phase_a_stands_in() -> None:
    config = few_of_h200()
    unknown = msgspec.structs.replace(
        config, engine=msgspec.structs.replace(config.engine, model_file="config/no_such_model.yaml")
    )
    assert expected_of(unknown) is None
    assert estimated_rates(unknown, None) == ReferenceRates(4, 4)
    assert seconds_left(unknown, CampaignFolder(Path("none"))) > 0


@pytest.mark.parametrize(
    "children", [[{"kv_connector": "SomeoneElsesConnector", "kv_role": "kv_both"}], ["nixl"]]
)
def test_a_connector_that_the_cost_model_does_not_know_takes_no_status_away(
    tmp_path: Path, children: list[Any] | None
) -> None:
    """Of a MultiConnector the config checks the name only. Its engine is known: it was a guess of one rate for all shapes, three quarters."""
    config = few_of_h200()
    demo = msgspec.structs.replace(config.engine, model_file="config/engine_model_demo.yaml")
    config = msgspec.structs.replace(config, engine=demo)
    stacked = {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": children},
    }
    plain, other = config.connectors
    known_s = seconds_left(config, CampaignFolder(tmp_path))
    config = msgspec.structs.replace(
        config, connectors=(plain, msgspec.structs.replace(other, kv_transfer_config=stacked))
    )
    with pytest.raises(ConfigError, match="no costs for"):
        Expected.of(config)
    assert seconds_left(config, CampaignFolder(tmp_path)) == pytest.approx(known_s, rel=0.05)


def test_a_prompt_beyond_the_cost_models_memory_is_no_wait_without_end(tmp_path: Path) -> None:
    """The model's engine would keep it waiting for ever; that of the campaign may have more memory."""
    config = msgspec.structs.replace(few_of_h200(), phase_b_input_tokens=(512, 400_000))
    expected = expected_of(config)
    assert (
        expected.request_s("plain", Shape(400_000, 64)) == 0.0 < expected.request_s("plain", Shape(512, 64))
    )
    assert seconds_left(config, CampaignFolder(tmp_path)) > 0
