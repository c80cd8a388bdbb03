"""A Hugging Face Hub on 127.0.0.1 that the real `huggingface_hub` and `datasets` clients speak to.

In process::

    with HubServer({"hf_alice": "alice"}) as hub:
        hub.add_dataset("allenai/ai2_arc", folder)        # <config>/<split>.parquet
        subprocess.run([...], env=os.environ | hub.client_env(home, token="hf_alice"))

As a process: ``python -m tests.support.hub_server --token hf_alice=alice --data-root FOLDER``.

The clients read HF_ENDPOINT when they are imported: set `client_env` before, or in a subprocess.
``GET /_log``, ``POST /_fault`` (JSON, the fields of `Fault`) and ``POST /_reset`` (log and faults)
serve tests from another process. Everything is in memory.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiohttp import web

from .hub.access import Account, Ask, HubError, Store
from .hub.faults import Fault, Logged
from .hub.preload import Rows, folder_files, row_files
from .hub.routes import find
from .hub.store import Repo, file_for, new_repo
from .serve import LocalServer, add_process_options, drop, json_reply, run_process

__all__ = ["Account", "Fault", "HubServer", "Logged", "Repo", "Rows"]


class HubServer(LocalServer):
    """The server. `tokens` maps a token to its user's name or to an `Account`."""

    def __init__(self, tokens: Mapping[str, str | Account] | None = None, *, port: int = 0) -> None:
        super().__init__(port=port)
        self.store = Store()
        for token, owner in (tokens or {}).items():
            self.store.accounts[token] = Account(owner) if isinstance(owner, str) else owner
        self.log: list[Logged] = []
        self.faults: list[Fault] = []

    def repo(self, repo_id: str, kind: str = "dataset") -> Repo:
        """A repository, to look at or to change. Raises KeyError."""
        return self.store.repos[kind, repo_id]

    def fail(self, method: str, path: str, **fault: Any) -> Fault:
        """Fail matching requests; see `Fault` for the fields. Returns it, to see its count."""
        self.faults.append(Fault(method, path, **fault))
        return self.faults[-1]

    def add_repo(
        self,
        repo_id: str,
        files: Mapping[str, bytes],
        *,
        kind: str = "dataset",
        private: bool = False,
        gated: bool = False,
        granted: tuple[str, ...] = (),
    ) -> Repo:
        """Put a repository on the Hub; `granted` users may read a gated one."""
        repo = new_repo(kind, repo_id, private=private)
        repo.gated, repo.granted = gated, set(granted)
        added = {path: file_for(path, data) for path, data in files.items()}
        repo.commit({**repo.head.files, **added}, "Add files")
        self.store.repos[kind, repo_id] = repo
        return repo

    def add_dataset(
        self, repo_id: str, folder: Path, *, license_id: str | None = None, **access: Any
    ) -> Repo:
        """Put a folder of `<config>/<split>.parquet` on the Hub, with a README listing them.

        `access` are the options of `add_repo`. A README.md in the folder is kept as it is.
        """
        return self.add_repo(repo_id, folder_files(folder, license_id), **access)

    def add_rows(
        self, repo_id: str, rows: Rows, *, license_id: str | None = None, **access: Any
    ) -> Repo:
        """Put rows (config -> split -> rows) on the Hub as parquet, with a README listing them."""
        return self.add_repo(repo_id, row_files(rows, license_id), **access)

    def add_data_root(self, root: Path) -> list[str]:
        """Put every folder `<org>__<name>` of `root` on the Hub; the ids."""
        folders = [p for p in sorted(root.iterdir()) if p.is_dir() and "__" in p.name]
        for folder in folders:
            self.add_dataset(folder.name.replace("__", "/"), folder)
        return [folder.name.replace("__", "/") for folder in folders]

    def client_env(self, home: Path, token: str | None = None) -> dict[str, str]:
        """Environment for the clients of a subprocess: this Hub, caches under `home`, no network.

        Without `token` it sets an empty one, so that none of the machine's is used.
        """
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_TOKEN": token or "",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request, with its fault if one is set; keep it in the log."""
        raw, _, query = request.raw_path.partition("?")
        if raw in ("/_log", "/_fault", "/_reset"):
            return await self._control(request, raw)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        hits = [fault for fault in self.faults if fault.hits(request.method, raw)]
        response = web.Response()
        if all(fault.after for fault in hits):
            response = await self._respond(request, raw, query, token)
        if hits:
            response = _failure(request, hits[0])
        account = self.store.accounts.get(token)
        self.log.append(
            Logged(
                method=request.method,
                path=request.raw_path,
                status=0 if hits and hits[0].drop else response.status,
                user=account.user if account else None,
                range=request.headers.get("Range"),
            )
        )
        return response

    async def _respond(
        self, request: web.BaseRequest, raw: str, query: str, token: str
    ) -> web.Response:
        account = self.store.accounts.get(token)
        try:
            if token and account is None:
                raise HubError(401, "Invalid credentials in Authorization header")
            handler, parts = find(request.method, raw)
            return await handler(Ask(self.store, self.url, request, account, parts, query))
        except HubError as error:
            return error.response()

    async def _control(self, request: web.BaseRequest, raw: str) -> web.Response:
        if raw == "/_log":
            return json_reply([asdict(entry) for entry in self.log])
        if raw == "/_reset":
            self.log.clear()
            self.faults.clear()
            return json_reply({})
        try:
            fault = self.fail(**json.loads(await request.content.read()))
        except (TypeError, ValueError) as error:
            return json_reply({"error": str(error)}, 400)
        return json_reply(asdict(fault))


def _failure(request: web.BaseRequest, fault: Fault) -> web.Response:
    if fault.drop:
        return drop(request)
    headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
    return web.Response(text="injected fault", status=fault.status, headers=headers)


def main(arguments: list[str] | None = None) -> None:
    """Run as a process; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.hub_server")
    add_process_options(parser)
    parser.add_argument("--token", action="append", default=[], metavar="TOKEN=USER")
    parser.add_argument("--dataset", action="append", default=[], metavar="REPO_ID=FOLDER")
    parser.add_argument("--data-root", type=Path, help="folder of <org>__<name> datasets")
    parser.add_argument("--private", action="append", default=[], metavar="REPO_ID")
    parser.add_argument("--gated", action="append", default=[], metavar="REPO_ID")
    options = parser.parse_args(arguments)
    server = HubServer(dict(pair.split("=", 1) for pair in options.token), port=options.port)
    if options.data_root:
        server.add_data_root(options.data_root)
    for repo_id, folder in (pair.split("=", 1) for pair in options.dataset):
        server.add_dataset(repo_id, Path(folder))
    for repo_id in options.private:
        server.repo(repo_id).private = True
    for repo_id in options.gated:
        server.repo(repo_id).gated = True
    run_process(server, options)


if __name__ == "__main__":
    main()
