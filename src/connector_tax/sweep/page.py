"""The matrix of a sweep as one self-contained page; the same results give the same bytes."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from connector_tax.sweep.matrix import Matrix

HERE = Path(__file__).parent
STYLE = HERE.parent / "read" / "report" / "report.css"


def render(matrix: Matrix) -> str:
    """Every value is escaped, since names come from files that people write."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("sweep.html.j2").render(
        matrix=matrix,
        css=STYLE.read_text(encoding="utf-8"),  # our own file, the only text that is not escaped
    )
