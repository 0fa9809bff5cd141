"""Fit a profile of the virtual GPU to the step records of a campaign on a GPU, and print the residuals."""

import argparse
from pathlib import Path

import yaml

from connector_tax.base.command import Command, add_options
from connector_tax.base.config.checked import PROJECT_ROOT, checked, read_yaml
from connector_tax.base.config.gpu import GPUS, profile_path
from connector_tax.base.documents.identity import kinds_of
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import read_json, write_named
from connector_tax.base.plan.named import add_campaign
from connector_tax.base.records.host import GpuProfile
from connector_tax.base.vllm_model.shape import model_shape
from connector_tax.fleet.gpu_profile import fit_gpu, fit_lines, profile_text
from connector_tax.read.ingest import CampaignData, read_campaign

MODELS = PROJECT_ROOT / "config" / "models"


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_campaign(parser)
    add_options(
        parser,
        (
            "--gpu",
            str,
            "file of config/gpus/ or a path, whose step costs are replaced; default that of the card",
        ),
        ("--model-config", str, "of config/models/, or a config.json: for the KV cache's size"),
        ("--to=FILE", Path, "default: print it"),
    )


def _run(args: argparse.Namespace) -> int:
    data = read_campaign(args.campaign.measured_root)
    fit = fit_gpu(data)
    print("\n".join(fit_lines(fit)))
    shape = None
    if args.model_config is not None:
        known = MODELS / f"{args.model_config}.json"
        file = known if known.is_file() else Path(args.model_config)
        shape = model_shape(read_json(file), str(file))
    path = profile_path(args.gpu, "--gpu") if args.gpu is not None else profile_of(data)
    base = read_yaml(path)
    checked(base, GpuProfile, str(path))
    text = profile_text(base, fit, str(data.document.campaign), shape)
    checked(yaml.safe_load(text), GpuProfile, "the fitted profile")
    if args.to is None:
        print(text)
        return 0
    write_named(args.to, text)
    print(f"wrote {args.to}")
    return 0


def profile_of(data: CampaignData) -> Path:
    """Return the profile of the GPU that the campaign was measured on.

    Raises:
        ConfigError: there is none.
    """
    cards = {card for cell in data.cells() for card in kinds_of(cell.document.engine.gpu)}
    for path in sorted(GPUS.glob("*.yaml")):
        if cards == {read_yaml(path)["name"]}:
            return path
    raise ConfigError(
        f"{data.root} was measured on {' and '.join(sorted(cards)) or 'no card'}, and no profile in {GPUS}"
        " has that name. Give --gpu the one to start from."
    )


COMMAND = Command(__doc__, _arguments, _run, usage="[CAMPAIGN] [options]")
