"""Stands in for vLLM, whose own environment no test can have."""
