"""Simulates one cell in virtual time: arrivals and steps as events, no clock, no socket."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from connector_tax.base.config import CampaignConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.rates import PutInFile, PutInMetric, PutInTax, ReferenceRatesFile
from connector_tax.base.errors import ConfigError
from connector_tax.base.parallel import each_in
from connector_tax.base.plan import cells_of
from connector_tax.base.plan.estimate import batched_tokens
from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.host import EngineCosts
from connector_tax.base.records.request import RequestRecord, Status
from connector_tax.base.statistics.cell import in_window, latencies_ms
from connector_tax.base.statistics.percentiles import percentile
from connector_tax.base.units import NS_PER_S, s_to_ns
from connector_tax.base.vllm_model.costs import ConnectorCosts, load_costs
from connector_tax.base.vllm_model.model import EngineModel, StepResult
from connector_tax.run.engine.command import cost_model
from connector_tax.run.workload.arrivals import Schedule
from connector_tax.run.workload.protocol import CellProtocol, rule_of


@dataclass(slots=True)
class Arrival:
    """One scheduled request on its way through the model."""

    seq: int
    t_sched_ns: int
    inflight: int
    t_first_token_ns: int | None = None
    t_last_token_ns: int | None = None
    status: Status | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class SimulatedCell:
    """A simulated cell's records; times are virtual nanoseconds.

    Attributes:
        steps: (start, result) of every step.
        samples: (time, running, waiting) once a second.
    """

    window: CellWindow
    requests: list[RequestRecord]
    steps: list[tuple[int, StepResult]]
    samples: list[tuple[int, int, int]]


def simulate_cell(spec: CellSpec, model: EngineModel, start_ns: int) -> SimulatedCell:
    """Run ``spec`` against ``model``, which is idle before and after.

    The client is perfect: it sends on time and sees a token when its step ends.
    """
    simulation = _Simulation(spec, model, start_ns)
    simulation.send()
    simulation.drain()
    window = simulation.protocol.window(simulation.now_ns)
    return SimulatedCell(
        window,
        [_record(arrival, spec, window) for arrival in simulation.arrivals],
        simulation.steps,
        list(_second_by_second(simulation.queue, start_ns, simulation.now_ns)),
    )


class _Simulation:
    """The state of a running cell. ``now_ns`` only grows."""

    def __init__(self, spec: CellSpec, model: EngineModel, start_ns: int) -> None:
        self.spec = spec
        self.model = model
        self.rule = rule_of(spec)
        self.protocol = CellProtocol(spec, start_ns, self.rule)
        self.now_ns = start_ns
        self.arrivals: list[Arrival] = []
        self.steps: list[tuple[int, StepResult]] = []
        # (time, running, waiting) whenever a step begins or ends.
        self.queue: list[tuple[int, int, int]] = []
        self._flying: dict[int, Arrival] = {}
        self._before_first: set[int] = set()
        self._step: StepResult | None = None
        self._step_end_ns = start_ns
        self._sample_ns = start_ns

    def send(self) -> None:
        """Process arrivals and steps in time order until the protocol ends sending."""
        schedule = Schedule(
            self.spec.arrival, self.spec.rate_per_s, self.spec.seed, shape=self.spec.gamma_shape
        )
        while not self._stopped():
            due_ns = self.protocol.t0_ns + schedule[len(self.arrivals)]
            decision_ns = self.protocol.next_decision_ns()
            if self._step is not None and self._step_end_ns <= due_ns:
                self._end_step()
            elif self.now_ns < decision_ns <= due_ns:
                self.now_ns = decision_ns
            else:
                self._arrive(due_ns)

    def _stopped(self) -> bool:
        """Pass the samples due by now to the protocol, then ask whether sending is over."""
        while self._sample_ns <= self.now_ns:
            waiting = self.queue[-1][2] if self.queue else 0
            self.protocol.sampled(self._sample_ns, waiting)
            self._sample_ns += NS_PER_S
        return self.protocol.stopped(self.now_ns)

    def drain(self) -> None:
        """Run steps until nothing is in flight or time is up; the rest time out.

        An overloaded cell is not drained.
        """
        assert self.protocol.t_stop_ns is not None
        if self.protocol.gives_up(self.now_ns) is not None:
            for arrival in self._flying.values():
                arrival.status = "aborted"
                self.model.cancel(arrival.seq)
            return
        deadline_ns = self.protocol.t_stop_ns + s_to_ns(self.spec.drain_timeout_s)
        while self._flying and self._step is not None and self._step_end_ns <= deadline_ns:
            self._end_step()
        if self._flying:
            self.now_ns = deadline_ns
        for arrival in self._flying.values():
            arrival.status = "timeout"
            self.model.cancel(arrival.seq)

    def _note(self, arrival: Arrival) -> None:
        if self.rule is not None:
            self.rule.note(arrival)

    def _arrive(self, due_ns: int) -> None:
        self.now_ns = due_ns
        arrival = Arrival(len(self.arrivals), due_ns, len(self._flying))
        self.arrivals.append(arrival)
        if not self.protocol.may_send(len(self._flying)):
            arrival.status = "dropped"
            self._note(arrival)
            self.protocol.dropped(due_ns)
            return
        self._flying[arrival.seq] = arrival
        self._before_first.add(arrival.seq)
        self.model.add(arrival.seq, self.spec.input_tokens, self.spec.output_tokens)
        if self._step is None:
            self._begin_step()

    def _begin_step(self) -> None:
        self._step = self.model.step()
        self.steps.append((self.now_ns, self._step))
        self.queue.append((self.now_ns, self._step.num_running, self._step.num_waiting))
        self._step_end_ns = self.now_ns + self._step.duration_ns

    def _end_step(self) -> None:
        step, self._step = self._step, None
        assert step is not None
        self.now_ns = self._step_end_ns
        if self._before_first:
            for seq in self._before_first.intersection(step.tokens):
                self._flying[seq].t_first_token_ns = self.now_ns
            self._before_first.difference_update(step.tokens)
        for seq in step.finished:
            arrival = self._flying.pop(seq)
            arrival.t_last_token_ns = self.now_ns
            arrival.status = "ok"
            arrival.completion_tokens = self.spec.output_tokens
            self._note(arrival)
            self.protocol.ended(arrival.t_sched_ns, True, self.now_ns)
        if self.model.has_work:
            self._begin_step()
        else:
            self.queue.append((self.now_ns, 0, 0))


def _second_by_second(
    queue: list[tuple[int, int, int]], start_ns: int, end_ns: int
) -> Iterator[tuple[int, int, int]]:
    """Yield what a sampler sees at each full second: the state since the last change."""
    index = -1
    for at_ns in range(start_ns, end_ns, NS_PER_S):
        while index + 1 < len(queue) and queue[index + 1][0] <= at_ns:
            index += 1
        running, waiting = queue[index][1:] if index >= 0 else (0, 0)
        yield at_ns, running, waiting


def _record(arrival: Arrival, spec: CellSpec, window: CellWindow) -> RequestRecord:
    assert arrival.status is not None
    ok = arrival.status == "ok"
    dropped = arrival.status == "dropped"
    return RequestRecord(
        seq=arrival.seq,
        t_sched_ns=arrival.t_sched_ns,
        t_send_ns=None if dropped else arrival.t_sched_ns,
        t_first_token_ns=arrival.t_first_token_ns,
        t_last_token_ns=arrival.t_last_token_ns,
        t_end_ns=arrival.t_last_token_ns if ok else arrival.t_sched_ns if dropped else window.drained_ns,
        status=arrival.status,
        prompt_tokens=spec.input_tokens if ok else None,
        completion_tokens=arrival.completion_tokens,
        inflight_at_send=arrival.inflight,
        worker=0,
        phase=window.phase_of(arrival.t_sched_ns),
        error=None if ok else arrival.status,
    )


# The taxes of an embedded engine's cost model, to be compared with the measured ones.

# The model's true tax: many launches, all their requests pooled.


def true_percentiles_ms(
    spec: CellSpec,
    costs: EngineCosts,
    connector: ConnectorCosts,
    *,
    max_num_batched_tokens: int,
    launches: int,
) -> dict[str, float]:
    """Return TTFT p90 and TPOT p90 over ``launches`` independent runs of one cell, ms.

    Raises:
        ValueError: a percentile falls on unfinished requests, so it is not finite.
    """
    pooled: dict[str, list[float]] = {"ttft_ms": [], "tpot_ms": []}
    for seed in range(launches):
        model = EngineModel(
            costs, connector, max_num_batched_tokens=max_num_batched_tokens, seed=10_000 + seed
        )
        cell = simulate_cell(spec, model, 0)
        latencies = latencies_ms(in_window(cell.requests, cell.window))
        for name, values in pooled.items():
            values += latencies[name]
    percentiles_ms = {}
    for name, values in pooled.items():
        p90 = percentile(values, 90)
        if p90 is None:
            raise ValueError(f"{name} p90 has no finite truth at {spec.cell_id}")
        percentiles_ms[name] = p90
    return percentiles_ms


LAUNCHES = 100
METRICS: dict[PutInMetric, str] = {"ttft_p90": "ttft_ms", "tpot_p90": "tpot_ms"}
# By latency, for one configuration and rate; empty if a percentile falls on unfinished requests.
Percentiles = dict[str, float]


def taxes_put_in(config: CampaignConfig, rates: ReferenceRatesFile, launches: int = LAUNCHES) -> PutInFile:
    """Return the modelled taxes of TTFT p90 and TPOT p90 at Phase A's shape and the reference rates.

    Every launch has the campaign's arrivals and its own jitter.

    Raises:
        ConfigError: the campaign does not use the embedded engine, or its cost model is
            unreadable or was edited.
    """
    if config.engine.kind != "emulator" or config.engine.model_file is None:
        raise ConfigError(
            f"campaign {config.campaign}: engine.kind is {config.engine.kind}. Only the embedded engine"
            " (emulator) has a model of its taxes."
        )
    path = cost_model(config.engine)
    reference_rates = dict.fromkeys((rates.ref_safe_per_s, rates.ref_load_per_s))
    specs = [spec for spec in cells_of(config, "plain", "a") if spec.rate_per_s in reference_rates]
    pairs = [(connector, spec) for spec in specs for connector in config.connector_ids]
    with each_in(os.cpu_count() or 1) as parallel_map:
        results = parallel_map(partial(_percentiles, config, launches), pairs)
        percentiles = {
            (c, spec.rate_per_s): pair_percentiles
            for (c, spec), pair_percentiles in zip(pairs, results, strict=True)
        }
    return PutInFile(
        campaign=config.campaign,
        launches=launches,
        model_file=config.engine.model_file,
        model_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        taxes=tuple(
            PutInTax(
                config=connector,
                metric=metric,
                rate_per_s=spec.rate_per_s,
                input_tokens=spec.input_tokens,
                output_tokens=spec.output_tokens,
                tax=_tax(
                    percentiles[connector, spec.rate_per_s], percentiles["plain", spec.rate_per_s], name
                ),
            )
            for connector, spec in pairs
            if connector != "plain"
            for metric, name in METRICS.items()
        ),
    )


def _tax(connector: Percentiles, plain: Percentiles, name: str) -> float | None:
    return connector[name] / plain[name] - 1 if name in connector and name in plain else None


def _percentiles(config: CampaignConfig, launches: int, pair: tuple[str, CellSpec]) -> Percentiles:
    connector, spec = pair
    costs = load_costs(
        PROJECT_ROOT / str(config.engine.model_file), config.connector(connector).kv_transfer_config
    )
    try:
        return true_percentiles_ms(
            spec, *costs, max_num_batched_tokens=batched_tokens(config), launches=launches
        )
    except ValueError:
        return {}
