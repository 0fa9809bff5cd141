"""The documents under ``results/``, one module each: their types, reading and writing."""
