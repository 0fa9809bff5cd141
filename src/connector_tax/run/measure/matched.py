"""Matched baselines: plain vLLM with exactly the engine settings that a connector's launch ended up with."""

from dataclasses import replace

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.identity import EngineDiff, EngineSettings, Settings, differences
from connector_tax.base.documents.reading import read_document
from connector_tax.base.documents.receipt import Decision, PreflightStatus
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.run.engine.settings import matching_flags, pinned


def with_matched_launches(config: CampaignConfig, preflight: PreflightStatus) -> CampaignConfig:
    """The campaign with what preflight found out about its matched baselines put into their launches."""
    return replace(
        config, connectors=tuple(_launched(c, preflight.configs.get(c.id)) for c in config.connectors)
    )


def _launched(connector: ConnectorSpec, decision: Decision | None) -> ConnectorSpec:
    if connector.matches is None or decision is None or not decision.launch:
        return connector
    return replace(connector, extra_args=decision.launch.extra_args, env=decision.launch.env)


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
    return read_document(path, EngineSettings).settings if path.is_file() else {}


def engine_diff(config: CampaignConfig, folder: CampaignFolder) -> EngineDiff:
    """``engine_diff.json``: per configuration what it changed against plain; None where it was not seen."""
    plain = settings_of(folder, "plain")
    found = {c.id: settings_of(folder, c.id) for c in config.connectors}
    configs = {i: differences(plain, own) if own and plain else None for i, own in found.items()}
    return EngineDiff(campaign=config.campaign, plain=plain, configs=configs)
