"""Any YAML whatever gives a spec or a SpecError of one line, and a spec can be written down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from convbench import catalog
from convbench.catalog.load import check_spec
from convbench.catalog.read import parse_yaml
from convbench.errors import SpecError
from convbench.schema import JudgeSpec, ProtocolSpec, TaskSpec, fingerprint

MODELS: dict[str, type[Any]] = {"tasks": TaskSpec, "protocols": ProtocolSpec, "judges": JudgeSpec}
QUICK = settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


def spec_or_error(kind: str, text: str) -> bool:
    """Return whether the text is a spec; anything but a SpecError of one line goes up."""
    try:
        value = parse_yaml(text, "my.yaml")
        spec = check_spec(MODELS[kind], {"name": "mine", **value}, "my.yaml")
    except SpecError as error:
        line = str(error)
    else:
        line = ""
    if line:
        assert line.startswith("my.yaml:")
        assert "\n" not in line
        return False
    again = MODELS[kind].model_validate_json(spec.model_dump_json())
    assert fingerprint(again) == fingerprint(spec), "what a run records must read back the same"
    return True


SHIPPED = {
    kind: {name: path.read_text("utf-8") for name, path in catalog.spec_files(kind).items()}
    for kind in MODELS
}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.dates(),
    st.binary(max_size=4),
    st.sampled_from(["thinking", "standard", "turns", "extra", "a:b", "{{ x }}", "1e999"]),
)
FIELDS = sorted({name for model in MODELS.values() for name in model.model_fields})
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=6), st.sampled_from(FIELDS)), inner, max_size=3),
    ),
    max_leaves=12,
)


@QUICK
@given(kind=st.sampled_from(sorted(MODELS)), text=st.text(max_size=80))
def test_any_text(kind: str, text: str) -> None:
    spec_or_error(kind, text)


YAMLISH = st.lists(
    st.sampled_from(
        [*FIELDS, *"-?:,[]{}&*#!|>'\"%@` ", "\n", "\n  ", ": ", "- ", "!!int ", "!!timestamp ",
         "!!map ", "&a ", "*a", "<<: ", "0x", "1_0", ".inf", ".nan", "2020-01-01", "~", "---"]
    ),
    max_size=25,
)  # fmt: skip


@QUICK
@given(kind=st.sampled_from(sorted(MODELS)), pieces=YAMLISH)
def test_any_text_that_looks_like_yaml(kind: str, pieces: list[str]) -> None:
    spec_or_error(kind, "".join(pieces))


@QUICK
@given(
    kind=st.sampled_from(sorted(MODELS)),
    value=st.dictionaries(st.sampled_from(FIELDS), values, max_size=5),
)
def test_any_values(kind: str, value: dict[str, Any]) -> None:
    spec_or_error(kind, yaml.safe_dump(value, allow_unicode=True))


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every node."""
    if not isinstance(value, dict | list):
        return [at]
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    return [at] + [way for key, item in inner for way in places(item, (*at, key))]


@QUICK
@given(data=st.data(), kind=st.sampled_from(sorted(MODELS)))
def test_shipped_specs_with_one_value_changed(data: st.DataObject, kind: str) -> None:
    text = SHIPPED[kind][data.draw(st.sampled_from(sorted(SHIPPED[kind])))]
    value = yaml.safe_load(text)
    value.pop("extends", None)
    way = data.draw(st.sampled_from([way for way in places(value) if way]))
    at = value
    for part in way[:-1]:
        at = at[part]
    if data.draw(st.booleans()) and isinstance(at, dict):
        del at[way[-1]]
    else:
        at[way[-1]] = data.draw(values)
    spec_or_error(kind, yaml.safe_dump(value, allow_unicode=True))


@QUICK
@given(data=st.data(), kind=st.sampled_from(sorted(MODELS)))
def test_shipped_specs_with_a_piece_torn_out(data: st.DataObject, kind: str) -> None:
    text = SHIPPED[kind][data.draw(st.sampled_from(sorted(SHIPPED[kind])))]
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(1, 40))
    put = data.draw(st.sampled_from(["", ":", "- ", "{", "\t", "\0", "é", "&a ", "\n\n  x"]))
    spec_or_error(kind, text[:start] + put + text[start + length :])


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_the_shipped_ones_are_specs(kind: str) -> None:
    """So that the tests above cannot pass by refusing everything."""
    whole = [text for text in SHIPPED[kind].values() if "\nextends:" not in text]
    assert whole
    assert all(spec_or_error(kind, text) for text in whole)


ODD = {
    "title: *x": "aliases",
    "a: &x [1]\nb: *x": "line 2, column 4: not valid YAML: aliases",
    "title: !!timestamp foo": "tags",
    "title: !!int ''": "tags",
    "title: !!python/object/apply:os.system [id]": "tags",
    "!!set {title}": "tags",
    "title: !!binary /w==": "tags",
    "title: x\ntitle: y": "key 'title' is repeated",
    "title: 2020-01-01": "title: found the date 2020-01-01; expected text, so put it in quotes",
    "source: {args: {x: .inf}}": "source.args.x: found inf; expected a finite number",
    "source: {args: {x: 99999999999999999999}}": "more than 64 bits",
    "overrides: {no: {}}": "overrides: found the key False; expected text",
    "[a, b]": "found list; expected a mapping of keys",
    "": "found NoneType; expected a mapping",
    "title: [": "line 2, column 1",
    "title: '\x07'": "not valid YAML",
    "a: " + "[" * 41 + "]" * 41: "nested more than 40 deep",
    "- " * 5000: "nested more than 40 deep",
}


@pytest.mark.parametrize("text", ODD, ids=lambda text: repr(text[:30]))
def test_odd_yaml_says_what_is_odd(text: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_yaml(text, "my.yaml")
    assert ODD[text] in str(refused.value)
    assert str(refused.value).startswith("my.yaml:")


def test_a_file_of_brackets_does_not_crash_the_process(tmp_path: Path) -> None:
    """The C parser has no guard of its own: half a million brackets end it with a signal."""
    (tmp_path / "deep.yaml").write_text("a: " + "[" * 500_000)
    code = (
        "from pathlib import Path; from convbench.catalog.read import read_yaml; "
        "read_yaml(Path('deep.yaml'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "SpecError" in done.stderr


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "big.yaml").write_bytes(b"title: " + b"x" * 1_000_001)
    with pytest.raises(SpecError, match="found more than 1,000,000 bytes; expected fewer"):
        catalog.load_spec(TaskSpec, "tasks", str(tmp_path / "big.yaml"))
