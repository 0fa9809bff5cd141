"""Write report.html of a campaign from its aggregate.json and figures/. The same as ``connector-tax report``."""

from connector_tax.commands.report import COMMAND

if __name__ == "__main__":
    COMMAND.main()
