"""The Hub: its clients without their bars and warnings, their errors in one line that says what to
do, and the files of its datasets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from convbench.errors import ConvbenchError, HubError
from convbench.util.cache import cache_folder

HUB = "hf://"
TIMEOUT = 20.0
"""Seconds to wait for the Hub's first answer."""
OFFLINE_ADVICE = "unset HF_HUB_OFFLINE, or load it once while online so that it lies in the cache"
LOCAL_COPY = ", or use a local copy: --set task.source.hub=null --set task.source.file=PATH"
STATUS = {
    401: "the Hub asks for a token (401: {reason}); set HF_TOKEN, or run: hf auth login",
    403: "the Hub refuses (403: {reason}); set HF_TOKEN to a token with {access}",
    409: "the Hub reports a conflict (409: {reason}); choose another name or try again",
    429: "the Hub limits the rate of requests (429); run the command again in a few minutes",
}


@contextmanager
def translate_errors(what: str, *, writing: bool = False, way_out: str = "") -> Iterator[None]:
    """Turn exceptions of huggingface_hub and httpx inside into a HubError about `what`.

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


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then its cause or else its context, and so on, each once."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__


def _error_line(error: BaseException, what: str, writing: bool, way_out: str) -> str | None:
    """Return the line for the first known error from the outside in, the Hub's own before those of
    the network; None if none is known."""
    import httpx
    from huggingface_hub import errors

    hub, name = hub_endpoint(), what.split()[-1]
    page = f"{hub}/datasets/{name}" if what.startswith("dataset ") else f"{hub}/{name}"
    own = {
        errors.OfflineModeIsEnabled: f"offline mode is on and it is not in the cache; "
        f"{OFFLINE_ADVICE}",
        errors.GatedRepoError: f"it is gated; accept the terms at {page} and set HF_TOKEN to a "
        "token of that account",
        errors.RevisionNotFoundError: "it has no such revision; expected a branch, tag or commit",
        errors.RepositoryNotFoundError: f"found no such repository on {hub}, or one that this "
        f"token may not see; check the name {name!r} and HF_TOKEN",
        errors.HFValidationError: "not a repository id: {reason}; expected OWNER/NAME",
        errors.LocalTokenNotFoundError: "no token; set HF_TOKEN, or run: hf auth login",
    }
    network = {
        httpx.TimeoutException: f"{hub} did not answer in time; check the network and "
        f"HF_ENDPOINT{way_out}",
        httpx.TransportError: f"cannot reach {hub} ({{reason}}); check the network and "
        f"HF_ENDPOINT{way_out}",
        errors.LocalEntryNotFoundError: f"not in the cache, and {hub} cannot be reached; "
        f"{OFFLINE_ADVICE}",
        errors.EntryNotFoundError: "a file is missing: {reason}",
    }
    for lines in (own, network):
        for cause in error_chain(error):
            line = next((text for kind, text in lines.items() if isinstance(cause, kind)), None)
            if line is not None:
                return line.format(reason=first_line(cause))
            if lines is own and isinstance(cause, errors.HfHubHTTPError):
                return _status_line(cause, writing)
    return None


def _status_line(error: BaseException, writing: bool) -> str:
    status = getattr(getattr(error, "response", None), "status_code", 0)
    reason = first_line(getattr(error, "server_message", None) or error)
    if status >= 500:
        return f"the Hub has a server error ({status}); run the command again later"
    access = "write access to that name" if writing else "access"
    line = STATUS.get(status, "the Hub answers {status}: {reason}")
    return line.format(status=status, reason=reason, access=access)


def hub_endpoint() -> str:
    """Return the address of the Hub in use, `https://huggingface.co` unless HF_ENDPOINT names
    another."""
    from huggingface_hub import constants

    return constants.ENDPOINT


def first_line(error: object, limit: int = 200) -> str:
    """Return the first line of an error's text that is not blank, at most `limit` characters
    without full stops at its end; the class's name if none is."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:limit].rstrip(".")


@contextmanager
def quiet_clients() -> Iterator[None]:
    """Turn off the progress bars and warnings of huggingface_hub inside; restore them after."""
    from huggingface_hub.utils import logging
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    were_off, level = are_progress_bars_disabled(), logging.get_verbosity()
    disable_progress_bars()
    logging.set_verbosity(40)  # logging.ERROR
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if not were_off:
            enable_progress_bars()


def model_exists(model: str) -> bool:
    """Return True if the Hub answers that it has this model; False for an invalid name, a refusal,
    no answer and offline mode."""
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        HfApi().model_info(model, timeout=TIMEOUT)
    except (HfHubHTTPError, HFValidationError, httpx.TransportError, OSError):
        return False
    return True


def dataset_files(
    repo: str, config: str | None, splits: Collection[str], revision: str | None
) -> tuple[dict[str, list[tuple[str, Path]]], str]:
    """Return ((path in the dataset, local path) of each file by its split, of all without any
    named; the commit), downloaded unless they are in the cache, which stands in where the Hub
    cannot be reached.

    Raise HubError if the Hub refuses, or for an unknown config or split.
    """
    what = f"dataset {repo}"
    with quiet_clients(), translate_errors(what, way_out=LOCAL_COPY):
        from huggingface_hub import hf_hub_download

        commit, parts, is_online = _data_files(repo, config, revision)
        missing = [name for name in splits if name not in parts]
        if missing:
            raise HubError(
                f"{what}: found no split {missing[0]!r}; there is: {', '.join(parts)}; name one: "
                f"{HUB}{repo}/{next(iter(parts))}, or --set task.source.splits=[NAME]"
            )

        def fetch(inside: str) -> tuple[str, Path]:
            path = hf_hub_download(
                repo,
                inside,
                repo_type="dataset",
                revision=commit,
                local_files_only=not is_online,
            )
            return inside, Path(path)

        return {name: [fetch(inside) for inside in parts[name]] for name in splits or parts}, commit


def _data_files(
    repo: str, config: str | None, revision: str | None
) -> tuple[str, dict[str, list[str]], bool]:
    """Return (a dataset's commit, its files by split, whether the Hub was reached): what the Hub
    says is noted, and read where it cannot be reached."""
    import httpx
    from huggingface_hub import HfApi

    key = hashlib.sha256(repr((repo, config, revision)).encode()).hexdigest()
    note = cache_folder("hub") / f"{key}.json"
    try:
        info = HfApi().dataset_info(repo, revision=revision, timeout=TIMEOUT)
    except (httpx.TransportError, ConnectionError):  # offline mode is one of the latter
        if not note.exists():
            raise
        commit, parts = json.loads(note.read_text())
        return commit, parts, False
    if info.gated:
        HfApi().auth_check(repo, repo_type="dataset")
    commit = str(info.sha)
    parts = _listed_files(repo, config, commit)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps([commit, parts]))
    return commit, parts, True


def _listed_files(repo: str, config: str | None, commit: str) -> dict[str, list[str]]:
    """Return a dataset's files by split, as `datasets` finds them."""
    import datasets

    datasets.disable_progress_bars()
    try:
        builder = datasets.load_dataset_builder(repo, name=config, revision=commit)
    except (ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        if any(isinstance(cause, OSError) and cause is not error for cause in error_chain(error)):
            raise  # the Hub's own reason
        if not isinstance(error, ValueError):
            raise HubError(f"dataset {repo}: cannot be read: {first_line(error)}") from None
        names = datasets.get_dataset_config_names(repo, revision=commit)
        found = "no config" if config is None else f"config {config!r} not"
        raise HubError(
            f"dataset {repo}: {found} found among {', '.join(names)}; name one: "
            f"{HUB}{repo}:{names[0]}, or --set task.source.config={names[0]}"
        ) from None
    parts = (builder.config.data_files or {}).items()
    return {str(name): [str(p).partition(f"@{commit}/")[2] for p in paths] for name, paths in parts}
