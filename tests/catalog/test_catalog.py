"""Specs are found by existing, extend each other, take `--set`, and say what is wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from convbench import catalog
from convbench.errors import SpecError
from convbench.schema import JudgeSpec, ProtocolSpec, TaskSpec

TASK = "title: mine\nsource: {rows: convbench.tasks.demo:rows}\n"
PROTOCOL = """
title: mine
speakers: {assistant: {policy: true}, teacher: {}}
steps: [{id: q, speaker: teacher, say: hello}, {id: a, speaker: assistant}]
"""
JUDGE = "title: mine\nkind: rules\nfunction: convbench.judges.rules:score\n"


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# -- finding


def test_an_earlier_folder_hides_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert catalog.load_spec(TaskSpec, "tasks", "arc").title.startswith("ARC Challenge")
    put(tmp_path, "specs/tasks/arc.yaml", TASK.replace("mine", "from here"))
    assert catalog.load_spec(TaskSpec, "tasks", "arc").title == "from here"
    put(tmp_path, "given/tasks/arc.yaml", TASK.replace("mine", "given"))
    given = [tmp_path / "given"]
    assert catalog.load_spec(TaskSpec, "tasks", "arc", specs=given).title == "given"
    assert catalog.spec_files("tasks", given)["arc"] == tmp_path / "given" / "tasks" / "arc.yaml"


def test_one_file_is_all_it_takes(tmp_path: Path) -> None:
    path = put(tmp_path, "tasks/newone.yaml", TASK)
    assert "newone" in catalog.spec_files("tasks", [tmp_path])
    assert catalog.load_spec(TaskSpec, "tasks", "newone", specs=[tmp_path]).name == "newone"
    assert catalog.load_spec(TaskSpec, "tasks", str(path)).name == "newone"


def test_a_name_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"no spec 'acr' under tasks; did you mean 'arc'\?"):
        catalog.load_spec(TaskSpec, "tasks", "acr")
    with pytest.raises(SpecError, match=r"nowhere\.yaml: .*; expected a YAML file as in specs/"):
        catalog.load_spec(TaskSpec, "tasks", "nowhere.yaml")
    with pytest.raises(SpecError, match="found no such folder"):
        catalog.load_spec(TaskSpec, "tasks", "arc", specs=[tmp_path / "absent"])


def test_a_name_cannot_lead_out_of_the_folders(tmp_path: Path) -> None:
    put(tmp_path, "secret.yaml", TASK)
    (tmp_path / "tasks").mkdir()
    with pytest.raises(SpecError, match=r"no spec|no such file"):
        catalog.load_spec(TaskSpec, "tasks", "../secret", specs=[tmp_path])


# -- extends


def test_extends_merges_mappings_and_replaces_the_rest(tmp_path: Path) -> None:
    put(tmp_path, "tasks/a.yaml", TASK + "rows: {key: id, inputs: {x: '1'}}\ninstruction: A\n")
    put(tmp_path, "tasks/b.yaml", "extends: a\nrows: {inputs: {y: '2'}}\ntitle: b\n")
    put(tmp_path, "tasks/c.yaml", "extends: b\ninstruction: C\n")
    spec = catalog.load_spec(TaskSpec, "tasks", "c", specs=[tmp_path])
    assert (spec.name, spec.title, spec.instruction) == ("c", "b", "C")
    assert (spec.rows.key, spec.rows.inputs) == ("id", {"x": "1", "y": "2"})


def test_extends_a_file_beside_it(tmp_path: Path) -> None:
    put(tmp_path, "tasks/parts/base.yaml", TASK)
    path = put(tmp_path, "tasks/child.yaml", "extends: parts/base.yaml\ntitle: child\n")
    assert catalog.load_spec(TaskSpec, "tasks", str(path)).title == "child"


@pytest.mark.parametrize("circle", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_a_circle_is_said(tmp_path: Path, circle: list[str]) -> None:
    for name, base in zip(circle, circle[1:] + circle[:1], strict=True):
        put(tmp_path, f"tasks/{name}.yaml", f"extends: {base}\n")
    with pytest.raises(SpecError, match=r"extends: .*circle\?"):
        catalog.load_spec(TaskSpec, "tasks", "a", specs=[tmp_path])


@pytest.mark.parametrize("base", ["1", "[a]", "nobody"])
def test_extends_nothing(tmp_path: Path, base: str) -> None:
    put(tmp_path, "tasks/a.yaml", f"extends: {base}\n")
    with pytest.raises(SpecError, match=r"extends: found|no spec 'nobody'"):
        catalog.load_spec(TaskSpec, "tasks", "a", specs=[tmp_path])


# -- what is wrong: file, key, found, expected

POLICY, STEP = "policy: true", "steps.0"
WRONG = {
    TaskSpec: [
        (TASK + "sample: {count: many}", ["sample.count: found 'many'"]),
        (TASK + "sample: {train: 1.5}", ["sample.train: found 1.5", "less than or equal to 1"]),
        (TASK + "tilte: x", ["tilte: unknown key; expected one of: name, title"]),
        (TASK + "rows: {chioces: x}", ["rows.chioces: unknown key", "where", "choices"]),
        ("title: mine", ["source: missing; expected a value"]),
        ("title: mine\nsource: {}", ["source", "give hub, file", "found none"]),
        (TASK + "protocol: ../etc", ["protocol", "'../etc'", "pattern"]),
        (TASK + "rows: {maker: os.system}", ["rows.maker", "'os.system'"]),
        (TASK + "instruction: {thinkign: x}", ["instruction.thinkign", "'thinking'"]),
    ],
    ProtocolSpec: [
        (
            PROTOCOL.replace(POLICY, ""),
            ["speakers: found policy: true in none; expected it in one"],
        ),
        (
            PROTOCOL.replace("speaker: teacher", "speaker: tutor"),
            ["mine.yaml: steps: no speaker tutor; expected assistant, teacher"],
        ),
        (PROTOCOL.replace("id: a", "id: q"), ["steps: found id q twice; expected each once"]),
        (PROTOCOL.replace("say: hello", "say: x, ask: y"), [STEP, "both say (scripted) and ask"]),
        (PROTOCOL.replace("say: hello", "sai: x"), [f"{STEP}.sai: unknown key", "say, ask, words"]),
        (PROTOCOL + "modes: [loud]", ["modes.0", "'loud'", "'standard'"]),
    ],
    JudgeSpec: [
        (JUDGE + "lowest: low", ["lowest: found 'low'", "number"]),
        ("title: x\nkind: rubric", ["a rubric needs system, prompt and metrics"]),
        ("title: x\nkind: oracle", ["kind: found 'oracle'", "'rubric'"]),
    ],
}
KIND: dict[type[Any], str] = {TaskSpec: "tasks", ProtocolSpec: "protocols", JudgeSpec: "judges"}
RIGHT = {TaskSpec: TASK, ProtocolSpec: PROTOCOL, JudgeSpec: JUDGE}


@pytest.mark.parametrize(
    ("model", "text", "parts"), [(model, *case) for model, cases in WRONG.items() for case in cases]
)
def test_a_wrong_spec_gets_file_key_found_and_expected(
    tmp_path: Path, model: type[Any], text: str, parts: list[str]
) -> None:
    path = put(tmp_path, f"{KIND[model]}/mine.yaml", text)
    with pytest.raises(SpecError) as refused:
        catalog.load_spec(model, KIND[model], "mine", specs=[tmp_path])
    line = str(refused.value)
    assert line.startswith(f"{path}: ")
    assert [part for part in parts if part not in line] == [], line
    assert "\n" not in line
    assert "{'" not in line, "a value of Python's, which nobody typed"
    assert "Value error" not in line


@pytest.mark.parametrize("model", RIGHT)
def test_the_right_ones_load(tmp_path: Path, model: type[Any]) -> None:
    put(tmp_path, f"{KIND[model]}/mine.yaml", RIGHT[model])
    assert catalog.load_spec(model, KIND[model], "mine", specs=[tmp_path]).title == "mine"


# -- --set

SETS = [
    ("sample.count=100", 100),
    ("sample.count=all", "all"),
    ("sample.train=0.9", 0.9),
    ("rows.shuffle=true", True),
    ("source.splits=[dev, test]", ("dev", "test")),
    ("source.revision=null", None),
    ("rows.key=", None),
    ("title=Answer: yes", "Answer: yes"),
    ("title={{ question }} and more", "{{ question }} and more"),
    ("title='007'", "007"),
    ("instruction.thinking=a=b", "a=b"),
    ("rows.inputs.new=x | upper", "x | upper"),
]


@pytest.mark.parametrize(("pair", "wanted"), SETS)
def test_a_set_value_is_yaml(pair: str, wanted: object) -> None:
    sets = catalog.parse_sets([pair])
    base = {} if "instruction" not in pair else {"instruction": {}}
    value: object = catalog.load_spec(TaskSpec, "tasks", "demo", sets={**base, **sets})
    for part in pair.partition("=")[0].split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    assert value == wanted


@pytest.mark.parametrize(
    ("pair", "line"),
    [
        ("sample.count=0.5", r"demo\.yaml with --set sample\.count: sample\.count: found 0\.5"),
        ("sample.size=5", r"demo\.yaml with --set sample\.size: sample\.size: unknown key"),
        ("sample.validation=0.5", r"0\.8 \+ 0\.5; expected at most 1 together"),
        ("title.x=5", r"--set title\.x: 'title' holds .*, not a mapping"),
        ("nothing", "expected key=value"),
        ("=5", "expected key=value"),
        ("sample.train=1e999", "found '1e999'; Input should be a finite number"),
    ],
)
def test_a_wrong_set_is_said(pair: str, line: str) -> None:
    with pytest.raises(SpecError, match=line):
        catalog.load_spec(TaskSpec, "tasks", "demo", sets=catalog.parse_sets([pair]))


def test_text_that_turns_into_an_infinity_is_refused() -> None:
    with pytest.raises(SpecError, match=r"temperature: found '1e999'; Input should be a finite"):
        catalog.load_spec(JudgeSpec, "judges", "rubric", sets={"temperature": "1e999"})


# -- Python


def test_a_plugin_file_s_functions_have_its_name(tmp_path: Path) -> None:
    path = put(tmp_path, "my_plugin_a.py", "def rows(*, seed):\n    return [seed]\n")
    try:
        catalog.load_plugin(path)
        assert catalog.find_function("my_plugin_a:rows")(seed=4) == [4]
        with pytest.raises(SpecError, match="no function 'cols'"):
            catalog.find_function("my_plugin_a:cols")
        catalog.load_plugin(path)  # again: it is loaded already
        (tmp_path / "other").mkdir()
        with pytest.raises(SpecError, match="rename the file"):
            catalog.load_plugin(put(tmp_path / "other", "my_plugin_a.py", "rows = 1\n"))
    finally:
        sys.modules.pop("my_plugin_a", None)


@pytest.mark.parametrize("code", ["1/0", "def (:", "import nothing_like_it", "raise SystemExit(3)"])
def test_a_plugin_that_breaks_is_said_and_forgotten(tmp_path: Path, code: str) -> None:
    path = put(tmp_path, "my_plugin_b.py", code)
    with pytest.raises(SpecError, match=r"--plugin .*my_plugin_b\.py: \w+"):
        catalog.load_plugin(path)
    assert "my_plugin_b" not in sys.modules
    with pytest.raises(SpecError, match="found no such file"):
        catalog.load_plugin(tmp_path / "absent.py")


DOWNLOADED = [
    "os:system",
    "subprocess:run",
    "builtins:exec",
    "convbench_evil.tasks:rows",
    "convbench.catalog:load_plugin",
    "convbench.catalog.python:load_plugin",
    "convbench.store.jsonl:write_atomic",
    "convbench.__main__:main",
    "convbench.tasks.load:find_function",
    "convbench.rollout.build:Counter",
]


@pytest.mark.parametrize("ref", DOWNLOADED)
def test_a_downloaded_spec_names_no_code_but_what_ships_for_specs(ref: str) -> None:
    with pytest.raises(SpecError, match="named by a downloaded spec"):
        catalog.find_function(ref, downloaded=True)


def test_what_shipped_specs_name_stays_open_to_downloaded_ones() -> None:
    refs = {"convbench.tasks.demo:rows"}
    for name in catalog.spec_files("tasks"):
        task = catalog.load_spec(TaskSpec, "tasks", name)
        refs |= {ref for ref in (task.source.rows, task.rows.maker) if ref}
        refs |= {m.removeprefix("rule:") for m in task.speakers.values() if m.startswith("rule:")}
    for name in catalog.spec_files("protocols"):
        checks = catalog.load_spec(ProtocolSpec, "protocols", name).checks
        refs |= {check.function for check in checks}
    for name in catalog.spec_files("judges"):
        judge = catalog.load_spec(JudgeSpec, "judges", name)
        refs |= {judge.function} if judge.function else set()
    for ref in refs:
        assert callable(catalog.find_function(ref, downloaded=True)), ref


@pytest.mark.parametrize(
    ("ref", "line"),
    [
        ("nothing_like_it:f", "cannot import 'nothing_like_it'"),
        ("json:nope", "no function 'nope'"),
        ("json:decoder", "found module; expected a function"),
    ],
)
def test_python_that_is_not_there(ref: str, line: str) -> None:
    with pytest.raises(SpecError, match=line):
        catalog.find_function(ref)


@pytest.mark.parametrize("kind", ["tasks", "protocols", "judges"])
def test_every_shipped_spec_loads_by_its_name(kind: str) -> None:
    models = {"tasks": TaskSpec, "protocols": ProtocolSpec, "judges": JudgeSpec}
    shipped = sorted((catalog.shipped_folder() / kind).glob("*.yaml"))
    assert shipped
    for path in shipped:
        assert catalog.load_spec(models[kind], kind, path.stem).name == path.stem
        assert path.read_text().startswith("# yaml-language-server: $schema=../schemas/")
