"""What the real clients do with the local Hub; each check runs in a process of its own.

``python -m tests.support.hub_client_checks NAME`` with `HubServer.client_env` in the environment:
the clients read HF_ENDPOINT at import, so they cannot be pointed at a server started later.
`hub_files` and `datasets_online` need a write token of "alice"; `offline` follows the latter.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

QUIZ = "org/quiz"
"""Public, configs "easy" and "hard"."""
PRIVATE = "alice/private"
GATED = "org/gated"


def raises(error: type[Exception], call: Callable[[], object], status: int | None = None) -> None:
    """Check that `call` raises `error`, with the HTTP `status` if one is given."""
    try:
        result = call()
    except error as refusal:
        found: Any = refusal
    else:
        raise AssertionError(f"expected {error.__name__}, got {result!r}")
    if status is not None and found.response.status_code != status:
        raise AssertionError(f"expected {status}, got {found}")


def set_fault(**fault: object) -> None:
    """Ask the Hub for a fault."""
    body = json.dumps(fault).encode()
    request = urllib.request.Request(os.environ["HF_ENDPOINT"] + "/_fault", body)
    urllib.request.urlopen(request).close()


def hub_files() -> None:
    """huggingface_hub: repositories, uploads, history, tags, downloads, refusals."""
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    api, nobody, bob = HfApi(), HfApi(token=False), HfApi(token="hf_bob")
    assert api.whoami()["name"] == "alice"
    raises(HfHubHTTPError, HfApi(token="hf_wrong").whoami, 401)
    raises(RepositoryNotFoundError, lambda: api.dataset_info("org/none"), 404)
    raises(RepositoryNotFoundError, lambda: nobody.dataset_info(PRIVATE), 401)
    raises(RepositoryNotFoundError, lambda: bob.dataset_info(PRIVATE), 404)
    raises(RevisionNotFoundError, lambda: api.dataset_info(QUIZ, revision="v9"), 404)
    assert api.dataset_info(PRIVATE).private

    def gated(token: str | bool | None) -> str:
        return hf_hub_download(GATED, "README.md", repo_type="dataset", token=token)

    raises(GatedRepoError, lambda: gated(False), 401)
    raises(GatedRepoError, lambda: gated(None), 403)
    assert Path(gated("hf_bob")).read_text().startswith("---")

    name: dict[str, Any] = {"repo_id": "alice/made", "repo_type": "dataset"}
    raises(HfHubHTTPError, lambda: nobody.create_repo(**name), 401)
    assert api.create_repo(**name).repo_id == "alice/made"
    raises(HfHubHTTPError, lambda: api.create_repo(**name), 409)
    api.create_repo(**name, exist_ok=True)
    raises(HfHubHTTPError, lambda: bob.create_repo("alice/x", repo_type="dataset"), 403)
    raises(
        HfHubHTTPError,
        lambda: bob.upload_file(path_or_fileobj=b"x", path_in_repo="x.txt", **name),
        403,
    )
    with TemporaryDirectory() as folder:
        _commits(api, Path(folder), name)
    raises(EntryNotFoundError, lambda: hf_hub_download(**name, filename="none.txt"), 404)
    snapshot = Path(snapshot_download(**name))
    assert (snapshot / "data" / "big.parquet").read_bytes() == b"PAR1" * 1000
    assert (snapshot / "run.json").read_text() == '{"n": 2}'

    api.create_repo("alice/model")
    api.upload_file(
        path_or_fileobj=b"\0" * 5000, path_in_repo="model.safetensors", repo_id="alice/model"
    )
    assert Path(hf_hub_download("alice/model", "model.safetensors")).stat().st_size == 5000


def _commits(api: Any, folder: Path, name: dict[str, Any]) -> None:
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    (folder / "data").mkdir()
    (folder / "data" / "big.parquet").write_bytes(b"PAR1" * 1000)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Made\n")
    (folder / "run.json").write_text('{"n": 1}')
    (folder / "empty.txt").touch()

    def upload(**options: Any) -> Any:
        return api.upload_folder(folder_path=folder, **name, **options)

    set_fault(method="POST", path="/commit/main", status=503)
    raises(HfHubHTTPError, upload, 503)
    assert api.list_repo_files(**name) == [".gitattributes"]
    set_fault(method="POST", path="/commit/main", status=502, after=True)
    raises(HfHubHTTPError, upload, 502)
    assert len(api.list_repo_commits(**name)) == 2, "the failed reply's commit was not made"
    first = upload()
    assert len(api.list_repo_commits(**name)) == 2, "the lost reply's commit was made twice"
    (folder / "run.json").write_text('{"n": 2}')
    (folder / "empty.txt").unlink()
    second = upload(delete_patterns="*.txt", parent_commit=first.oid)
    raises(
        HfHubHTTPError,
        lambda: upload(
            commit_message="x",
            delete_patterns="*.json",
            ignore_patterns="*",
            parent_commit=first.oid,
        ),
        412,
    )
    assert first.oid != second.oid == api.dataset_info(name["repo_id"]).sha
    assert sorted(api.list_repo_files(**name))[1:] == ["README.md", "data/big.parquet", "run.json"]
    raises(EntryNotFoundError, lambda: api.delete_file("none.txt", **name), 404)
    raises(
        ValueError,
        lambda: api.upload_file(
            path_or_fileobj=b"---\nlicense: my own\n---\n", path_in_repo="README.md", **name
        ),
    )
    api.create_tag(**name, tag="v1", revision=first.oid)
    raises(HfHubHTTPError, lambda: api.create_tag(**name, tag="v1"), 409)
    assert [tag.target_commit for tag in api.list_repo_refs(**name).tags] == [first.oid]
    assert "empty.txt" in api.list_repo_files(**name, revision="v1")


def datasets_online() -> None:
    """datasets: several configs, streaming, private, push of two configs through faults."""
    from datasets import Dataset, get_dataset_config_names, load_dataset
    from datasets.exceptions import DatasetNotFoundError

    raises(DatasetNotFoundError, lambda: load_dataset(PRIVATE, token=False))
    raises(DatasetNotFoundError, lambda: load_dataset(GATED))
    raises(DatasetNotFoundError, lambda: load_dataset("org/none"))
    assert load_dataset(PRIVATE, split="train")["n"] == [1, 2]
    assert get_dataset_config_names(QUIZ) == ["easy", "hard"]
    assert {k: v.num_rows for k, v in load_dataset(QUIZ, "easy").items()} == {"test": 1, "train": 3}
    raises(ValueError, lambda: load_dataset(QUIZ))
    streamed = load_dataset(QUIZ, "hard", split="train", streaming=True)
    assert [row["id"] for row in streamed.take(2)] == ["h0", "h1"]

    talk = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    conversations = Dataset.from_list([{"id": i, "messages": talk} for i in range(4)])
    set_fault(method="PUT", path="/_lfs/", drop=True)
    conversations.push_to_hub("alice/pushed", "conversations", private=True, set_default=True)
    Dataset.from_list([{"id": 1, "text": "t"}]).push_to_hub("alice/pushed", "turns", split="test")
    assert load_dataset("alice/pushed", split="train")["messages"][3] == talk
    assert load_dataset("alice/pushed", "turns")["test"].num_rows == 1


def offline() -> None:
    """After `datasets_online`, with HF_HUB_OFFLINE=1 and no server: the caches answer."""
    from datasets import load_dataset
    from huggingface_hub import hf_hub_download

    assert load_dataset(QUIZ, "easy")["train"].num_rows == 3
    assert Path(hf_hub_download(QUIZ, "README.md", repo_type="dataset")).exists()


if __name__ == "__main__":
    {check.__name__: check for check in (hub_files, datasets_online, offline)}[sys.argv[1]]()
