"""The embedded engine: an OpenAI-compatible server with vLLM's command line and configurable costs."""
