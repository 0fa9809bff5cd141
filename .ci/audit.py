"""``make audit``: what requirements-dev.lock installs, as a list (SBOM) in CycloneDX's format, and which of it has a known vulnerability.

cyclonedx-py writes the list; pip-audit asks the package index about each version. Both are installed into a virtual environment of
their own. pip-audit ends with success where the index knows nothing of a package, so what it skipped is counted here: an index that
cannot be asked is named, and is no clean audit.

Exit codes: 0 nothing is known to be vulnerable, or nobody could be asked; 1 something is; 2 with ``--strict``: not all could be asked.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TOOLS = ("cyclonedx-bom==7.5.0", "pip-audit==2.10.1")
CLEAN, VULNERABLE, UNASKED = 0, 1, 2


@dataclass(frozen=True)
class Audit:
    """What pip-audit found.

    Attributes:
        packages: how many the lock file pins.
        skipped: of each that was not looked up, the reason.
        vulnerable: of each with a known vulnerability, its version, identifiers and the versions that mend it.
    """

    packages: int
    skipped: dict[str, str]
    vulnerable: dict[str, str]

    @classmethod
    def of(cls, report: dict[str, Any]) -> "Audit":
        """Of the JSON that pip-audit writes.

        Raises:
            KeyError: it has another form.
        """
        dependencies = report["dependencies"]
        return cls(
            packages=len(dependencies),
            skipped={d["name"]: d["skip_reason"] for d in dependencies if "skip_reason" in d},
            vulnerable={
                f"{d['name']} {d['version']}": "; ".join(
                    f"{v['id']}, mended in {', '.join(v['fix_versions']) or 'no version'}" for v in d["vulns"]
                )
                for d in dependencies
                if d.get("vulns")
            },
        )

    def told(self) -> str:
        asked = self.packages - len(self.skipped)
        lines = [
            f"audit: {asked} of {self.packages} packages looked up, {len(self.vulnerable)} with a known vulnerability"
        ]
        lines += [f"  {name}: {what}" for name, what in self.vulnerable.items()]
        if self.skipped:
            name, reason = next(iter(self.skipped.items()))
            lines.append(f"  not looked up: {len(self.skipped)}, such as {name}: {reason}")
        return "\n".join(lines)

    def exit_code(self, strict: bool) -> int:
        if self.vulnerable:
            return VULNERABLE
        return UNASKED if strict and self.skipped else CLEAN


def tools_in(folder: Path) -> Path:
    """The folder with both tools' programs; installs them where it is not there."""
    marker = folder / "installed"
    if not marker.is_file() or marker.read_text() != "\n".join(TOOLS):
        venv.create(folder, clear=True, with_pip=True)
        pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *TOOLS], check=True)
        marker.write_text("\n".join(TOOLS))
    return folder / "bin"


def write_list(tools: Path, lock: Path, to: Path) -> int:
    """The SBOM; how many packages are in it."""
    command = [str(tools / "cyclonedx-py"), "requirements", str(lock), "--output-reproducible", "-o", str(to)]
    subprocess.run(command, check=True, capture_output=True)
    return len(json.loads(to.read_text())["components"])


def asked(tools: Path, lock: Path) -> Audit | str:
    """What the index says, or pip-audit's own words where it could not ask at all."""
    with tempfile.TemporaryDirectory(prefix="connector-tax-audit-") as folder:
        report = Path(folder) / "report.json"
        command = [str(tools / "pip-audit"), "-r", str(lock), "--require-hashes", "--disable-pip"]
        command += ["--progress-spinner", "off", "-f", "json", "-o", str(report)]
        done = subprocess.run(command, capture_output=True, text=True)
        if not report.is_file():
            said = (done.stderr or done.stdout).strip() or f"pip-audit ended with exit code {done.returncode}"
            return said.splitlines()[-1]
        return Audit.of(json.loads(report.read_text()))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tools", type=Path, default=ROOT / ".audit", help="folder to install them into")
    parser.add_argument(
        "--sbom", type=Path, default=ROOT / "sbom.cdx.json", help="the list (default: %(default)s)"
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit code 2 unless all packages were looked up"
    )
    args = parser.parse_args()
    lock = ROOT / "requirements-dev.lock"
    try:
        tools = tools_in(args.tools)
    except subprocess.CalledProcessError as error:
        print(f"audit: {' and '.join(TOOLS)} could not be installed: {error}")
        return UNASKED if args.strict else CLEAN
    print(f"{args.sbom}: {write_list(tools, lock, args.sbom)} packages")
    found = asked(tools, lock)
    if isinstance(found, str):
        print(f"audit: the package index could not be asked: {found}")
        return UNASKED if args.strict else CLEAN
    print(found.told())
    return found.exit_code(args.strict)


if __name__ == "__main__":
    sys.exit(main())
