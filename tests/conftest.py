"""For all tests: what a user's machine remembers lies in a folder of the tests' own; public sets
are our own excerpts, and the real ones too where they are."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers.excerpts import EXCERPTS, SHARED, Source, named, sources, written
from tests.helpers.hub_client import Client, client
from tests.support.browsers import _no_browser_left  # noqa: F401 - for each test
from tests.support.compiled import pytest_collection  # noqa: F401 - a hook
from tests.support.exhaustive import first_of
from tests.support.later import pytest_collection_finish  # noqa: F401 - a hook
from tests.support.tree import keep_tree

if TYPE_CHECKING:
    from tests.helpers.typed import Typist

if "PYTEST_XDIST_WORKER" in os.environ:  # a core each: more threads would wait for one another
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# commands that tests start keep their bytecode, as an installed package's is kept; else each of
# them would compile all that it imports
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# a busy machine is slow, which is no fault of an example
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

keep_tree()
MANY = 100
gc.set_threshold(20_000, 20, 20)
_modules = 0


def pytest_report_header() -> str:
    """Say where rows of public sets come from."""
    if SHARED.is_dir():
        return f"public sets: excerpts of our own and what lies in {SHARED}"
    return f"public sets: excerpts of our own alone (no real rows at {SHARED})"


@pytest.hookimpl(trylast=True)  # of what is left after -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that hold slow tests: at the end of a run one worker would be at the
    demo for half a minute, and the others would wait."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ.setdefault("CONVBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session", autouse=True)
def _pocket_is_loaded_once() -> Iterator[None]:
    """Keep the questions of the embedded world for later tests: making them takes a third of a
    second, and the same seed gives the same ones."""
    from convbench.tasks import load

    real, made = load.find_function, dict[tuple[str, str], list[dict[str, Any]]]()

    def find_once(ref: str, *, downloaded: bool = False) -> Callable[..., Any]:
        make = real(ref, downloaded=downloaded)
        if not ref.startswith("convbench.pocket."):
            return make

        def rows(**given: Any) -> list[dict[str, Any]]:
            key = (ref, repr(given))
            if key not in made:
                made[key] = list(make(**given))
            return made[key]

        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "find_function", find_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def freeze() -> Iterator[Callable[[], None]]:
    """Python's own: a command that is typed in this process freezes nothing, for its own ends with
    it."""
    with pytest.MonkeyPatch.context() as patch:
        real = gc.freeze
        patch.setattr(gc, "freeze", lambda: None)
        yield real
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _frozen(freeze: Callable[[], None]) -> None:
    """Pass over what was imported when garbage is collected: a trainer collects all there is, and
    the modules of these tests are millions of objects, a second each time."""
    global _modules
    if len(sys.modules) > _modules + MANY:
        _modules = len(sys.modules)
        gc.collect()
        freeze()


@pytest.fixture(scope="session")
def hub_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A Hub of this machine with a client's process; the Hub is `hub_client.hub`."""
    with client(tmp_path_factory.mktemp("hf")) as made:
        yield made


@pytest.fixture
def hub(hub_client: Client) -> Iterator[Client]:
    """The client, without the faults and the log of other tests."""
    hub_client.hub.faults.clear()
    hub_client.hub.log.clear()
    yield hub_client
    hub_client.hub.faults.clear()


@pytest.fixture
def typist(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Typist:
    """A command line in a folder of its own."""
    from tests.helpers.typed import Typist

    monkeypatch.chdir(tmp_path)
    return Typist(capfd, monkeypatch)


@pytest.fixture(scope="session", params=first_of(sources("data/hub")), ids=named)
def hub_rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Source:
    """The question sets: a folder of `OWNER__NAME/CONFIG/SPLIT.parquet`."""
    if request.param:
        return Source(True, SHARED / "data" / "hub")
    return Source(False, written(EXCERPTS / "hub", tmp_path_factory.mktemp("hub_rows")))


@pytest.fixture(scope="session", params=sources("data/judges"), ids=named)
def judgments(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Stored judgments: `seal_grades.parquet` and `arena_sample.parquet`."""
    if request.param:
        return Source(True, SHARED / "data" / "judges")
    return Source(False, written(EXCERPTS / "judges", tmp_path_factory.mktemp("judgments")))


@pytest.fixture(scope="session", params=sources("paper/refit-swift.md"), ids=named)
def paper(request: pytest.FixtureRequest) -> Path:
    """The paper's pages: the prompts that the specs hold, as printed, or the whole."""
    return SHARED / "paper" / "refit-swift.md" if request.param else EXCERPTS / "paper.md"
