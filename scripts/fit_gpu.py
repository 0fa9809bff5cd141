"""Step records of plain vLLM on a GPU to a profile for the virtual GPU, with residuals. The same as ``connector-tax fit-gpu``."""

from connector_tax.commands.fit_gpu import COMMAND

if __name__ == "__main__":
    COMMAND.main()
