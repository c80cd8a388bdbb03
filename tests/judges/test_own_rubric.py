"""A rubric of one's own, as docs/howto/judge.md shows one: what its judge is really sent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from convbench import catalog
from convbench.errors import SpecError
from convbench.hub.card import prompts_section
from convbench.judges.ask import judge_messages
from convbench.judges.instructions import names_every_label
from convbench.judges.ready import check_variables
from convbench.judges.resolve import judge_from_run, resolve_judge, with_defaults
from convbench.judges.rubrics import rubric_of_model
from convbench.schema import JudgeSpec, TaskSpec
from convbench.store import Run
from tests.helpers.judged_talk import EXAMPLE, conversation
from tests.helpers.runs import manifest
from tests.helpers.typed import Typist
from tests.support.provider import Call, Plan, Provider

DOCS = Path(__file__).parents[2] / "docs" / "howto" / "judge.md"
ASKED_FOR = re.compile(r"^(.+): \[score\]$", re.MULTILINE)
RANGE = re.compile(r"^- (.+?) \((\S+) to (\S+)\)", re.MULTILINE)


def written(folder: Path, change: tuple[str, str] = ("", "")) -> str:
    """Write the page's own rubric; return its file's name."""
    block = re.search(r"```yaml\n# haggle\.yaml.*?\n(.*?)```", DOCS.read_text(), re.S)
    assert block is not None
    (folder / "haggle.yaml").write_text(block[1].replace(*change))
    return "haggle.yaml"


def honest(call: Call) -> str:
    """What a judge answers that goes by its instructions alone: each label that it was given, with
    the top of the range that it was given."""
    ranges = {label: high for label, _, high in RANGE.findall(call.system)}
    return "\n\n".join(
        f"{label}: {ranges[label]}\nIt held its ground." for label in ASKED_FOR.findall(call.system)
    )


def build(typist: Typist) -> None:
    built = typist("build", "demo", "--model", "scripted:policy", "--tasks", "3", "--run", "runs/a")
    assert built.code == 0, built.err


def test_the_page_s_rubric_works_with_a_judge_that_answers_in_text(
    typist: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    file = written(tmp_path)
    build(typist)
    refused = {"response_format": "unsupported_parameter"}
    with Provider(Plan(refuse=refused, keep_requests=99), reply=honest) as provider:
        said = typist(
            "judge", "--judge", f"{file}@openai/judge", "--api-base", provider.api_base,
                "--concurrency", "1",
            "--run", "runs/a",
        )  # fmt: skip
        sent = [body["messages"][0]["content"] for body in provider.requests]
    assert said.code == 0, said.err
    verdicts = list(Run.open(Path("runs/a")).verdicts())
    assert len(verdicts) == 9
    assert {one.attempts for one in verdicts} == {1}
    assert {name: verdicts[0].scores[name] for name in ("profit", "fairness", "firmness")} == {
        "profit": 100, "fairness": 5, "firmness": 1,
    }  # fmt: skip
    assert all("- Fairness (1 to 5): Would the buyer come back?" in text for text in sent)


def test_the_dry_run_shows_what_is_sent(
    typist: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    file = written(tmp_path)
    build(typist)
    command = ("judge", "--judge", f"{file}@openai/judge", "--run", "runs/a")
    (shown,) = typist.json(*command, "--dry-run")["result"]["runs"]
    page = typist(*command, "--dry-run").out
    (messages,), (schema,) = shown["messages"].values(), shown["reply_schemas"].values()
    with Provider(Plan(keep_requests=99), reply=honest) as provider:
        typist(*command, "--api-base", provider.api_base, "--concurrency", "1")
        first = provider.requests[0]
    assert first["response_format"]["json_schema"]["schema"] == schema
    assert first["messages"] == messages
    assert "- Profit kept (0 to 100): Share of the margin left." in page
    assert json.dumps(schema) in page


def test_show_shows_criteria_fence_and_schema(typist: Typist, tmp_path: Path) -> None:
    found = typist.json("show", written(tmp_path))["result"]
    assert found["kind"] == "judge"
    assert "Profit kept: [score]" in found["messages"][0]["content"]
    assert re.search(r"<transcript-[0-9a-f]{12}>", found["messages"][1]["content"])
    assert found["reply_schema"]["properties"]["fairness"]["properties"]["score"]["maximum"] == 5
    assert "next: convbench judge --judge haggle.yaml@claude-opus --dry-run" in (
        typist("show", "haggle.yaml").out
    )


@pytest.mark.parametrize("name", ["pairwise", "relative"])
def test_judges_of_several_conversations_are_shown(typist: Typist, name: str) -> None:
    found = typist.json("show", f"judges/{name}")["result"]
    assert len(set(re.findall(r"<transcript-[0-9a-f]{12}>", str(found["messages"])))) == 2


def test_a_misspelt_variable_is_refused_before_a_call(
    typist: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    # In a branch that the first conversation does not take, as well.
    branch = "{% if not answer %}{{ questoin }}{% endif %}{{ question }}"
    file = written(tmp_path, ("{{ question }}", branch))
    build(typist)
    command = ("judge", "--judge", f"{file}@openai/judge", "--run", "runs/a")
    with Provider() as provider:
        for more in ((), ("--dry-run",)):
            said = typist(*command, "--api-base", provider.api_base, *more)
            assert said.code == 1
            assert "found {{ questoin }}" in said.err
            assert "did you mean question?" in said.err
        assert provider.stats.calls == 0
    assert not list(Run.open(Path("runs/a")).verdicts())


def test_names_that_a_template_asks_for_may_be_missing() -> None:
    spec = resolve_judge("rubric@x/y").spec
    asks = "{% if note is defined %}{{ note }}{% endif %}{{ hint | default('') }}"
    more = "{% for c in choices %}{{ c.label }}{{ loop.index }}{% endfor %}{% set a = 1 %}{{ a }}"
    fine = spec.model_copy(update={"prompt": f"{asks}{more}{{{{ transcript }}}}"})
    check_variables(fine, [EXAMPLE])
    blind = spec.model_copy(update={"prompt": "Rate it. {{ question }}"})
    with pytest.raises(SpecError, match=r"found no \{\{ transcript \}\}"):
        check_variables(blind, [EXAMPLE])


def test_shipped_rubrics_are_sent_word_for_word() -> None:
    """Their own prompts name every label, so that nothing is added; those about other speakers
    leave their criteria to be added."""
    for name in catalog.spec_files("judges"):
        spec = catalog.load_spec(JudgeSpec, "judges", name)
        if spec.kind == "rubric":
            assert names_every_label(spec) == (spec.of == "policy"), name
            assert with_defaults(spec).criteria == ("appended" if spec.of == "others" else None)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("Rate profit and fairness.", False),
        ("profit: [score]", False),
        ("Profit: [score]\nFairness: [score]", True),
        ("**profit**: [score]\nHow fair: [score]", True),
        ('{"profit": 1, "fairness": 2}', True),
        ("Nonprofit: 1\nFairness: 2", False),
    ],
)
def test_when_a_prompt_names_every_label(said: str, named: bool) -> None:
    assert names_every_label(two(said)) is named


def two(system: str, **more: Any) -> JudgeSpec:
    """A rubric of two metrics."""
    metrics = [
        {"name": "profit", "label": "Profit"},
        {"name": "fairness", "label": "Fairness", "aliases": ["How fair"]},
    ]
    return JudgeSpec.model_validate(
        {"name": "two", "title": "t", "kind": "rubric", "system": system, "metrics": metrics,
         "prompt": "{{ transcript }}", "reward": {"metric": "profit"}, **more}
    )  # fmt: skip


def test_a_rubric_that_a_run_kept_is_asked_as_it_was() -> None:
    spec = two("Rate it.", fence="nonce", replies="structured")
    kept, named = judge_from_run("two@x/y", spec), with_defaults(spec)
    assert kept.spec.criteria is None
    assert named.criteria == "appended"
    talk = conversation()
    assert judge_messages(kept.spec, talk, EXAMPLE)[0]["content"] == "Rate it."
    assert "Profit (0 to 10)" in str(judge_messages(named, talk, EXAMPLE)[0]["content"])
    assert with_defaults(two("Rate it.", criteria="as-written")).criteria == "as-written"


def test_groups_and_pairs_are_given_their_forms() -> None:
    group = judge_messages(with_defaults(two("Rate.", per="group")), conversation(), EXAMPLE)
    assert "Conversation 2\nProfit: [score]" in str(group[0]["content"])
    pair = judge_messages(with_defaults(two("Rate.", per="pair")), conversation(), EXAMPLE)
    assert "10 where conversation 2 is" in str(pair[0]["content"])


OPEN = """title: open questions
source: {file: QUESTIONS}
rows: {key: id, question: q}
answer: {kind: none}
"""


@pytest.fixture
def opened(typist: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typist:
    """A folder with a run of open questions of one's own, `runs/open`."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    (tmp_path / "questions.csv").write_text("id,q\n1,How do tides work?\n2,What is rust?\n")
    (tmp_path / "specs" / "tasks").mkdir(parents=True)
    (tmp_path / "specs" / "judges").mkdir()
    text = OPEN.replace("QUESTIONS", str(tmp_path / "questions.csv"))
    (tmp_path / "specs" / "tasks" / "open.yaml").write_text(text)
    said = typist("build", "open", "--model", "scripted:policy", "--run", "runs/open")
    assert said.code == 0, said.err
    assert "next: convbench init judge my-rubric" in said.out
    return typist


def dry(typist: Typist, judge: str, run: str = "runs/open") -> str:
    """The system prompt that a judge would be sent, or the error."""
    said = typist("judge", "--judge", judge, "--run", run, "--dry-run", "--json")
    result = json.loads(said.out).get("result")
    if not result:
        return said.err or said.out
    ((name, messages),) = result["runs"][0]["messages"].items()
    return f"{name}\n{messages[0]['content']}"


def test_a_model_alone_has_no_rubric_for_open_questions(opened: Typist) -> None:
    said = dry(opened, "openai/judge")
    assert "task open has no rubric;" in said
    assert "relative@openai/judge, rubric@openai/judge" in said
    assert "multiple-choice" in dry(opened, "rubric@openai/judge")
    assert "no model 'nosuch'" in dry(opened, "nosuch")


def test_a_model_alone_is_put_to_the_task_s_rubric(opened: Typist, tmp_path: Path) -> None:
    (tmp_path / "specs" / "judges" / written(tmp_path)).write_text(
        (tmp_path / "haggle.yaml").read_text()
    )
    task = tmp_path / "specs" / "tasks" / "open.yaml"
    task.write_text(task.read_text() + "judge: haggle\n")
    built = opened("build", "open", "--model", "scripted:policy", "--run", "runs/two")
    assert "next: convbench judge --judge haggle@claude-opus" in built.out
    assert dry(opened, "openai/judge", "runs/two").startswith(
        "haggle@openai/judge\nYou judge a seller."
    )


def test_a_model_alone_is_put_to_the_run_s_rubric(opened: Typist, tmp_path: Path) -> None:
    file = written(tmp_path)
    with Provider(reply=honest) as provider:
        said = opened("judge", "--judge", f"{file}@openai/judge", "--run", "runs/open",
                      "--api-base", provider.api_base)  # fmt: skip
        assert said.code == 0, said.err
    (tmp_path / file).unlink()  # the run has it
    for asked in ("openai/other", "haggle@openai/other"):
        assert dry(opened, asked).startswith("haggle@openai/other\nYou judge a seller.")
    assert "expected haggle@MODEL" in dry(opened, "haggle")
    kept = resolve_judge("haggle@openai/judge", run=Run.open(Path("runs/open")))
    assert kept.fingerprint in Run.open(Path("runs/open")).judge_specs()
    changed = resolve_judge(
        "haggle@openai/judge", run=Run.open(Path("runs/open")), sets={"asks": 1}
    )
    assert changed.spec.asks == 1


def test_the_paper_s_tasks_have_the_paper_s_rubric(
    typist: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    build(typist)
    assert dry(typist, "openai/judge", "runs/a").startswith(
        "openai/judge\nYou are an expert evaluator of educational conversations"
    )
    # Once another rubric alone has judged it, that is the run's; of several the paper's.
    file = written(tmp_path)
    with Provider(reply=honest) as provider:
        base = ("--run", "runs/a", "--api-base", provider.api_base)
        assert typist("judge", "--judge", f"{file}@openai/judge", *base).code == 0
        assert dry(typist, "openai/other", "runs/a").startswith("haggle@openai/other\n")
    with Provider() as provider:
        base = ("--run", "runs/a", "--api-base", provider.api_base)
        assert typist("judge", "--judge", "rubric@openai/judge", *base).code == 0
    assert dry(typist, "openai/other", "runs/a").startswith("openai/other\nYou are an expert")


def test_a_task_laid_over_a_shipped_one_has_its_rubric() -> None:
    arc = catalog.load_spec(TaskSpec, "tasks", "arc")
    assert rubric_of_model("x/y", arc.model_copy(update={"name": "arc-short"})) == "rubric"
    other = arc.source.model_copy(update={"hub": "me/questions"})
    with pytest.raises(SpecError, match="task mine has no rubric;"):
        rubric_of_model("x/y", arc.model_copy(update={"name": "mine", "source": other}))


def test_a_log_without_gold_is_no_multiple_choice(
    typist: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    talk = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}
    (tmp_path / "log.jsonl").write_text(json.dumps(talk) + "\n")
    assert "--judge RUBRIC@MODEL" in typist("import", "log.jsonl", "--run", "runs/log").err
    assert "task log has no rubric;" in dry(typist, "openai/judge", "runs/log")
    said = typist("judge", "--run", "runs/log")
    assert "task log names no judge; expected --judge NAME" in said.err


def test_a_card_says_criteria_weights_and_scales(tmp_path: Path) -> None:
    spec = catalog.load_spec(JudgeSpec, "judges", str(tmp_path / written(tmp_path)))
    card = prompts_section(manifest(), {"f00d": spec})
    assert "Criteria of judge haggle" in card
    assert "Profit kept (profit, 0 to 100, weight 3): Share of the margin left." in card
    assert "Firmness (firmness, 0 to 1)" in card
    assert "Overall (overall, 0 to 1): the weighted mean\nreward = overall / 1" in card
