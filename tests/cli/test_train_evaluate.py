"""`latentlink train` and `latentlink evaluate` from the command line, on real images and on texts."""

import json

import numpy as np
import pytest


@pytest.mark.medium
def test_images_are_trained_resumed_judged_and_aligned(tmp_path, run, rng):
    pytest.importorskip("lightning")
    run_ = tmp_path / "run"
    common = ["train", "images", "--data", "digits", "--out", run_, "--quiet", "--json"]
    small = ["--backbone", "small", "--image-size", 16, "--epochs", 2, "--batch-size", 64]
    tiny = ["--set", "width=8", "--set", "flip=0", "--set", "clip_norm=none", "--set", "learning_rate=0.003"]
    code, (out, err) = run(*common, *small, *tiny, "--loss", "weince")
    assert code == 0, err
    record = json.loads(out)
    assert record["steps"] == 56
    assert {"loss", "blend", "gap", "effective_rank"} <= record["last"].keys()
    code, (out, _) = run(*common, "--resume", "--report", tmp_path / "r.html")
    assert (code, json.loads(out)["steps"]) == (0, 56)
    page = (tmp_path / "r.html").read_text()
    assert "trained 56 steps" in page
    assert "share of the gradient" in page  # of the figure, whose text stays text
    assert "<td>learning_rate</td><td>0.003</td>" in page.replace("\n", "").replace(" ", "")
    code, (out, _) = run("evaluate", "labels", run_, "--data", "digits", "--json")
    direct = json.loads(out)
    assert code == 0
    assert direct["knn"]["accuracy"] > 0.6
    code, (out, _) = run("evaluate", "labels", run_ / "features.npz", "--json", "--out", tmp_path / "x.json")
    assert json.loads(out)["knn"] == direct["knn"] == json.loads((tmp_path / "x.json").read_text())["knn"]
    with np.load(run_ / "features.npz") as stored:  # a second encoder of the same items, by their ids
        order = rng.permutation(len(stored["ids"]))
        turned = stored["vectors"][order] @ rng.normal(size=(stored["vectors"].shape[1],) * 2)
        np.savez(tmp_path / "other.npz", vectors=turned.astype(np.float32), ids=stored["ids"][order])
    sides = [f"run={run_ / 'features.npz'}", f"other={tmp_path / 'other.npz'}"]
    code, (out, err) = run("align", tmp_path / "space", *sides, "--n-anchors", 8, "--json")
    assert code == 0, err
    assert json.loads(out)["encoders"]["run"]["matched"] == 1797
    code, (_, err) = run(*common, "--resume", "--loss", "infonce")
    assert (code, err) == (
        2,
        "latentlink: settings loss are given with --resume; a run goes on with its own. Leave them out.\n",
    )


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore")
def test_texts_and_pairs_are_trained_and_judged(tmp_path, run):
    pytest.importorskip("sentence_transformers")
    words = [
        f"a {color} {thing}"
        for color in ("red", "green", "blue", "old")
        for thing in ["cat", "dog", "house", "boat"]
    ]
    (tmp_path / "t.csv").write_text(
        "text,a,b,score\n" + "\n".join(f"{w},{w},the {w},{i}" for i, w in enumerate(words))
    )
    for kind in ("text", "pairs"):
        run_ = tmp_path / kind
        options = ["--batch-size", 8, "--set", "max_length=8", "--quiet", "--json"]
        code, (out, err) = run("train", kind, "--data", tmp_path / "t.csv", "--out", run_, *options)
        assert code == 0, err
        assert json.loads(out)["steps"] == 2
        code, (out, err) = run("evaluate", "sts", run_, "--data", tmp_path / "t.csv", "--json")
        assert code == 0, err
        assert -1 <= json.loads(out)["spearman"] <= 1
    begun = ["--model", tmp_path / "text"]  # a run's folder is a model like any other
    code, (out, err) = run(
        "train", "pairs", "--data", tmp_path / "t.csv", "--out", tmp_path / "on", *begun, *options
    )
    assert code == 0, err
    (tmp_path / "empty").mkdir()
    for verb in (
        ["train", "text", "--out", tmp_path / "bad", "--batch-size", 8, "--model"],
        ["evaluate", "sts"],
    ):
        code, (_, err) = run(*verb, tmp_path / "empty", "--data", tmp_path / "t.csv")
        assert code == 2
        assert "is no model that sentence-transformers can load" in err
        assert "Traceback" not in err
    assert not (tmp_path / "bad" / "settings.json").exists()  # the folder is still free


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (["--backbone", "nosuch"], "backbone is 'nosuch'; needs 'small' or a name of timm"),
        (["--backbone", "small", "--devices", "x"], "Lightning refuses accelerator='auto', devices='x'"),
    ],
)
def test_a_mistake_leaves_the_folder_free(tmp_path, run, option, says):
    pytest.importorskip("lightning")
    pytest.importorskip("timm")
    code, (_, err) = run(
        "train", "images", "--data", "digits", "--image-size", 16, "--out", tmp_path / "x", *option
    )
    assert code == 2
    assert says in err
    assert not (tmp_path / "x" / "settings.json").exists()


def test_retrieval_goes_by_id(tmp_path, run, rng):
    x = rng.normal(size=(20, 4)).astype(np.float32)
    np.savez(tmp_path / "q.npz", vectors=x[:5], ids=np.arange(5))
    order = rng.permutation(20)
    np.savez(tmp_path / "c.npz", vectors=x[order], ids=order)
    code, (out, _) = run("evaluate", "retrieval", tmp_path / "q.npz", tmp_path / "c.npz", "--json")
    assert (code, json.loads(out)["hit@1"]["mean"]) == (0, 1.0)
    np.savez(tmp_path / "q.npz", vectors=x[:5], ids=np.arange(18, 23))
    code, (_, err) = run("evaluate", "retrieval", tmp_path / "q.npz", tmp_path / "c.npz")
    assert (code, err) == (2, "latentlink: 3 queries have no item of their id, 20 among them; drop them.\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["train", "images", "--data", "digits", "--out", "x", "--set", "depth=3"],
            "--set 'depth=3'; needs name=value, ",
        ),
        (
            ["train", "images", "--data", "digits", "--out", "x", "--set", "width=a"],
            "width is 'a'; needs a whole number.",
        ),
        (
            ["train", "images", "--data", "digits", "--out", "x", "--loss", "y"],
            "loss is 'y'; needs one of 'infonce', ",
        ),
        (["evaluate", "labels", "x.npy"], "x.npy is no .npz file; needs one with arrays vectors and labels."),
        (["evaluate", "sts", "m", "--data", "x.csv", "--columns", "a"], "columns is 'a'; needs three names "),
    ],
)
def test_mistakes_are_one_line(arguments, line, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, (_, err) = run(*arguments)
    assert code == 2
    assert err.startswith(f"latentlink: {line}")
    assert err.count("\n") == 1
