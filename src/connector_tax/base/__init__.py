"""What both wings stand on: files, clocks, records, config, plan, statistics, a model of vLLM. Nothing here
measures or judges."""
