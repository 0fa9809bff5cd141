"""``sweeps/<sweep>/``: a file for each campaign, how each ended last, and the lock of who runs the sweep."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from connector_tax.base.config.sweep import Sweep, SweepCell
from connector_tax.base.documents.reading import read_document
from connector_tax.base.documents.sweep import End, SweepEnds
from connector_tax.base.errors import ArtifactError, ConfigError, EngineError
from connector_tax.base.files import Document, write_json, write_text_if_changed
from connector_tax.base.locks import holder_of, name_holder, open_lock, take_lock
from connector_tax.base.opening import printable, read_whole
from connector_tax.base.redaction import published


@dataclass(frozen=True, slots=True)
class SweepFolder:
    """Below ``sweeps/`` of the checkout; results lie where every campaign has them."""

    root: Path

    def config(self, cell: SweepCell) -> Path:
        return self.root / f"{cell.name}.yaml"

    @property
    def ends(self) -> Path:
        return self.root / "ends.json"

    @property
    def made_of(self) -> Path:
        """Holds the path of the sweep's own file; from the checkout where it lies in it, since a checkout may be copied or moved."""
        return self.root / "made_of"

    @property
    def _checkout(self) -> Path:
        return self.root.parents[1].resolve()

    def other_file(self, sweep: Sweep) -> Path | None:
        """The file that this folder was made of last, where it is another than the sweep's and still there."""
        try:
            other = self._checkout / read_whole(self.made_of).decode().removesuffix("\n")
            return other if other.is_file() and not other.samefile(sweep.path) else None
        except (OSError, ArtifactError, UnicodeDecodeError):
            return None  # nobody's any more

    def strangers(self, sweep: Sweep) -> list[str]:
        """Campaigns that have a file here and are in the sweep no more."""
        own = {cell.name for cell in sweep.cells}
        return sorted(p.stem for p in self.root.glob("*.yaml") if p.stem not in own)

    def read_ends(self) -> tuple[dict[str, End], str]:
        """None where the file is damaged, and what is wrong with it: it is a remark on campaigns, and says nothing of their results."""
        if not self.ends.exists():
            return {}, ""
        try:
            return dict(read_document(self.ends, SweepEnds).ends), ""
        except ArtifactError as error:
            return {}, str(error)

    def write_ends(self, sweep: Sweep, ends: dict[str, End]) -> None:
        write_json(self.ends, SweepEnds(sweep=sweep.name, ends=ends))

    def write_configs(self, sweep: Sweep) -> list[Path]:
        """One ordinary config for each campaign; one with the same content is left alone.

        Raises:
            ConfigError: a secret stands in the base or in an entry. It would be in as many files as there are campaigns.
        """
        # The whole is refused before a part of it is written.
        texts = {self.config(cell): _text(sweep, cell) for cell in sweep.cells}
        for path, text in texts.items():
            write_text_if_changed(path, Document(text))
        file = sweep.path.resolve()
        own = file.relative_to(self._checkout) if file.is_relative_to(self._checkout) else file
        write_text_if_changed(self.made_of, f"{own}\n")
        return list(texts)

    @contextmanager
    def held(self, sweep: Sweep) -> Iterator[None]:
        """Hold the sweep: two that run it would start the same campaign.

        Raises:
            EngineError: somebody else runs it.
        """
        what = f"sweep {sweep.name}"
        with open_lock(self.root / ".lock", what) as lock:
            if not take_lock(lock, what):
                raise EngineError(
                    f"{what} is run already (process {holder_of(lock)}). Wait for it, or end it; "
                    f"`connector-tax sweep {sweep.word} status` says how far it is."
                )
            name_holder(lock, what, str(os.getpid()))
            yield


def _text(sweep: Sweep, cell: SweepCell) -> str:
    # Under a key of its own, since a document holds its config so.
    if published({"config": cell.mapping})["config"] != cell.mapping:
        raise ConfigError(
            f"{sweep.path}: campaign {cell.name}: a secret stands in it, in {sweep.base} or in an entry, and would be written into a file "
            "for each campaign. Put it into the environment and write ${NAME} for it."
        )
    made_of = printable(f"{sweep.path}, {cell.words}; base {sweep.base}", 1000)
    body = yaml.safe_dump(cell.mapping, sort_keys=False, allow_unicode=True, width=120)
    return f"# Made by connector-tax sweep of {made_of}.\n# Edit those: `connector-tax sweep ... run` writes this file anew.\n{body}"
