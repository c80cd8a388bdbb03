"""A pulled set names addresses, models, files and limits: none of them is followed unasked.

Real publish, real pull from a local Hub, real commands; one local server plays the stranger's
address and keeps what arrives, another the user's own provider.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from convbench import catalog
from convbench.engine.session import Session
from convbench.errors import ConvbenchError
from convbench.experiments.rounds import run_rounds
from convbench.judges.adaptation.settings import InnerSettings, training_texts
from convbench.judges.run import judges_of
from convbench.options.shared import CallOptions
from convbench.options.train import RoundsOptions
from convbench.rollout.calls import check_named
from convbench.schema import ImagePart, JudgeSpec, ModelConfig
from convbench.store import Run
from convbench.store.portable import make_portable, portable_text, within_limits
from tests.helpers import stages
from tests.helpers.hub_client import Client
from tests.helpers.published import fetch
from tests.helpers.runs import conversation, write_run
from tests.support.recorder import Recorder

KEY = "sk-users-own-key-0123456789abcdef"
Value = dict[str, Any]
QUIET = CallOptions(quiet=True)


@pytest.fixture(scope="module")
def stranger() -> Iterator[Recorder]:
    """The address that a hostile set names."""
    with Recorder() as server:
        yield server


@pytest.fixture(scope="module")
def own() -> Iterator[Recorder]:
    """The user's own provider."""
    with Recorder() as server:
        yield server


@pytest.fixture(autouse=True)
def user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: Recorder, stranger: Recorder
) -> None:
    """A user with a key and a provider, in a folder of their own, at no terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", own.api_base)
    own.arrived.clear()
    stranger.arrived.clear()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files of an honest published set: one question, a teacher who speaks, rules as judge."""
    place = tmp_path_factory.mktemp("base")
    made = stages.build(
        "demo",
        protocol="clarifying",
        tasks=4,
        samples=1,
        model="scripted:policy",
        teacher="scripted:policy",
        run=place / "run",
    )
    assert made.path
    stages.judge(made.path, "rules")
    stages.publish(Run.open(made.path), "mallory/set", folder=place / "set")
    files = sorted(path for path in (place / "set").rglob("*") if path.is_file())
    return {path.relative_to(place / "set").as_posix(): path.read_bytes() for path in files}


Change = Callable[[Value], object]


def pulled(
    hub: Client, files: dict[str, bytes], place: Path, change: Change, spec: Value | None = None
) -> Path:
    """Pull the set with a changed run.json and, with `spec`, another judge; where it lies."""
    manifest = json.loads(files["run/run.json"])
    change(manifest)
    new = {**files, "run/run.json": json.dumps(manifest).encode()}
    if spec is not None:
        new = {name: data for name, data in new.items() if "run/judges/" not in name}
        new["run/judges/beef.json"] = json.dumps(spec).encode()
        lines = [json.loads(line) for line in files["run/verdicts.jsonl"].splitlines()]
        renamed = [json.dumps({**line, "judge": "j", "fingerprint": "beef"}) for line in lines]
        new["run/verdicts.jsonl"] = ("\n".join(renamed) + "\n").encode()
    hub.hub.add_repo("mallory/set", new)
    return Path(hub(fetch, "mallory/set", place / "pulled"))


def rubric(**more: Any) -> Value:
    """A rubric judge as a stranger would keep it."""
    spec = catalog.load_spec(JudgeSpec, "judges", "rubric").model_dump(mode="json")
    return {**spec, "name": "j", "model": "openai/judge", **more}


def keep(_: Value) -> None:
    """Change nothing."""


def teacher(**more: Any) -> Change:
    """Give the teacher's member these values."""
    return lambda m: m["cast"]["teacher"].update({"model": "openai/teacher", **more})


def policy(**more: Any) -> Change:
    """Give the policy's member these values."""
    return lambda m: m["cast"]["assistant"].update({"model": "openai/policy", **more})


def lose(run: Path) -> None:
    """Take one conversation away, so that a resume has something to do."""
    file = run / "conversations.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))


def evaluated(run: Path, **more: Any) -> None:
    """`eval scripted:policy --run RUN`."""
    result = stages.evaluate_result("scripted:policy", run, split="train", **more)
    for judged in result.judged.summaries if result.judged else ():
        if judged.jobs.stopped:
            raise judged.jobs.stopped


def judged_again(run: Path) -> None:
    """`judge --run RUN`, with the judge that the task names."""
    stages.judge(run)


def resumed(run: Path) -> None:
    """`build --run RUN` of a run that lacks a conversation."""
    lose(run)
    stages.build(run=run)


COMMANDS = {"eval": evaluated, "judge": judged_again, "resume": resumed}


def attack(address: str) -> dict[str, tuple[str, Change, Value | None]]:
    """Every way we know to name an address: (command that follows it, manifest, judge)."""
    host = address.split("://")[1]
    return {
        "teacher": ("eval", teacher(api_base=address), None),
        "teacher-resume": ("resume", teacher(api_base=address), None),
        "policy-resume": ("resume", policy(api_base=address), None),
        "query": ("eval", teacher(api_base=f"{address}?x=1"), None),
        "user": ("eval", teacher(api_base=f"http://a:bcd@{host}"), None),
        "weights": ("resume", policy(api_base=address, weights="/etc"), None),
        "eval-kind": (
            "resume", lambda m: (policy(api_base=address)(m), m.update(kind="eval")), None),
        "forged": (
            "eval", lambda m: (teacher(api_base=address)(m), m.update(pulled_from=None)), None),
        "forged-other": (
            "eval", lambda m: (teacher(api_base=address)(m), m.update(pulled_from="")), None),
        "judge": ("eval", keep, rubric(api_base=address)),
        "judge-forged": (
            "eval", lambda m: m.update(pulled_from=None), rubric(api_base=address)),
        "judge-args": (
            "eval", keep,
            rubric(args={"base_url": address, "api_base": address, "api_key": "os.environ/X",
                         "extra_body": {"u": address}, "extra_headers": {"a": "b"}})),
        "judge-reference": ("eval", keep, rubric(model=f"huggingface/{address}")),
        "reference": ("eval", teacher(model=f"huggingface/{address}"), None),
        "task-judge": ("judge", lambda m: m["task"].update(judge="openai/judge"), None),
    }  # fmt: skip


@pytest.mark.parametrize("case", list(attack("http://h/v1")))
def test_nothing_is_sent_unasked(
    case: str, hub: Client, base: dict[str, bytes], own: Recorder, stranger: Recorder,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Neither to a stranger's address nor, at the user's cost, to their own provider; the one
    line names the model, where it would go and what to type."""
    monkeypatch.setenv("HUGGINGFACE_API_KEY", "hf_users_own_token_0123456789")
    command, change, spec = attack(stranger.api_base)[case]
    run = pulled(hub, base, tmp_path, change, spec)
    with pytest.raises(ConvbenchError) as caught:
        COMMANDS[command](run)
    assert stranger.arrived == []
    assert own.arrived == []
    line = str(caught.value)
    assert "\n" not in line
    if "reference" not in case:
        where = own.api_base.split("/")[2]
        name = {"eval": "openai/teacher", "resume": "openai/policy", "judge": "openai/judge"}
        model = "openai/judge" if spec else name[command].replace(
            "policy", "teacher" if case == "teacher-resume" else "policy")  # fmt: skip
        assert f"--allow-calls {model}@{where}" in line


LEARNERS: dict[str, tuple[Change, Value | None, Callable[[Path], object]]] = {
    "rounds-judge": (
        keep,
        rubric(),
        lambda run: (without_verdict(run), run_rounds(RoundsOptions("swift", 1, run, calls=QUIET))),
    ),
    "rounds-task-judge": (
        lambda m: m["task"].update(judge="openai/judge"),
        None,
        lambda run: (forget_judges(run), run_rounds(RoundsOptions("swift", 1, run, calls=QUIET))),
    ),
}


def without_verdict(run: Path) -> None:
    """Take a verdict away, so that a judge has something to do."""
    file = run / "verdicts.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))


def forget_judges(run: Path) -> None:
    """Take all verdicts away."""
    (run / "verdicts.jsonl").unlink()


@pytest.mark.parametrize("case", LEARNERS)
def test_learners_that_sample_ask_first(
    case: str, hub: Client, base: dict[str, bytes], own: Recorder, tmp_path: Path
) -> None:
    """Before anything is sampled, judged or trained."""
    change, spec, learn = LEARNERS[case]
    run = pulled(hub, base, tmp_path, change, spec)
    if spec is not None:
        as_judged_here(run)
    with pytest.raises(ConvbenchError, match=r"--allow-calls openai/(judge|teacher|policy)@"):
        learn(run)
    assert own.arrived == []
    assert not list(run.glob("checkpoints/*/training.json"))


def as_judged_here(run: Path) -> None:
    """Write verdicts as those of the judge that this version makes of the kept spec."""
    mark = judges_of(Run.open(run))[0].fingerprint
    file = run / "verdicts.jsonl"
    file.write_text(file.read_text().replace('"beef"', f'"{mark}"'))
    (run / "judges" / "beef.json").rename(run / "judges" / f"{mark}.json")


def test_a_copied_run_is_trusted_like_a_script(base: dict[str, bytes], tmp_path: Path) -> None:
    """A run folder that came by other ways than `pull` says nowhere that it was pulled."""
    for name, data in base.items():
        if name.startswith("run/"):
            file = tmp_path / "copied" / name.removeprefix("run/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    run = Run.open(tmp_path / "copied")
    address = "http://models.invalid:8000/v1"
    check_named(run, "openai/teacher", address, QUIET, Session())
    pulled = Run(run.path, run.manifest.model_copy(update={"pulled_from": "mallory/set@abc"}))
    typed, session = CallOptions(api_base=address), Session().naming("openai/teacher")
    check_named(pulled, "openai/teacher", address, typed, session)
    for other in ("http://models.invalid:8001/v1", "https://models.invalid:8000/v1",
                  "http://models.invalid:8000@evil.invalid/v1"):  # fmt: skip
        with pytest.raises(ConvbenchError, match="--allow-calls openai/teacher@"):
            check_named(pulled, "openai/teacher", other, typed, session)


@pytest.mark.parametrize("name", ["./p.yaml", "/tmp/p.yaml", "p.yml", "../protocols/x", "A b"])
def test_a_checkpoint_s_recipe_reads_no_file(
    name: str, base: dict[str, bytes], hub: Client, tmp_path: Path
) -> None:
    """`eval FOLDER` of another's checkpoint: its recipe names protocols, not files."""
    run = pulled(hub, base, tmp_path, keep)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(json.dumps({"eval_protocol": name}))
    with pytest.raises(ConvbenchError, match="expected a protocol's name"):
        stages.evaluate(str(folder), run)


def test_what_is_kept_of_a_pulled_set(
    hub: Client, base: dict[str, bytes], stranger: Recorder, tmp_path: Path
) -> None:
    """Addresses, files and keys are gone from every file, models stay by name."""
    spec = rubric(
        api_base=stranger.api_base, file="/etc/passwd",
        args={"base_url": stranger.api_base, "learner": "/home/eve/x", "nested": [
            {"api_key": "k", "headers": {"a": "b"}, "model_path": "/home/eve/y"}]},
    )  # fmt: skip
    run = pulled(hub, base, tmp_path, teacher(api_base=stranger.api_base, weights="/etc"), spec)
    for file in [run / "run.json", *(run / "judges").iterdir()]:
        text = file.read_text()
        for word in (stranger.api_base, "/etc", "/home/eve", '"k"'):
            assert word not in text, file
    back = Run.open(run)
    assert back.manifest.cast["teacher"].model == "openai/teacher"
    assert back.judge_specs()["beef"].model == "openai/judge"


@pytest.mark.parametrize("case", ["teacher", "judge"])
def test_consent_names_model_and_host(
    case: str, hub: Client, base: dict[str, bytes], own: Recorder, stranger: Recorder,
    tmp_path: Path,
) -> None:  # fmt: skip
    """With it the user's own provider is asked, with their key; for another it does not hold."""
    _, change, spec = attack(stranger.api_base)[case]
    run = pulled(hub, base, tmp_path, change, spec)
    host = own.api_base.split("/")[2]
    for wrong in (f"openai/other@{host}", f"openai/{case}@api.openai.com", f"openai/{case}"):
        with pytest.raises(ConvbenchError, match="--allow-calls"):
            evaluated(run, allow_calls=(wrong,))
        assert own.arrived == []
    evaluated(run, allow_calls=(f"openai/{case}@{host}",))
    assert own.arrived
    assert all(KEY in seen for seen in own.arrived)
    assert stranger.arrived == []


def test_what_the_user_names_needs_no_consent(
    hub: Client, base: dict[str, bytes], own: Recorder, tmp_path: Path
) -> None:
    """A judge or a policy on the command line is asked at once, at the address given with it."""
    run = pulled(hub, base, tmp_path, keep)
    stages.judge(run, "openai/judge")
    assert own.arrived
    own.arrived.clear()
    result = stages.evaluate(
        "openai/mine",
        run,
        split="train",
        allow_calls=(f"openai/judge@{own.api_base.split('/')[2]}",),
    )
    assert own.arrived
    assert result.manifest.pulled_from  # what follows from a pulled run is marked too
    lose(result.path)
    with pytest.raises(ConvbenchError, match="--allow-calls openai/mine@"):
        stages.build(run=result.path)
    assert stages.build_result(run=result.path, model="openai/mine").built


def test_the_error_prints_no_control_characters(
    hub: Client, base: dict[str, bytes], own: Recorder, tmp_path: Path
) -> None:
    with pytest.raises(ConvbenchError, match=r"cast\.teacher\.model: .*found a control character"):
        pulled(hub, base, tmp_path, teacher(model="openai/asked\x1b[2K"))
    run = pulled(hub, base, tmp_path, teacher(model="openai/asked\u2028[2K"))
    with pytest.raises(ConvbenchError) as refused:
        evaluated(run)
    host = own.api_base.split("/")[2]
    assert f"--allow-calls openai/asked?[2K@{host}" in str(refused.value)
    assert "\u2028" not in str(refused.value)
    assert own.arrived == []


LIFTED = {
    "seconds": 1e9, "memory_mb": 1 << 40, "output_kb": 1e400, "file_mb": -1, "kind": "landlock",
    "modules": ["antigravity", "numpy", "convbench", "pwd.x"], "pairs": "all",
}  # fmt: skip


def test_settings_lift_no_limit(hub: Client, base: dict[str, bytes], tmp_path: Path) -> None:
    """Neither on disk nor, in a run that an older version pulled, when they are heeded."""
    spec = catalog.load_spec(JudgeSpec, "judges", "unit-tests").model_dump(mode="json")
    inner = {"max_seconds": 1e9, "max_steps": 10**9, "batch_size": 10**9, "r": True}
    args = {**LIFTED, "inner": inner, "writes_tokens": None}
    run = pulled(hub, base, tmp_path, keep, {**spec, "name": "j", "args": args, "asks": 10**9})
    kept = Run.open(run).judge_specs()["beef"]
    heeded = within_limits(JudgeSpec.model_validate({**spec, "args": args, "asks": 10**9}))
    for found in (kept, heeded):
        assert found.asks == 5
        assert found.args == {
            "seconds": 1, "memory_mb": 768, "output_kb": 1024, "file_mb": 8, "kind": "auto",
            "modules": ["numpy"], "pairs": 8, "writes_tokens": 1024,
            "inner": {"max_seconds": 600, "max_steps": 2000, "batch_size": 64, "r": 256},
        }  # fmt: skip


@pytest.mark.parametrize("name", ["unit-tests", "rubric", "adaptation", "adaptation-pocket",
                                  "render", "render-clip", "rules"])  # fmt: skip
def test_our_own_judges_pass_unchanged(name: str) -> None:
    """What the shipped specs ask for is within the limits, and no word of theirs is a place."""
    spec = catalog.load_spec(JudgeSpec, "judges", name)
    args = {key: value for key, value in spec.args.items() if key != "learner"}
    assert make_portable(spec) == spec.model_copy(update={"args": args})


@pytest.mark.parametrize("line", ["{title.__class__}", "{line:>9999999999}", "{0}", "{x}"])
def test_a_line_s_form_fills_in_title_and_line_alone(line: str) -> None:
    """Another's `inner.line` reaches no attribute and asks for no width."""
    inner = InnerSettings(line=line + " {title} {line}", passage=False)
    assert training_texts("b {title}", "a {line}", "", inner) == [f"{line} a {{line}} b {{title}}"]


PLACES = {
    "/home/me/x": "x", "~/x/y.csv": "y.csv", "../up/x": "x", "C:\\Users\\me\\x": "x",
    "file:///home/me/x": "x", "local:/home/me/x": "local:x", "human:/home/me/l.csv": "human:l.csv",
    "https://u:pw@h:1/v1?k=v#f": "https://h:1/v1", "openai/gpt-4o": "openai/gpt-4o",
    "rule:a.b:c": "rule:a.b:c", "a/b/c": "a/b/c", "What is 1/2?": "What is 1/2?",
}  # fmt: skip


@pytest.mark.parametrize("text", PLACES)
def test_places(text: str) -> None:
    """A path keeps its last part, an address no user, query or fragment, all else its words."""
    assert portable_text(text) == PLACES[text]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published folder of a run full of this machine's places; what is secret of it reads
    PLACE."""
    place = tmp_path_factory.mktemp("published")
    address = "http://PLACE.internal:8000/v1"
    cast = {
        "assistant": ModelConfig(model="local:/home/PLACE/w", api_base=address, weights="/PLACE/w"),
        "teacher": ModelConfig(model="huggingface/http://PLACE/v1"),
    }
    run = write_run(
        place / "run", count=2, cast=cast, checkpoint="/home/PLACE/checkpoint",
        extra={"file": "/PLACE/f", "api_key": "PLACE", "from": "/home/PLACE/logs/a.jsonl"},
    )  # fmt: skip
    manifest = run.manifest
    source = manifest.task.source.model_copy(update={"file": "/home/PLACE/rows/a.jsonl"})
    task = manifest.task.model_copy(update={"source": source, "judge": "human:/PLACE/x/l.csv"})
    changed = manifest.model_copy(update={"task": task})
    (run.path / "run.json").write_text(changed.model_dump_json())
    spec = JudgeSpec.model_validate(rubric(
        api_base=f"{address}?key=PLACE", file="/PLACE/labels.csv",
        args={"extra_headers": {"x": "PLACE"}, "learner": "local:/PLACE/w"},
    ))  # fmt: skip
    run.store_judge("beef", spec)
    run.media_folder.mkdir()
    (run.media_folder / "PLACE.txt").write_text("PLACE")
    for name in ("evals", "reports", "checkpoints", "rounds"):
        (run.path / name).mkdir()
        (run.path / name / "x.json").write_text('"PLACE"')
    stages.publish(Run.open(run.path), "me/set", folder=place / "set")
    return place / "set"


def test_no_place_of_this_machine_is_published(published: Path) -> None:
    """Neither in the run nor in the specs, the card, the tables, nor as a file."""
    files = [path for path in published.rglob("*") if path.is_file()]
    assert len(files) > 8
    assert not [path for path in files if b"PLACE" in path.read_bytes() or "PLACE" in path.name]
    kept = Run.open(published / "run").manifest
    assert kept.cast["assistant"].model == "local:w"
    assert kept.task.source.file == "a.jsonl"


def test_no_link_is_published(tmp_path: Path) -> None:
    """An image that is a link to another file is refused."""
    (tmp_path / "secret").write_text("x")
    turn = conversation(0).turns[1].model_copy(update={"content": (ImagePart(file="a.png"),)})
    seen = conversation(0, turns=(conversation(0).turns[0], turn))
    run = write_run(tmp_path / "run", count=1, conversations=[seen])
    run.media_folder.mkdir()
    (run.media_folder / "a.png").symlink_to(tmp_path / "secret")
    with pytest.raises(ConvbenchError, match=r"a\.png: found no such image"):
        stages.publish(run, "me/set", folder=tmp_path / "set")
    assert not (tmp_path / "set").exists()
