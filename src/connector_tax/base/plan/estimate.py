"""Estimates an engine's capacity and times before a measurement, in closed form, from a cost model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.capacity import (
    HOLDS_BELOW,
    Costs,
    Limits,
    busy_s,
    held_fraction,
    held_up_to,
    rate_under_load,
)
from connector_tax.base.config import CampaignConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.cell import Shape
from connector_tax.base.records.connector import PLAIN_AGAIN, ConnectorSpec
from connector_tax.base.records.host import EngineCosts
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.base.units import token_count
from connector_tax.base.vllm_model.costs import (
    NO_CONNECTOR,
    ConnectorCosts,
    connector_costs,
    load_cost_model,
)
from connector_tax.base.vllm_model.model import idle_request_s

DEFAULT_MODEL = "config/engine_model.yaml"


def model_file(config: CampaignConfig) -> Path:
    """Return the path of the cost model of a campaign's engine."""
    return PROJECT_ROOT / (config.engine.model_file or DEFAULT_MODEL)


def batched_tokens(config: CampaignConfig) -> int:
    """Return the most tokens of one step."""
    return token_count(config.engine.args.get("max_num_batched_tokens")) or 2048


def _together(engine: EngineCosts, connector: ConnectorCosts) -> Costs:
    """Return the costs of a step with a connector."""
    own = connector.step_factor
    return Costs(
        engine.base_us * own + connector.per_step_us,
        engine.per_prefill_token_us * own + connector.per_token_us,
        engine.per_decode_seq_us * own + connector.per_token_us,
        engine.per_context_token_us * own,
        connector.per_request_us,
    )


@dataclass(frozen=True, slots=True)
class Expected:
    """The cost model's estimate of each configuration of a campaign.

    Attributes:
        costs: configuration -> costs of its engine and of its connector.
    """

    config: CampaignConfig
    costs: Mapping[str, tuple[EngineCosts, ConnectorCosts]]

    @classmethod
    def of(cls, config: CampaignConfig, unknown: ConnectorCosts | None = None) -> "Expected":
        """
        Args:
            unknown: costs of a connector that the cost model lacks; None: such a connector is an error.

        Raises:
            ConfigError: the cost model cannot be read, or lacks a connector.
        """
        path = model_file(config)
        engine, known = load_cost_model(path)
        engine = config.engine.costs or engine

        def of_connector(entry: ConnectorSpec) -> ConnectorCosts:
            try:
                return connector_costs(known, entry.kv_transfer_config, path)
            except ConfigError:
                if unknown is None:
                    raise
                return unknown

        return cls(config, {c.id: (engine, of_connector(c)) for c in config.connectors})

    def costs_of(self, connector_id: str) -> tuple[EngineCosts, ConnectorCosts]:
        return self.costs["plain" if connector_id == PLAIN_AGAIN else connector_id]

    def use(self, connector_id: str, rate_per_s: float, shape: Shape) -> float:
        """Return the share of a configuration's capacity at ``shape`` that ``rate_per_s`` uses."""
        engine, connector = self.costs_of(connector_id)
        kv_tokens = engine.kv_blocks * engine.block_size
        limits = Limits(
            min(self.config.cell.inflight_cap, engine.max_num_seqs), kv_tokens, batched_tokens(self.config)
        )
        return rate_per_s * sum(busy_s(_together(engine, connector), limits, shape))

    def holds(self, connector_id: str, rate_per_s: float, shape: Shape) -> bool:
        """Return whether Phase A should find the configuration unsaturated, also with random arrivals."""
        return self.use(connector_id, rate_per_s, shape) <= HOLDS_BELOW

    def overloads(self, connector_id: str, rate_per_s: float, shape: Shape) -> bool:
        """Return whether more is sent than served. A rate between ``holds`` and this is still measured."""
        return self.use(connector_id, rate_per_s, shape) > 1.0

    def request_s(self, connector_id: str, shape: Shape) -> float:
        """Return the time of one request to the idle engine; 0 if the request exceeds the KV cache."""
        engine, connector = self.costs_of(connector_id)
        if shape.input_tokens + shape.output_tokens > engine.kv_blocks * engine.block_size:
            return 0.0
        return idle_request_s(
            engine,
            connector,
            prompt=shape.input_tokens,
            max_tokens=shape.output_tokens,
            max_num_batched_tokens=batched_tokens(self.config),
        )

    def rates(self, skips: Callable[[str], bool] | None = None) -> ReferenceRates:
        """Return the reference rates that the analysis would derive if the engine cost what the model says.

        Args:
            skips: whether a configuration is not measured and so has no influence.
        """
        config, own = self.config, self.config.phase_a_shape
        asked = [c for c in self.costs if c == "plain" or skips is None or not skips(c)]
        held = {c: [r for r in config.phase_a_rates_per_s if self.holds(c, r, own)] for c in asked}
        lowest = min(config.phase_a_rates_per_s)
        safe = min(max(rates, default=lowest) for rates in held.values())
        load = max(held["plain"], default=lowest)
        swept = [Shape(i, o) for i in config.phase_b_input_tokens for o in config.phase_b_output_tokens]
        by_shape = {s: self._safe_per_s(s, safe, asked) for s in (*swept, *config.phase_b_prime.shapes)}
        return ReferenceRates(
            float(safe),
            float(load),
            {s: by_shape[s] for s in swept},
            {s: self._load_per_s(s, load, by_shape[s]) for s in config.phase_b_prime.shapes},
        )

    def _load_per_s(self, shape: Shape, reference_per_s: float, safe_per_s: float) -> float | None:
        if shape == self.config.phase_a_shape:
            return reference_per_s
        most = held_up_to(self.config.cell.arrival)
        return rate_under_load(reference_per_s, safe_per_s, lambda rate: self.use("plain", rate, shape), most)

    def _safe_per_s(self, shape: Shape, reference_per_s: float, holders: list[str]) -> float:
        most = held_up_to(self.config.cell.arrival)
        uses = {c: self.use(c, reference_per_s, shape) for c in holders}
        if shape == self.config.phase_a_shape or max(uses.values()) <= most:
            return reference_per_s
        allowed = self.use("plain", reference_per_s, self.config.phase_a_shape)
        return reference_per_s * held_fraction(uses, min(most, allowed), most)


def expected_of(config: CampaignConfig) -> Expected | None:
    """Return the engine's estimates; None without a cost model.

    A connector that the cost model lacks costs nothing here, since the engine's steps dominate. There is no
    cost model if its file cannot be read, or for a virtual GPU, whose steps follow from its model's files.
    """
    if config.engine.virtual_gpu is not None:
        return None
    try:
        return Expected.of(config, unknown=NO_CONNECTOR)
    except ConfigError:
        return None


def estimated_rates(
    config: CampaignConfig, expected: Expected | None, skips: Callable[[str], bool] | None = None
) -> ReferenceRates:
    """Return reference rates before a measurement: the cost model's, or the middle of Phase A's rates."""
    if expected is not None:
        return expected.rates(skips)
    middle = config.phase_a_rates_per_s[len(config.phase_a_rates_per_s) // 2]
    return ReferenceRates(middle, middle)
