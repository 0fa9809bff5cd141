"""Check that the engine's vLLM holds nothing of this project. The same as ``connector-tax revert-patch``."""

from connector_tax.commands.revert_patch import COMMAND

if __name__ == "__main__":
    COMMAND.main()
