"""Plain vLLM, the no-op connector and NIXL on this host's GPU: two rates, one shape, step times, a report. About ten minutes.

It needs no download: the model has the shape of config/models/ and random weights. It says what is missing where it cannot run.
With --minutes it measures as `advance` does, without Snakemake and without the report.
"""

import argparse
import os

import yaml

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.command import Command
from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT, read_yaml
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.files import write_text
from connector_tax.base.locks import cache_folder
from connector_tax.base.records.bounds import Foreign
from connector_tax.check.engine_python import add_engine_python, engine_python_of
from connector_tax.check.request import model_folder
from connector_tax.commands.advance import add_sitting_arguments, measure
from connector_tax.commands.run import start_snakemake
from connector_tax.run.engine.gpu_host import lacking

SMOKE = PROJECT_ROOT / "config" / "gpu-smoke.yaml"
RESULTS = PROJECT_ROOT / "results"
GPU, VIRTUAL = "gpu", "virtual-gpu"
# The small one fits any card. Its step of 2 ms is too short for a clock that a host of two cores keeps.
MODELS = {GPU: "Qwen3-0.6B", VIRTUAL: "Qwen3-Coder-30B-A3B-Instruct"}


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_engine_python(parser)
    parser.add_argument(
        "--model-config",
        help="a file of config/models/, or a path to a config.json; default "
        + " and ".join(f"{model} on {device}" for device, model in MODELS.items()),
    )
    parser.add_argument(
        "--on",
        choices=[GPU, VIRTUAL],
        default=GPU,
        help="default gpu; a virtual GPU shows that all but the GPU works",
    )
    parser.add_argument(
        "--connectors",
        metavar="A,B",
        help="ids of config/connectors.yaml, to be measured beside plain; the campaign is named by them. Default noop_connector,nixl_both",
    )
    parser.add_argument("--minutes", type=float, help="in which this command ends; the next one goes on")
    add_sitting_arguments(parser)


def _run(args: argparse.Namespace) -> int:
    if args.save is not None and args.minutes is None:
        raise ConfigError("--save: archives are made of sittings. Give --minutes as well.")
    python = engine_python_of(args)
    if args.on == GPU and (missing := lacking(python)):
        raise EngineError("\n".join(["this host cannot run it:", *(f"- {what}" for what in missing)]))
    name, folder = model_folder(args.model_config or MODELS[args.on], python)
    os.environ |= {"ENGINE_PYTHON": python, "MODEL_FOLDER": str(folder)}
    config = read_yaml(SMOKE)
    config["engine"]["served_model_name"] = name
    if args.connectors is not None:
        config["connectors"] = list(dict.fromkeys(["plain", *args.connectors.split(",")]))
        config["campaign"] = "-".join([config["campaign"], *config["connectors"]])
    if args.on == VIRTUAL:
        config = on_virtual_gpu(config)
    path = cache_folder() / f"{config['campaign']}.yaml"
    write_text(path, yaml.safe_dump(config, sort_keys=False))
    root = RESULTS / config["campaign"]
    if args.minutes is None:
        print(f"{name} with random weights; the report will be {root / 'report.html'}", flush=True)
        start_snakemake(path, 1, "--quiet", "rules")
    return measure(load_campaign(path), CampaignFolder(root), args)


def on_virtual_gpu(config: Foreign) -> Foreign:
    """The same campaign with a clock in place of the card, and NIXL as it runs beside one."""
    engine = config["engine"]
    args = {k: v for k, v in engine["args"].items() if k not in ("load_format", "gpu_memory_utilization")}
    env = {**engine["env"], "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    return {
        **config,
        "campaign": f"{config['campaign']}-virtual",
        "connectors": ["nixl_virtual" if c == "nixl_both" else c for c in config["connectors"]],
        "engine": {**engine, "kind": "virtual_gpu", "virtual_gpu": {"gpu": "h200"}, "args": args, "env": env},
    }


COMMAND = Command(__doc__, _arguments, _run)
