"""The Hub of tests/hub, for sets that strangers put there."""

from tests.sources.conftest import hub, hub_client

__all__ = ["hub", "hub_client"]
