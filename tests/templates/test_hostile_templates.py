"""Templates from elsewhere: what they may not reach, and what they may not cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from convbench import catalog, prompts, templates
from convbench.errors import DataError, SpecError
from convbench.judges.ask import judge_fields
from convbench.schema import Choice, Example, JudgeSpec, ProtocolSpec, TaskSpec
from convbench.tasks.load import load_examples
from convbench.views import transcript
from tests.helpers.cli import convbench
from tests.helpers.hub_client import Client
from tests.helpers.served import provider, served
from tests.helpers.table import PROTOCOLS, QUESTION, played, protocol_of
from tests.support.exhaustive import by_turns, first_of
from tests.support.one_line import one_line

__all__ = ["provider", "served"]

FIELDS = {
    "question": "What " * 200,
    "choices": (Choice(label="A", text="x"), Choice(label="B", text="y")),
    "big": "x" * 1_000_000,
    "lines": "a\n" * 100_000,
    "nums": list(range(50_000)),
}


def doubled(first: str, twice: str) -> str:
    """A template that makes a value twice as large 60 times."""
    steps = (f"{{% set a{i + 1} = {twice.format(a=f'a{i}')} %}}" for i in range(60))
    return f"{{% set a0 = {first} %}}" + "".join(steps)


REACH = {
    "unpickle": '{{ choices[0].parse_raw("x", proto="pickle", allow_pickle=true) }}',
    "read-a-file": "{{ choices[0].parse_file('/etc/passwd') }}",
    "make-a-record": "{{ choices[0].construct() }}",
    "dump-a-record": "{{ choices[0].model_dump() }}",
    "record-s-fields": "{{ choices[0].model_fields }}",
    "class": "{{ question.__class__ }}",
    "class-as-an-item": "{{ question['__class__'] }}",
    "class-of-each": "{{ choices | map(attribute='__class__') | list }}",
    "class-by-filter": "{{ question | attr('__class__') }}",
    "class-by-mapped-filter": "{{ [question] | map('attr', '__class__') | list }}",
    "class-by-select": "{{ choices | selectattr('__class__') | list }}",
    "class-by-sort": "{{ choices | sort(attribute='__class__') }}",
    "class-by-group": "{{ choices | groupby('__class__') }}",
    "class-by-format": "{{ '{0.__class__}'.format(question) }}",
    "class-by-format-map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "class-of-nothing": "{{ nothing.__class__ }}",
    "globals-of-a-method": "{{ ''.join.__globals__ }}",
    "method-as-a-value": "{{ question.upper }}",
    "range-as-a-value": "{{ range.__self__ }}",
    "reduce": "{{ choices.__reduce_ex__(2) }}",
    "append": "{{ choices.append(1) }}",
    "self": "{{ self }}",
    "loop-s-own": "{% for c in choices %}{{ loop.__init__ }}{% endfor %}",
    "lipsum": "{{ lipsum(3) }}",
    "cycler": "{{ cycler(1, 2) }}",
    "joiner": "{{ joiner() }}",
    "dict": "{{ dict(a=1) }}",
    "namespace": "{% set n = namespace() %}{% set n.a = 1 %}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import '/etc/passwd' as x %}",
    "from-import": "{% from '/etc/passwd' import x %}",
    "extends": "{% extends '/etc/passwd' %}",
    "block": "{% block a %}{% endblock %}",
    "call-block": "{% call x() %}{% endcall %}",
    "filter-block": "{% filter upper %}x{% endfilter %}",
    "star": "{{ range(*[1, 2]) }}",
    "stars": "{{ 'a'.split(**{'sep': 'a'}) }}",
}
COST = {
    "center": "{{ 'a'.center(3000000000) }}",
    "center-filter": "{{ 'a' | center(3000000000) }}",
    "center-mapped": "{{ ['a'] | map('center', 3000000000) | list }}",
    "ljust": "{{ 'a'.ljust(3000000000) }}",
    "zfill": "{{ '1'.zfill(3000000000) }}",
    "expandtabs": "{{ '\t'.expandtabs(3000000000) }}",
    "percent": "{{ '%03000000000d' % 1 }}",
    "percent-filter": "{{ '%03000000000d' | format(1) }}",
    "percent-in-a-test": "{{ '%03000000000d' is odd }}",
    "percent-in-another": "{{ '%03000000000d' is divisibleby 3 }}",
    "percent-in-a-selection": "{{ ['%03000000000d'] | select('even') | list }}",
    "format": "{{ '{:>3000000000}'.format(1) }}",
    "replace": "{{ big | replace('x', big) }}",
    "replace-nothing": "{{ big.replace('', big) }}",
    "replace-of-each": "{{ nums | map('replace', '', big) | list }}",
    "join": "{{ big | join(big) }}",
    "join-method": "{{ big.join(big) }}",
    "indent": "{{ lines | indent(3000000000) }}",
    "indent-by-text": "{{ lines | indent(big) }}",
    "wordwrap": "{{ big | wordwrap(1, true, big) }}",
    "batch": "{{ [1] | batch(3000000000, 'x') | list }}",
    "slice": "{{ [1] | slice(3000000000) | list }}",
    "round": "{{ 1 | round(-3000000000) }}",
    "round-up": "{{ 1 | round(3000000000, 'ceil') }}",
    "times": "{{ 'x' * 10000000000 }}",
    "list-times": "{{ [question] * 10000000000 }}",
    "list-plus": "{{ nums + nums }}",
    "power": "{{ 9 ** 9 ** 9 }}",
    "power-not-taken": "{{ 'a' if true else 2 ** 99999999 }}",
    "squares": "{% set n = 99999999999 %}" + "{% set n = n * n %}" * 40 + "{{ n }}",
    "digits": "{{ " + "9" * 90_000 + " }}",
    "hex-digits": "{{ 0x" + "f" * 90_000 + " }}",
    "range": "{{ range(3000000000) | sum }}",
    "nested-ranges": "{% for i in range(9999) %}{% for j in range(9999) %}x{% endfor %}"
    "{% endfor %}",
    "silent-ranges": "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
    "range-if": "{% for i in range(99999) if range(99999) | sum %}{% endfor %}",
    "self-calling-macro": "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "recursive-loop": "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
    "doubled-text": doubled("'aaaaaaaa'", "{a} ~ {a}"),
    "doubled-sum": doubled("'aaaaaaaa'", "{a} + {a}"),
    "doubled-list": doubled("[1, 2]", "[{a}, {a}]"),
    "doubled-mapping": doubled("[1, 2]", "{{1: {a}, 2: {a}}}"),
    "doubled-block": "{% set a %}aaaaaaaa{% endset %}"
    + "{% set a %}{{ a }}{{ a }}{% endset %}" * 60 + "{{ a }}",
    "search": "{% for i in range(99999) %}{% if 'zz' in big %}{% endif %}{% endfor %}",
    "index": "{% for i in nums %}{% if nums.index(49999) %}{% endif %}{% endfor %}",
    "in-of-each": "{{ nums | select('in', nums) | list }}",
    "sort": "{{ [big, big, big, big, big, big, big, big] | sort }}",
    "deep-list": "{% set a = [1] %}" + "{% set a = [a] %}" * 500 + "{{ a }}",
    "parentheses": "{{ " + "(" * 10_000 + "1" + ")" * 10_000 + " }}",
    "brackets": "{{ " + "[" * 10_000 + "]" * 10_000 + " }}",
    "nots": "{{ " + "not " * 20_000 + "1 }}",
    "signs": "{{ " + "-" * 50_000 + "1 }}",
    "json-indent": "{{ nums | tojson(indent=3000000000) }}",
    "json-indent-by-text": "{{ nums | tojson(big) }}",
    "json": "{{ big | tojson }}",
    "sums": "{{ " + "+".join("1" * 5_000) + " }}",
    "filters": "{{ 1" + " | abs" * 3_000 + " }}",
    "dots": "{{ question" + ".a" * 5_000 + " }}",
    "loops": "{% for x in [1] %}" * 200 + "{% endfor %}" * 200,
    "length": "x" * 200_000,
}  # fmt: skip
SHAPE = {
    "surrogate": "{{ '\\ud800' }}",
    "unknown-filter": "{{ 1 | nothing }}",
    "unknown-test": "{{ 1 is nothing }}",
    "unknown-field": "{{ nobody }}",
    "no-end": "{{ question",
    "no-condition": "{% if %}",
    "by-nought": "{{ 1 / 0 }}",
    "infinity": "{{ (1e308 * 10) | int }}",
    "list-as-a-key": "{{ {[1]: 2} }}",
    "unknown-argument": "{{ 'a'.split(nothing=1) }}",
    "escape-sequence": "{{ '\\x1b]0;owned\\x07' | abs }}{{ '\n\n' }}",
    "names": "{% set a, b = [1] %}",
}
REFUSED = COST["self-calling-macro"]
ALL = {**REACH, **COST, **SHAPE}


@pytest.mark.parametrize("case", ALL)
def test_a_hostile_template_ends_in_one_line(case: str) -> None:
    with pytest.raises(SpecError) as refused:
        prompts.render_template(ALL[case], FIELDS, "step x")
    line = one_line(refused.value)
    assert line.startswith("step x: ")
    assert len(line) <= templates.LINE


def inside(text: str) -> str:
    """The expression in a template that holds one alone."""
    return text.removeprefix("{{").removesuffix("}}")


BARE = [
    case for case, text in ALL.items()
    if text.startswith("{{") and text.endswith("}}") and text.count("{{") == 1
]  # fmt: skip


@pytest.mark.parametrize("case", BARE)
def test_a_hostile_expression_ends_in_one_line(case: str) -> None:
    with pytest.raises(SpecError) as refused:
        prompts.evaluate_expression(inside(ALL[case]), FIELDS)
    one_line(refused.value)


@pytest.mark.parametrize("key", ["where", "key", "question", "inputs.more", "hidden.more"])
def test_a_hostile_expression_of_a_task_names_file_and_key(key: str) -> None:
    with pytest.raises(SpecError, match=rf"demo\.yaml .*: rows\.{key}: .*'center' cannot be"):
        catalog.load_spec(TaskSpec, "tasks", "demo", sets={f"rows.{key}": "id.center(3000000000)"})


def test_a_hostile_expression_of_a_run_names_task_and_key() -> None:
    """A manifest is read as it is: what it says is met by the first row."""
    demo = catalog.load_spec(TaskSpec, "tasks", "demo")
    hostile = demo.model_copy(
        update={"rows": demo.rows.model_copy(update={"key": "id.center(3000000000)"})}
    )
    with pytest.raises(DataError, match=r"task demo: rows\.key: .*'center' cannot be called"):
        load_examples(hostile, 0)


@pytest.mark.parametrize(
    ("model", "kind", "name", "key"),
    [
        (TaskSpec, "tasks", "demo", "overrides.direct.systems.assistant"),
        (TaskSpec, "tasks", "demo", "overrides.direct.steps.question"),
        (ProtocolSpec, "protocols", "direct", "speakers.assistant.system"),
        (JudgeSpec, "judges", "rubric", "system"),
        (JudgeSpec, "judges", "rubric", "prompt"),
    ],
)
def test_a_hostile_template_of_a_spec_names_file_and_key(
    model: type[Any], kind: str, name: str, key: str
) -> None:
    with pytest.raises(
        SpecError, match=rf"{name}\.yaml .*{key}: .*macro is not allowed in templates"
    ):
        catalog.load_spec(model, kind, name, sets={key: REFUSED})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{% for c in choices %}{{ c.label }}. {{ c['text'] }}{{ ', ' if not loop.last }}"
         "{% endfor %}", "A. x, B. y"),
        ("{{ choices | map(attribute='text') | join('/') }}", "x/y"),
        ("{{ choices | selectattr('label', 'eq', 'B') | map(attribute='text') | first }}", "y"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}{% endfor %}", "a=1"),
        ("{% set x = 1 %}{% for c in choices %}{% set x = 2 %}{% endfor %}{{ x }}", "1"),
        ("{% if nums | length > 3 and 7 in nums %}{{ nums[:3] }}{% endif %}", "[0, 1, 2]"),
        ("{{ nobody | default('none') }} {{ nobody is defined }}", "none False"),
        ("{{ question.strip().split(' ')[0] | upper }} {{ 7 // 2 }} {{ 1.5 | round }}",
         "WHAT 3 2.0"),
        ("{% with a = 2 %}{{ a * 3 }}{% endwith %}{% set b %}<{{ 1 }}>{% endset %}{{ b }}", "6<1>"),
        ("{% for x in [] %}{% else %}nothing{% endfor %}{# a comment #}", "nothing"),
        ("{{ '%s' }}{% raw %}{{ x }}{% endraw %}", "%s{{ x }}"),
        ("{{ {'b': [1, none, true]} | tojson }}", '{"b": [1, null, true]}'),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{{ '' | default('b', boolean=true) }}{{ no | d('c', true) }}{{ 0 | d('e') }}", "bc0"),
    ],
)  # fmt: skip
def test_what_templates_need_still_works(text: str, said: str) -> None:
    assert prompts.render_template(text, FIELDS) == said


# -- the world of a template


@dataclass(frozen=True)
class Record:
    """A record of a user's own."""

    when: date
    names: tuple[str, ...]


class Loud(str):
    """Text with a will of its own."""

    __slots__ = ()

    def __str__(self) -> str:
        raise AssertionError("called")


PLAIN = (str, int, float, bool, type(None), list, dict)


def reachable(value: Any) -> Iterator[Any]:
    """Everything in a value."""
    yield value
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from reachable(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from reachable(item)


def assert_plain(fields: dict[str, Any]) -> None:
    """Fail where a template could reach something else than plain data."""
    world = templates.plain_fields(fields, fields, templates.WorkBudget())
    assert set(world) == set(fields)
    assert [type(item) for item in reachable(world) if type(item) not in PLAIN] == []


def test_whatever_comes_in_is_plain() -> None:
    record = Record(date(2024, 2, 3), (Loud("a"), "b"))
    world = templates.plain_fields(
        ["record", "example", "row"],
        {"record": record, "example": QUESTION, "row": {"x": b"\0", 1: {2}, "f": print}},
        templates.WorkBudget(),
    )
    assert world["record"] == {"when": "2024-02-03", "names": ["a", "b"]}
    assert world["example"] == json.loads(QUESTION.model_dump_json())
    assert world["row"] == {1: [2]}
    assert [type(item) for item in reachable(world) if type(item) not in PLAIN] == []


@pytest.mark.parametrize("value", [b"\0", print, object(), iter([1]), Record, templates, [b""]])
def test_what_is_no_data_is_refused(value: object) -> None:
    with pytest.raises(SpecError, match=r"step x: thing: found a .*; expected text, numbers"):
        prompts.render_template("{{ thing }}", {"thing": value}, "step x")


def test_a_field_that_holds_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(SpecError, match="nested more than"):
        prompts.render_template("{{ thing }}", {"thing": circle})


EXAMPLES = ("ours", "demo", "pocket", "pocket-clarify", "pocket-collaboration", "pocket-notes")
"""One of our own, and the shipped tasks that need no download."""


@cache
def example_of(name: str) -> Example:
    """A real example of a task."""
    if name == "ours":
        return QUESTION
    task = catalog.load_spec(TaskSpec, "tasks", name, sets={"sample.count": 2})
    return load_examples(task, 0).examples[0]


TASKS = {name: catalog.load_spec(TaskSpec, "tasks", name) for name in catalog.spec_files("tasks")}


@pytest.mark.parametrize(
    ("task", "protocol"), by_turns(sorted(catalog.spec_files("tasks")), PROTOCOLS)
)
def test_every_speaker_of_every_task_and_protocol_gets_plain_data(task: str, protocol: str) -> None:
    """Whatever it sees, of each of the examples."""
    spec = protocol_of(protocol)
    for item in map(example_of, EXAMPLES):
        for mode in spec.modes:
            base = prompts.template_fields(item, TASKS[task], mode, 3)
            for speaker in spec.speakers.values():
                sees = tuple(n for n in speaker.sees if n in {*item.hidden, "answer"})
                assert_plain({**base, **prompts.hidden_fields(item, sees)})


@pytest.mark.parametrize(("protocol", "example"), by_turns(PROTOCOLS, EXAMPLES))
def test_every_judge_gets_plain_data(protocol: str, example: str) -> None:
    _, said = played(protocol_of(protocol))
    assert_plain(judge_fields(example_of(example), transcript(said)))


@pytest.mark.parametrize("name", ["demo", "pocket", "pocket-collaboration", "pocket-notes"])
def test_every_expression_gives_plain_data(name: str) -> None:
    for example in load_examples(
        catalog.load_spec(TaskSpec, "tasks", name, sets={"sample.count": 5}), 0
    ).examples:
        found = [*example.inputs.values(), *example.hidden.values()]
        assert [type(x) for v in found for x in reachable(v) if type(x) not in PLAIN] == []


@pytest.mark.parametrize("name", ["rubric", "rubric-section4"])
def test_the_shipped_judges_render(name: str) -> None:
    spec = catalog.load_spec(JudgeSpec, "judges", name)
    _, said = played(protocol_of("direct"))
    fields = judge_fields(QUESTION, transcript(said))
    assert prompts.render_template(spec.prompt or "", fields, name)


# -- the payload, through every door

KEY = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "http://127.0.0.1:9"}
RECORDS = ("examples.jsonl", "conversations.jsonl")


def payload(proof: Path) -> str:
    """A template that once ran a command of the shell."""
    pickled = f"cos\\nsystem\\n(S'id > {proof}'\\ntR."
    return f'{{{{ choices[0].parse_raw("{pickled}", proto="pickle", allow_pickle=true) }}}}'


def hostile_specs(folder: Path, proof: Path) -> Path:
    """A folder of specs with the payload in a protocol's system prompt."""
    value = yaml.safe_load((catalog.shipped_folder() / "protocols" / "direct.yaml").read_text())
    value["speakers"]["assistant"]["system"] = payload(proof)
    file = folder / "specs" / "protocols" / "evil.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump(value))
    return folder / "specs"


def refused(done: Any, proof: Path) -> None:
    """One line, and no command ran."""
    assert not proof.exists(), "a template ran a command"
    assert "'parse_raw' cannot be called" in done.out + done.err, done.out + done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("door", ["show", "build --dry-run", "build"])
def test_the_payload_of_a_spec_runs_nothing(door: str, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    specs = hostile_specs(tmp_path, proof)
    more = [] if door == "show" else ["--tasks", "2", "--model", "openai/m"]
    done = convbench(
        tmp_path, *door.split(), "demo", "--protocol", "evil", "--specs", str(specs), *more,
        extra=KEY,
    )  # fmt: skip
    refused(done, proof)


@pytest.fixture(scope="module")
def sound(served: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound run, as somebody would publish it."""
    folder = tmp_path_factory.mktemp("sound")
    done = convbench(
        folder, "build", "demo", "--protocol", "direct", "--tasks", "10", "--run", "sound",
        "--model", "openai/m", "--api-base", f"{served}/v1", extra=KEY,
    )  # fmt: skip
    assert done.code == 0, done.err
    return folder / "sound"


@pytest.mark.parametrize("place", first_of(["system", "step", "override"]))
def test_the_payload_of_a_pulled_set_runs_nothing(
    place: str, sound: Path, hub: Client, provider: str, tmp_path: Path
) -> None:
    """A set whose manifest was poisoned on the Hub: pulled, evaluated, resumed."""
    proof, run = tmp_path / "proof", tmp_path / "pulled"
    manifest = json.loads((sound / "run.json").read_text())
    poison(manifest, place, payload(proof))
    files = {f"run/{name}": (sound / name).read_bytes() for name in RECORDS}
    hub.hub.add_repo(f"alice/{place}", {**files, "run/run.json": json.dumps(manifest).encode()})
    client = hub.hub.client_env(tmp_path / "hf", "hf_alice") | KEY
    pulled = convbench(tmp_path, "pull", f"alice/{place}", "--run", str(run), extra=client)
    assert pulled.code == 0, pulled.err
    (run / "conversations.jsonl").write_bytes(b"")  # so that there is something to resume
    for command in ("eval openai/m --name again", "build"):
        done = convbench(
            tmp_path, *command.split(), "--run", str(run), "--api-base", f"{provider}/v1",
            extra=client,
        )  # fmt: skip
        records = [file.read_text() for file in run.rglob("conversations.jsonl")]
        assert not proof.exists(), "a template ran a command"
        assert "Traceback" not in done.err
        assert "'parse_raw' cannot be called" in "".join([done.err, *records])


def poison(manifest: dict[str, Any], place: str, text: str) -> None:
    """Put a template where the policy's prompt is made."""
    protocol = manifest["protocol"]
    if place == "system":
        protocol["speakers"]["assistant"]["system"] = text
    elif place == "step":
        protocol["steps"][0]["say"] = text
    else:
        manifest["task"]["overrides"] = {protocol["name"]: {"systems": {"assistant": text}}}
