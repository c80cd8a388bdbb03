"""Reasoning from the wire to the record: read, sent back by rule, counted, shown, kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convbench.answers.grade import grade_conversation
from convbench.errors import RunError, SpecError
from convbench.hub.dataset import write_dataset_folder
from convbench.learn.rows import prompted_replies
from convbench.learn.tokens import ChatTokens, load_tokenizer
from convbench.models.weights_path import check_weights
from convbench.options.shared import CallOptions, SpecOptions
from convbench.schema import Conversation
from convbench.store import Run
from convbench.store.query import run_query
from convbench.viewer.library import index_runs
from convbench.viewer.talk import talk_json as shown_talk
from convbench.viewer.talk import turn_prompts
from tests.helpers import stages
from tests.support.chat.plan import Plan
from tests.support.chat.replies import scripted_reply
from tests.support.chat.thinking import redacted, signature, thought
from tests.support.provider import Provider

QUIET = CallOptions(quiet=True)
PRICE = {"input_per_million": 1000, "output_per_million": 2000}
KINDS: dict[str, dict[str, Any]] = {
    "deepseek-r1": {"ref": "openai/r1", "replay": "never"},
    "deepseek-v4": {"ref": "openai/v4", "replay": "always"},
    "vllm": {"ref": "hosted_vllm/thinker", "replay": "last"},
    "anthropic": {"ref": "anthropic/claude-thinker", "replay": "signed"},
    "tags": {"ref": "openai/open", "reads": "tags", "replay": "never"},
}


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with Provider(Plan(keep_requests=900), reply=scripted_reply) as server:
        for name in ("OPENAI", "HOSTED_VLLM"):
            monkeypatch.setenv(f"{name}_API_BASE", server.api_base)
            monkeypatch.setenv(f"{name}_API_KEY", "none")
        monkeypatch.setenv("ANTHROPIC_API_BASE", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
        yield server


def specs_of(home: Path, **models: Any) -> SpecOptions:
    (home / "mine").mkdir(exist_ok=True)
    (home / "mine" / "models.yaml").write_text(json.dumps({"models": models}))
    return SpecOptions((home / "mine",), ("task.sample.train=0.67",))


def had(home: Path, model: dict[str, Any], task: str = "demo", **shape: Any) -> Run:
    """Three questions of three turns, one sample each."""
    specs = specs_of(home, thinker={**PRICE, **model})
    shape = {"mode": "standard", "samples": 1, "temperatures": (0.7,), **shape}
    result = stages.build_result(
        task, tasks=3, model="thinker", run=home / "run", specs=specs.folders, set=specs.sets,
        **shape,
    )  # fmt: skip
    assert result.built is not None
    assert result.built.failed == 0, result.built.failures
    return Run.open(home / "run")


def rows(run: Run, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in run_query(sql, [run]).rows]


def own_turns(talk: Conversation, run: Run) -> list[Any]:
    return [t for t in talk.turns if t.speaker == run.manifest.protocol.policy]


@pytest.mark.parametrize("kind", KINDS)
def test_a_thinking_model_is_read_and_sent_back_by_its_rule(
    home: Path, served: Provider, kind: str
) -> None:
    """The server answers 400 where the rule is broken; a second pass asks nothing anew."""
    served.change(thinks=kind)
    run = had(home, KINDS[kind])
    talks = {talk.key: talk.turns for talk in run.conversations()}
    spoken = [turn for talk in run.conversations() for turn in own_turns(talk, run)]
    assert len(spoken) >= 9
    for turn in spoken:
        assert turn.reasoning is not None
        assert turn.reasoning.text == thought(turn.content)
        assert "<think>" not in turn.content
        if kind == "anthropic":
            first, second = turn.reasoning.blocks
            assert first.signature == signature(thought(turn.content))
            assert second.data == redacted(turn.content)
        else:
            assert turn.reasoning.tokens == len(thought(turn.content).split())
    assert served.stats.status["400"] == 0
    bodies = list(served.requests)
    last = [body["messages"] for body in bodies if len(body["messages"]) > 4]
    sent = [json.dumps(messages).count("Let me see. Case") for messages in last]
    assert last
    turns = {"never": 0, "last": 1}.get(KINDS[kind]["replay"], 2)
    assert set(sent) == {turns}, "what the rule says, turn by turn"

    calls = served.stats.calls
    (run.path / "conversations.jsonl").write_text("")  # killed before any record was written
    again = had(home, KINDS[kind])
    assert served.stats.calls == calls, "the journal keeps reasoning too"
    assert {c.key: c.turns for c in again.conversations()} == talks


def test_it_is_asked_for_counted_and_paid(home: Path, served: Provider) -> None:
    served.change(thinks="deepseek-v4")
    run = had(home, KINDS["deepseek-v4"])
    found = rows(
        run,
        "SELECT content, reasoning, reasoning_tokens, completion_tokens, cost_usd, prompt_tokens "
        "FROM turns WHERE reasoning IS NOT NULL",
    )
    for content, reasoning, thinks, reply, usd, prompt in found:
        assert reasoning == thought(content)
        assert reply == len(content.split()) + thinks
        assert usd == pytest.approx(prompt * 1e-3 + reply * 2e-3)
    total = rows(
        run,
        "SELECT sum(reasoning_tokens), bool_and(reasoned), bool_or(thinking) FROM conversations",
    )
    assert total == [(sum(row[2] for row in found), True, False)], "a measure beside the tag's"


def test_a_judge_sees_it_only_where_it_says_so(home: Path, served: Provider) -> None:
    served.change(thinks="vllm")
    run = had(home, KINDS["vllm"])
    served.change(thinks=None)
    for sees in (False, True):
        served.reset()
        sets = (f"judge.sees_reasoning={str(sees).lower()}",)
        stages.judge(run.path, "openai/scorer", specs=(home / "mine",), set=sets)
        asked = [json.dumps(body["messages"]) for body in served.requests]
        assert asked
        assert all(("Let me see. Case" in text) is sees for text in asked)


def test_what_was_not_sent_is_recorded_as_not_sent(home: Path, served: Provider) -> None:
    served.change(refuse={"temperature": "unsupported_value"})
    run = had(home, {"ref": "openai/stubborn", "extra_body": {"service_tier": "flex"}},
              reasoning_effort="low")  # fmt: skip
    answered = [body for body in served.requests if "temperature" not in body]
    assert all(body["reasoning_effort"] == "low" for body in answered)
    assert all(body["service_tier"] == "flex" for body in answered)
    member = run.manifest.cast[run.manifest.protocol.policy]
    assert member.sampling.reasoning_effort == "low"
    assert member.extra_body == {"service_tier": "flex"}
    for talk in run.conversations():
        assert talk.sent[run.manifest.protocol.policy].left_out == ("temperature",)
    assert rows(run, "SELECT DISTINCT temperature, left_out FROM conversations") == [
        (None, ["temperature"])
    ]
    card = (write_dataset_folder(run, "me/set", home / "set").folder / "README.md").read_text()
    assert "0.7 (requested; the policy's model does not support one, so none was sent)" in card
    assert 'reasoning_effort low; extra_body `{"service_tier":"flex"}`' in card
    assert "not sent: temperature" in card
    assert "| not sent |" in card, "the table of figures"


def test_a_model_that_takes_no_effort_is_asked_without(home: Path, served: Provider) -> None:
    served.change(refuse={"reasoning_effort": "unsupported_parameter"})
    run = had(home, {"ref": "openai/simple"}, reasoning_effort="high")
    for talk in run.conversations():
        assert talk.sent[run.manifest.protocol.policy].left_out == ("reasoning_effort",)


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": ["x"] * 9},
        {"reasoning_content": {"a": 1}, "reasoning": 7},
        {"thinking_blocks": [{"type": "thinking"}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "x", "signature": "s"}] * 300},
        {"thinking_blocks": [{"type": "code", "thinking": "x"}]},
        {"thinking_blocks": "all of them"},
        {"reasoning_content": "x" * 1_000_000},
    ],
    ids=lambda value: str(value)[:40],
)
def test_reasoning_of_a_wrong_shape_costs_no_reply(
    home: Path, served: Provider, fields: dict[str, Any]
) -> None:
    served.change(message=fields)
    run = had(home, {"ref": "openai/odd", "replay": "signed"})
    for talk in run.conversations():
        for turn in own_turns(talk, run):
            assert turn.reasoning is None or len(turn.reasoning.text) == 1_000_000
    assert rows(run, "SELECT count(*) FROM turns")[0][0] > 0


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"model": "dearer"}, "which another setting fills"),
        ({"messages": []}, "which another setting fills"),
        ({"n": 9}, "which another setting fills"),
        ({"api_key": "x"}, "keys come from the environment"),
        ({"metadata": {"Authorization": "x"}}, "keys come from the environment"),
        ({"extra_headers": {"a": "b"}}, "keys come from the environment"),
        ({"base_url": "http://elsewhere"}, "addresses from --api-base"),
        ({"chat_template_kwargs": [1]}, "expected names and values"),
        ({"a": "x" * 20_000}, "expected at most"),
        ({"a": json.loads("[" * 20 + "]" * 20)}, "levels"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_extra_body_is_plain_and_small(home: Path, body: dict[str, Any], why: str) -> None:
    with pytest.raises(SpecError, match=why):
        had(home, {"ref": "openai/any", "extra_body": body})


def test_a_pulled_sets_extra_body_is_not_sent(home: Path, served: Provider) -> None:
    """Not even where the user names the model: what it holds is not theirs."""
    run = had(home, {"ref": "openai/any", "extra_body": {"service_tier": "priority"}})
    manifest = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**manifest, "pulled_from": "them/set@abc"}))
    (run.path / "conversations.jsonl").write_text("")
    (run.path / "calls.jsonl").write_text("")
    served.reset()
    specs = specs_of(home, mine={"ref": "openai/any"})
    with pytest.raises(RunError, match=r"extra_body .*service_tier.* only if you set it yourself"):
        stages.build(
            run=run.path, specs=specs.folders, allow_calls=(f"openai/any@127.0.0.1:{served.port}",)
        )
    assert served.stats.calls == 0
    agreed = specs_of(home, mine={"ref": "openai/any", "extra_body": {"service_tier": "priority"}})
    stages.build(
        run=run.path, specs=agreed.folders, allow_calls=(f"openai/any@127.0.0.1:{served.port}",)
    )
    assert served.stats.calls > 0


@pytest.mark.parametrize("mode", ["loss", "drop"])
def test_a_dry_run_shows_what_of_it_is_learnt(home: Path, served: Provider, mode: str) -> None:
    """Pocket's template writes no reasoning again: a row a turn, which the dry run says."""
    served.change(thinks="vllm")
    run = had(home, KINDS["vllm"], seed=4)  # whose rewards differ
    stages.judge(run.path, "rules")
    base = home / "base"  # with room for a whole conversation
    shutil.copytree(check_weights("pocket"), base)
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
    shown = stages.train(
        "refit",
        run.path,
        model=f"local:{base}",
        dry_run=True,
        set=(f"recipe.data.reasoning={mode}", "recipe.data.unit=conversation"),
    ).preview
    learnt = "".join(line for line in shown if line.startswith("  LOSS"))
    assert ("Let me see. Case" in learnt) is (mode == "loss")
    assert ("<think>" in learnt) is (mode == "loss"), "tags where the template shows none"
    assert ("conversations of several rows: 2" in shown) is (mode == "loss")


def test_an_empty_block_is_no_thought(home: Path, served: Provider) -> None:
    """Models that were told not to think still write the tags."""
    served._reply = lambda call: f"<think>\n\n</think>\n\n{scripted_reply(call)}"
    run = had(home, KINDS["tags"])
    for talk in run.conversations():
        assert all(turn.reasoning.raw == "<think>\n\n</think>\n\n" for turn in own_turns(talk, run))
        assert (
            grade_conversation(run.manifest.protocol, talk, run.examples[talk.example_id]).reasoned
            is False
        )
    assert rows(run, "SELECT DISTINCT reasoned, reasoned_any FROM conversations") == [
        (False, False)
    ]


def test_a_local_models_tags_are_trained_on_as_they_were_served(home: Path) -> None:
    """Pocket thinks in tags: cut out of its replies, and put back token by token."""
    run = had(home, {"ref": "local:pocket", "reads": "tags"}, "pocket", mode="thinking")
    chat = ChatTokens(load_tokenizer(str(check_weights("pocket"))))
    protocol, thought_of = run.manifest.protocol, 0
    for talk in run.conversations():
        for turn, one in zip(own_turns(talk, run), prompted_replies(protocol, talk), strict=True):
            prompt, ids = chat.render_prompt(one.messages), chat.prompt_ids(one.messages)
            said = chat.reply_ids(prompt, ids, one.reply)
            assert len(ids) == turn.prompt_tokens
            assert len(said) == turn.completion_tokens
            thought_of += turn.reasoning is not None
            assert turn.reasoning is None or "think" not in turn.reasoning.text
    assert thought_of


def test_the_viewer_gets_it_apart_from_what_was_said(home: Path, served: Provider) -> None:
    served.change(thinks="anthropic", refuse={"temperature": "unsupported_value"})
    run = had(home, KINDS["anthropic"])
    index = index_runs([run.path], print)
    name = next(run.conversations()).conversation_id
    found = shown_talk(index, name)
    assert found["row"]["temperature"] is None
    spoken = [turn for turn in found["turns"] if turn["policy"]]
    assert all("Let me see. Case" in turn["reasoning"]["text"] for turn in spoken)
    assert {turn["reasoning"]["hidden"] for turn in spoken} == {1}
    assert "Let me see. Case" not in str([turn["parts"] for turn in spoken])
    asked_last = turn_prompts(index, name)[str(spoken[-1]["index"])]
    assert sum("Let me see. Case" in (m["reasoning"] or "") for m in asked_last) == 2
