"""What a wheel needs of the checkout lies in it as ``connector_tax/project/``: templates, launchers, plugins, configs."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
FOLDERS = ("config", "launch", "patches", "workflow/report")
FILES = ("scripts/make_model_folder.py",)


class BuildWithProject(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        to = Path(self.build_lib) / "connector_tax" / "project"
        for folder in FOLDERS:
            unwanted = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / folder, to / folder, ignore=unwanted, dirs_exist_ok=True)
        for file in FILES:
            (to / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, to / file)


setup(cmdclass={"build_py": BuildWithProject})
