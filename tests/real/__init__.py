"""Tried where a real model was fetched: `make real`."""
