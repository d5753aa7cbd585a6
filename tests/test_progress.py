from functools import partial

import pytest

from latentlink import InvalidInput
from latentlink._processes import run_here
from latentlink._progress import track


@pytest.fixture
def terminal(monkeypatch):
    """Make stderr a terminal, to be called in the test: each phase of a test has a stderr of its own."""
    return lambda: monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)


def test_a_pipe_gets_no_bar(capsys):
    assert list(track(range(3), total=3, what="blocks")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_one_on_stderr(terminal, capsys):
    terminal()
    assert list(track(range(3), total=3, what="blocks")) == [0, 1, 2]
    shown = capsys.readouterr()
    assert "blocks" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("options", [{"show": False, "total": 3}, {"total": 1}])
def test_who_wants_none_gets_none(terminal, capsys, options):
    terminal()
    assert list(track(range(options["total"]), what="blocks", **options)) == list(range(options["total"]))
    assert capsys.readouterr() == ("", "")


def test_tasks_run_one_by_one_as_they_are_asked_for():
    done = []
    results = run_here([partial(done.append, i) for i in range(3)])
    assert done == []
    next(results)
    assert done == [0]
    assert list(results) == [None, None]
    assert done == [0, 1, 2]


def test_tasks_draw_a_bar(terminal, capsys):
    terminal()
    assert list(run_here([dict, list])) == [{}, []]
    assert "tasks" in capsys.readouterr().err
    assert list(run_here([dict, list], progress=False)) == [{}, []]
    assert capsys.readouterr().err == ""


def test_no_worker_is_refused():
    with pytest.raises(InvalidInput, match="workers is 0; needs a whole number >= 1"):
        list(run_here([dict], workers=0))
