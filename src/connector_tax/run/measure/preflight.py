"""Decides which configurations can be measured here, and why not the others.

A configuration that cannot run gets a decision with a reason, never an error. Only ``plain`` failing stops
the campaign, since every tax is taken against it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET

from connector_tax.base.artifacts.layout import LOGS, VIRTUAL_GPU, CampaignFolder
from connector_tax.base.artifacts.receipts import elapsed_s, read_launches, timed_launch
from connector_tax.base.config import CampaignConfig, EngineConfig, longest_request_tokens
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.identity import EngineIdentity, EngineSettings
from connector_tax.base.documents.receipt import Decision, Finding, MatchedLaunch, PreflightStatus
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.files import read_document, write_json, write_text
from connector_tax.base.plan import config_of, launch_hash, read_campaign_file
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.run.engine.command import (
    check_model,
    engine_environment,
    fetch_model,
    missing_from_host,
    refuse_a_model_elsewhere,
)
from connector_tax.run.engine.container import interpreter
from connector_tax.run.engine.gpu_host import too_large, without_flashinfer
from connector_tax.run.engine.gpus import Cards, slots_of
from connector_tax.run.engine.identity import engine_identity
from connector_tax.run.engine.ports import first_port, free_port, is_taken, taken_words
from connector_tax.run.engine.process import LaunchError, LaunchRequest, RunningEngine, running_engine
from connector_tax.run.engine.settings import StepTiming, recorder_heard, resolved_settings, step_timing_of
from connector_tax.run.engine.supervised import end_all_leftovers, start_supervised, stop_supervised
from connector_tax.run.engine.virtual_gpu import gpu_identity, note_on, refuse_misfit
from connector_tax.run.measure import checks
from connector_tax.run.measure.checks import IdleTimes, campaign_lengths, idle_times, warm_up
from connector_tax.run.measure.failure import blame_the_host
from connector_tax.run.measure.launch import engine_diff, matched_launch
from connector_tax.run.measure.locks import Waiting, measuring_alone, wait_for_card_s, waiting_within
from connector_tax.run.measure.time_left import TimeLimit

# A bootstrap server for a KV consumer, which preflight tries without producers.

BOOTSTRAP_GRACE_S = 2.0


@contextmanager
def bootstrap_beside(
    engine: EngineConfig, connector: ConnectorSpec, cards: Cards, folder: Path
) -> Iterator[ConnectorSpec]:
    """Run a bootstrap server without producers beside a consumer; do nothing for other connectors.

    It listens on the campaign's port, so that vLLM compiles once for both. The embedded engine never contacts
    it and gets a free port, since its campaigns may run side by side.

    Args:
        folder: gets the record by which a later start finds leftovers.

    Raises:
        EngineError: the port is taken.
    """
    side_port = next((candidate for candidate in connector.side_ports if not candidate.listens), None)
    if connector.verify != "kv_consumer" or side_port is None:
        yield connector
        return
    if engine.is_vllm:
        environment = engine_environment(engine, connector, cards)
        port = first_port(side_port, environment, cards.side_port_slot)
        if is_taken(port):
            raise EngineError(taken_words(connector, side_port, port))
    else:
        port = free_port()
    script = PROJECT_ROOT / "launch" / "plugins" / "dummy_bootstrap.py"
    server = start_supervised(
        [sys.executable, str(script), str(port)],
        folder=folder,
        environment=dict(os.environ),
        grace_s=BOOTSTRAP_GRACE_S,
    )
    try:
        yield msgspec.structs.replace(connector, env={**connector.env, side_port.env: str(port)})
    finally:
        stop_supervised(server, folder, grace_s=BOOTSTRAP_GRACE_S)


# Step records of preflight's engines, checked after they served requests.

STEP_LOG = Path("steps") / "engine_step.jsonl"  # beside a configuration's other files


def recorders_heard(
    folder: CampaignFolder, config: CampaignConfig, tried: set[str], patch_status: StepTiming
) -> tuple[StepTiming, dict[str, str]]:
    """Return whether step timing records steps, and why connectors' hook times are unknown.

    Args:
        tried: launched configurations, plain included.
        patch_status: whether step timing fits the engine's source files.
    """
    if not patch_status.available:
        return patch_status, {}
    timing = _recorder_status(folder, "plain", connector=False)
    if not timing.available:
        return timing, {}
    hook_timing = {
        connector.id: _recorder_status(folder, connector.id, connector=True)
        for connector in config.connectors
        if connector.id in tried and connector.kv_transfer_config is not None
    }
    return timing, {
        connector_id: hook_status.reason
        for connector_id, hook_status in hook_timing.items()
        if hook_status.reason is not None
    }


def _recorder_status(folder: CampaignFolder, connector_id: str, *, connector: bool) -> StepTiming:
    connector_folder = folder.preflight / connector_id
    return recorder_heard(
        connector_folder / STEP_LOG, connector_folder / "vllm_stderr.log", connector=connector
    )


# The engine's identity; between its two parts a missing model is downloaded.


def identity_with_model(engine: EngineConfig, cards: Cards) -> EngineIdentity:
    """Check for vLLM and a card, download a missing model, then add a virtual GPU's parameters.

    Raises:
        ConfigError: the interpreter has no vLLM, or was built for a card that is missing, or a virtual GPU's
            step time cannot be computed.
        EngineError: the interpreter does not run, or the download failed.
    """
    identity = engine_identity(engine, cards, with_device=False)
    _ensure_model(engine, identity, cards)
    return msgspec.structs.replace(identity, virtual_gpu=gpu_identity(engine) or UNSET)


def _ensure_model(engine: EngineConfig, identity: EngineIdentity, cards: Cards) -> None:
    """Download the model if it is not on this host, before any launch is timed."""
    missing = missing_from_host(engine)
    if missing is None:
        return
    refuse_a_model_elsewhere(engine, missing)
    if identity.versions["vllm"] is None:
        message = (
            "this interpreter has no vLLM. Give the one that has: export"
            " ENGINE_PYTHON=/path/to/venv/bin/python"
        )
        raise ConfigError(f"engine.python: {engine.python}: {message}")
    if engine.kind == "vllm" and identity.cuda and not cards.gpus and cards.note is None:
        message = (
            f"its torch is built for CUDA {identity.cuda}, and this host shows no NVIDIA GPU. Nothing is"
            " downloaded. Take a host that has"
        )
        raise ConfigError(
            f"engine.python: {engine.python}: {message} one; connector-tax run --smoke --on virtual-gpu needs"
            " none."
        )
    message = "It is downloaded now; no launch is timed before it is there."
    print(f"preflight: {missing}. {message}", file=sys.stderr, flush=True)
    fetch_model(engine)


# Host settings that affect a measurement.

AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")


def cpu_by_session(setting: Path = AUTOGROUP) -> str | None:
    """Return a note if the kernel shares the CPU by session; else None."""
    try:
        enabled = setting.read_text(encoding="ascii").strip() == "1"
    except (OSError, UnicodeDecodeError):
        return None
    if not enabled:
        return None
    return (
        "this kernel shares the CPU out by session: whatever runs in another session, a shell included, gets"
        " as much of it as the whole campaign. Leave the host alone while it measures, or set `sysctl"
        " kernel.sched_autogroup_enabled=0` (docs/decisions/0024)."
    )


# Which configurations are launched and checked; the others are only inspected.
Launching = Literal["all", "plain", "none"]


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything that configurations are tried with.

    Attributes:
        records: whether the engine writes step records.
        launch: see ``run_preflight``.
    """

    config: CampaignConfig
    folder: CampaignFolder
    cards: Cards
    identity: EngineIdentity
    records: bool
    launch: Launching = "all"


def run_preflight(
    campaign_file: Path,
    only: str | None = None,
    *,
    launch: Launching = "all",
    limit: TimeLimit | None = None,
) -> None:
    """Decide about every configuration and write ``preflight_status.json``.

    Args:
        only: verify only this one and print its log; the status file stays as it is.
        launch: which ones are launched. For the others the first measured launch is the trial: their
            ``checked`` is empty and their settings are unknown, so none has a matched baseline.
        limit: when it must be over; bounds the wait for others.

    Raises:
        ConfigError: the interpreter, the model directory or a named card is missing, the model with
            ``max_model_len`` does not fit on the card, FlashInfer is required and missing, or a virtual GPU's
            step time cannot be computed.
        EngineError: ``plain`` cannot be measured, or the virtual GPU does not fit this vLLM.
        OutOfTime: another process measured until no launch fitted.
    """
    config = config_of(read_campaign_file(campaign_file))
    folder = CampaignFolder(campaign_file.parent)
    check_model(config.engine)
    slots = slots_of(config.engine)
    # The first of several cards: all are of one kind, and configurations are tried in sequence.
    cards = slots[0].cards
    identity = identity_with_model(config.engine, cards)
    release = identity.versions.get("vllm")
    assert release is None or isinstance(release, str)
    refuse_misfit(config.engine, release)
    notes = dict.fromkeys(
        (*(slot.cards.note for slot in slots), cpu_by_session(), note_on(config.engine, release))
    )
    for note in filter(None, notes):
        print(f"preflight: {note}")
    refusal = too_large(config.engine, cards, longest_request_tokens(config))
    refusal = refusal or without_flashinfer(config.engine, identity)
    if refusal is not None:
        raise ConfigError(refusal)
    with (
        waiting_within(limit) as until_s,
        measuring_alone(
            folder.root,
            config.campaign,
            cards,
            config.engine.port,
            Waiting(wait_for_card_s(config.engine), until_s),
        ),
        # Verification by hand does not count as the campaign's time.
        timed_launch(folder.preflight_launches) if only is None else nullcontext(),
    ):
        end_all_leftovers(folder.root, grace_s=config.engine.stop_grace_s)
        timing = step_timing_of(config.engine)
        bench = Bench(config, folder, cards, identity, timing.available, launch)
        if only is not None:
            _verify_only(replace(bench, records=False), only)
            return
        unusable = unusable_modules(config.engine, config.connectors, identity.cuda or None)
        decisions: dict[str, Decision] = {}
        # Matched baselines last, since they copy the others' settings.
        for connector in sorted(config.connectors, key=lambda c: c.matches is not None):
            if connector.matches is None:
                decision = _decide(bench, connector, unusable)
            else:
                decision = _decide_matched(bench, connector, decisions)
            print(
                f"preflight: {connector.id}: {decision.decision}"
                + (f" - {decision.reason}" if decision.reason else "")
            )
            if connector.id == "plain" and decision.decision != "include":
                raise EngineError(
                    f"plain vLLM cannot be measured, and every tax is taken against it: {decision.reason}"
                )
            decisions[connector.id] = decision
    # A configuration that was not launched has no records to check.
    tried = {i for i, d in decisions.items() if d.decision == "include" and d.checked}
    timing, silent = recorders_heard(folder, config, tried, timing) if "plain" in tried else (timing, {})
    for connector_id, reason in silent.items():
        print(f"preflight: {connector_id}: {reason}")
    if timing.reason is not None:
        print(f"preflight: no step records: {timing.reason}")
    write_json(folder.engine_diff, engine_diff(config, folder))
    write_json(
        folder.preflight_status,
        PreflightStatus(
            step_timing_available=timing.available,
            step_timing_reason=timing.reason,
            hooks_unheard=silent,
            elapsed_s=elapsed_s(read_launches(folder.preflight_launches)),
            engine=identity.versions,
            configs=_with_own_counters(decisions),
        ),
    )


def _with_own_counters(decisions: dict[str, Decision]) -> dict[str, Decision]:
    """Return the decisions with each connector's counters reduced to those that do not rise in plain."""
    common = decisions["plain"].counters
    return {
        connector_id: msgspec.structs.replace(
            decision,
            counters=(
                UNSET
                if connector_id == "plain" or decision.counters is UNSET or common is UNSET
                else {
                    counter: tokens for counter, tokens in decision.counters.items() if counter not in common
                }
            ),
        )
        for connector_id, decision in decisions.items()
    }


def _verify_only(bench: Bench, only: str) -> None:
    """Verify one configuration by hand.

    Raises:
        ConfigError: it is not part of the campaign.
        EngineError: it cannot be measured here, with the reason.
    """
    config = bench.config
    if only not in config.connector_ids:
        raise ConfigError(
            f"{only!r} is not in this campaign. Its configurations: {', '.join(config.connector_ids)}."
        )
    connector = config.connector(only)
    unusable = unusable_modules(config.engine, (connector,), bench.identity.cuda or None)
    reason = _reason_before_launch(config.engine, connector, unusable, bench.identity)
    if reason is not None:
        raise EngineError(f"{only}: {reason[0]}" + (f". Install: {reason[1]}" if reason[1] else ""))
    findings = _verify(bench, connector).findings
    print((bench.folder.preflight / f"verify_{only}.log").read_text(encoding="utf-8"), end="")
    failed = next((finding for finding in findings if not finding.ok), None)
    if failed is not None:
        raise EngineError(f"{only}: {failed.check}: {failed.detail}")


# A package's libraries show its CUDA version: the runtime that they link to. LMCache falls back to torch
# operations if that is missing. Null: no such module.
_BUILDS = r"""
import importlib.util, json, pathlib, re, sys
found = {}
for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    folders = (spec.submodule_search_locations or ()) if spec else ()
    files = [f for folder in folders for f in pathlib.Path(folder).rglob("*.so*") if f.is_file()]
    libraries = [f.read_bytes() for f in files]
    asked_for = [re.findall(rb"libcudart\.so\.(\d+)", text) for text in libraries]
    found[name] = sorted({m.decode() for each in asked_for for m in each}) if spec else None
print(json.dumps(found))
"""


def unusable_modules(
    engine: EngineConfig, connectors: tuple[ConnectorSpec, ...], cuda: str | None
) -> dict[str, str]:
    """Return the modules that the engine's interpreter cannot use, with reasons; empty when embedded.

    Args:
        cuda: of the engine's torch, for instance ``13.0``; None: a build without.
    """
    module_specs = {spec.module: spec for connector in connectors for spec in connector.modules}
    if engine.kind == "emulator" or not module_specs:
        return {}
    command = [*interpreter(engine), "-c", _BUILDS, *sorted(module_specs)]
    cuda_builds = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    reasons = {}
    for module, builds in cuda_builds.items():
        if builds is None:
            reasons[module] = f"has no module {module}"
        # A module packaged per CUDA version that links to none is its CPU build.
        elif cuda and cuda.partition(".")[0] not in builds and (builds or module_specs[module].by_cuda):
            build = f"for CUDA {' and '.join(builds)}" if builds else "built without CUDA"
            reasons[module] = f"has {module} {build}, and its torch is built for CUDA {cuda}"
    return reasons


# Signs of a kill by a person or the kernel. The trial is repeated once, since an accident would exclude the
# configuration from the whole campaign.
KILLED = ("SIGKILL", "ended unexpectedly")


def _decide(bench: Bench, connector: ConnectorSpec, unusable: dict[str, str]) -> Decision:
    identity = bench.identity
    # With the card: another one may be smaller or faster. Without other connectors' packages,
    # which may still be installed.
    hash_inputs = {
        k: v for k, v in msgspec.to_builtins(identity).items() if k in ("versions", "gpu", "virtual_gpu")
    }
    other_modules = {spec.module for c in bench.config.connectors for spec in c.modules}
    other_modules -= {spec.module for spec in connector.modules}
    hash_inputs["versions"] = {k: v for k, v in identity.versions.items() if k not in other_modules}
    tried_hash = launch_hash(bench.config, connector.id, **hash_inputs)
    skip_reason = _reason_before_launch(bench.config.engine, connector, unusable, identity)
    if skip_reason is not None:
        return Decision("skip", skip_reason[0], skip_reason[1], tried_hash)
    remembered = bench.folder.preflight / connector.id / "decision.json"
    if remembered.is_file():
        earlier = read_document(remembered, Decision)
        if _still_holds(earlier, tried_hash, bench.config, connector):
            return earlier
    if bench.launch == "none" or (bench.launch == "plain" and connector.id != "plain"):
        return Decision("include", launch_hash=tried_hash)
    tried = _verify(bench, connector)
    if tried.failed is not None and any(death_sign in tried.failed.detail for death_sign in KILLED):
        print(f"preflight: {connector.id}: {tried.failed.check}: {tried.failed.detail}; tried once more")
        tried = _verify(bench, connector)
    failed, idle = tried.failed, tried.idle
    other_build = failed is not None and (failed.check == checks.COMPILED or "libcudart.so" in failed.detail)
    decision = Decision(
        "skip" if failed else "include",
        f"{failed.check}: {failed.detail}" if failed else None,
        _installs(connector, identity) if other_build else None,
        tried_hash,
        tuple(tried.findings),
        prompt_s={str(length): seconds for length, seconds in idle.prompt_s.items()}
        if idle is not None
        else None,
        token_s=idle.token_s if idle is not None else None,
        counters=tried.counters,
    )
    write_json(remembered, decision)
    return decision


def _still_holds(
    earlier: Decision, tried_hash: str, config: CampaignConfig, connector: ConnectorSpec
) -> bool:
    """Return whether an earlier trial covers this one; for plain with the times of all lengths."""
    if earlier.launch_hash != tried_hash or earlier.decision != "include":
        return False
    lengths = {str(length) for length in campaign_lengths(config)}
    return connector.id != "plain" or lengths <= set(earlier.prompt_s or ())


def _decide_matched(bench: Bench, connector: ConnectorSpec, decisions: dict[str, Decision]) -> Decision:
    """Decide about a matched baseline: launched like its connector, or skipped with the reason."""
    assert connector.matches is not None
    target = decisions[connector.matches]
    if target.decision != "include":
        return Decision("skip", f"{connector.matches} was skipped: {target.reason}", launch_hash="")
    launched, description = matched_launch(bench.folder, connector)
    if launched is None:
        return Decision("skip", description, launch_hash="")
    connectors = tuple(launched if c.id == connector.id else c for c in bench.config.connectors)
    matched_bench = replace(bench, config=msgspec.structs.replace(bench.config, connectors=connectors))
    decision = _decide(matched_bench, launched, {})
    return msgspec.structs.replace(
        decision,
        checked=(*decision.checked, Finding("matched", True, description)),
        launch=MatchedLaunch(extra_args=launched.extra_args, env=launched.env),
    )


def _reason_before_launch(
    engine: EngineConfig, connector: ConnectorSpec, unusable: dict[str, str], identity: EngineIdentity
) -> tuple[str, str | None] | None:
    """Return (reason, what to install) if launching is pointless."""
    if engine.kind == "emulator":
        return None
    needed = [spec for spec in connector.modules if spec.module in unusable]
    if needed:
        reason = f"the engine's interpreter {' and '.join(unusable[spec.module] for spec in needed)}"
        if connector.needs_gpu and not identity.gpu and engine.virtual_gpu is None:
            reason += f"; it would also need a GPU, and this host has none ({connector.needs_gpu})"
        return reason, _installs(msgspec.structs.replace(connector, modules=tuple(needed)), identity)
    cores = len(os.sched_getaffinity(0))
    if cores < connector.min_cores:
        return f"needs {connector.min_cores} cores, this host has {cores}. {connector.note}".strip(), None
    return None


def _installs(connector: ConnectorSpec, identity: EngineIdentity) -> str | None:
    """Return how to install its modules for the CUDA of the engine's torch; None if it needs none."""
    return "; ".join(spec.install_for(identity.cuda or None) for spec in connector.modules) or None


@dataclass(slots=True)
class _Trial:
    """Findings on one configuration; ``counters`` as in ``Decision``."""

    findings: list[Finding] = field(default_factory=list)
    idle: IdleTimes | None = None
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def failed(self) -> Finding | None:
        return next((f for f in self.findings if not f.ok), None)


def _verify(bench: Bench, connector: ConnectorSpec) -> _Trial:
    """Launch, warm up, check, stop; write ``verify_<connector>.log`` in any case. Plain is also timed.

    Raises:
        EngineError: the host failed, not the configuration.
    """
    config, folder = bench.config, bench.folder
    tried = _Trial()
    findings = tried.findings
    try:
        connector_folder = folder.preflight / connector.id
        with bootstrap_beside(
            config.engine, connector, bench.cards, connector_folder / "bootstrap"
        ) as launched_connector:
            step_log = connector_folder / STEP_LOG if bench.records else None
            request = LaunchRequest(
                config.engine, launched_connector, connector_folder, step_log, cards=bench.cards
            )
            _clear_logs(connector_folder)
            with running_engine(request) as engine:
                engine.wait_ready()
                findings.append(Finding("ready", True, f"/v1/models names {engine.model}"))
                _ask(engine, config, connector, tried)
                if connector.id == "plain" and findings[-1].ok:
                    tried.idle = _timed(engine, config, findings)
                settings = resolved_settings(step_log, engine.log_text())
                write_json(folder.engine_settings(connector.id), EngineSettings(settings=settings))
    except LaunchError as error:
        cause = str(error).splitlines()[0]
        blame_the_host(cause, connector.id)
        findings.append(Finding("ready", False, cause))
    log = [f"# {connector.id}: {connector.label}", json.dumps(bench.identity.versions)]
    log += [f"# {gpu}" for gpu in bench.identity.gpu]
    log += [f"{'ok  ' if finding.ok else 'FAIL'}  {finding.check}: {finding.detail}" for finding in findings]
    write_text(folder.preflight / f"verify_{connector.id}.log", "\n".join(log) + "\n")
    return tried


def _ask(engine: RunningEngine, config: CampaignConfig, connector: ConnectorSpec, tried: _Trial) -> None:
    """Run the checks in order, up to the first failure."""
    findings = tried.findings
    # Under the limit for readiness: compilation on a first request is part of starting.
    lengths = (*campaign_lengths(config), *checks.verify_lengths(config))
    warm = warm_up(engine, config, lengths, timeout_s=config.engine.ready_timeout_s)
    findings.append(Finding("warm-up", warm.fault is None, warm.words))
    if warm.fault is not None:
        return
    counter_readings = [checks.counters(engine)]
    finding, short_s = checks.short_requests(engine, config, connector)
    findings.append(finding)
    counter_readings.append(checks.counters(engine))
    later_checks: list[Callable[[], Finding]] = [
        lambda: checks.long_prompt(engine, config, short_s),
        lambda: checks.not_switched_off(engine),
    ]
    if connector.verify == "long_prompt":
        later_checks.append(lambda: checks.cache_was_asked(engine))
    if config.engine.virtual_gpu is not None:
        later_checks.append(lambda: checks.clock_at_work(engine))
    later_checks.append(lambda: checks.alive(engine))
    for check in later_checks:
        if not findings[-1].ok:
            return
        findings.append(check())
    counter_readings.append(checks.counters(engine))
    tried.counters = _risen(
        counter_readings, checks.verify_lengths(config), since_launch=connector.id == "plain"
    )


def _risen(
    counter_readings: list[dict[str, float]], lengths: tuple[int, ...], *, since_launch: bool
) -> dict[str, int]:
    """Return each counter that rose -> the shortest prompt that raised it.

    A longer prompt raises what a shorter one does. A counter that rose with a shorter one only was late:
    LMCache updates its counters every ten seconds, so its warm-up may show up with any prompt.

    Args:
        counter_readings: all counters, before the first prompt and after those of each of the ascending
            ``lengths``.
        since_launch: count everything above 0 instead.
    """
    if since_launch:
        return {name: 0 for counters in counter_readings for name, value in counters.items() if value > 0}
    shortest_lengths: dict[str, int] = {}
    raised = set(counter_readings[-1])
    for (before, after), length in reversed([*zip(pairwise(counter_readings), lengths, strict=True)]):
        raised &= {name for name in after if before and after[name] > before.get(name, 0.0)}
        shortest_lengths |= dict.fromkeys(raised, length)
    return shortest_lengths


def _timed(engine: RunningEngine, config: CampaignConfig, findings: list[Finding]) -> IdleTimes | None:
    times = idle_times(engine, config)
    if isinstance(times, str):
        findings.append(Finding("idle times", False, times))
        return None
    prompt_times = ", ".join(f"{length} tokens {seconds:.3f} s" for length, seconds in times.prompt_s.items())
    findings.append(Finding("idle times", True, f"prompts: {prompt_times}; each token {times.token_s:.4f} s"))
    return times


def _clear_logs(folder: Path) -> None:
    for name in (*LOGS, "launch.sh", VIRTUAL_GPU):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "steps", ignore_errors=True)
