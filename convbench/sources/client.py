"""The Hub's HTTP client: bounded, quiet, asked once before anything is loaded; its errors become
one line that says what to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from convbench.errors import ConvbenchError, HubError
from convbench.net.body import ACCEPTED, BadBody, BoundedBody, printable_origin
from convbench.net.httpx_guard import buffer_response

if TYPE_CHECKING:
    import httpx

OFFLINE_ADVICE = "unset HF_HUB_OFFLINE, or load it once while online so that it lies in the cache"


@contextmanager
def translate_errors(what: str, *, writing: bool = False, way_out: str = "") -> Iterator[None]:
    """Turn exceptions of huggingface_hub, datasets and httpx inside into a HubError about `what`.

    `what` names the repository as a user does, e.g. `dataset allenai/ai2_arc`. `writing` makes the
    advice ask for write access. `way_out` is appended if the Hub cannot be reached. ConvbenchError
    and exceptions of any other origin pass unchanged.
    """
    try:
        yield
    except ConvbenchError:
        raise
    except Exception as error:
        line = _error_line(error, what, writing, way_out)
        if line is None:
            raise
        raise HubError(f"{what}: {line}") from error


def _error_line(error: BaseException, what: str, writing: bool, way_out: str) -> str | None:
    """Return one line for the first known error from the outside in, or None if none is known.

    The Hub's own errors are looked for first, then those of the network and of datasets.
    """
    chain = list(error_chain(error))
    if any(isinstance(cause, MemoryError) for cause in chain):
        return "its rows need more memory than a question set may use"
    for cause in chain:
        line = _hub_line(cause, what, writing)
        if line:
            return line
    for cause in chain:
        line = _network_line(cause, way_out) or _datasets_line(cause)
        if line:
            return line
    return None


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then its cause or else its context, and so on; each error once, the deepest
    last."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__


def _hub_line(error: BaseException, what: str, writing: bool) -> str | None:
    """Return one line for the Hub's own errors, by error class and HTTP status, or None."""
    from huggingface_hub import errors

    name = what.split()[-1]
    if isinstance(error, errors.OfflineModeIsEnabled):
        return f"offline mode is on and it is not in the cache; {OFFLINE_ADVICE}"
    if isinstance(error, errors.GatedRepoError):
        return (
            f"it is gated; accept the terms at {hub_endpoint()}/{_hub_page(what)} and set "
            "HF_TOKEN to a "
            "token of that account"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return "it has no such revision; expected a branch, tag or commit of it"
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"found no such repository on {hub_endpoint()}, or one that this token may not see; "
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
    """Return one line for an HTTP status."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    reason = first_line(getattr(error, "server_message", None) or error)
    if status == 401:
        return f"the Hub asks for a token (401: {reason}); set HF_TOKEN, or run: hf auth login"
    if status == 403:
        right = "a token with write access to that name" if writing else "a token with access"
        return f"the Hub refuses (403: {reason}); set HF_TOKEN to {right}"
    if status == 409:
        return f"the Hub reports a conflict (409: {reason}); choose another name or try again"
    if status == 429:
        return "the Hub limits the rate of requests (429); run the command again in a few minutes"
    if status is not None and status >= 500:
        return f"the Hub has a server error ({status}); run the command again later"
    return f"the Hub answers {status}: {reason}"


def _network_line(error: BaseException, way_out: str) -> str | None:
    """Return one line for an error of the network, or None."""
    import httpx
    from huggingface_hub import errors

    if isinstance(error, httpx.TimeoutException):
        return (
            f"{hub_endpoint()} did not answer in time; check the network and HF_ENDPOINT{way_out}"
        )
    if isinstance(error, httpx.TransportError | ConnectionError):
        return (
            f"cannot reach {hub_endpoint()} ({first_line(error)}); check the network and "
            "HF_ENDPOINT"
            f"{way_out}"
        )
    if isinstance(error, errors.LocalEntryNotFoundError):
        return f"not in the cache, and {hub_endpoint()} cannot be reached; {OFFLINE_ADVICE}"
    if isinstance(error, errors.EntryNotFoundError):
        return f"a file is missing: {first_line(error)}"
    return None


def _datasets_line(error: BaseException) -> str | None:
    """Return one line for an error of the datasets library, or None."""
    import pyarrow
    from datasets import exceptions

    if isinstance(error, exceptions.DataFilesNotFoundError):
        return "it holds no data file that can be read; expected parquet, JSON lines or CSV"
    if isinstance(error, exceptions.DatasetNotFoundError):
        return f"found no such dataset on {hub_endpoint()}, or one that this token may not see"
    if isinstance(error, exceptions.DatasetsError | pyarrow.ArrowException):
        return f"its data cannot be read: {first_line(error)}"
    if isinstance(error, RuntimeError) and "script" in str(error):
        return (
            "it is made by a loading script, which is not supported; use a local copy: "
            "--set task.source.hub=null --set task.source.file=PATH"
        )
    return None


def _hub_page(what: str) -> str:
    kind, _, name = what.rpartition(" ")
    return f"datasets/{name}" if kind == "dataset" else name


def hub_endpoint() -> str:
    """Return the address of the Hub in use, `https://huggingface.co` unless HF_ENDPOINT names
    another."""
    from huggingface_hub import constants

    return constants.ENDPOINT


def first_line(error: object, limit: int = 200) -> str:
    """Return the first line of an error's text that is not blank, stripped; the class's name if
    none is.

    It is cut at `limit` characters, and full stops at its end are removed.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:limit].rstrip(".")


PUBLIC_HUB = "https://huggingface.co"


def prepare_environment() -> None:
    """Set environment variables that the clients read when they are imported, unless they are set.

    HF_HUB_DISABLE_TELEMETRY becomes 1. If HF_ENDPOINT names another Hub than the public one,
    HF_HUB_DISABLE_XET becomes 1 too: such Hubs mostly lack the Xet endpoints, and the client would
    ask for them again and again for minutes.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if os.environ.get("HF_ENDPOINT", PUBLIC_HUB).rstrip("/") != PUBLIC_HUB:
        os.environ.setdefault("HF_HUB_DISABLE_XET", "1")


@contextmanager
def quiet_clients() -> Iterator[None]:
    """Turn off the progress bars and warnings of datasets and huggingface_hub inside; restore them
    after.

    It also sets the variables of `prepare_environment` and installs the bounded client, both for
    the rest of the process.
    """
    prepare_environment()
    import datasets
    from datasets.utils import logging as datasets_logging
    from huggingface_hub.utils import logging as hub_logging
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    hub_off, datasets_off = are_progress_bars_disabled(), datasets.are_progress_bars_disabled()
    install_bounded_client()
    level, hub_level = datasets_logging.get_verbosity(), hub_logging.get_verbosity()
    disable_progress_bars()
    datasets.disable_progress_bars()
    datasets_logging.set_verbosity_error()
    hub_logging.set_verbosity(40)  # logging.ERROR
    try:
        yield
    finally:
        datasets_logging.set_verbosity(level)
        hub_logging.set_verbosity(hub_level)
        if not hub_off:
            enable_progress_bars()
        if not datasets_off:
            datasets.enable_progress_bars()


HUB_BYTES = 128 << 20
"""Most bytes, decompressed, of a Hub response that is not written to a file."""
REDIRECTS = 10
"""Most redirects of one request."""


@lru_cache(maxsize=1)
def install_bounded_client() -> None:
    """Make huggingface_hub read responses into memory only up to a bound from now on.

    Beyond 128 MiB, decompressed, a request raises HubError. Responses that the caller streams, such
    as downloads to files, are not bounded. The client's or the caller's own hooks, timeout and
    redirect setting are kept. Further calls do nothing.
    """
    import httpx
    from huggingface_hub import get_session, set_client_factory

    class BoundedClient(httpx.Client):
        """httpx's client with bounded responses."""

        def send(self, request: httpx.Request, **more: Any) -> httpx.Response:
            return send_bounded(super().send, request, self.follow_redirects, **more)

    usual = get_session()  # with the client's own settings, or the caller's
    set_client_factory(
        lambda: BoundedClient(
            event_hooks=usual.event_hooks,
            timeout=usual.timeout,
            follow_redirects=usual.follow_redirects,
        )
    )


def send_bounded(send: Any, request: httpx.Request, usually: bool, **more: Any) -> httpx.Response:
    """Return the response to a request sent by `send`, after redirects whose bodies are not read.

    A response that the caller streams is returned unread; any other is read into memory, at most
    128 MiB decompressed. `usually` says whether redirects are followed if the caller does not.
    Raise HubError for a longer response or more than 10 redirects.
    """
    stream = more.pop("stream", False) or request.method == "HEAD"
    follow = more.pop("follow_redirects", usually)
    if not stream:
        request.headers["accept-encoding"] = ACCEPTED
    for _ in range(REDIRECTS + 1):
        response = send(request, stream=True, follow_redirects=False, **more)
        if response.next_request is None or not (follow if isinstance(follow, bool) else usually):
            return _read_response(request, response, stream)
        response.close()
        request = response.next_request
    raise HubError(f"{printable_origin(str(request.url))}: more than {REDIRECTS} redirects")


def _read_response(
    request: httpx.Request, response: httpx.Response, stream: bool
) -> httpx.Response:
    """Return the response, read into memory unless the caller streams it. Raises HubError if it is
    too long."""
    if stream:
        if request.method == "HEAD":
            response.read()
        return response
    try:
        body = BoundedBody(response.headers.get("content-encoding"), HUB_BYTES)
        for chunk in response.iter_raw():
            body.feed(chunk)
    except BadBody as error:
        raise HubError(f"{printable_origin(str(response.url))}: {error}") from None
    finally:
        response.close()
    return buffer_response(response, body.collected_bytes())


TIMEOUT = 20.0
"""Seconds to wait for the Hub's first answer."""


@dataclass(frozen=True)
class DatasetStatus:
    """What the Hub says about a dataset."""

    commit: str | None = None
    """The commit its revision resolves to."""
    refused: Exception | None = None
    """Error of the Hub, if it answered and refused."""
    unreachable: Exception | None = None
    """Error of the network, if nobody answered or offline mode is on: only the cache can be
    read."""


def dataset_status(repo: str, revision: str | None) -> DatasetStatus:
    """Ask the Hub about a dataset at a revision; return exactly one of commit, `refused`,
    `unreachable`.

    For a gated dataset it is also asked whether this token may read the files. Errors of the Hub
    and the network are returned in the status, not raised.
    """
    import httpx
    from huggingface_hub import HfApi, errors

    api = HfApi()
    try:
        info = api.dataset_info(repo, revision=revision, timeout=TIMEOUT)
        if info.gated:
            api.auth_check(repo, repo_type="dataset")
    except (errors.HfHubHTTPError, errors.HFValidationError) as error:
        return DatasetStatus(refused=error)
    except (httpx.TransportError, ConnectionError) as error:  # offline mode is one of the latter
        return DatasetStatus(unreachable=error)
    return DatasetStatus(commit=info.sha)


@contextmanager
def offline_mode(yes: bool) -> Iterator[None]:
    """Make the clients use only their caches inside if `yes`; restore their mode afterwards.

    With `yes` False the mode stays as it is, offline included.
    """
    import datasets.config
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    if yes:
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


@lru_cache
def model_exists(model: str) -> bool:
    """Return True if the Hub answers that it has this model.

    Return False for an invalid name, a refusal, no answer and offline mode. The answer is kept for
    the process: the clients would ask five times for every file if nobody answers. The bounded
    client is installed for all later requests.
    """
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    install_bounded_client()  # also bounds all later requests
    try:
        HfApi().model_info(model, timeout=TIMEOUT)
    except (HfHubHTTPError, HFValidationError, httpx.TransportError, OSError):
        return False
    return True
