"""Imports only go down: the layers of the house, read from the code itself."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src" / "latentlink"

# From the ground up; in one rank only as the order written (a later name may use an earlier one).
RANKS = [
    ["_lazy", "_arrays", "_checks", "_files", "_progress", "_processes"],
    ["_metrics"],
    ["moments", "io"],
    ["similarity", "whitening"],
    ["links"],
    ["tails"],
    ["losses"],
    ["risk", "spaces"],
    ["evaluate", "search"],
    ["train", "scale", "integrations"],
    ["report"],
    ["demo", "cli"],
    ["__main__"],
]
HEIGHT = {name: (rank, place) for rank, names in enumerate(RANKS) for place, name in enumerate(names)}
# `spaces` may use `risk`: compare_maps certifies the mapped space.


def unit_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imports_of(path: Path) -> list[tuple[str, int, bool]]:
    """(unit imported, line, whether inside a function) for each import of our own package."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = []

    def visit(node: ast.AST, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, ast.ImportFrom) and child.module and child.module.startswith("latentlink"):
                parts = child.module.split(".")
                names = [parts[1]] if len(parts) > 1 else [alias.name for alias in child.names]
                found.extend((name, child.lineno, inside) for name in names)
            elif isinstance(child, ast.Import):
                for alias in child.names:
                    if alias.name.startswith("latentlink."):
                        found.append((alias.name.split(".")[1], child.lineno, inside))
            function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            visit(child, inside or function)

    visit(tree, False)
    return found


def upward_imports(path: Path) -> list[str]:
    own = unit_of(path)
    wrong = []
    for unit, line, inside in imports_of(path):
        if unit == own or unit not in HEIGHT:
            continue
        if unit == "report" and inside:  # a result draws itself
            continue
        if HEIGHT[unit] >= HEIGHT[own]:
            wrong.append(f"{path.relative_to(SRC)}:{line} imports {unit}")
    return wrong


MODULES = sorted(path for path in SRC.rglob("*.py") if path != SRC / "__init__.py")


def test_every_module_has_a_place():
    homeless = {unit_of(path) for path in MODULES} - set(HEIGHT)
    assert not homeless


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_imports_go_down(path):
    assert upward_imports(path) == []


def test_an_upward_import_is_seen(tmp_path, monkeypatch):
    folder = tmp_path / "tails"
    folder.mkdir()
    bad = folder / "bad.py"
    bad.write_text("from latentlink.losses import functional\nfrom latentlink import report\n")
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.setitem(globals(), "SRC", tmp_path)
    assert upward_imports(bad) == ["tails/bad.py:1 imports losses", "tails/bad.py:2 imports report"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_no_file_is_long(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 420
