"""What a connector does to vLLM on a virtual GPU, in minutes. The same as ``connector-tax check``."""

from connector_tax.commands.check import COMMAND

if __name__ == "__main__":
    COMMAND.main()
