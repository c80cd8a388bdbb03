"""What the pages tell a reader to type: every command is one that the command line takes, and those
that ask nobody are run, in the order of their page and in one folder a page."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from convbench.judges.ask import judge_fields
from convbench.prompts import template_fields as prompt_fields
from tests.helpers.pages import BLOCK, ROOT, write_files
from tests.helpers.runs import example, manifest
from tests.support.app import app

PAGES = sorted(
    [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("howto/*.md"),
     *(ROOT / "docs").glob("tutorials/*.md")]
)  # fmt: skip
SHELLS = ("", "sh", "bash", "console")
"""Languages of blocks that are typed; a `console` block is run, as its page prints it."""
JOINED = ("&&", "|", ";", ">")


def commands(page: Path, *languages: str) -> list[list[str]]:
    """Return the words of each convbench command in a page's blocks."""
    found = []
    for language, block in BLOCK.findall(page.read_text()):
        if language in languages:
            text = block.replace("\\\n", " ")
            found += [words for line in text.splitlines() for words in _words(line)]
    return found


def _words(line: str) -> list[list[str]]:
    """Return a line's command; what stands after it and no part of it is left away."""
    line = line.split("   ")[0]
    if not line.startswith("convbench "):
        return []
    words = shlex.split(line, comments=True)
    end = next((at for at, word in enumerate(words) if word in JOINED), len(words))
    words = [word for word in words[1:end] if word not in ("...", "…")]
    return (
        []
        if any(re.fullmatch(r"[A-Z]{2,}.*<TAB>|.*<TAB>|\[.*", word) for word in words)
        else [words]
    )


def takes(words: list[str]) -> None:
    """Fail where the command line would not take these words."""
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    if words[0].startswith("-"):
        return
    assert words[0] in known, f"convbench {words[0]}: no such command"
    known[words[0]].make_context(words[0], words[1:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_of_a_page_can_be_typed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    wrong = []
    for words in commands(page, *SHELLS):
        try:
            takes(words)
        except (Exception, SystemExit) as error:
            wrong.append(f"convbench {shlex.join(words)}: {error}")
    assert not wrong, "\n".join(wrong)


def test_a_page_that_serves_weights_says_what_to_install_first() -> None:
    texts = [page.read_text() for page in PAGES]
    typed = [text for text in texts if re.search(r"^\$ transformers serve ", text, re.M)]
    assert typed
    assert all('pip install "transformers[serving]"' in text for text in typed)


RUN = [page for page in PAGES if commands(page, "console")]
LATER = ("demo",)
"""Commands that a test of their own runs."""


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run_as_printed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(page, monkeypatch)
    for words in commands(page, "console"):
        if words[0] not in LATER:
            done = CliRunner().invoke(app, words)
            allowed = (0, 1) if words[0] == "doctor" else (0,)  # it tells what is missing here
            told = f"convbench {shlex.join(words)}\n{done.output}{done.exception!r}"
            assert done.exit_code in allowed, told


OWN = ("command-line", "walkthrough")
"""Pages that a test of their own runs."""
NOT_HERE = {
    "a test of its own runs it, with a server, a shell or minutes": (
        r"^(demo|view|work|pull|experiment|models|eval|patterns)\b"
    ),
    "trains, or reads what was trained": (
        r"^train |checkpoints/|evals/swift|^credit|swift base|--verdict"
    ),
    "asks a model that is not here": (
        r"gpt-|claude|deepseek|vllm:|[Ll]lama|smollm|--model (M|local:\S+)\b|@|judge simulator"
    ),
    "draws from rows that are not here": r"^build (?!demo\b)|^show (arc|3f9a0c12)",
    "asks for a judge or a policy that is not here": r"avg\(leaked\)|--baseline ReFit",
    "needs the Hub, a provider or another program's file": (
        r"hf://|^publish (?!.*--dry-run)|^import (logs/|colbench)|--batch\b|^(status|cancel)\b"
    ),
    "reads runs that its page makes before with one of these": (
        r"runs/(big|arc|asks)\b|report runs/experiments|server=|--shards|report runs/a runs/b$"
        r"|--experiment runs/"
    ),
}
"""Which commands are only parsed, and why."""


def reason(words: list[str]) -> str | None:
    """Return why a command is not run."""
    text = shlex.join(words)
    return next((why for why, form in NOT_HERE.items() if re.search(form, text)), None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a reader of any page has it: judged runs with an evaluation, files of others."""
    here = tmp_path_factory.mktemp("reader")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        for line in (
            "build demo --model scripted:policy --tasks 12 --run runs/a --quiet",
            "judge --judge rules --run runs/a --quiet",
            "eval scripted:echo --name echo --run runs/a --quiet",
            "judge --judge rules --run runs/a/evals/echo --quiet",
            "judge --pairwise echo base --judge pairwise-rules --run runs/a --quiet",
            "query 'select conversation_id, 5 as overall from conversations' --run runs/a"
            " --format csv --out labels.csv",
        ):
            done = CliRunner().invoke(app, shlex.split(line))
            assert done.exit_code == 0, f"{line}\n{done.output}{done.exception!r}"
    said = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}
    (here / "logs.jsonl").write_text(json.dumps({"messages": said, "reward": 0.5}) + "\n")
    pair = {"prompt": "Hi", "chosen": "Hello.", "rejected": "What?"}
    (here / "pairs.jsonl").write_text(json.dumps(pair) + "\n")
    pq.write_table(pa.Table.from_pylist([pair]), here / "pairs.parquet")
    shutil.copytree(here / "runs/a", here / "runs/b")
    return here


OLDER = [page for page in PAGES if page.stem not in OWN and commands(page, "", "sh", "bash")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", OLDER, ids=lambda page: page.stem)
def test_commands_of_older_pages_run_on_what_a_reader_has(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CONVBENCH_CONFIG", "off")
    shutil.copytree(folder / "runs/a", folder / "runs" / page.stem)
    wrong = []
    for words in commands(page, "", "sh", "bash"):
        if reason(words) is None:
            latest = folder / "runs/latest"
            latest.unlink(missing_ok=True)
            latest.symlink_to(page.stem)
            done = CliRunner().invoke(app, words)
            if done.exit_code:
                wrong.append(f"convbench {shlex.join(words)}: {done.output}{done.exception!r}")
    assert not wrong, "\n".join(wrong)


def test_most_commands_of_older_pages_run_and_no_reason_is_idle() -> None:
    every = [words for page in OLDER for words in commands(page, "", "sh", "bash")]
    ran = [words for words in every if reason(words) is None]
    assert len(ran) >= 40, len(ran)
    assert {reason(words) for words in every} == {None, *NOT_HERE}


def names(section: str) -> set[str]:
    """Return the names in the tables of a section of the page on template variables."""
    text = (ROOT / "docs/howto/templates.md").read_text()
    part = text[text.index(f"## {section}") :].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_every_template_variable_is_on_its_page() -> None:
    one, told = example(0), manifest()
    assert names("In a protocol") == set(prompt_fields(one, told.task, "thinking", 3))
    several = {"first", "second", "transcripts", "marks"}
    assert names("In a judge") == set(judge_fields(one, "")) | several
    source = (ROOT / "convbench/judges/ask.py").read_text()
    assert all(f'"{name}"' in source for name in several)
