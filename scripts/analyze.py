"""Raw results to aggregate.json and aggregate.csv; needs no engine and no GPU, on any machine. The same as ``connector-tax analyze``."""

from connector_tax.commands.analyze import COMMAND

if __name__ == "__main__":
    COMMAND.main()
