"""Which configurations can be measured here, and for each of the others why not.

A configuration that cannot run is a decision with a reason, never an error of the campaign; only
``plain`` failing stops everything, since every tax is taken against it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from connector_tax.artifacts.launches import elapsed_s, read_launches, timed_launch
from connector_tax.artifacts.layout import CampaignFolder
from connector_tax.config import CampaignConfig, EngineConfig
from connector_tax.config.checked import PROJECT_ROOT
from connector_tax.engine.command import check_model, engine_python, side_port
from connector_tax.engine.identity import engine_identity
from connector_tax.engine.patching import ensure_patched
from connector_tax.engine.process import (
    LaunchError,
    LaunchRequest,
    RunningEngine,
    free_port,
    running_engine,
)
from connector_tax.engine.settings import resolved_settings
from connector_tax.errors import ConfigError, EngineError
from connector_tax.files import hash_of, read_json, write_json, write_text
from connector_tax.measure import checks
from connector_tax.measure.checks import Finding
from connector_tax.measure.failure import blame_the_host
from connector_tax.measure.locks import measuring_alone
from connector_tax.measure.matched import engine_diff, matched_launch
from connector_tax.plan import config_of, launch_spec
from connector_tax.records.connector import ConnectorSpec

SCHEMA = 1
BOOTSTRAP_PORT = "VLLM_MOONCAKE_BOOTSTRAP_PORT"


@dataclass(frozen=True, slots=True)
class Decision:
    """One configuration's entry in ``preflight_status.json``.

    Attributes:
        launch: for a matched baseline, the ``extra_args`` and ``env`` that make plain vLLM like its connector.
    """

    decision: str
    reason: str | None
    install: str | None
    launch_hash: str
    checked: tuple[Finding, ...]
    launch: dict[str, Any] | None = None


def run_preflight(campaign_file: Path, only: str | None = None) -> None:
    """Decide about every configuration and write ``preflight_status.json``.

    Args:
        only: verify just this one and print its log; the status file is left alone.

    Raises:
        ConfigError: the engine's interpreter or the model directory is not there.
        EngineError: ``plain`` cannot be measured.
    """
    config = config_of(read_json(campaign_file))
    folder = CampaignFolder(campaign_file.parent)
    check_model(config.engine)
    identity = engine_identity(config.engine)
    with (
        measuring_alone(folder.root, config.campaign, config.engine.gpu),
        # One that is verified by hand is no part of the campaign's time.
        timed_launch(folder.preflight_launches) if only is None else nullcontext(),
    ):
        timing = ensure_patched(config.engine)
        if only is not None:
            _verify_only(config, folder, only, identity)
            return
        missing = missing_modules(config.engine, config.connectors)
        decisions: dict[str, Decision] = {}
        # Matched baselines last: what they are launched with is what the others ended up with.
        for connector in sorted(config.connectors, key=lambda c: c.matches is not None):
            if connector.matches is None:
                decision = _decide(config, folder, connector, missing, identity, timing.available)
            else:
                decision = _decide_matched(config, folder, connector, identity, decisions, timing.available)
            print(
                f"preflight: {connector.id}: {decision.decision}"
                + (f" - {decision.reason}" if decision.reason else "")
            )
            if connector.id == "plain" and decision.decision != "include":
                raise EngineError(
                    f"plain vLLM cannot be measured, and every tax is taken against it: {decision.reason}"
                )
            decisions[connector.id] = decision
    write_json(folder.engine_diff, engine_diff(config, folder))
    write_json(
        folder.preflight_status,
        {
            "schema": SCHEMA,
            "step_timing_available": timing.available,
            "step_timing_reason": timing.reason,
            "elapsed_s": elapsed_s(read_launches(folder.preflight_launches)),
            "engine": identity["versions"],
            "configs": {i: asdict(d) for i, d in decisions.items()},
        },
    )


def _verify_only(config: CampaignConfig, folder: CampaignFolder, only: str, identity: dict[str, Any]) -> None:
    """One configuration by hand.

    Raises:
        ConfigError: it is not part of the campaign.
        EngineError: it cannot be measured here; the reason.
    """
    if only not in config.connector_ids:
        raise ConfigError(
            f"{only!r} is not in this campaign. Its configurations: {', '.join(config.connector_ids)}."
        )
    connector = config.connector(only)
    missing = missing_modules(config.engine, (connector,))
    reason = _reason_before_launch(config.engine, connector, missing, identity)
    if reason is not None:
        raise EngineError(f"{only}: {reason[0]}" + (f". Install: {reason[1]}" if reason[1] else ""))
    findings = _verify(config, folder, connector, identity, records=False)
    print((folder.preflight / f"verify_{only}.log").read_text(encoding="utf-8"), end="")
    failed = next((f for f in findings if not f.ok), None)
    if failed is not None:
        raise EngineError(f"{only}: {failed.check}: {failed.detail}")


def missing_modules(engine: EngineConfig, connectors: tuple[ConnectorSpec, ...]) -> set[str]:
    """Modules that the engine's interpreter cannot find; the embedded engine needs none."""
    wanted = sorted({m.module for c in connectors for m in c.modules})
    if engine.kind == "emulator" or not wanted:
        return set()
    code = "import importlib.util, json, sys; print(json.dumps([m for m in sys.argv[1:] if importlib.util.find_spec(m) is None]))"
    found = subprocess.run(
        [engine_python(engine), "-c", code, *wanted], capture_output=True, text=True, check=True
    )
    return set(json.loads(found.stdout))


def _decide(
    config: CampaignConfig,
    folder: CampaignFolder,
    connector: ConnectorSpec,
    missing: set[str],
    identity: dict[str, Any],
    records: bool,
) -> Decision:
    launch_hash = hash_of({"launch": launch_spec(config, connector.id), "versions": identity["versions"]})
    skip = _reason_before_launch(config.engine, connector, missing, identity)
    if skip is not None:
        return Decision("skip", skip[0], skip[1], launch_hash, ())
    remembered = folder.preflight / connector.id / "decision.json"
    if remembered.is_file():
        earlier = read_json(remembered)
        if earlier["launch_hash"] == launch_hash and earlier["decision"] == "include":
            return Decision(
                "include", None, None, launch_hash, tuple(Finding(**f) for f in earlier["checked"])
            )
    findings = _verify(config, folder, connector, identity, records=records)
    failed = next((f for f in findings if not f.ok), None)
    decision = Decision(
        "skip" if failed else "include",
        f"{failed.check}: {failed.detail}" if failed else None,
        None,
        launch_hash,
        findings,
    )
    write_json(remembered, asdict(decision))
    return decision


def _decide_matched(
    config: CampaignConfig,
    folder: CampaignFolder,
    connector: ConnectorSpec,
    identity: dict[str, Any],
    decisions: dict[str, Decision],
    records: bool,
) -> Decision:
    """A baseline is launched like its connector, or left out with the reason."""
    assert connector.matches is not None
    target = decisions[connector.matches]
    if target.decision != "include":
        return Decision("skip", f"{connector.matches} was skipped: {target.reason}", None, "", ())
    launched, words = matched_launch(folder, connector)
    if launched is None:
        return Decision("skip", words, None, "", ())
    own = replace(
        config, connectors=tuple(launched if c.id == connector.id else c for c in config.connectors)
    )
    decision = _decide(own, folder, launched, set(), identity, records)
    return replace(
        decision,
        checked=(*decision.checked, Finding("matched", True, words)),
        launch={"extra_args": list(launched.extra_args), "env": launched.env},
    )


def _reason_before_launch(
    engine: EngineConfig, connector: ConnectorSpec, missing: set[str], identity: dict[str, Any]
) -> tuple[str, str | None] | None:
    """(reason, what to install) where launching is pointless."""
    if engine.kind == "emulator":
        return None
    needed = [m for m in connector.modules if m.module in missing]
    if needed:
        names = " and ".join(m.module for m in needed)
        reason = f"the engine's interpreter has no module {names}"
        if connector.needs_gpu and not identity["gpu"]:
            reason += f"; it would also need a GPU, and this host has none ({connector.needs_gpu})"
        return reason, "; ".join(m.install for m in needed)
    cores = len(os.sched_getaffinity(0))
    if cores < connector.min_cores:
        return f"needs {connector.min_cores} cores, this host has {cores}. {connector.note}".strip(), None
    return None


def _verify(
    config: CampaignConfig,
    folder: CampaignFolder,
    connector: ConnectorSpec,
    identity: dict[str, Any],
    *,
    records: bool,
) -> tuple[Finding, ...]:
    """Launch, ask, stop; leaves ``verify_<connector>.log`` whatever the configuration does.

    Raises:
        EngineError: the host failed, and not the configuration.
    """
    findings: list[Finding] = []
    try:
        with _bootstrap(config.engine, connector) as beside:
            own = folder.preflight / connector.id
            step_log = own / "steps" / "engine_step.jsonl" if records else None
            request = LaunchRequest(config.engine, beside, own, step_log)
            _clear(own)
            with running_engine(request) as engine:
                engine.wait_ready()
                findings.append(Finding("ready", True, f"/v1/models names {engine.model}"))
                _ask(engine, config, connector, findings)
                settings = resolved_settings(sorted((own / "steps").glob("*.jsonl")), engine.log_text())
                write_json(folder.engine_settings(connector.id), {"schema": 1, "settings": settings})
    except LaunchError as error:
        cause = str(error).splitlines()[0]
        blame_the_host(cause, connector.id)
        findings.append(Finding("ready", False, cause))
    log = [f"# {connector.id}: {connector.label}", json.dumps(identity["versions"])]
    log += [f"{'ok  ' if f.ok else 'FAIL'}  {f.check}: {f.detail}" for f in findings]
    write_text(folder.preflight / f"verify_{connector.id}.log", "\n".join(log) + "\n")
    return tuple(findings)


def _ask(
    engine: RunningEngine, config: CampaignConfig, connector: ConnectorSpec, findings: list[Finding]
) -> None:
    """The checks in order, up to the first that fails."""
    finding, short_s = checks.short_requests(engine, config, connector.verify_requests)
    findings.append(finding)
    rest: list[Callable[[], Finding]] = [
        lambda: checks.long_prompt(engine, config, short_s),
        lambda: checks.not_switched_off(engine),
    ]
    if connector.verify == "long_prompt":
        rest.append(lambda: checks.cache_was_asked(engine))
    rest.append(lambda: checks.alive(engine))
    for check in rest:
        if not findings[-1].ok:
            return
        findings.append(check())


def _clear(folder: Path) -> None:
    for name in ("vllm_stdout.log", "vllm_stderr.log", "launch.sh"):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "steps", ignore_errors=True)


@contextmanager
def _bootstrap(engine: EngineConfig, connector: ConnectorSpec) -> Iterator[ConnectorSpec]:
    """A consumer gets a bootstrap server beside it that knows no producer; others get nothing.

    It listens where the campaign's launches will look, so that vLLM compiles once for both. The embedded engine
    never asks it, and gets a free port, since several of its campaigns may run beside each other.
    """
    if connector.verify != "kv_consumer":
        yield connector
        return
    port = str(side_port(engine, BOOTSTRAP_PORT) if engine.kind == "vllm" else free_port())
    script = PROJECT_ROOT / "launch" / "plugins" / "dummy_bootstrap.py"
    server = subprocess.Popen([sys.executable, str(script), port])
    try:
        yield replace(connector, env={**connector.env, BOOTSTRAP_PORT: port})
    finally:
        server.terminate()
        server.wait()
