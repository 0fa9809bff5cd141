"""Write a campaign's report.html from its aggregate.json and figures/.

A part of ``connector-tax report``.
"""

from connector_tax.base.command import of_root
from connector_tax.read.report.page import build_report, closing_lines

if __name__ == "__main__":
    of_root(__doc__, lambda root: closing_lines(build_report(root).parent))
