"""One real EngineCore on a virtual clock: its thread's CPU time, plus jumps.

Imported by an engine alone, which ``connector_tax.virtual_time`` starts. ``clock.py`` is the time,
``needed.py`` what this asks of a vLLM release, ``engine.py`` starts the engine and answers the pipeline,
``cell.py`` sends requests and steps. The device is ``virtual_gpu``'s.
"""
