"""``connector-tax run --smoke``: plain, the no-op connector and NIXL on this host's GPU, two rates, one
shape, in about ten minutes.

It needs no download: the model has the shape of config/models/ and random weights.
"""

import argparse
import os

import yaml

from connector_tax.base.config.checked import PROJECT_ROOT, read_yaml
from connector_tax.base.errors import EngineError
from connector_tax.base.files import write_text
from connector_tax.base.locks import cache_folder
from connector_tax.base.plan.named import Named, results_folder
from connector_tax.check.engine_python import engine_python_of
from connector_tax.check.request import model_folder
from connector_tax.run.engine.gpu_host import lacking

GPU, VIRTUAL = "gpu", "virtual-gpu"
CONFIGS = {on: PROJECT_ROOT / "config" / f"{on}-smoke.yaml" for on in (GPU, VIRTUAL)}
# The small one fits any GPU. Its step of 2 ms is too short for a virtual GPU's clock on a host with two
# cores.
MODELS = {GPU: "Qwen3-0.6B", VIRTUAL: "Qwen3-Coder-30B-A3B-Instruct"}


def smoke_campaign(args: argparse.Namespace) -> Named:
    """Write the campaign's config into the cache and return the campaign.

    Raises:
        ConfigError: no interpreter with vLLM is given, or there is no such model.
        EngineError: this host cannot run it; names all that is missing.
    """
    python = engine_python_of(args)
    if missing := lacking(python, card=args.on == GPU):
        raise EngineError("\n".join(["this host cannot run it:", *(f"- {what}" for what in missing)]))
    name, folder = model_folder(args.model_config or MODELS[args.on], python)
    os.environ |= {"ENGINE_PYTHON": python, "MODEL_FOLDER": str(folder)}
    config = read_yaml(CONFIGS[args.on])
    config["engine"]["served_model_name"] = name
    if args.connectors is not None:
        config["connectors"] = list(dict.fromkeys(["plain", *args.connectors.split(",")]))
        config["campaign"] = "-".join([config["campaign"], *config["connectors"]])
    path = cache_folder() / f"{config['campaign']}.yaml"
    write_text(path, yaml.safe_dump(config, sort_keys=False))
    return Named("--smoke", results_folder() / config["campaign"], path)
