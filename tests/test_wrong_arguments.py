"""A wrong argument of a public function is named by an error of ours, never by one from deep inside.

Each call below is right; each of its arguments in turn is replaced by things of the wrong kind, shape or size. The
answer may be a result, where the thing happens to make sense, or an error of this package.
"""

import contextlib
import inspect

import numpy as np
import pytest

import latentlink as ll
from latentlink import evaluate, io, moments, risk, scale, search, similarity, spaces, tails
from latentlink.search import migrate

OURS = (ll.InvalidInput, ll.InvalidType, ll.MissingExtra, FileNotFoundError)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 8))
Y = X + 0.3 * RNG.normal(size=X.shape)
POOL = RNG.normal(size=(80, 8))
UNIT = similarity.normalize(X)
FAR = X + 2 * RNG.normal(size=X.shape)
NEAR = similarity.normalize(POOL).reshape(20, 4, 8)
LABELS = RNG.integers(0, 2, 60)
SIMILARITIES = similarity.cosine(X, POOL)
PAIRS = {"a": X, "b": Y}
TAIL = tails.take_tail(X, tail_size=20)
FIT = tails.fit_tail(TAIL)
SPACE = spaces.RelativeSpace(n_anchors=4).fit(PAIRS)
INDEX = search.Index.build(X, space=SPACE, source="a")
ROWS = risk.row_statistics(np.diag(SIMILARITIES[:, :60]), SIMILARITIES)
STATE = moments.collect("a", [X])
LINK = ll.Link.softmax(0.1)
HALF = np.full(5, 0.5)
NAN = np.full((60, 8), np.nan)

WRONG = {
    "None": None,
    "text": "x",
    "-1": -1,
    "2.5": 2.5,
    "infinity": np.inf,
    "2**70": 2**70,
    "[]": [],
    "{}": {},
    "object": object(),
    "complex": 1j,
    "[None]": [None],
    "vector": np.arange(5.0),
    "no rows": X[:0],
    "few rows": X[:10],
    "few columns": X[:, :3],
    "NaN": NAN,
    "ragged": {"a": [[1, 2], [3]]},
    "set": {1},
    "function": len,
}


def fitted(**settings):
    data = settings.pop("spaces")
    return spaces.RelativeSpace(**settings).fit(data)


CALLS = {
    "normalize": (ll.normalize, {"embeddings": X, "on_zero": "error"}),
    "cosine": (ll.cosine, {"queries": X, "corpus": POOL}),
    "dot": (ll.dot, {"queries": X, "corpus": POOL}),
    "top_k": (ll.top_k, {"queries": X, "corpus": POOL, "k": 3, "similarity": "dot", "exclude_self": False}),
    "hubness": (similarity.hubness, {"items": X, "crowd": POOL, "k": 5, "skip_best": False}),
    "Link": (ll.Link, {"temperature": 1.0, "beta": 1.0, "blend": 0.5, "endpoint": 1.0, "origin": None}),
    "Link.logits": (LINK.logits, {"similarities": SIMILARITIES}),
    "take_tail": (ll.take_tail, {"embeddings": X, "corpus": POOL, "tail_size": 20, "same": None, "seed": 0}),
    "take_tail above": (ll.take_tail, {"similarities": SIMILARITIES, "threshold": 0.1}),
    "fit_tail": (ll.fit_tail, {"tail": TAIL, "estimator": "ml"}),
    "fit.interval": (FIT.interval, {"level": 0.9}),
    "judge": (ll.judge, {"tail": TAIL, "level": 0.1}),
    "weigh": (tails.weigh, {"tail": TAIL}),
    "goodness": (tails.goodness, {"fit": FIT, "seed": 0}),
    "forward_stop": (tails.forward_stop, {"p": HALF}),
    "endpoint_test": (tails.endpoint_test, {"tail": TAIL, "level": 0.05}),
    "choose_threshold": (tails.choose_threshold, {"tail": TAIL, "sizes": [10, 19], "level": 0.05, "seed": 0}),
    "choose_link": (ll.choose_link, {"similarities": SIMILARITIES, "winners": SIMILARITIES.argmax(1)}),
    "diagnose": (tails.diagnose, {"embeddings": X, "tail_size": 20, "n_queries": 60, "same": None, "seed": 0}),
    "fit_maxima": (tails.fit_maxima, {"maxima": SIMILARITIES.max(axis=1), "block_size": 0}),
    "maxima_by_size": (tails.maxima_by_size, {"embeddings": X, "sizes": (32,), "n_queries": 20, "seed": 0}),
    "positive_choices": (
        tails.positive_choices,
        {"queries": X, "positives": Y, "n_negatives": 10, "n_queries": 20, "seed": 0},
    ),
    "view_choices": (
        tails.view_choices,
        {"queries": X, "second_view": Y, "corpus": POOL, "n_candidates": 10, "exclude": None, "seed": 0},
    ),
    "certify": (
        ll.certify,
        {"queries": X, "positives": Y, "pool": POOL, "temperature": 0.1, "level": 0.9, "link": None},
    ),
    "negatives_needed": (
        ll.negatives_needed,
        {"queries": X, "positives": Y, "pool": POOL, "tolerance": 0.01, "variant": "inside", "link": None},
    ),
    "pairs_needed": (
        risk.pairs_needed,
        {"queries": X, "positives": Y, "pool": POOL, "half_width": 0.05, "level": 0.9, "link": None},
    ),
    "risk_curve": (
        risk.risk_curve,
        {"queries": X, "positives": Y, "pool": POOL, "sizes": [4, 8], "link": None, "seed": 0},
    ),
    "measure_shift": (risk.measure_shift, {"queries": X, "pool": POOL, "temperature": 0.1, "link": None}),
    "search_kernel": (risk.search_kernel, {"queries": X, "pool": POOL, "link": LINK}),
    "search_cross_entropies": (
        risk.search_cross_entropies,
        {"queries": X, "positives": Y, "pool": POOL, "link": LINK},
    ),
    "row_statistics": (
        risk.row_statistics,
        {"positive_logits": SIMILARITIES[:, 0], "negative_logits": SIMILARITIES, "n_negatives": None},
    ),
    "judge_rows": (risk.judge_rows, {"rows": ROWS}),
    "negatives_for": (risk.negatives_for, {"rows": ROWS, "tolerance": 0.01, "variant": "inside"}),
    "continuity_bound": (
        risk.continuity_bound,
        {"first": (UNIT[:20], UNIT[20:40], NEAR), "second": (UNIT[20:40], UNIT[:20], NEAR), "temperature": 0.5,
         "form": "tightest"},
    ),
    "combined_bound": (
        risk.combined_bound,
        {"n": 1000, "n_negatives": 100, "temperature": 0.5, "n_parameters": 10, "radius": 1.0, "lipschitz": 1.0},
    ),
    "predict_bias": (risk.predict_bias, {"variance": HALF, "ratio": HALF, "n_negatives": 10}),
    "extrapolate_corpus": (
        risk.extrapolate_corpus,
        {"cost": 1.0, "n_negatives": 100, "corpus": 1000, "variance": HALF, "ratio": HALF},
    ),
    "remainder": (risk.remainder, {"u": HALF}),
    "shift_bounds": (risk.shift_bounds, {"oscillation": HALF}),
    "lipschitz_of_weights": (
        risk.lipschitz_of_weights,
        {"weights": [np.eye(3)], "radius": 1.0, "input_norm": 1.0, "least_norm": 0.5},
    ),
    "Whitener": (lambda shrinkage, embeddings: ll.Whitener(shrinkage=shrinkage).fit(embeddings),
                 {"shrinkage": "auto", "embeddings": X}),
    "collect": (moments.collect, {"space": "a", "batches": [X], "policy": "none", "n_folds": 1}),
    "merge": (moments.merge, {"states": [STATE, STATE]}),
    "RelativeSpace": (
        fitted,
        {"n_anchors": 4, "anchors": "gcca", "similarity": "wip", "normalisation": "none", "shrinkage": "auto",
         "seed": 0, "spaces": PAIRS},
    ),
    "encode": (SPACE.encode, {"embeddings": X, "source": "a"}),
    "translate": (SPACE.translate, {"embeddings": X, "source": "a", "target": "b"}),
    "evaluate": (SPACE.evaluate, {"spaces": PAIRS, "csls": None}),
    "load_space": (ll.load_space, {"folder": "nowhere"}),
    "compare_maps": (
        ll.compare_maps,
        {"spaces": PAIRS, "holdout": 0.2, "methods": ("ridge",), "n_anchors": 4},
    ),
    "learning_curve": (
        spaces.learning_curve,
        {"spaces": PAIRS, "sizes": [20], "holdout": 0.2, "methods": ("ridge",), "n_anchors": 4},
    ),
    "fit_ridge": (spaces.fit_ridge, {"source": X, "target": Y, "strength": "auto", "seed": 0}),
    "fit_low_rank": (spaces.fit_low_rank, {"source": X, "target": Y, "rank": 2, "strength": 1.0}),
    "fit_cca": (spaces.fit_cca, {"source": X, "target": Y, "n_components": 3, "power": 1.0}),
    "fit_procrustes": (spaces.fit_procrustes, {"source": X, "target": Y}),
    "measure_stitch": (
        spaces.measure_stitch,
        {"space": SPACE, "train": PAIRS, "labels": LABELS, "test": PAIRS, "test_labels": LABELS, "source": "a"},
    ),
    "carry_threshold": (
        spaces.carry_threshold,
        {"threshold": 0.5, "source_similarities": HALF, "target_similarities": HALF},
    ),
    "audit": (spaces.audit, {"embeddings": X, "ids": None, "space": SPACE, "source": "a"}),
    "doctor": (spaces.doctor, {"space": SPACE, "embeddings": X, "source": "a"}),
    "foreign_rows": (spaces.foreign_rows, {"space": SPACE, "embeddings": X, "source": "a"}),
    "Index.build": (search.Index.build, {"vectors": X, "ids": None, "space": SPACE, "source": "a"}),
    "Index.search": (INDEX.search, {"queries": Y, "source": "b", "k": 3}),
    "uncertainty": (migrate.uncertainty, {"space": SPACE, "vectors": X, "source": "a", "target": "b"}),
    "recalibrate": (
        migrate.recalibrate,
        {"old_similarities": X[:, 0], "new_similarities": Y[:, 0], "threshold": 0.1},
    ),
    "retrieval": (
        evaluate.retrieval,
        {"queries": X, "corpus": POOL, "relevant": SIMILARITIES.argmax(1), "ks": (1, 5)},
    ),
    "knn_accuracy": (
        evaluate.knn_accuracy,
        {"train_features": X, "train_labels": LABELS, "test_features": Y, "test_labels": LABELS, "k": 5},
    ),
    "neighbour_recall": (
        evaluate.neighbour_recall,
        {"train_features": X, "train_labels": LABELS, "test_features": Y, "test_labels": LABELS, "ks": (1,)},
    ),
    "sts_spearman": (evaluate.sts_spearman, {"a": X, "b": Y, "scores": X[:, 0]}),
    "holm": (evaluate.holm, {"p_values": HALF}),
    "linear_probe": (
        evaluate.linear_probe,
        {"train_features": X, "train_labels": LABELS, "test_features": Y, "test_labels": LABELS,
         "strengths": (1.0,)},
    ),
    "paired_difference": (evaluate.paired_difference, {"first": X, "second": Y}),
    "spearman_pseudo_values": (evaluate.spearman_pseudo_values, {"similarities": X[:, 0], "scores": Y[:, 0]}),
    "xi_from_scipy": (tails.xi_from_scipy, {"law": "genpareto", "c": 0.1}),
    "bias_sandwich": (
        risk.bias_sandwich,
        {"variance": HALF, "least": HALF, "greatest": 2 * HALF, "n_negatives": 10, "ratio": None},
    ),
    "calibrate_temperature": (risk.calibrate_temperature, {"queries": X, "positives": FAR, "pool": POOL}),
    "concentration_bias": (risk.concentration_bias, {"variance": HALF, "least": HALF, "n_negatives": 10}),
    "cover_deviation": (
        risk.cover_deviation,
        {"n": 100, "n_negatives": 10, "temperature": 0.5, "n_parameters": 10, "radius": 1.0, "lipschitz": 1.0},
    ),
    "empirical_bernstein": (risk.empirical_bernstein, {"values": HALF, "span": 1.0, "delta": 0.05}),
    "loss_range": (risk.loss_range, {"n_negatives": 10, "temperature": 0.5, "variant": "inside"}),
    "pool_mcdiarmid": (risk.pool_mcdiarmid, {"n": 100, "n_pool": 100, "temperature": 0.5, "delta": 0.05}),
    "rademacher_linear": (
        risk.rademacher_linear,
        {"n": 100, "n_negatives": 10, "temperature": 0.5, "gram": 1.0, "input_norm": 1.0, "least_norm": 0.5},
    ),
    "rademacher_lipschitz": (
        risk.rademacher_lipschitz,
        {"n": 100, "n_parameters": 10, "radius": 1.0, "lipschitz": 1.0, "temperature": 0.5},
    ),
    "self_normalised_error": (
        risk.self_normalised_error, {"temperature": 0.5, "chi2": 1.0, "corpus": 1000},
    ),
    "temperature_needed": (risk.temperature_needed, {"queries": X, "pool": POOL, "n_negatives": 20}),
    "universal_bias": (risk.universal_bias, {"temperature": 0.5, "n_negatives": 10}),
    "universal_constant": (risk.universal_constant, {"temperature": 0.5}),
    "upper_with_virtual": (
        risk.upper_with_virtual,
        {"positive_logits": SIMILARITIES[:, 0], "negative_logits": SIMILARITIES, "largest_logit": 1.0},
    ),
    "weight_cap": (risk.weight_cap, {"n_negatives": 10, "temperature": 0.5}),
    "engine": (scale.engine, {"name": "local", "workers": 1, "address": None}),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_named(name):
    function, arguments = CALLS[name]
    if name != "load_space":
        function(**arguments)
    replace_each(function, arguments)


def replace_each(function, arguments):
    """Replace each argument in turn; anything but a result or an error of ours gets out."""
    for argument in arguments:
        for wrong in WRONG.values():
            with contextlib.suppress(*OURS):
                function(**{**arguments, argument: wrong})


def file_calls(folder):
    """Calls that read or write files, which need a folder."""
    file = folder / "x.npy"
    np.save(file, X.astype(np.float32))
    rows = {"vectors": X, "ids": np.arange(60)}
    pairs = {"pairs_old": X, "pairs_new": Y, "old": "a", "new": "b"}
    unfitted = spaces.RelativeSpace(n_anchors=4)
    return [
        (io.open_vectors, {"path": file, "vector_column": None}),
        (io.read_vectors, {"path": file, "quarantine": None}),
        (io.write_vectors, {"path": folder / "y.arrow", **rows}),
        (spaces.encode_file, {"space": SPACE, "path": file, "out": folder / "z.npy", "source": "a"}),
        (spaces.file_moments, {"space": "a", "files": [file], "support_size": 10, "batch_rows": 10}),
        (spaces.fit_files, {"space": unfitted, "files": {"a": [file], "b": [file]}, "support_size": 60}),
        (search.convert, {"files": [file], "folder": folder / "c", "space": SPACE, "source": "a"}),
        (search.read_conversion, {"folder": folder / "c"}),
        (migrate.plan, {"files": [file], "target_dimension": 8, "out": folder, "documents_per_second": 100.0}),
        (migrate.fit, {"folder": folder / "m", **pairs, "holdout": 0.3, "n_anchors": 4, "seed": 0}),
        (migrate.open_migration, {"folder": folder / "m"}),
    ]


def test_a_wrong_argument_beside_files_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the text "x" is a path, too
    for function, arguments in file_calls(tmp_path):
        function(**arguments)
        replace_each(function, arguments)


# Functions that are tried elsewhere: they need torch's modules, a store, or take what others make.
ELSEWHERE = {
    "pairwise_similarity", "lipschitz_of_model", "audit_batches", "serves", "fill_store", "convert_corpus",
    "shadow", "gate", "cut_over", "roll_back", "run_shadow",
}  # fmt: skip


def test_every_public_function_is_in_a_table(tmp_path):
    tried = {getattr(function, "__name__", "") for function, _ in [*CALLS.values(), *file_calls(tmp_path)]}
    for module in (similarity, tails, risk, spaces, search, migrate, evaluate, scale):
        for name in getattr(module, "__all__", vars(module)):
            function = getattr(module, name)
            if inspect.isfunction(function) and function.__module__.startswith(module.__name__):
                assert name.startswith("_") or name in tried | ELSEWHERE, f"{module.__name__}.{name}"


@pytest.mark.parametrize(
    "name", ["migrate.gate", "migrate.cut_over", "migrate.roll_back", "migrate.run_shadow"]
)
def test_a_migration_is_asked_for(name):
    function = getattr(migrate, name.partition(".")[2])
    with pytest.raises(ll.InvalidType, match=r"migration is a str; needs a Migration"):
        function("folder")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ll.fit_tail(X), "tail is a ndarray; needs a Tail, as take_tail makes it."),
        (lambda: ll.compare_maps([X, Y]), "spaces is a list; needs a mapping of encoder name to (n, d) array."),
        (lambda: ll.certify(X, Y, POOL, link=0.1), "link is a float; needs a Link, such as Link.softmax(0.1)."),
        (lambda: evaluate.retrieval(X, POOL, LABELS, ks=5), "ks is an int; needs a sequence. Use [5]?"),
        (lambda: search.read_conversion(7), "folder is an int; needs a path."),
        (lambda: search.convert("x.npy", "out", space=SPACE, source="a"),
         "files is a str; needs a sequence. Use ['x.npy']?"),
        (lambda: ll.Link(temperature=-1.0), "temperature is -1.0; needs a number > 0."),
        (lambda: ll.Whitener().fit(np.ones((5, 2))),
         "all 5 rows of embeddings are equal; needs rows that vary. Was one row repeated?"),
        (lambda: ll.Whitener().fit(X * 1e200), r"embeddings spans"),
        (lambda: ll.normalize(np.ma.masked_array(X, X > 2)),
         "embeddings has masked values; fill them or drop their rows."),
    ],
)  # fmt: skip
def test_what_it_says(call, message):
    with pytest.raises(OURS) as caught:
        call()
    assert message in str(caught.value)


def test_tensors_with_a_graph_or_of_half_precision_become_arrays():
    torch = pytest.importorskip("torch")
    graph = torch.tensor(X, requires_grad=True)
    assert isinstance(SPACE.encode(graph, source="a"), np.ndarray)
    assert SPACE.encode(torch.tensor(X).bfloat16(), source="a").dtype == np.float32
    assert search.Index.build(graph, source="e").search(graph, source="e", k=1)[1].shape == (60, 1)
