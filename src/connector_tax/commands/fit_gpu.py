"""Fit a profile of the virtual GPU to the step records of plain vLLM on a GPU; prints the residuals."""

import argparse
from pathlib import Path

import yaml

from connector_tax.base.command import Command
from connector_tax.base.config.checked import PROJECT_ROOT, checked, read_yaml
from connector_tax.base.config.gpu import profile_path
from connector_tax.base.files import read_json, write_text
from connector_tax.base.vllm_model.shape import model_shape
from connector_tax.fleet.gpu_profile import fit_gpu, fit_lines, profile_text
from connector_tax.read.ingest import read_campaign

MODELS = PROJECT_ROOT / "config" / "models"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>, measured on the GPU")
    parser.add_argument(
        "--gpu",
        required=True,
        help="profile of that card, a file of config/gpus/ or a path; all but the costs of a step is taken from it",
    )
    parser.add_argument(
        "--model-config",
        help="a file of config/models/ or a config.json, to work out the KV cache's size",
    )
    parser.add_argument(
        "--out", type=Path, help="write the profile there, e.g. config/gpus/mine.yaml; default: print it"
    )


def _run(args: argparse.Namespace) -> int:
    data = read_campaign(args.root)
    fit = fit_gpu(data)
    print("\n".join(fit_lines(fit)))
    shape = None
    if args.model_config is not None:
        known = MODELS / f"{args.model_config}.json"
        file = known if known.is_file() else Path(args.model_config)
        shape = model_shape(read_json(file), str(file))
    path = profile_path(args.gpu, "--gpu")
    base = read_yaml(path)
    checked(base, "gpu", str(path))
    text = profile_text(base, fit, str(data.document.campaign), shape)
    checked(yaml.safe_load(text), "gpu", "the fitted profile")
    if args.out is None:
        print(text)
        return 0
    write_text(args.out, text)
    print(f"wrote {args.out}")
    return 0


COMMAND = Command(__doc__, _arguments, _run)
