"""Whether today's code makes of a bundle's raw results what lies beside them, byte for byte."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import copy_file, is_campaign_name, sha256_of, shown
from connector_tax.read.bundle.code import CODE, code_sha256, installed_sha256
from connector_tax.read.bundle.packing import RESULTS, made_files, remake
from connector_tax.read.bundle.verifying import Finding, Verified, as_folder


@dataclass(frozen=True, slots=True)
class Reproduced:
    """
    Attributes:
        findings: what came out otherwise.
        compared: how many files were.
        other_code: the bundle's code and the one that ran, first 12 digits of their SHA-256; None where they are the same,
            or the bundle has none.
    """

    findings: list[Finding]
    compared: int
    other_code: tuple[str, str] | None


def reproduce(bundle: Path, verified: Verified) -> Reproduced:
    """Analyse and draw the raw results of a bundle without findings in a temporary folder, and compare.

    Raises:
        ArtifactError: the bundle has no campaign, or its raw results cannot be read.
    """
    campaign = _campaign(bundle, verified)
    inside = {n: s for n, s in verified.sha256.items() if n.startswith(campaign)}
    findings = []
    with (
        tempfile.TemporaryDirectory(prefix="connector-tax-") as temporary,
        as_folder(bundle) as then,
    ):
        now = Path(temporary)
        made = {p.relative_to(then).as_posix() for p in made_files(then / campaign)}
        for name in inside.keys() - made:
            copy_file(then / name, now / name)
        remake(now / campaign)
        found = {p.relative_to(now).as_posix(): p for p in made_files(now / campaign)}
        names = sorted({*found, *made})
        for name in names:
            if name not in made:
                findings.append(Finding(name, "is made today and not in the bundle"))
            elif name not in found:
                findings.append(Finding(name, "is not made today"))
            elif sha256_of(found[name]) != inside[name]:
                where = (
                    f", first {_first(then / name, found[name])}" if name.endswith("/aggregate.json") else ""
                )
                findings.append(Finding(name, f"differs{where}"))
    its, mine = code_sha256(verified.sha256), installed_sha256()
    same = its == mine or not any(name.startswith(CODE) for name in verified.sha256)
    return Reproduced(findings, len(names), None if same else (its[:12], mine[:12]))


def _campaign(bundle: Path, verified: Verified) -> str:
    """Its folder in the bundle, with a slash behind."""
    names = {n.split("/")[1] for n in verified.sha256 if n.startswith(RESULTS) and n.count("/") > 1}
    if len(names) != 1 or not is_campaign_name(name := min(names)):
        raise ArtifactError(
            f"{bundle}: has {len(names)} campaigns in {RESULTS}, wanted is one. {shown(sorted(names))}"
        )
    return f"{RESULTS}{name}/"


def _first(old: Path, new: Path) -> str:
    """The first path at which two JSON files differ."""
    found = difference(json.loads(old.read_bytes()), json.loads(new.read_bytes()), "$")
    return found or "in how it is written"


def difference(old: Any, new: Any, where: str) -> str | None:
    """The first place at which two values differ, and both; None where they are equal."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in (*old, *(k for k in new if k not in old)):
            if key not in old or key not in new:
                return f"at {where}.{key}: {'only today' if key not in old else 'not today'}"
            if found := difference(old[key], new[key], f"{where}.{key}"):
                return found
        return None
    if isinstance(old, list) and isinstance(new, list):
        for place, (one, other) in enumerate(zip(old, new, strict=False)):
            if found := difference(one, other, f"{where}[{place}]"):
                return found
        return None if len(old) == len(new) else f"at {where}: {len(old)} entries, today {len(new)}"
    same = type(old) is type(new) and old == new
    return None if same else f"at {where}: {shown(old)}, today {shown(new)}"
