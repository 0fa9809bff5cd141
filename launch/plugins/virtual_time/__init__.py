"""One real EngineCore on a virtual clock: its thread's CPU time, plus jumps.

Only an engine started by ``connector_tax.virtual_time`` imports it. ``clock.py`` is the time, ``needed.py``
lists what this uses of vLLM, ``engine.py`` starts the engine and answers the pipeline, ``cell.py`` sends
requests and steps. The device is ``virtual_gpu``'s.
"""
