"""Analyse raw results into aggregate.json and aggregate.csv; needs no engine and no GPU.

A part of ``connector-tax report``.
"""

from connector_tax.base.command import of_root
from connector_tax.read.analysis import analyse, counts

if __name__ == "__main__":
    of_root(__doc__, lambda root: counts(analyse(root)))
