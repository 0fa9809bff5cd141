"""Runs a configuration by hand: ``launch/launch_<id>.sh`` its engine, ``launch/verify_*.sh`` its preflight.

Settings come from CONFIG, by default config/config.yaml, the published experiment. Variables take precedence:
MODEL, ENGINE_PYTHON, HOST, PORT, SERVED_MODEL_NAME, KV_TRANSFER_CONFIG, and whatever the engine reads.
Arguments replace CONFIG's.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from msgspec.structs import replace

from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.entrypoint import run_entrypoint
from connector_tax.base.errors import ConfigError
from connector_tax.base.plan.start import begin_campaign
from connector_tax.run.engine.command import engine_environment
from connector_tax.run.engine.gpus import Cards
from connector_tax.run.engine.launch import Launch
from connector_tax.run.engine.lifeline import end_in_order
from connector_tax.run.engine.store import with_store


def launch_by_hand(config: CampaignConfig, connector_id: str, arguments: list[str]) -> None:
    """Replace this process by the engine.

    Raises:
        ConfigError: MODEL or the interpreter is missing.
    """
    variables, connector = os.environ, config.connector(connector_id)
    if connector.kv_transfer_config and "KV_TRANSFER_CONFIG" in variables:
        connector = replace(connector, kv_transfer_config=json.loads(variables["KV_TRANSFER_CONFIG"]))
    store = Path(tempfile.gettempdir(), f"connector-tax-store-{os.getpid()}")
    if (stored := with_store(connector, store)) != connector:
        store.mkdir()
    model = variables.get("MODEL")
    if not model:
        raise ConfigError("MODEL is not set. Set it to a model directory or hub id.")
    python = variables.get("ENGINE_PYTHON", "python3")
    engine = replace(
        config.engine,
        python=shutil.which(python) or python,
        model=model,
        served_model_name=variables.get("SERVED_MODEL_NAME", model),
        args={} if arguments else config.engine.args,
    )
    environment = {**engine_environment(engine, stored, Cards((), 0)), **variables}
    port, host = int(variables.get("PORT", 8000)), variables.get("HOST", "127.0.0.1")
    launch = Launch(engine, stored, environment, port, host)
    command = [*launch.command(), *arguments]
    os.execvpe(command[0], command, launch.variables())  # nosec B606  # words, and no shell


def main() -> None:
    action, connector_id, *arguments = sys.argv[1:] if sys.argv[2:] else ("", "")
    path = Path(os.environ.get("CONFIG", PROJECT_ROOT / "config" / "config.yaml"))
    config = load_campaign(path)
    if connector_id not in config.connector_ids:
        raise ConfigError(
            f"common.sh launch|verify CONFIGURATION [ARGUMENT...]: {connector_id!r} is none of {path}:"
            f" {', '.join(config.connector_ids)}."
        )
    if action == "launch":
        launch_by_hand(config, connector_id, arguments)
    from connector_tax.run.measure.preflight import run_preflight

    end_in_order()
    run_preflight(begin_campaign(config, PROJECT_ROOT / "results"), connector_id)


if __name__ == "__main__":
    run_entrypoint(main)
