"""What switching on a KV connector costs a vLLM server, before a block is transferred."""

__version__ = "0.1.0"
