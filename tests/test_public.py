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
    [
        "similarity",
        "links",
        "tails",
        "risk",
        "spaces",
        "search",
        "evaluate",
        "io",
        "moments",
        "cli",
        "demo",
        "train",
    ],
)
def test_importing_a_module_is_light(module):
    assert loaded_after(f"import latentlink.{module}") == set()


def test_the_command_is_light():
    """A verb imports what it needs when it runs, so that `latentlink --help` answers at once."""
    assert loaded_after("from latentlink.cli import app; app()") == set()


@pytest.mark.parametrize(
    ("missing", "code", "extra"),
    [
        ("torch", "import latentlink.losses", "torch"),
        ("torch", "from latentlink.train import history", "train,text"),
        ("torch", "import latentlink.integrations.sentence_transformers", "text"),
        ("torch", "import latentlink.integrations.open_clip", "torch"),
        ("matplotlib", "from latentlink.demo import run_demo; run_demo()", "demo"),
        ("faiss", "from latentlink.demo import run_demo; run_demo()", "demo"),
        (
            "faiss",
            "import numpy as np, latentlink as ll; ll.Index.build(np.eye(9), source='a', kind='hnsw')",
            "search",
        ),
        ("pyarrow", "from latentlink.io import read_vectors; read_vectors('x.parquet')", "files"),
    ],
)
def test_a_missing_extra_is_named(missing, code, extra, tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    script = f"import sys; sys.modules[{missing!r}] = None; {code}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.stderr.endswith(f'needs {missing}: pip install "latentlink[{extra}]".\n')


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
