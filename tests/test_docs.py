"""The README's and the docs' Python is run; their links lead somewhere.

A block marked ``python`` stands alone and runs; one marked ``py`` is a sketch that needs a reader's own arrays.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def code_blocks():
    for page in PAGES:
        for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8")), start=1):
            yield pytest.param(match.group(1), id=f"{page.relative_to(ROOT)}-{number}")


@pytest.mark.medium
@pytest.mark.parametrize("code", list(code_blocks()))
def test_code_runs(code, tmp_path, monkeypatch):
    """Every block stands alone: a reader may paste it."""
    if "torch" in code or "losses" in code:
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "block", "exec"), {"__name__": "__block__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-")
        for h in re.findall(r"^#+ (.*)$", text, re.M)
    }
    for link in LINK.findall(text):
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        if path:
            assert (page.parent / path).exists(), link
        else:
            assert anchor in headings, link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_machine_path(page):
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"/work/|/tmp/|/root/|/home/\w", text)


def test_the_house_is_drawn_as_it_stands():
    """The tree of docs/design.md names every public module, each under its folder, and none that is not there."""
    tree = (ROOT / "docs" / "design.md").read_text(encoding="utf-8").split("## 2. Folders")[1].split("```")[1]
    source = ROOT / "src" / "latentlink"
    drawn, folder = set(), ""
    for line in tree.splitlines():
        if opened := re.match(r"(\w+)/", line):
            folder = opened[1]
        elif line and line[0] != " ":
            folder = ""
        inner = opened[1] if (opened := re.match(r" +(\w+)/", line)) else ""
        names = re.findall(r"(?<![\w.])\w+\.py", line)
        drawn |= {"/".join(part for part in (folder, inner, name) if part) for name in names}
    there = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    own = {name for name in there if not re.match(r".*/_|cli/", name)}
    assert drawn == own
