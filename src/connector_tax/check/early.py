"""Asked of the engine's Python in seconds, before anything is launched: does it load vLLM and these
connectors."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence

from connector_tax.base.config import CampaignConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import EngineError
from connector_tax.base.files import printable
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.check.document import Fault
from connector_tax.check.request import CheckRequest, connectors_in
from connector_tax.run.engine.command import engine_environment
from connector_tax.run.engine.gpus import cards_of

# Begins the answer of launch/plugins/connector_loads.py.
ANSWER = "connector-tax-loads:"
TIMEOUT_S = 120.0
PLUGINS = PROJECT_ROOT / "launch" / "plugins"


def early_fault(request: CheckRequest, config: CampaignConfig) -> Fault | None:
    """Return what is missing; None where all is there. Raises as ``faults``."""
    connector = config.connector(request.connector_id)
    environment = engine_environment(config.engine, connector, cards_of(config.engine))
    return faults(request.engine_python, [connector], environment)[0]


def faults(
    python: str, connectors: Sequence[ConnectorSpec], environment: Mapping[str, str]
) -> list[Fault | None]:
    """Return of each connector what it lacks in the engine's Python.

    Raises:
        EngineError: it does not answer.
    """
    paths = [str(PLUGINS), *filter(None, [environment.get("PYTHONPATH")])]
    asked = [
        {
            "connectors": connectors_in(c.kv_transfer_config) if c.kv_transfer_config else [],
            "packages": [m.module for m in c.modules],
        }
        for c in connectors
    ]
    try:
        ended = subprocess.run(
            [python, "-m", "connector_loads", json.dumps(asked)],
            env={**environment, "PYTHONPATH": os.pathsep.join(paths), "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(
            f"--engine-python {python}: did not import vLLM and the connector within {TIMEOUT_S:g} s. Try it"
            " by hand."
        ) from error
    answers = [line for line in ended.stdout.splitlines() if line.startswith(ANSWER)]
    if not answers:
        said = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        return [Fault("broken", "vllm", said=printable(said, 300))] * len(connectors)
    found = json.loads(answers[-1].removeprefix(ANSWER))
    pairs = zip(found["faults"], connectors, strict=True)
    return [one and _with_install(one, c, found["cuda"]) for one, c in pairs]


def _with_install(found: dict[str, str], connector: ConnectorSpec, cuda: str | None) -> Fault:
    installs = {m.module: m.install_for(cuda) for m in connector.modules}
    return Fault(**found, install=installs.get(found["subject"], f"pip install {found['subject']}"))
