"""A model provider in a process of its own, shared by a module's tests."""

from tests.helpers.served import provider, served

__all__ = ["provider", "served"]
