"""YAML to frozen values; unknown keys are refused before anything starts."""

from connector_tax.base.config.load import load_campaign, longest_request_tokens, parse_campaign
from connector_tax.base.config.model import (
    CampaignConfig,
    EngineConfig,
    SessionFile,
)

__all__ = [
    "CampaignConfig",
    "EngineConfig",
    "SessionFile",
    "load_campaign",
    "longest_request_tokens",
    "parse_campaign",
]
