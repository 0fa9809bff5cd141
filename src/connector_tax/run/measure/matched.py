"""Matched baselines: plain vLLM with exactly the engine settings that a connector's launch ended up with."""

from dataclasses import replace
from typing import Any

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.files import read_json
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.run.engine.settings import Settings, differences, matching_flags, pinned


def with_matched_launches(config: CampaignConfig, preflight: dict[str, Any]) -> CampaignConfig:
    """The campaign with what preflight found out about its matched baselines put into their launches."""
    return replace(
        config, connectors=tuple(_launched(c, preflight["configs"].get(c.id, {})) for c in config.connectors)
    )


def _launched(connector: ConnectorSpec, decision: dict[str, Any]) -> ConnectorSpec:
    launch = decision.get("launch")
    if connector.matches is None or launch is None:
        return connector
    return replace(connector, extra_args=tuple(launch["extra_args"]), env=launch["env"])


def matched_launch(folder: CampaignFolder, connector: ConnectorSpec) -> tuple[ConnectorSpec | None, str]:
    """The spec to launch, and what was matched; None with the reason where there is nothing to launch."""
    assert connector.matches is not None
    plain, own = settings_of(folder, "plain"), settings_of(folder, connector.matches)
    if not plain or not own:
        return None, "the engine's settings are not known (no step records from preflight)"
    changes = differences(plain, own)
    if not changes:
        return (
            None,
            f"{connector.matches} runs with plain's engine settings, so plain is its matched baseline",
        )
    arguments, environment, unmatched = matching_flags(changes)
    if not arguments and not environment:
        return None, f"no flag sets what {connector.matches} changes: {', '.join(unmatched)}"
    arguments = [*matching_flags(pinned(plain, own))[0], *arguments]
    words = f"as {connector.matches}: {', '.join(sorted(changes))}"
    if unmatched:
        words += f"; not matched: {', '.join(unmatched)}"
    return replace(connector, extra_args=tuple(arguments), env=environment), words


def settings_of(folder: CampaignFolder, connector_id: str) -> Settings:
    """What preflight saw the engine of a configuration resolve; empty where it saw none."""
    path = folder.engine_settings(connector_id)
    return dict(read_json(path)["settings"]) if path.is_file() else {}


def engine_diff(config: CampaignConfig, folder: CampaignFolder) -> dict[str, Any]:
    """``engine_diff.json``: per configuration what it changed against plain; None where it was not seen."""
    plain = settings_of(folder, "plain")
    found: dict[str, Any] = {}
    for connector in config.connectors:
        own = settings_of(folder, connector.id)
        found[connector.id] = differences(plain, own) if own and plain else None
    return {"schema": 1, "campaign": config.campaign, "plain": plain, "configs": found}
