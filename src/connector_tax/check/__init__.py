"""Checks one connector against plain vLLM on a virtual GPU: does it start, what does it switch, what does it
cost?
"""
