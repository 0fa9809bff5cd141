"""``campaign.json``: the resolved config, the date and the run order, as every door reads them."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from connector_tax.base.config import (
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
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import hash_of, read_json
from connector_tax.base.forms import Form, misfit, named
from connector_tax.base.opening import is_bare, is_campaign_name, is_date
from connector_tax.base.plan.order import run_order
from connector_tax.base.records.cell import Shape
from connector_tax.base.records.connector import ConnectorSpec, ModuleNeed, SidePort
from connector_tax.base.records.gpu import VirtualGpu

SCHEMA = 1
_NAME = named(is_bare, "no bare name")
# Of these names paths are made, and tables of other people's pages.
NAMES: Form = {
    "campaign": named(is_campaign_name, "no name of a campaign"),
    "date": named(is_date, "no date (YYYY-MM-DD)"),
    "order": {...: [_NAME]},
    "config": dict,
}
IDS: Form = {"connectors": [{"id": _NAME}]}


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
        "config": config.to_json(),
    }


def read_campaign_file(path: Path) -> dict[str, Any]:
    """``campaign.json``, whoever wrote it: what is used as a name is one.

    Raises:
        ArtifactError: missing, not JSON, or a name in it is none; names the key.
    """
    document = read_json(path)
    fault = misfit(document, NAMES)
    if fault is None and "connectors" in document["config"]:
        fault = misfit(document["config"], IDS, "config")
    if fault is not None:
        raise ArtifactError(
            f"{path}: {fault}. Nothing was read or written under such a name; take the file as the campaign wrote it."
        )
    found: dict[str, Any] = document
    return found


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
        config = CampaignConfig(
            **{
                **value,
                "engine": _engine(engine),
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
        # Python holds no value against its type; somebody else's text is a number of ours otherwise.
        msgspec.convert(asdict(config), CampaignConfig)
        return config
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ArtifactError(
            f"campaign.json: not what this version writes ({error}). Was it edited by hand? "
            "Start the campaign again to have it rewritten; finished cells are kept."
        ) from error


def _engine(value: dict[str, Any]) -> EngineConfig:
    gpu = value.get("virtual_gpu")
    own = {
        "extra_args": tuple(value["extra_args"]),
        "virtual_gpu": None if gpu is None else VirtualGpu.from_json(gpu),
    }
    return EngineConfig(**{**value, **own})


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
