"""What a wheel needs of the checkout lies in it as ``connector_tax/project/``: configs, launchers, plugins,
rules, scripts."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
FOLDERS = ("config", "launch", "patches", "profiles", "scripts", "workflow")


class BuildWithProject(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        to = Path(self.build_lib) / "connector_tax" / "project"
        for folder in FOLDERS:
            unwanted = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / folder, to / folder, ignore=unwanted, dirs_exist_ok=True)
        shutil.copy2(ROOT / "Snakefile", to)


setup(cmdclass={"build_py": BuildWithProject})
