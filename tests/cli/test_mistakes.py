"""What users do wrong, one line each: never a stack trace, always exit code 2, the argument named."""

import numpy as np
import pytest

from latentlink.cli import main

GOOD = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nan = GOOD.copy()
    nan[17, 3] = np.nan
    zero = GOOD.copy()
    zero[17] = 0
    other = np.random.default_rng(1).normal(size=(400, 8)).astype(np.float32)
    arrays = {
        "good": GOOD,
        "positives": GOOD + 0.1,
        "pool": other,
        "nan": nan,
        "zero": zero,
        "flat": GOOD[0],
        "short": GOOD[:-1],
        "wide": np.ones((200, 9), np.float32),
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "text.npy").write_text("not an array")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("diagnose absent.npy", ["absent.npy", "No such file"]),
        ("diagnose text.npy", ["text.npy"]),
        ("diagnose flat.npy", ["flat.npy", "shape (8,)", "needs (n, d)"]),
        ("diagnose nan.npy", ["row 17 (id 17) of nan.npy holds NaN"]),
        ("diagnose zero.npy", ["row 17", "norm 0"]),
        ("diagnose good.npy --tail-size 500", ["tail_size is 500"]),
        (
            "certify good.npy positives.npy pool.npy --temperature -0.1",
            ["temperature is -0.1; needs a number > 0."],
        ),
        ("certify good.npy short.npy pool.npy", ["queries and positives differ in rows: 200 and 199."]),
        ("certify good.npy positives.npy wide.npy", ["queries", "pool", "differ in columns: 8 and 9."]),
        ("certify good.npy positives.npy good.npy", ["pool", "row 0"]),
        ("align space old=good.npy", ["needs at least 2"]),
        ("align space good.npy positives.npy", ["good.npy", "NAME=FILE"]),
        ("align space old=good.npy new=short.npy", ["differ in rows: 200 and 199"]),
        ("align space old=good.npy new=positives.npy --anchors kmean", ["anchors is 'kmean'; needs one of"]),
        ("align space old=good.npy new=nan.npy", ["row 17 (id 17) of nan.npy holds NaN; drop or mend"]),
        ("encode absent good.npy out.npy --source old", ["absent"]),
        ("compare old=good.npy", ["needs at least 2"]),
        ("evaluate labels good.npy", []),
    ],
)
def test_a_mistake_is_one_line(files, arguments, says, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments.split())
    output = capsys.readouterr()
    assert caught.value.code == 2, output
    assert output.out == ""
    assert "Traceback" not in output.err
    for part in says:
        assert part in output.err
    if says:
        assert output.err.startswith("latentlink: ")
        assert output.err.count("\n") == 1


def test_an_unknown_encoder_is_named(files, capsys):
    for arguments, code in [
        ("align space old=good.npy new=positives.npy --n-anchors 8", 0),
        ("encode space good.npy out.npy --source newer", 2),
        ("translate space good.npy out.npy --source old --target newer", 2),
    ]:
        with pytest.raises(SystemExit) as caught:
            main(arguments.split())
        assert caught.value.code == code
        output = capsys.readouterr()
        if code:
            assert "is 'newer'; needs one of 'old', 'new'." in output.err
