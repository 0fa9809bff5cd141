"""What the load generator, the launches and the commands do, as numbers and checksums in ``data/``.

``make.py`` has the subjects, writes their files and says how two differ; ``adapters.py`` is all that knows of the product.
"""

import json
import sys
from pathlib import Path
from typing import Any

# Helpers of all tests, for ``python -m tests.golden.make``, too.
sys.path.insert(0, str(Path(__file__).parents[1]))

DATA = Path(__file__).parent / "data"


def kept(subject: str) -> Any:
    path = DATA / f"{subject}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
