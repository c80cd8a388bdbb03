"""The style sheet: fetched by a command of the user's, checked, never while pages are rendered."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import pytest

from convbench.errors import DataError, MissingDependency
from convbench.sandbox import tailwind
from convbench.sandbox.browser import shoot
from tests.helpers.cli import convbench, environment
from tests.helpers.sandbox import OTHER, renders, shot


def npm(folder: Path, sheet: bytes) -> None:
    """Put a program `npm` into a folder that packs this style sheet."""
    packed = folder / "packed.tgz"
    with tarfile.open(packed, "w:gz") as archive:
        member = tarfile.TarInfo(f"package/{tailwind.FILE}")
        member.size = len(sheet)
        archive.addfile(member, io.BytesIO(sheet))
    program = folder / "npm"
    program.write_text(
        f"#!{sys.executable}\nimport shutil, sys\n"
        f"assert sys.argv[-1] == {tailwind.PACKAGE!r}\nshutil.copy({str(packed)!r}, sys.argv[-2])\n"
    )
    program.chmod(0o755)


def test_fetch_takes_the_one_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    target = tmp_path / "cache" / "sheet.css"
    with pytest.raises(MissingDependency, match="npm, which is not installed; run: apt-get"):
        tailwind.fetch_sheet(target)
    npm(tmp_path, b"body { background: url(http://elsewhere/) }")
    with pytest.raises(DataError, match=r"has SHA-256 .* expected [0-9a-f]{64}"):
        tailwind.fetch_sheet(target)
    assert not target.exists()
    sheet = tailwind.read_sheet()
    if not sheet:
        pytest.skip(f"no style sheet here: {tailwind.FETCH}")
    npm(tmp_path, sheet)
    tailwind.fetch_sheet(target)
    assert target.read_bytes() == sheet


def test_doctor_says_what_rendering_lacks(tmp_path: Path) -> None:
    bare = {"HOME": str(tmp_path), "PATH": str(tmp_path), "COLUMNS": "80",
            "HF_HUB_OFFLINE": "1"}  # fmt: skip
    assert "CONVBENCH_TAILWIND" not in environment()
    done = convbench(tmp_path, "doctor", extra=bare)
    assert tailwind.FETCH in done.out, done.out + done.err
    assert "[vision]" in done.out
    assert "sandbox " in done.out
    ours = done.out[done.out.index("[vision]") : done.out.index("OPENAI_API_KEY")]
    assert max(map(len, ours.splitlines())) <= 80, ours
    (tmp_path / "here.css").write_text("body {}")
    found = convbench(tmp_path, "doctor", extra=bare | {"CONVBENCH_TAILWIND": "here.css"})
    assert tailwind.FETCH not in found.out


@renders
@pytest.mark.skipif(not tailwind.read_sheet(), reason=f"no style sheet here: {tailwind.FETCH}")
def test_a_real_page_is_styled() -> None:
    link = f'<link href="https://cdn.jsdelivr.net/npm/{tailwind.ADDRESS}" rel="stylesheet">'
    body = '<body><p class="bg-red-500 w-64 h-32 ml-8">x</p></body>'
    styled = shot(f"<html>{link}{body}</html>")
    [box] = styled.boxes
    assert (box.left, box.width, box.height) == (32, 256, 128)
    [plain] = shot(f"<html>{body}</html>").boxes
    assert plain.width > 1000


@renders
def test_a_page_that_does_not_render_is_told_from_a_broken_browser(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import asyncio

    from convbench.judges import render
    from convbench.sandbox.browser import PageError, Shot

    async def picky(html: str) -> Shot:
        if "bad" in html or broken:
            raise PageError("the page cannot be rendered: timeout")
        return await shoot(html)

    broken = False
    monkeypatch.setattr(render, "shoot", picky)
    made, why = asyncio.run(render._shoot_or_black("<html>bad</html>"))
    assert (made.width, why) == (224, "the page cannot be rendered: timeout")
    assert asyncio.run(render._shoot_or_black(OTHER))[1] is None
    broken = True
    with pytest.raises(PageError):
        asyncio.run(render._shoot_or_black(OTHER))
