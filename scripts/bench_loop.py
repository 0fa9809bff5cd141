"""Load any OpenAI-compatible server: one cell per rate, or per shape. The same as ``connector-tax load``."""

from connector_tax.commands.load import COMMAND

if __name__ == "__main__":
    COMMAND.main()
