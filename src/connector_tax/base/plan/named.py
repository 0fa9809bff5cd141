"""Finds the campaign that a user names: by config file, by bare name in ``config/``, or by results folder."""

import argparse
import os
import re
import shlex
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT, read_yaml
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import is_campaign_name, printable
from connector_tax.base.imports import IN_CHECKOUT
from connector_tax.base.plan.cells import config_of, read_campaign_file

# Snakemake's default: config/config.yaml.
DEFAULT = "config"
_CAMPAIGN = re.compile(r"""^campaign: *["']?([^\s"'#]+)""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Named:
    """One campaign.

    Attributes:
        given: as the user wrote it.
        root: its results folder, which may not exist.
        file: its config file; None if a results folder was given.
    """

    given: str
    root: Path
    file: Path | None

    @property
    def run_command(self) -> str:
        """The command that measures or resumes it."""
        return f"connector-tax run {shlex.quote(self.given)}"

    @property
    def measured_root(self) -> Path:
        """The results folder.

        Raises:
            ConfigError: there is none.
        """
        if not is_campaign(self.root):
            raise ConfigError(
                f"{self.root}: nothing is measured there yet. Measure it first: {self.run_command}"
            )
        return self.root

    def config(self) -> CampaignConfig:
        """Return the config of the file, or the one in ``campaign.json``."""
        return load_campaign(self.file) if self.file else self._begun_with()

    def config_file(self) -> Path:
        """Return the config file; for a results folder, look for it in ``config/``.

        Raises:
            ConfigError: no file there measures in this folder.
        """
        if self.file is not None:
            return self.file
        name = self._begun_with().campaign
        if name in (known := _configs()) and results_folder().resolve() / name == self.root.resolve():
            return known[name]
        raise ConfigError(
            f"{self.root}: no file in config/ measures campaign {name} in this folder. Give its config file"
            " instead."
        )

    def _begun_with(self) -> CampaignConfig:
        return config_of(read_campaign_file(CampaignFolder(self.root).campaign_file))


def add_campaign(parser: argparse.ArgumentParser) -> None:
    """Add the first argument of a command."""
    parser.add_argument(
        "campaign",
        type=find_campaign,
        nargs="?",
        default=DEFAULT,
        metavar="CAMPAIGN",
        help="config file, its name in config/, or results folder; default config",
    )


def results_folder() -> Path:
    """Return the folder of all campaigns: the checkout's, or without one that of the working folder."""
    return Path(os.path.relpath(PROJECT_ROOT / "results") if IN_CHECKOUT else "results")


def is_campaign(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("aggregate.json", "campaign.json"))


def find_campaign(text: str) -> Named:
    """Return the campaign that ``text`` names.

    Raises:
        ConfigError: it names none; says which there are.
    """
    path = Path(text)
    folder = path.parent if path.name == "aggregate.json" else path
    if is_campaign(folder):
        return Named(text, folder, None)
    places = [path, *(folder / f"{text}.yaml" for folder in _folders())]
    file = next((place for place in places if place.is_file()), None)
    if file is not None:
        mapping = read_yaml(file)
        name = mapping.get("campaign")
        if "campaign" not in mapping:
            raise ConfigError(
                f"{file}: no campaign's config, which has a key `campaign`. Add it, or give another file,"
                " such as config/demo.yaml."
            )
        if not is_campaign_name(name):
            load_campaign(file)  # says what is wrong with it
        return Named(text, results_folder() / str(name), file)
    raise ConfigError(printable(_no_campaign(text, path), 1000))


def _no_campaign(text: str, path: Path) -> str:
    if path.is_dir():
        inside = ", ".join(p.name for p in sorted(path.iterdir()) if is_campaign(p))
        if inside:
            return f"{text}: is no campaign. Campaigns in it: {inside}."
        return f"{text}: holds no campaign (no campaign.json). Give a config file or a results folder."
    there = [p for p in results_folder().glob("*") if is_campaign(p)]
    known = [name for p in (*_configs().values(), *there) for name in (str(p), p.stem)]
    close = get_close_matches(text, known, 1)
    remedy = (
        f"Did you mean {close[0]}?"
        if close
        else "Give a config file, which connector-tax init writes, a results folder, or demo."
    )
    return f"{text}: no such campaign. {remedy}"


def _folders() -> dict[Path, None]:
    return dict.fromkeys((Path("config"), Path(os.path.relpath(PROJECT_ROOT / "config"))))


def _configs() -> dict[str, Path]:
    """Return campaign name -> config file, for files that are found without a path."""
    files = [file for folder in (*reversed(_folders()), Path()) for file in sorted(folder.glob("*.yaml"))]
    texts = {file: file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file()}
    found = {file: _CAMPAIGN.search(text) for file, text in texts.items()}
    return {match[1]: file for file, match in found.items() if match}
