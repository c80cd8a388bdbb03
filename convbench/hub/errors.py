"""What the Hub's clients raise, said in one line with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from convbench.errors import ConvbenchError, HubError

OFFLINE = "unset HF_HUB_OFFLINE, or load it once while online so that it lies in the cache"


@contextmanager
def translating(what: str, *, writing: bool = False, way_out: str = "") -> Iterator[None]:
    """Turn what huggingface_hub, datasets and httpx raise into a HubError about `what`.

    `what` names the repository as a user does, e.g. `dataset allenai/ai2_arc`; `way_out` is what
    else can be done where the Hub cannot be reached.
    """
    try:
        yield
    except ConvbenchError:
        raise
    except Exception as error:
        line = _line(error, what, writing, way_out)
        if line is None:
            raise
        raise HubError(f"{what}: {line}") from error


def _line(error: BaseException, what: str, writing: bool, way_out: str) -> str | None:
    """One line for the deepest cause that is known; None for an error that is not the Hub's."""
    chain = list(causes(error))
    if any(isinstance(cause, MemoryError) for cause in chain):
        return "its rows take more memory than those of a question set may"
    for cause in chain:
        line = _hub_line(cause, what, writing)
        if line:
            return line
    for cause in chain:
        line = _network_line(cause, way_out) or _datasets_line(cause)
        if line:
            return line
    return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and everything it came from, deepest last."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__


def _hub_line(error: BaseException, what: str, writing: bool) -> str | None:
    """What the Hub itself said, by its error class and HTTP status."""
    from huggingface_hub import errors

    name = what.split()[-1]
    if isinstance(error, errors.OfflineModeIsEnabled):
        return f"offline mode is on and it is not in the cache; {OFFLINE}"
    if isinstance(error, errors.GatedRepoError):
        return (
            f"it is gated; accept the terms at {endpoint()}/{_page(what)} and set HF_TOKEN to a "
            "token of that account"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return "it has no such revision; expected a branch, tag or commit of it"
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"found no such repository on {endpoint()}, or one that this token may not see; "
            f"check the name {name!r} and HF_TOKEN"
        )
    if isinstance(error, errors.HFValidationError):
        return f"not a repository id: {first_line(error)}; expected OWNER/NAME"
    if isinstance(error, errors.LocalTokenNotFoundError):
        return "no token; set HF_TOKEN, or run: hf auth login"
    if isinstance(error, errors.HfHubHTTPError):
        return _status_line(error, writing)
    return None


def _status_line(error: BaseException, writing: bool) -> str:
    """One line for an HTTP status."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    said = first_line(getattr(error, "server_message", None) or error)
    if status == 401:
        return f"the Hub asks for a token (401: {said}); set HF_TOKEN, or run: hf auth login"
    if status == 403:
        right = "a token with write access to that name" if writing else "a token with access"
        return f"the Hub refuses (403: {said}); set HF_TOKEN to {right}"
    if status == 409:
        return f"the Hub finds a conflict (409: {said}); choose another name or try again"
    if status == 429:
        return "the Hub limits the rate (429); wait some minutes, then give the command again"
    if status is not None and status >= 500:
        return f"the Hub has a fault of its own ({status}); give the command again later"
    return f"the Hub answers {status}: {said}"


def _network_line(error: BaseException, way_out: str) -> str | None:
    """One line where nobody answered."""
    import httpx
    from huggingface_hub import errors

    if isinstance(error, httpx.TimeoutException):
        return f"{endpoint()} does not answer in time; check the network and HF_ENDPOINT{way_out}"
    if isinstance(error, httpx.TransportError | ConnectionError):
        return (
            f"cannot reach {endpoint()} ({first_line(error)}); check the network and HF_ENDPOINT"
            f"{way_out}"
        )
    if isinstance(error, errors.LocalEntryNotFoundError):
        return f"not in the cache, and {endpoint()} cannot be reached; {OFFLINE}"
    if isinstance(error, errors.EntryNotFoundError):
        return f"a file is missing: {first_line(error)}"
    return None


def _datasets_line(error: BaseException) -> str | None:
    """One line for what the datasets library finds wrong."""
    import pyarrow
    from datasets import exceptions

    if isinstance(error, exceptions.DataFilesNotFoundError):
        return "it holds no data file that can be read; expected parquet, JSON lines or CSV"
    if isinstance(error, exceptions.DatasetNotFoundError):
        return f"found no such dataset on {endpoint()}, or one that this token may not see"
    if isinstance(error, exceptions.DatasetsError | pyarrow.ArrowException):
        return f"its data cannot be read: {first_line(error)}"
    if isinstance(error, RuntimeError) and "script" in str(error):
        return (
            "it is made by a loading script, which is not supported; use a local copy: "
            "--set task.source.hub=null --set task.source.file=PATH"
        )
    return None


def _page(what: str) -> str:
    kind, _, name = what.rpartition(" ")
    return f"datasets/{name}" if kind == "dataset" else name


def endpoint() -> str:
    """Address of the Hub in use."""
    from huggingface_hub import constants

    return constants.ENDPOINT


def first_line(error: object, limit: int = 200) -> str:
    """The first line of an error's text that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:limit].rstrip(".")
