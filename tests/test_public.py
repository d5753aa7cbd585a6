"""The public names: light to import, each with a docstring and an example."""

import doctest
import subprocess
import sys

import pytest

import latentlink as ll

HEAVY = ("torch", "faiss", "matplotlib", "scipy", "sklearn", "pyarrow")


def loaded_after(code: str) -> set[str]:
    script = f"import sys; {code}; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_is_light():
    assert loaded_after("import latentlink") == set()


@pytest.mark.parametrize(
    "module",
    ["similarity", "links", "tails", "risk", "spaces", "search", "evaluate", "io", "moments", "cli", "demo"],
)
def test_importing_a_module_is_light(module):
    assert loaded_after(f"import latentlink.{module}") == set()


def test_the_command_is_light():
    """A verb imports what it needs when it runs, so that `latentlink --help` answers at once."""
    assert loaded_after("from latentlink.cli import app; app()") == set()


def test_every_public_name_is_there():
    for name in ll.__all__:
        assert getattr(ll, name) is not None
    assert ll.__version__


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'latentlink' has no attribute 'certified'"):
        _ = ll.certified


@pytest.mark.parametrize(
    "name", [n for n in ll.__all__ if n not in ("InvalidInput", "InvalidType", "MissingExtra")]
)
def test_every_public_name_explains_itself(name):
    value = getattr(ll, name)
    assert value.__doc__
    assert doctest.DocTestFinder(recurse=False).find(value, name)[0].examples, f"{name} has no example"


def test_typing_sees_what_runs():
    """The table of homes and the list of names say the same."""
    assert sorted(ll._HOMES) == sorted(ll.__all__)
