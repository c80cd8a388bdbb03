"""Two servers rank candidates as passes here do; a stand-in speaks vLLM's endpoints."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import SpecError, TrainError
from convbench.learn.job import Job
from convbench.learn.select import select
from convbench.learn.sweet.candidates import read_candidates as candidate_rows
from convbench.learn.sweet.pairs import CANDIDATES, SweetArgs
from tests.helpers.collaboration import Trained
from tests.support.later import later

torch = later("torch")
sweet_ranking = later("convbench.learn.sweet.ranking")


@contextmanager
def serving(path: Path) -> Iterator[str]:
    """Serve the log-probabilities of prompts under these weights; yields the address."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)

    class Answer(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._say({"data": [{"id": "m", "root": str(path), "parent": None}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert (body["model"], body["prompt_logprobs"]) == ("m", 0)
            choices = [{"index": i, "text": "", "prompt_logprobs": self._told(ids)}
                       for i, ids in enumerate(body["prompt"])]  # fmt: skip
            self._say({"choices": choices[::-1]})

        def _told(self, ids: list[int]) -> list[Any]:
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            told = [{str(t): {"logprob": float(logits[n, t]), "rank": 1, "decoded_token": "x"}}
                    for n, t in enumerate(ids[1:])]  # fmt: skip
            return [None, *told]

        def _say(self, found: Any) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.exhaustive
def test_two_servers_rank_as_passes_here(trained: Trained) -> None:
    job = Job.from_file(trained.folder / "recipe.yaml")
    settings = SweetArgs.from_args(job.recipe.args, job.recipe.name)
    by_id = {i.conversation.conversation_id: i for i in select(job.run, job.recipe.data).logged}
    rows = list(candidate_rows(trained.folder / CANDIDATES))
    critic = trained.folder / "critic"
    here = sweet_ranking.candidate_advantages(job, critic, by_id, rows, settings)
    assert any(here)
    with serving(critic) as one, serving(trained.base) as two:
        served = settings.model_copy(update={"servers": (one, two)})
        there = sweet_ranking.candidate_advantages(job, critic, by_id, rows, served)
        assert there == pytest.approx(here, abs=1e-4)
        sums = served.model_copy(update={"normalize": False})
        whole = sweet_ranking.candidate_advantages(job, critic, by_id, rows, sums)
        plain = settings.model_copy(update={"normalize": False})
        assert whole == pytest.approx(
            sweet_ranking.candidate_advantages(job, critic, by_id, rows, plain), abs=1e-3
        )
        swapped = settings.model_copy(update={"servers": (two, one)})
        with pytest.raises(TrainError, match=r"serves .*base; expected .*critic; serve them with"):
            sweet_ranking.candidate_advantages(job, critic, by_id, rows, swapped)
    away = settings.model_copy(update={"servers": ("http://10.0.0.1:8000", two)})
    with pytest.raises(SpecError, match=r"args\.servers: found .*; expected a vLLM server on this"):
        sweet_ranking.candidate_advantages(job, critic, by_id, rows, away)
    gone = settings.model_copy(update={"servers": (one, two)})
    with pytest.raises(TrainError, match="resumes where it stopped"):
        sweet_ranking.candidate_advantages(job, critic, by_id, rows, gone)
