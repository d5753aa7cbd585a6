import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from latentlink._checks import InvalidInput, need
from latentlink.cli import _frame, main


def exits(function, capsys, *arguments):
    app = typer.Typer()
    app.command()(function)
    app.command(name="other")(lambda: None)
    with pytest.raises(SystemExit) as caught:
        _frame.run(lambda: app, [function.__name__, *arguments])
    return caught.value.code, capsys.readouterr()


def bad():
    raise InvalidInput("temperature is -1; needs a number > 0.")


def missing():
    need("no_such_module", extra="search", job="Index")


def unmet():
    raise _frame.CheckFailed("recall is 0.5; asked for 0.9.")


def absent():
    Path("no-such-file").read_text()


def defect():
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("function", "code", "line"),
    [
        (bad, 2, "latentlink: temperature is -1; needs a number > 0.\n"),
        (missing, 2, 'latentlink: Index needs no_such_module: pip install "latentlink[search]".\n'),
        (unmet, 1, "latentlink: recall is 0.5; asked for 0.9.\n"),
        (absent, 2, "latentlink: no-such-file: No such file or directory; check the path.\n"),
    ],
)
def test_a_users_mistake_is_one_line(function, code, line, capsys):
    found, output = exits(function, capsys)
    assert (found, output.err, output.out) == (code, line, "")


def test_our_own_defect_is_not_hidden():
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(defect)
    with pytest.raises(ZeroDivisionError):
        _frame.run(lambda: app, [])


def test_an_unknown_verb(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["serach"])
    assert caught.value.code == 2
    assert "serach" in capsys.readouterr().err


def test_info_as_json(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["info", "--json"])
    assert caught.value.code == 0
    assert "numpy" in json.loads(capsys.readouterr().out)["versions"]


def test_the_command_is_installed():
    code = "from latentlink.cli import main; main(['info'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("latentlink ")


def test_json_has_no_nan(capsys, tmp_path):
    _frame.emit("", {"x": float("inf"), "p": tmp_path}, as_json=True, out=tmp_path / "o.json")
    assert json.loads(capsys.readouterr().out) == {"x": None, "p": str(tmp_path)}
    assert (tmp_path / "o.json").is_file()
