"""Tried where there is a GPU: `make gpu`."""
