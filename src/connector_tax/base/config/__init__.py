"""YAML to frozen values; unknown keys are refused before anything starts."""

from connector_tax.base.config.load import load_campaign, longest_request_tokens, parse_campaign
from connector_tax.base.config.model import (
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

__all__ = [
    "AccuracyConfig",
    "AnalysisConfig",
    "CampaignConfig",
    "CellConfig",
    "EngineConfig",
    "PhaseBPrimeConfig",
    "PhaseCConfig",
    "PhaseDConfig",
    "SessionFile",
    "load_campaign",
    "longest_request_tokens",
    "parse_campaign",
]
