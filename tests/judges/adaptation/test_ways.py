"""Other ways to adapt: all weights, processes on devices, and a server that takes adapters."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from convbench.engine.session import Session
from convbench.errors import SpecError, TrainError
from convbench.judges.adaptation.clock import PassClock
from convbench.judges.adaptation.learner import AdaptationReplies, Learner
from convbench.judges.adaptation.pool import DeviceWorker, LearnerPool
from convbench.judges.adaptation.settings import InnerSettings
from convbench.judges.run import score_pending
from convbench.models.weights_path import check_weights
from convbench.options.shared import CallOptions
from convbench.store import Run
from tests.helpers import seal_runs
from tests.helpers.cards import simulate
from tests.helpers.self_edits import INNER, KOSAN, TENOS, A, B, good, weights
from tests.support.later import later

adaptation_answer = later("convbench.judges.adaptation.answer")

torch = later("torch")

FULL = INNER.model_copy(update={"tuning": "full", "learning_rate": 5e-4, "epochs": 12})


@pytest.fixture(scope="module")
def learner() -> Learner:
    torch.set_num_threads(1)
    return Learner.load(check_weights("pocket"), "cpu")


def plain(found: AdaptationReplies) -> AdaptationReplies:
    return replace(found, seconds=0.0, passes=0.0)


def test_all_weights_learn_and_the_base_stays(learner: Learner) -> None:
    before = weights(learner)
    found = learner.adapt_to(A, KOSAN, FULL)
    assert found.reason is None
    assert found.accuracy > found.before
    assert (found.steps, len(found.by_seed)) == (12, 2)
    second = learner.teach_texts(A, KOSAN, FULL.model_copy(update={"seed": 1, "seeds": 1}))
    assert second.replies[0] == found.replies[1], "a seed beside another is that seed alone"
    assert weights(learner) == before
    assert not any("weight" in vars(module) for module in learner.model.modules())


def test_a_step_of_all_weights_is_the_optimisers(learner: Learner) -> None:
    """Three steps of AdamW as torch has it, on a plain copy, give the same weights; merging them
    is wearing them, and tied weights stay tied."""
    import copy

    inner = FULL.model_copy(
        update={
            "seeds": 1,
            "epochs": 3,
            "batch_size": 2,
            "max_grad_norm": 0,
            "schedule": "constant",
        }
    )
    stack, steps = learner.train_adapters(A, inner, PassClock())
    assert steps == 3
    own = copy.deepcopy(learner.model).requires_grad_(True)
    adam = torch.optim.AdamW(own.parameters(), lr=inner.learning_rate, weight_decay=0.0)
    rows = [learner._token_row(text, inner) for text in A]
    total = sum(len(row) - 1 for row in rows)
    for _ in range(3):
        parts = [own(torch.tensor([r]), labels=torch.tensor([r])).loss * (len(r) - 1) for r in rows]
        adam.zero_grad()
        (sum(parts) / total).backward()
        adam.step()
    merged = copy.deepcopy(learner.model)
    stack.merge_into(merged)
    assert merged.lm_head.weight is merged.model.embed_tokens.weight
    ids = torch.tensor([learner._prompt_ids(KOSAN[0])])
    with torch.no_grad():
        with stack.apply_to_model():
            worn = learner.model(ids).logits
        assert torch.equal(merged(ids).logits, worn)
        assert torch.allclose(own(ids).logits, worn, atol=2e-2)


def test_full_and_a_server_are_refused_together() -> None:
    with pytest.raises(ValueError, match="no whole weights"):
        InnerSettings(tuning="full", server="http://127.0.0.1:1")


# ---------------------------------------------------------------- processes on devices


@pytest.mark.exhaustive
@pytest.mark.slow
def test_adaptations_over_two_devices_are_those_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch, 2)
    examples = seal_runs.some_examples(2)
    edits = {e.example_id: [good(e), f"- {e.inputs['title']}"] for e in examples}
    made: list[DeviceWorker] = []
    start = DeviceWorker._start

    def noted(hand: DeviceWorker) -> None:
        made.append(hand)
        start(hand)

    monkeypatch.setattr(DeviceWorker, "_start", noted)
    alone = verdicts(seal_runs.edits_run(tmp_path / "alone", examples, edits))
    assert not made
    spread = verdicts(seal_runs.edits_run(tmp_path / "spread", examples, edits), "judge=[0,1]")
    assert spread == alone
    assert {hand.device for hand in made} == {"0", "1"}
    assert all(hand._process is None for hand in made), "their memory is given back"


def verdicts(run: Run, *devices: str) -> dict[str, Any]:
    with run.lock():
        calls = CallOptions(devices=devices, quiet=True)
        done = asyncio.run(score_pending(run, seal_runs.quick_judge(), calls, Session()))
    assert (done.jobs.done, done.failed_count) == (4, 0)
    found = {v.conversation_id.partition("-note")[2]: v for v in run.verdicts()}
    return {k: (v.scores, v.details["replies"], v.details["steps"]) for k, v in found.items()}


@pytest.mark.exhaustive
def test_a_process_that_dies_is_named() -> None:
    twins = LearnerPool(check_weights("pocket"), ("",))
    try:
        with twins.lend_worker() as hand:
            assert hand is not None
            first = hand.teach_texts([], KOSAN, INNER)
            assert hand._process is not None
            os.kill(hand._process.pid, signal.SIGKILL)
            with pytest.raises(TrainError, match="its process on the CPU ended with exit code -9"):
                hand.teach_texts([], KOSAN, INNER)
    finally:
        twins.close()
    assert first.replies[0][0]


# ---------------------------------------------------------------- a server that takes adapters


class Vllm(ThreadingHTTPServer):
    """Speaks vLLM's endpoints for models, completions and adapters, on the embedded policy: an
    adapter is read from its folder by peft."""

    def __init__(self, learner: Learner) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.learner, self.root = learner, learner.path
        self.loaded: dict[str, Any] = {}
        self.log: list[str] = []


class Answer(BaseHTTPRequestHandler):
    server: Vllm

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._say({"data": [{"id": "base", "root": self.server.root, "parent": None}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server, kind = self.server, self.path.rpartition("/")[2]
        server.log.append(kind)
        if kind == "load_lora_adapter":
            from peft import PeftModel

            own = server.learner.make_twin().model
            server.loaded[body["lora_name"]] = PeftModel.from_pretrained(own, body["lora_path"])
            self._words("Success: LoRA adapter added successfully.")
        elif kind == "unload_lora_adapter":
            del server.loaded[body["lora_name"]]
            self._words("Success: LoRA adapter removed successfully.")
        else:
            assert body["temperature"] == 0
            model = server.learner.model
            model = server.loaded[body["model"]] if body["model"] != "base" else model
            ends = frozenset(body["stop_token_ids"])
            (said,) = adaptation_answer.greedy_replies(
                model, body["prompt"], ends, body["max_tokens"], PassClock()
            )
            decode = server.learner.tokenizer.decode
            texts = [decode(tokens, skip_special_tokens=True) for tokens in said]
            choices = [{"index": i, "text": text} for i, text in enumerate(texts)]
            self._say({"choices": choices[::-1]})

    def _say(self, found: Any) -> None:
        self._words(json.dumps(found))

    def _words(self, text: str, status: int = 200) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def vllm(learner: Learner) -> Iterator[Vllm]:
    found = Vllm(learner)
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


@pytest.mark.exhaustive
def test_a_server_answers_as_the_adapters_do_here(learner: Learner, vllm: Vllm) -> None:
    inner = INNER.model_copy(update={"server": f"http://127.0.0.1:{vllm.server_port}/v1"})
    for texts, questions, guard in ((A, KOSAN, TENOS), (B, TENOS, ()), ([], KOSAN, ())):
        here = learner.teach_texts(texts, questions, INNER, guard)
        there = learner.teach_texts(texts, questions, inner, guard)
        assert plain(there) == plain(here)
    assert not vllm.loaded, "every adapter is taken out again"
    assert vllm.log.count("load_lora_adapter") == 4
    assert learner.adapt_to(A, KOSAN, inner).gain == learner.adapt_to(A, KOSAN, INNER).gain


def test_another_model_behind_the_address_is_refused(learner: Learner, vllm: Vllm) -> None:
    base = f"http://127.0.0.1:{vllm.server_port}"
    vllm.root = "Qwen/Qwen2.5-7B"
    with pytest.raises(TrainError, match=r"serves Qwen/Qwen2\.5-7B; expected /"):
        learner.teach_texts(A, KOSAN, INNER.model_copy(update={"server": base}))
    for address in ("http://models.example.org:8000", "file:///etc/passwd", "http://10.0.0.1"):
        with pytest.raises(SpecError, match="a vLLM server on this machine"):
            learner.teach_texts(A, KOSAN, INNER.model_copy(update={"server": address}))
