"""``ro-crate-metadata.json``: what a bundle holds and how it was made, in RO-Crate 1.1, which repositories of research data read.

Source: https://w3id.org/ro/crate/1.1
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.base.units import how_many

CRATE = "ro-crate-metadata.json"
_FORMATS = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".csv": "text/csv",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".gz": "application/gzip",
    ".py": "text/x-python",
    ".css": "text/css",
    ".js": "text/javascript",
    ".yaml": "application/yaml",
    ".npz": "application/zip",
}
# Logs, launch.sh, env.txt, README.txt and the lists.
_TEXT = "text/plain"


@dataclass(frozen=True, slots=True)
class Packed:
    """A file of the bundle.

    Attributes:
        size: bytes.
    """

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class About:
    """What the description says beside the files.

    Attributes:
        published: ``YYYY-MM-DD``.
        license: an address or a short name; None: none is named.
        measured: when the campaign began, as its document has it; None where it does not say.
        engines: each that measured something.
        folder: of the campaign in the bundle, with a slash behind.
    """

    campaign: str
    published: str
    license: str | None
    measured: str | None
    engines: Sequence[EngineIdentity]
    folder: str
    code_version: str
    code_sha256: str
    partial: bool
    problems: int


def crate(about: About, files: Sequence[Packed]) -> dict[str, Any]:
    """The document; ``files`` are all but this one and the manifest."""
    engines = _engines(about.engines)
    code = _application("#code", "connector-tax", about.code_version)
    code["identifier"] = f"sha256:{about.code_sha256}"
    root: dict[str, Any] = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"connector-tax campaign {about.campaign}",
        "description": (
            "What switching on a KV connector costs a vLLM server: raw results, the code that reads them, and what it makes of them."
            + (" The campaign is not finished." if about.partial else "")
            + (
                f" The analysis found {how_many(about.problems, 'problem')}, which aggregate.json lists."
                if about.problems
                else ""
            )
        ),
        "datePublished": about.published,
        "hasPart": [{"@id": quote(file.name)} for file in files],
        "mentions": [{"@id": "#measurement"}],
    }
    if about.license is not None:
        root["license"] = {"@id": about.license} if "://" in about.license else about.license
    results = [{"@id": quote(f.name)} for f in files if f.name.startswith(about.folder)]
    action: dict[str, Any] = {
        "@id": "#measurement",
        "@type": "CreateAction",
        "name": f"measurement and analysis of campaign {about.campaign}",
        "instrument": [{"@id": entity["@id"]} for entity in (code, *engines)],
        "result": results,
    }
    if about.measured is not None:
        action["startTime"] = about.measured
    return {
        # Of a schema.org later than the one in RO-Crate's context.
        "@context": ["https://w3id.org/ro/crate/1.1/context", {"sha256": "http://schema.org/sha256"}],
        "@graph": [
            {
                "@id": CRATE,
                "@type": "CreativeWork",
                "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
                "about": {"@id": "./"},
            },
            root,
            code,
            *engines,
            action,
            *map(_file, files),
        ],
    }


def _engines(found: Sequence[EngineIdentity]) -> list[dict[str, Any]]:
    """One per combination of versions, in the order they are given."""
    entities: list[dict[str, Any]] = []
    seen: list[object] = []
    for engine in found:
        if engine.versions in seen:
            continue
        seen.append(engine.versions)
        embedded = "emulator" in engine.versions
        version = engine.versions.get("emulator" if embedded else "vllm")
        name = "connector-tax embedded engine" if embedded else "vLLM"
        entity = _application(f"#engine-{len(seen)}", name, "not known" if version is None else str(version))
        entity["softwareRequirements"] = [
            f"{package} {its}" for package, its in sorted(engine.versions.items()) if its is not None
        ]
        entities.append(entity)
    return entities


def _application(key: str, name: str, version: str) -> dict[str, Any]:
    return {
        "@id": key,
        "@type": "SoftwareApplication",
        "name": name,
        "version": version,
        "softwareVersion": version,
    }


def _file(file: Packed) -> dict[str, Any]:
    return {
        "@id": quote(file.name),
        "@type": "File",
        "name": PurePosixPath(file.name).name,
        "contentSize": str(file.size),
        "encodingFormat": _FORMATS.get(PurePosixPath(file.name).suffix, _TEXT),
        "sha256": file.sha256,
    }
