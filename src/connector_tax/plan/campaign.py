"""``campaign.json``: the resolved config, the date and the run order, as every door reads them."""

from dataclasses import asdict
from typing import Any

from connector_tax.config import (
    AccuracyConfig,
    AnalysisConfig,
    CampaignConfig,
    CellConfig,
    EngineConfig,
    PhaseBPrimeConfig,
    PhaseCConfig,
    PhaseDConfig,
    SessionFile,
)
from connector_tax.errors import ArtifactError
from connector_tax.files import hash_of
from connector_tax.plan.order import run_order
from connector_tax.records.cell import Shape
from connector_tax.records.connector import ConnectorSpec, ModuleNeed, SidePort

SCHEMA = 1


def campaign_document(config: CampaignConfig, *, date: str, created_utc: str) -> dict[str, Any]:
    """What ``results/<campaign>/campaign.json`` holds.

    Args:
        date: ``YYYY-MM-DD`` of the first start; kept on every resume, since it names folders.
    """
    return {
        "schema": SCHEMA,
        "campaign": config.campaign,
        "date": date,
        "created_utc": created_utc,
        "order": {phase: list(run_order(config, phase)) for phase in config.phases},
        "config": asdict(config),
    }


def document_hash(document: dict[str, Any]) -> str:
    return hash_of(document["config"])


def config_of(document: dict[str, Any]) -> CampaignConfig:
    """The config that a ``campaign.json`` was made from; ``campaign_document`` backwards.

    Raises:
        ArtifactError: the document is of another schema or was edited.
    """
    if document.get("schema") != SCHEMA:
        raise ArtifactError(
            f"campaign.json: schema {document.get('schema')!r}, this version reads {SCHEMA}. "
            "Use the version of connector-tax that wrote it."
        )
    try:
        value = dict(document["config"])
        engine = dict(value["engine"])
        prime, conversations = value["phase_b_prime"], value["phase_c"]
        return CampaignConfig(
            **{
                **value,
                "engine": EngineConfig(**{**engine, "extra_args": tuple(engine["extra_args"])}),
                "connectors": tuple(_connector(c) for c in value["connectors"]),
                "phase_a_rates_per_s": tuple(value["phase_a_rates_per_s"]),
                "phase_a_shape": Shape(**value["phase_a_shape"]),
                "phase_b_input_tokens": tuple(value["phase_b_input_tokens"]),
                "phase_b_output_tokens": tuple(value["phase_b_output_tokens"]),
                "phase_b_prime": PhaseBPrimeConfig(
                    tuple(prime["configs"]), tuple(Shape(**s) for s in prime["shapes"])
                ),
                "phase_c": PhaseCConfig(
                    tuple(SessionFile(**s) for s in conversations["sessions"]), conversations["warmup_s"]
                ),
                "phase_d": _phase_d(value.get("phase_d", {})),
                "cell": CellConfig(**value["cell"]),
                "accuracy": AccuracyConfig(**value["accuracy"]),
                "analysis": AnalysisConfig(**value["analysis"]),
            }
        )
    except (KeyError, TypeError) as error:
        raise ArtifactError(
            f"campaign.json: not what this version writes ({error}). Was it edited by hand? "
            "Start the campaign again to have it rewritten; finished cells are kept."
        ) from error


def _phase_d(value: dict[str, Any]) -> PhaseDConfig:
    """A campaign from before there was a Phase D has none."""
    levels: dict[str, Any] = {k: tuple(value[k]) for k in ("cached_tokens", "running") if k in value}
    return PhaseDConfig(**{**value, **levels})


def _connector(value: dict[str, Any]) -> ConnectorSpec:
    return ConnectorSpec(
        **{
            **value,
            "extra_args": tuple(value["extra_args"]),
            "modules": tuple(ModuleNeed(**m) for m in value["modules"]),
            "side_ports": tuple(SidePort(**p) for p in value.get("side_ports", ())),
        }
    )
