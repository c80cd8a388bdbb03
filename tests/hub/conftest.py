"""The Hub of tests/hub, for the tests of publish and pull."""

from tests.sources.conftest import hub, hub_client

__all__ = ["hub", "hub_client"]
