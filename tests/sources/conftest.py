"""A local Hub with a client's process, one for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sources.worker import Client, client


@pytest.fixture(scope="session")
def hub_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The client; its Hub is `hub_client.hub`."""
    with client(tmp_path_factory.mktemp("hf")) as made:
        yield made


@pytest.fixture
def hub(hub_client: Client) -> Iterator[Client]:
    """The client, without the faults and the log of other tests."""
    hub_client.hub.faults.clear()
    hub_client.hub.log.clear()
    yield hub_client
    hub_client.hub.faults.clear()
