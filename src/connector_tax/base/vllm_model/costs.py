"""Costs of the modelled engine's steps, from one YAML file."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Annotated

import msgspec
import yaml
from msgspec import Meta

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.bounds import Foreign, Strict
from connector_tax.base.records.host import EngineCosts

# Microseconds: a step of two weeks is a mistake, and sums of longer ones would not be times. Negative: a
# connector may save time.
_More = Annotated[float, Meta(ge=-1e12, le=1e12)]


class ConnectorCosts(Strict, frozen=True):
    """The costs that a connector adds. The first three are hooks and appear in step records.

    Attributes:
        per_cached_block_us: of build_connector_meta, per block in the prefix cache.
        outside_us: per step, outside any hook (framework, transport).
        per_request_us: in the step in which a request is first scheduled.
        per_token_us: per scheduled token.
        step_factor: multiplies the engine's own step time.
    """

    build_meta_us: _More = 0.0
    get_finished_us: _More = 0.0
    start_load_kv_us: _More = 0.0
    per_cached_block_us: _More = 0.0
    outside_us: _More = 0.0
    per_request_us: _More = 0.0
    per_token_us: _More = 0.0
    step_factor: Annotated[float, Meta(gt=0, le=1e12)] = 1.0

    @property
    def per_step_us(self) -> float:
        """With nothing cached."""
        return self.build_meta_us + self.get_finished_us + self.start_load_kv_us + self.outside_us

    def build_meta_at_us(self, cached_blocks: int) -> float:
        """Return build_connector_meta of a step that starts with this many blocks in the prefix cache."""
        return self.build_meta_us + self.per_cached_block_us * cached_blocks

    def plus(self, other: "ConnectorCosts") -> "ConnectorCosts":
        """Stack both: costs add up, and so do the shares of the step."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        return ConnectorCosts(**{**sums, "step_factor": sums["step_factor"] - 1.0})


class _CostModel(Strict, frozen=True):
    engine: EngineCosts
    connectors: dict[str, ConnectorCosts]


NO_CONNECTOR = ConnectorCosts()
# Entry for connectors that a cost model does not list; without it such a connector is an error.
ANY_OTHER = "*"


def load_costs(path: Path, kv_transfer_config: Foreign | None) -> tuple[EngineCosts, ConnectorCosts]:
    """Return the costs of one configuration.

    Raises:
        ConfigError: the file is missing or wrong, or lacks the connector.
    """
    engine, known = load_cost_model(path)
    return engine, connector_costs(known, kv_transfer_config, path)


def load_cost_model(path: Path) -> tuple[EngineCosts, dict[str, ConnectorCosts]]:
    """Return the engine's costs, and those of all listed connectors by name.

    Raises:
        ConfigError: the file is missing or wrong.
    """
    try:
        found = msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), _CostModel)
    # ValueError: bytes that are not UTF-8, or an invalid date; RecursionError: brackets nested a thousand
    # deep.
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not a cost model ({error}). See config/engine_model.yaml.") from error
    return found.engine, found.connectors


@dataclass(frozen=True, slots=True)
class Member:
    """A connector of a launch: its own, or a child of a stack.

    Attributes:
        prefix: of its hooks' names in step records, such as ``0:NixlConnector/``; empty for the outermost.
    """

    prefix: str
    name: str
    costs: ConnectorCosts


def connector_costs(
    known: dict[str, ConnectorCosts], kv_transfer_config: Foreign | None, path: Path
) -> ConnectorCosts:
    """Return a connector's costs, for a MultiConnector including its children's."""
    return costs_together(connector_members(known, kv_transfer_config, path))


def costs_together(members: Sequence[Member]) -> ConnectorCosts:
    return reduce(ConnectorCosts.plus, (m.costs for m in members)) if members else NO_CONNECTOR


def connector_members(
    known: dict[str, ConnectorCosts], kv_transfer_config: Foreign | None, path: Path, prefix: str = ""
) -> tuple[Member, ...]:
    """Return a connector and then its children; none for plain.

    Raises:
        ConfigError: the cost model lacks one of them.
    """
    if kv_transfer_config is None:
        return ()
    try:
        name = f"{kv_transfer_config['kv_connector']}/{kv_transfer_config['kv_role']}"
        children = list(kv_transfer_config.get("kv_connector_extra_config", {}).get("connectors", []))
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path}: no costs for a connector whose kv_transfer_config is none of vLLM's ({error!r}). "
            "It has kv_connector and kv_role, and a MultiConnector has a list of such."
        ) from error
    costs = known.get(name, known.get(ANY_OTHER))
    if costs is None:
        raise ConfigError(f"{path}: connectors: no costs for {name}. Known: {', '.join(known)}.")
    found: tuple[Member, ...] = (Member(prefix, str(kv_transfer_config["kv_connector"]), costs),)
    for index, child in enumerate(children):
        its_name = child.get("kv_connector") if isinstance(child, dict) else None
        found += connector_members(known, child, path, f"{prefix}{index}:{its_name}/")
    return found
