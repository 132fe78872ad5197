"""The estimators on Dask collections: they are the plain ones, and fail clearly.

Most tests use no cluster. Those that do come last, with a time limit each, because a cluster that waits for
something that never comes waits forever.
"""

import contextlib
import itertools
import logging
import os
import pickle
import signal
import threading
import time

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import accuracy_score, d2_tweedie_score, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skfw import HFWLogisticRegression, HFWRegressor
from skfw.engine import Box, LogisticLoss, design_matrix

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

from skfw.dask import DaskHFWLogisticRegression, DaskHFWRegressor  # noqa: E402
from skfw.dask._cluster import OnCluster  # noqa: E402
from skfw.dask._rows import InProcess  # noqa: E402

RNG = np.random.default_rng(0)
N, P = 105, 5
X = RNG.normal(size=(N, P)) * [1.0, 2.0, 0.5, 1.0, 1.0] + [0.0, 1.0, 0.0, -2.0, 0.0]
LINEAR = X @ [1.0, -0.5, 2.0, 0.0, 0.3]
Y2 = (LINEAR + 2.0 * RNG.normal(size=N) > 0.0).astype(int)
Y3 = np.digitize(LINEAR + RNG.normal(size=N), [-1.0, 1.0])
# The first rows, all of some blocks, weigh nothing.
WEIGHTS = np.where(np.arange(N) < 10, 0.0, RNG.integers(0, 4, N) * RNG.uniform(0.5, 1.5, N))
TARGETS = {
    "squared_error": LINEAR + RNG.normal(size=N),
    "huber": LINEAR + RNG.standard_t(2, size=N),
    "poisson": RNG.poisson(np.exp(0.4 * LINEAR)).astype(float),
}
SEVERAL = np.column_stack([LINEAR + RNG.normal(size=N), 3.0 * X[:, 1] + RNG.normal(size=N), -LINEAR])
SETS = {
    "l1": (("l1", 2.0), Y2),
    "l2": (("l2", 1.5), Y2),
    "simplex": (("simplex", 1.5), Y2),
    "box": ((Box(-0.3, np.array([0.5, 0.5, 0.8, 0.5, 0.0])), "scale"), Y2),
    "nuclear": (("nuclear", 2.0), Y3),
}
TIGHT, TIGHTER = {"tol": 1e-9}, {"tol": 1e-11}


def lengths(n_blocks, n=N):
    """Return unequal lengths of blocks."""
    return tuple(len(part) for part in np.array_split(np.arange(n), n_blocks))


def in_blocks(array, n_blocks=4):
    return da.from_array(array, chunks=(lengths(n_blocks, len(array)), *array.shape[1:]))


def as_sparse(blocks):
    return blocks.map_blocks(sparse.csr_matrix)


def frames(n_blocks=4, X=X, y=Y2):
    """Return a data frame and a series, with the index that joins them."""
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(X, columns=list("abcde")).assign(y=y)
    collection = dd.from_pandas(frame, npartitions=n_blocks, sort=False)
    return collection[list("abcde")], collection["y"]


def fits(model, X, y, weights=None):
    """Return a fit to blocks, and that of the plain estimator to the same data."""
    params = model.get_params(deep=False)
    del params["client"]
    plain = model._plain(**params)
    whole = [None if part is None else dask.compute(part)[0] for part in (X, y, weights)]
    return model.fit(X, y, weights), plain.fit(*whole)


def assert_same(model, plain, atol=1e-8):
    scale = 1.0 + float(np.abs(plain.intercept_).max())
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=0.0, atol=atol)
    np.testing.assert_allclose(model.intercept_, plain.intercept_, rtol=0.0, atol=atol * scale)
    assert np.shape(model.coef_) == np.shape(plain.coef_)
    assert np.shape(model.intercept_) == np.shape(plain.intercept_)
    assert model.radius_ == pytest.approx(plain.radius_, rel=1e-9, nan_ok=True)
    assert_certified(model, plain)


def assert_certified(model, plain):
    assert model.lower_bound_ <= plain.objective_
    assert model.objective_ >= plain.lower_bound_
    assert model.gap_ >= 0.0
    assert model.converged_


@contextlib.contextmanager
def raises_and_keeps(model, error, match):
    """Expect an error that leaves a fitted estimator as it was."""
    before = dict(vars(model))
    with pytest.raises(error, match=match):
        yield
    after = vars(model)
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)


@contextlib.contextmanager
def after(seconds, act, *args):
    """Have something done meanwhile, and at any rate before what follows."""
    timer = threading.Timer(seconds, act, args)
    timer.start()
    try:
        yield
    finally:
        timer.join()


@contextlib.contextmanager
def time_limit(seconds=60):
    """Fail what takes longer."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(number, frame):
        pytest.fail(f"not done after {seconds} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


# The same model.


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unweighted", "weighted"])
def test_a_classifier_agrees_with_the_plain_one(name, intercept, weights):
    params, y = SETS[name]
    model = DaskHFWLogisticRegression(*params, fit_intercept=intercept, **TIGHTER)
    weights = None if weights is None else in_blocks(weights, 7)
    assert_same(*fits(model, in_blocks(X, 7), in_blocks(y, 7), weights))


@pytest.mark.parametrize("n_blocks", [1, 2, 7, 50])
@pytest.mark.parametrize("kind", [lambda blocks: blocks, as_sparse], ids=["dense", "csr"])
@pytest.mark.parametrize("name", ["l1", "nuclear"])
def test_a_classifier_agrees_for_any_number_of_blocks(n_blocks, kind, name):
    params, y = SETS[name]
    blocks, labels, weights = (in_blocks(part, n_blocks) for part in (X, y, WEIGHTS))
    model = DaskHFWLogisticRegression(*params, tol=1e-12).fit(kind(blocks), labels, weights)
    assert_same(model, HFWLogisticRegression(*params, tol=1e-12).fit(X, y, WEIGHTS))


@pytest.mark.parametrize("loss", TARGETS)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unweighted", "weighted"])
def test_a_regressor_agrees_with_the_plain_one(loss, intercept, weights):
    model = DaskHFWRegressor("l1", 1.5, loss=loss, fit_intercept=intercept, **TIGHT)
    weights = None if weights is None else in_blocks(weights, 7)
    assert_same(*fits(model, in_blocks(X, 7), in_blocks(TARGETS[loss], 7), weights))


@pytest.mark.parametrize("constraint", ["l1", "l2", "nuclear"])
@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_several_targets_agree_with_the_plain_regressor(constraint, loss):
    model = DaskHFWRegressor(constraint, 3.0, loss=loss, **TIGHTER)
    assert_same(*fits(model, in_blocks(X, 7), in_blocks(SEVERAL, 7), in_blocks(WEIGHTS, 7)))


def test_a_column_of_targets_has_a_row_of_coefficients():
    model = DaskHFWRegressor("l1", 1.5, **TIGHT)
    model, plain = fits(model, in_blocks(X), in_blocks(SEVERAL[:, :1]))
    assert_same(model, plain)
    assert model.predict(in_blocks(X)).compute().shape == plain.predict(X).shape


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_a_large_mean_of_the_targets_costs_no_digits(loss):
    y = 1e6 + TARGETS[loss]
    model = DaskHFWRegressor("l1", 1.5, loss=loss, tol=1e-10).fit(in_blocks(X), in_blocks(y))
    near = HFWRegressor("l1", 1.5, loss=loss, tol=1e-10).fit(X, y - 1e6)
    np.testing.assert_allclose(model.coef_, near.coef_, atol=1e-6)
    assert model.intercept_ - 1e6 == pytest.approx(near.intercept_, abs=1e-6)
    assert_certified(model, HFWRegressor("l1", 1.5, loss=loss, tol=1e-10).fit(X, y))


def test_the_default_radius_is_that_of_the_plain_estimators():
    assert_same(*fits(DaskHFWLogisticRegression(**TIGHT), in_blocks(X), in_blocks(Y2), in_blocks(WEIGHTS)))
    assert_same(*fits(DaskHFWRegressor(**TIGHT), in_blocks(X), in_blocks(TARGETS["huber"])))


@pytest.mark.parametrize("intercept", [False, True])
def test_classes_agree_up_to_a_common_shift_where_the_set_does_not_bind(intercept):
    model = DaskHFWLogisticRegression(fit_intercept=intercept, **TIGHT)
    model, plain = fits(model, in_blocks(X), in_blocks(Y3), in_blocks(WEIGHTS))
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), atol=1e-6)
    assert model.radius_ == pytest.approx(plain.radius_, rel=1e-9)
    assert_certified(model, plain)


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 2, 0], [2, 0, 1]], ids=str)
def test_gaps_get_as_small_as_those_of_the_plain_classifier(order):
    y = np.array(order)[Y3]
    assert_same(*fits(DaskHFWLogisticRegression("l1", 2.0, **TIGHTER), in_blocks(X), in_blocks(y)))


def test_without_correctors_the_iterates_are_those_of_the_paper():
    params = {"corrective": False, "momentum": "weighted", "step_size": "parameter_free", "tol": 0.05}
    model, plain = fits(DaskHFWLogisticRegression("l2", 1.5, **params), in_blocks(X), in_blocks(Y2))
    assert_same(model, plain)
    assert model.n_iter_ == plain.n_iter_


# What a collection may be.


def test_frames_and_series():
    rows, labels = frames()
    model = DaskHFWLogisticRegression("l1", 2.0, **TIGHT).fit(rows, labels)
    assert_same(model, HFWLogisticRegression("l1", 2.0, **TIGHT).fit(X, Y2))
    np.testing.assert_array_equal(model.feature_names_in_, list("abcde"))
    assert model.n_features_in_ == P


def test_names_are_forgotten_in_a_fit_to_arrays():
    model = DaskHFWLogisticRegression("l1", 2.0).fit(*frames())
    model.fit(in_blocks(X), in_blocks(Y2))
    assert not hasattr(model, "feature_names_in_")


def test_predictions_of_a_frame_with_other_columns_are_refused():
    rows, labels = frames()
    model = DaskHFWLogisticRegression("l1", 2.0).fit(rows, labels)
    with pytest.raises(ValueError, match="X must have the columns of the fit"):
        model.predict(rows.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="X must have the columns of the fit"):
        model.score(rows.rename(columns={"a": "z"}), labels)


@pytest.mark.parametrize("kind", [str, object])
def test_labels_are_strings(kind):
    y = np.array(["lo", "mid", "hi"])[Y3].astype(kind)
    model = DaskHFWLogisticRegression("l1", 2.0, **TIGHT).fit(in_blocks(X), in_blocks(y))
    plain = HFWLogisticRegression("l1", 2.0, **TIGHT).fit(X, y)
    np.testing.assert_array_equal(model.classes_, ["hi", "lo", "mid"])
    assert_same(model, plain)
    np.testing.assert_array_equal(model.predict(in_blocks(X)).compute(), plain.predict(X))
    assert model.score(in_blocks(X), in_blocks(y)) == pytest.approx(plain.score(X, y))


def test_labels_of_a_series_are_strings():
    y = np.array(["lo", "mid", "hi"])[Y3]
    rows, labels = frames(y=y)
    model = DaskHFWLogisticRegression("l1", 2.0, **TIGHT).fit(rows, labels)
    assert_same(model, HFWLogisticRegression("l1", 2.0, **TIGHT).fit(X, y))
    assert set(model.predict(rows).compute()) <= {"lo", "mid", "hi"}


def test_labels_are_booleans():
    model, plain = fits(DaskHFWLogisticRegression("l1", 2.0, **TIGHT), in_blocks(X), in_blocks(Y2 == 1))
    assert_same(model, plain)
    assert model.classes_.dtype == bool
    assert model.predict(in_blocks(X)).compute().dtype == bool


def test_targets_are_integers_or_booleans():
    for y in (TARGETS["poisson"].astype(int), Y2 == 1):
        assert_same(*fits(DaskHFWRegressor("l1", 1.5, **TIGHT), in_blocks(X), in_blocks(y)))


def test_a_block_need_not_have_all_classes():
    order = np.argsort(Y3, kind="stable")
    model = DaskHFWLogisticRegression("l1", 2.0, **TIGHT)
    assert_same(*fits(model, in_blocks(X[order], 5), in_blocks(Y3[order], 5)))


def test_a_class_without_weight_is_left_out():
    model, plain = fits(
        DaskHFWLogisticRegression("l1", 2.0, **TIGHT),
        in_blocks(X),
        in_blocks(Y3),
        in_blocks((Y3 != 1).astype(float)),
    )
    np.testing.assert_array_equal(model.classes_, [0, 2])
    assert_same(model, plain)


def test_chunks_of_unknown_sizes():
    rows, labels = in_blocks(X), in_blocks(Y2)
    kept = rows[:, 0] > 0
    model, plain = fits(DaskHFWLogisticRegression("l1", 2.0, **TIGHT), rows[kept], labels[kept])
    assert_same(model, plain)
    predicted = model.predict_proba(rows[kept])
    np.testing.assert_allclose(predicted.compute(), plain.predict_proba(X[X[:, 0] > 0]))
    assert model.score(rows[kept], labels[kept]) == pytest.approx(
        plain.score(X[X[:, 0] > 0], Y2[X[:, 0] > 0])
    )


@pytest.mark.parametrize("kind", [lambda blocks: blocks, as_sparse], ids=["dense", "csr"])
def test_chunks_along_the_columns(kind):
    rows = kind(da.from_array(X, chunks=(40, 2)))
    model = DaskHFWLogisticRegression("l1", 2.0, **TIGHT).fit(rows, in_blocks(Y2))
    plain = HFWLogisticRegression("l1", 2.0, **TIGHT).fit(X, Y2)
    assert_same(model, plain)
    if kind is not as_sparse:
        np.testing.assert_allclose(model.decision_function(rows).compute(), plain.decision_function(X))


def test_partitions_may_be_empty():
    order = np.argsort(X[:, 0])
    rows, labels = frames(X=X[order], y=Y2[order])
    kept = rows["a"] > np.median(X[:, 0])
    model = DaskHFWLogisticRegression("l1", 2.0, **TIGHT).fit(rows[kept], labels[kept])
    some = X[:, 0] > np.median(X[:, 0])
    assert_same(model, HFWLogisticRegression("l1", 2.0, **TIGHT).fit(X[some], Y2[some]))
    assert len(model.predict(rows[kept]).compute()) == some.sum()
    assert model.score(rows[kept], labels[kept]) == pytest.approx(model.score(X[some], Y2[some]))


def test_targets_and_weights_are_in_other_chunks():
    model = DaskHFWLogisticRegression("l1", 2.0, **TIGHT)
    plain = HFWLogisticRegression("l1", 2.0, **TIGHT).fit(X, Y2, WEIGHTS)
    assert_same(model.fit(in_blocks(X, 4), in_blocks(Y2, 7), in_blocks(WEIGHTS, 3)), plain)
    assert_same(model.fit(in_blocks(X, 4), Y2, list(WEIGHTS)), plain)
    assert model.score(in_blocks(X, 4), in_blocks(Y2, 7), in_blocks(WEIGHTS, 3)) == pytest.approx(
        plain.score(X, Y2, WEIGHTS)
    )


def test_float32_stays_float32():
    single = X.astype(np.float32)
    model = DaskHFWLogisticRegression("l1", 2.0, **TIGHT).fit(in_blocks(single), in_blocks(Y2))
    assert model.coef_.dtype == model.intercept_.dtype == np.float32
    assert_same(model, HFWLogisticRegression("l1", 2.0, **TIGHT).fit(single, Y2), atol=1e-6)
    regressor = DaskHFWRegressor("l1", 1.5).fit(in_blocks(single), in_blocks(TARGETS["huber"]))
    assert regressor.coef_.dtype == regressor.intercept_.dtype == np.float32
    predicted = regressor.predict(in_blocks(single))
    assert predicted.compute().dtype == np.float32


@pytest.mark.parametrize("kind", [lambda blocks: blocks, as_sparse], ids=["dense", "csr"])
def test_features_are_integers(kind):
    whole = np.round(3.0 * X).astype(int)
    model = DaskHFWLogisticRegression("l1", 2.0, **TIGHT).fit(kind(in_blocks(whole)), in_blocks(Y2))
    assert model.coef_.dtype == np.float64
    assert_same(model, HFWLogisticRegression("l1", 2.0, **TIGHT).fit(whole, Y2))


@pytest.mark.parametrize(
    "kind", [np.asarray, np.asfortranarray, sparse.csr_matrix, sparse.csc_array, pd.DataFrame]
)
def test_data_that_is_no_collection(kind):
    model = DaskHFWLogisticRegression("l1", 2.0, **TIGHT).fit(kind(X), pd.Series(Y2))
    assert_same(model, HFWLogisticRegression("l1", 2.0, **TIGHT).fit(X, Y2))
    assert isinstance(model.predict(kind(X)), np.ndarray)


def test_plain_frames_have_names():
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = DaskHFWRegressor("l1", 1.5).fit(frame, TARGETS["huber"])
    np.testing.assert_array_equal(model.feature_names_in_, list("abcde"))
    assert model.predict(frame).shape == (N,)
    assert model.score(frame, TARGETS["huber"]) == pytest.approx(
        r2_score(TARGETS["huber"], model.predict(frame))
    )


# Predictions and scores.


@pytest.mark.parametrize("y", [Y2, Y3], ids=["two", "three"])
@pytest.mark.parametrize("method", ["predict", "decision_function", "predict_proba", "predict_log_proba"])
def test_predictions_of_collections_are_lazy(y, method):
    model = DaskHFWLogisticRegression("l1", 2.0).fit(in_blocks(X), in_blocks(y))
    expected = getattr(model.to_local(), method)(X)
    found = getattr(model, method)(X)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, expected)
    for rows in (in_blocks(X), as_sparse(in_blocks(X)), da.from_array(X, chunks=(30, 2))):
        lazy = getattr(model, method)(rows)
        assert isinstance(lazy, da.Array)
        assert (lazy.shape, lazy.dtype, lazy.ndim) == (expected.shape, expected.dtype, expected.ndim)
        found = lazy.compute()
        assert isinstance(found, np.ndarray)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("method", ["predict", "decision_function", "predict_proba"])
def test_predictions_of_frames_are_lazy(method):
    rows, labels = frames()
    model = DaskHFWLogisticRegression("l1", 2.0).fit(rows, labels)
    lazy = getattr(model, method)(rows)
    expected = getattr(HFWLogisticRegression("l1", 2.0).fit(X, Y2), method)(X)
    assert isinstance(lazy, da.Array)
    assert lazy.shape[1:] == expected.shape[1:]
    np.testing.assert_allclose(lazy.compute(), expected, atol=1e-8)


@pytest.mark.parametrize("y", [TARGETS["poisson"], SEVERAL], ids=["one", "several"])
def test_predictions_of_a_regressor_are_lazy(y):
    model = DaskHFWRegressor("l1", 1.5, loss="poisson" if y.ndim == 1 else "huber")
    model.fit(in_blocks(X), in_blocks(y))
    lazy, expected = model.predict(in_blocks(X)), model.to_local().predict(X)
    assert isinstance(lazy, da.Array)
    assert lazy.shape == expected.shape
    np.testing.assert_allclose(lazy.compute(), expected)
    assert isinstance(model.predict(X), np.ndarray)


def test_predictions_can_be_computed_in_blocks_and_sliced():
    model = DaskHFWLogisticRegression("l1", 2.0).fit(in_blocks(X), in_blocks(Y3))
    lazy = model.predict_proba(in_blocks(X))
    np.testing.assert_allclose(lazy[30:50, 1].compute(), model.predict_proba(X)[30:50, 1])
    np.testing.assert_allclose(lazy.sum(axis=1).compute(), 1.0)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unweighted", "weighted"])
def test_the_score_is_that_of_all_rows(weights):
    blocks = None if weights is None else in_blocks(weights)
    classifier = DaskHFWLogisticRegression("l1", 2.0).fit(in_blocks(X), in_blocks(Y3))
    found = classifier.score(in_blocks(X), in_blocks(Y3), blocks)
    assert isinstance(found, float)
    assert found == pytest.approx(accuracy_score(Y3, classifier.predict(X), sample_weight=weights))
    assert classifier.score(X, Y3, weights) == pytest.approx(found)
    for y, metric in ((TARGETS["huber"], r2_score), (SEVERAL, r2_score), (TARGETS["poisson"], d2)):
        loss = "poisson" if metric is d2 else "squared_error"
        model = DaskHFWRegressor("l1", 1.5, loss=loss).fit(in_blocks(X), in_blocks(y))
        found = model.score(in_blocks(X), in_blocks(y), blocks)
        assert isinstance(found, float)
        assert found == pytest.approx(metric(y, model.predict(X), sample_weight=weights), rel=1e-12)
        assert found == pytest.approx(model.to_local().score(X, y, weights), rel=1e-12)


def d2(y, predictions, sample_weight):
    return d2_tweedie_score(y, predictions, sample_weight=sample_weight, power=1)


def test_the_score_of_a_frame():
    rows, labels = frames()
    model = DaskHFWLogisticRegression("l1", 2.0).fit(rows, labels)
    assert model.score(rows, labels) == pytest.approx(accuracy_score(Y2, model.predict(rows).compute()))


def test_the_score_of_constant_targets_is_that_of_the_plain_regressor():
    model = DaskHFWRegressor("l1", 1.5).fit(in_blocks(X), in_blocks(TARGETS["huber"]))
    ones = np.ones(N)
    assert model.score(in_blocks(X), in_blocks(ones)) == model.to_local().score(X, ones)


def test_labels_that_were_not_seen_are_wrong():
    model = DaskHFWLogisticRegression("l1", 2.0).fit(in_blocks(X), in_blocks(Y2))
    assert model.score(in_blocks(X), in_blocks(Y2 + 7)) == 0.0


@pytest.mark.parametrize("method", ["predict", "score", "decision_function"])
def test_an_unfitted_estimator_says_so(method):
    model = DaskHFWLogisticRegression()
    with pytest.raises(ValueError, match="not fitted yet"):
        getattr(model, method)(*[in_blocks(X), in_blocks(Y2)][: 2 if method == "score" else 1])


# The estimators.


def test_the_local_estimator_predicts_the_same():
    model = DaskHFWLogisticRegression("l1", 2.0, tol=1e-6).fit(*frames())
    local = model.to_local()
    assert type(local) is HFWLogisticRegression
    params = model.get_params()
    del params["client"]
    assert local.get_params() == params
    fitted = {name: value for name, value in vars(model).items() if name.endswith("_")}
    assert {name: vars(local)[name] for name in fitted} == fitted
    frame = pd.DataFrame(X, columns=list("abcde"))
    np.testing.assert_array_equal(local.predict_proba(frame), model.predict_proba(frame))
    regressor = DaskHFWRegressor("l2", 1.5).fit(in_blocks(X), in_blocks(SEVERAL))
    assert type(regressor.to_local()) is HFWRegressor
    np.testing.assert_array_equal(regressor.to_local().predict(X), regressor.predict(X))


def test_an_unfitted_estimator_can_be_made_local():
    local = DaskHFWRegressor("l2", 3.0).to_local()
    assert (local.constraint, local.radius) == ("l2", 3.0)
    assert not hasattr(local, "coef_")


class NoPickle:
    """Stands in for a client."""

    def __reduce__(self):
        raise TypeError("a connection")


def test_pickles_leave_the_client_behind():
    model = DaskHFWLogisticRegression("l1", 2.0).fit(in_blocks(X), in_blocks(Y2))
    model.client = NoPickle()
    copied = pickle.loads(pickle.dumps(model))
    assert copied.client is None
    assert model.client is not None
    np.testing.assert_array_equal(copied.coef_, model.coef_)
    np.testing.assert_array_equal(copied.predict(in_blocks(X)).compute(), model.predict(X))


@pytest.mark.parametrize("kind", [DaskHFWLogisticRegression, DaskHFWRegressor])
def test_clones_keep_the_client(kind):
    client = NoPickle()
    model = kind("l2", 3.0, tol=1e-3, client=client)
    copied = clone(model)
    assert type(copied) is kind
    assert copied.client is client
    assert copied.get_params() == model.get_params()
    assert kind().get_params().keys() == kind._plain().get_params().keys() | {"client"}
    assert copied.set_params(client=None, radius=2.0).client is None
    assert copied.radius == 2.0


def test_the_client_does_not_get_into_lazy_predictions():
    model = DaskHFWLogisticRegression("l1", 2.0).fit(in_blocks(X), in_blocks(Y2))
    model.client = NoPickle()
    lazy = model.predict(in_blocks(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(lazy)).compute(), model.predict(X))


def test_warm_start_begins_where_the_last_fit_ended():
    model = DaskHFWLogisticRegression("l1", 2.0, tol=1e-6, warm_start=True).fit(in_blocks(X), in_blocks(Y2))
    first = model.objective_
    model.fit(in_blocks(X), in_blocks(Y2))
    assert model.trace_["objective"][0] == pytest.approx(first, rel=1e-9)
    assert model.n_iter_ <= 1
    regressor = DaskHFWRegressor("l1", 1.5, tol=1e-6, warm_start=True)
    regressor.fit(in_blocks(X), in_blocks(TARGETS["huber"])).fit(in_blocks(X), in_blocks(TARGETS["huber"]))
    assert regressor.n_iter_ <= 1


@pytest.mark.parametrize(
    "class_weight", ["balanced", {0: 5.0, 1: 1.0, 2: 0.5}, {0: 1.0, 1: 0.0, 2: 1.0}], ids=str
)
def test_class_weights(class_weight):
    model = DaskHFWLogisticRegression("l1", 2.0, class_weight=class_weight, **TIGHT)
    assert_same(*fits(model, in_blocks(X, 7), in_blocks(Y3, 7)))
    assert_same(*fits(model, in_blocks(X, 7), in_blocks(Y3, 7), in_blocks(WEIGHTS, 7)))


def test_class_weights_of_strings():
    y = np.array(["no", "yes"])[Y2]
    model = DaskHFWLogisticRegression("l1", 2.0, class_weight={"no": 3.0, "yes": 1.0}, **TIGHT)
    assert_same(model.fit(in_blocks(X), in_blocks(y)), model.to_local().fit(X, y))


def test_the_end_of_a_pipeline():
    fitted = make_pipeline(StandardScaler(), DaskHFWLogisticRegression("l1", 2.0, **TIGHT)).fit(X, Y2)
    plain = make_pipeline(StandardScaler(), HFWLogisticRegression("l1", 2.0, **TIGHT)).fit(X, Y2)
    assert_same(fitted[-1], plain[-1])
    np.testing.assert_array_equal(fitted.predict(X), plain.predict(X))
    assert fitted.score(X, Y2) == pytest.approx(plain.score(X, Y2))


def test_the_size_of_the_weights_does_not_matter():
    model = DaskHFWLogisticRegression("l1", 2.0, **TIGHT)
    plain = HFWLogisticRegression("l1", 2.0, **TIGHT).fit(X, Y2, WEIGHTS)
    for scale in (1e-300, 1e300):
        assert_same(model.fit(in_blocks(X), in_blocks(Y2), in_blocks(scale * WEIGHTS)), plain)


# Wrong uses.


def with_one(array, value, place=60):
    """Return a copy with another value in one place: in the third of four blocks."""
    array = np.array(array, dtype=np.result_type(array, type(value)))
    array[place if array.ndim == 1 else (place, 2)] = value
    return array


def of_uneven_widths():
    """Return blocks of which the second has a feature less than it says."""
    parts = [dask.delayed(part) for part in (X[:40], X[40:70, :4], X[70:])]
    sizes = (40, 30, 35)
    blocks = [da.from_delayed(part, (n, P), dtype=float) for part, n in zip(parts, sizes, strict=True)]
    return da.concatenate(blocks)


CLASSIFIED, REGRESSED = (in_blocks(X), in_blocks(Y2)), (in_blocks(X), in_blocks(TARGETS["huber"]))
WRONG_ROWS = {
    "no rows": (lambda: (in_blocks(X)[:0], in_blocks(Y2)[:0]), "at least one sample"),
    "no rows of known size": (lambda: (in_blocks(X)[in_blocks(X)[:, 0] > 99], Y2[:0]), "at least one sample"),
    "more targets": (lambda: (in_blocks(X)[:-5], in_blocks(Y2)), "same number of rows; got 100 and 105"),
    "fewer weights": (lambda: (*CLASSIFIED, WEIGHTS[:-5]), "X and sample_weight .* got 105 and 100"),
    "NaN": (
        lambda: (in_blocks(with_one(X, np.nan)), CLASSIFIED[1]),
        "X contains NaN or infinity, in block 2 ",
    ),
    "sparse NaN": (lambda: (as_sparse(in_blocks(with_one(X, np.nan))), Y2), "X contains NaN .*in block 2 "),
    "infinite feature": (
        lambda: (in_blocks(with_one(X, np.inf)), CLASSIFIED[1]),
        "X contains NaN .*block 2 ",
    ),
    "NaN label": (lambda: (in_blocks(X), in_blocks(with_one(Y2, np.nan))), "y contains NaN .*block 2 "),
    "negative weight": (
        lambda: (*CLASSIFIED, in_blocks(with_one(WEIGHTS, -1.0))),
        "sample_weight must be finite and non-negative; got weights from -1.0 .*block 2 ",
    ),
    "NaN weight": (
        lambda: (*CLASSIFIED, in_blocks(with_one(WEIGHTS, np.nan))),
        "sample_weight must be .*block 2 ",
    ),
    "infinite weight": (
        lambda: (*CLASSIFIED, in_blocks(with_one(WEIGHTS, np.inf))),
        "sample_weight .*block 2 ",
    ),
    "no weight": (lambda: (*CLASSIFIED, in_blocks(0.0 * WEIGHTS)), "weights that are all zero"),
    "weights in two dimensions": (
        lambda: (*CLASSIFIED, in_blocks(X)),
        "sample_weight must have one dimension",
    ),
    "uneven widths": (
        lambda: (of_uneven_widths(), Y2),
        "same features in all blocks; got 5 in the first and 4",
    ),
    "complex": (lambda: (in_blocks(X + 1j), CLASSIFIED[1]), "X must have real numbers"),
    "one dimension": (lambda: (in_blocks(X[:, 0]), CLASSIFIED[1]), "X must have two dimensions"),
    "one dimension of an array": (lambda: (X[:, 0], Y2), "X must have two dimensions"),
    "three dimensions": (lambda: (in_blocks(X[:, :, None]), CLASSIFIED[1]), "X must have two dimensions"),
    "words": (lambda: (in_blocks(X.astype(str).astype(object) + "x"), Y2), "could not convert string"),
}
WRONG_LABELS = {
    "one class": (lambda: (in_blocks(X), in_blocks(0 * Y2 + 3)), "at least 2 classes .*only one class, 3"),
    "one class with a weight": (lambda: (*CLASSIFIED, in_blocks(1.0 * (Y2 == 1))), "only one class, 1"),
    "numbers": (lambda: REGRESSED, "[Uu]nknown label type"),
    "several columns": (lambda: (in_blocks(X), in_blocks(SEVERAL)), "y must have one dimension"),
}
WRONG_TARGETS = {
    "words": (lambda: (in_blocks(X), in_blocks(Y2.astype(str))), "y must have numbers"),
    "infinite target": (
        lambda: (in_blocks(X), in_blocks(with_one(TARGETS["huber"], np.inf))),
        "y contains NaN or infinity, in block 2 ",
    ),
    "three dimensions": (lambda: (in_blocks(X), in_blocks(SEVERAL[:, :, None])), "y must have .*dimension"),
}


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_wrong_rows_are_named(name):
    make, message = WRONG_ROWS[name]
    model = DaskHFWLogisticRegression("l1", 2.0).fit(*CLASSIFIED)
    with raises_and_keeps(model, ValueError, message):
        model.fit(*make())


@pytest.mark.parametrize("name", WRONG_LABELS)
def test_wrong_labels_are_named(name):
    make, message = WRONG_LABELS[name]
    model = DaskHFWLogisticRegression("l1", 2.0).fit(*frames())
    with raises_and_keeps(model, ValueError, message):
        model.fit(*make())


@pytest.mark.parametrize("name", WRONG_TARGETS)
def test_wrong_targets_are_named(name):
    make, message = WRONG_TARGETS[name]
    model = DaskHFWRegressor("l1", 1.5).fit(*REGRESSED)
    with raises_and_keeps(model, ValueError, message):
        model.fit(*make())


def test_poisson_wants_targets_that_are_not_negative():
    counts = TARGETS["poisson"]
    model = DaskHFWRegressor("l1", 1.5, loss="poisson").fit(in_blocks(X), in_blocks(counts))
    with raises_and_keeps(model, ValueError, "must not be negative for loss='poisson'; got y from -1.0"):
        model.fit(in_blocks(X), in_blocks(with_one(counts, -1.0)))
    with raises_and_keeps(model, ValueError, "zero everywhere"):
        model.fit(in_blocks(X), in_blocks(0.0 * counts))


def test_predictions_of_empty_blocks_are_empty():
    rows = in_blocks(X)
    kept = rows[rows[:, 0] > 1e9]
    model = DaskHFWLogisticRegression("l1", 2.0).fit(in_blocks(X), in_blocks(Y3))
    assert model.predict(kept).compute().shape == (0,)
    assert model.predict_proba(kept).compute().shape == (0, 3)


def test_poisson_has_one_target_as_in_the_plain_regressor():
    model = DaskHFWRegressor("l1", 1.5, loss="poisson")
    with pytest.raises(ValueError):
        model.to_local().fit(X, np.abs(SEVERAL))
    with pytest.raises(ValueError):
        model.fit(in_blocks(X), in_blocks(np.abs(SEVERAL)))


def test_wrong_parameters_are_found_before_anything_is_computed():
    touched = []
    rows = in_blocks(X).map_blocks(lambda part: touched.append(1) or part, meta=X[:0])
    with pytest.raises(ValueError, match="radius must be"):
        DaskHFWLogisticRegression("l1", -1.0).fit(rows, in_blocks(Y2))
    with pytest.raises(ValueError, match="loss must be"):
        DaskHFWRegressor(loss="l1").fit(rows, in_blocks(Y2))
    assert not touched


def test_the_number_of_features_must_be_that_of_the_fit():
    model = DaskHFWLogisticRegression("l1", 2.0).fit(*CLASSIFIED)
    with pytest.raises(ValueError, match="3 features"):
        model.predict(in_blocks(X[:, :3])).compute()
    with pytest.raises(ValueError, match="3 features"):
        model.score(in_blocks(X[:, :3]), in_blocks(Y2))


def failing(part):
    raise ValueError("no such file")


def test_what_fails_in_a_task_is_told():
    model = DaskHFWLogisticRegression("l1", 2.0).fit(*CLASSIFIED)
    with raises_and_keeps(model, ValueError, "no such file"):
        model.fit(in_blocks(X).map_blocks(failing, meta=X[:0]), in_blocks(Y2))


# Blocks that are read again in each pass, because the workers cannot hold them.


@pytest.fixture
def tiny_blocks(monkeypatch):
    """Blocks may be smaller than the tasks that read them."""
    monkeypatch.setattr("skfw.dask._rows._CARRIED_SHARE", np.inf)


@pytest.fixture
def little_memory(monkeypatch, tiny_blocks):
    """There is no memory for any data."""
    for runner in (InProcess, OnCluster):
        monkeypatch.setattr(runner, "memory", 0.0)


def in_files(array, folder, n_blocks=4, kind=lambda part: part):
    """Return an array of blocks that are read from files, which say when they are read."""
    name, ends = f"{len(list(folder.iterdir()))}-", np.cumsum([0, *lengths(n_blocks, len(array))]).tolist()
    blocks = []
    for a, b in itertools.pairwise(ends):
        file = folder / f"{name}{a}.npy"
        np.save(file, array[a:b])
        block = dask.delayed(read_file, pure=False)(str(file), kind)
        blocks.append(da.from_delayed(block, (b - a, *array.shape[1:]), meta=kind(array[:0])))
    return da.concatenate(blocks)


def read_file(file, kind):
    with open(f"{file}.reads", "a") as log:
        log.write("x")
    return kind(np.load(file))


def n_reads(folder):
    return [len(file.read_text()) for file in sorted(folder.glob("*.reads"))]


@pytest.mark.parametrize(
    "kind", [lambda part: part, sparse.csr_matrix, np.asfortranarray], ids=["rows", "sparse", "columns"]
)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("name", ["l1", "l2", "nuclear"])
def test_blocks_that_do_not_fit_are_read_again(little_memory, monkeypatch, tmp_path, name, weights, kind):
    params, y = SETS[name]
    rows = in_files(X, tmp_path, 7, kind)
    model = DaskHFWLogisticRegression(*params, **TIGHTER).fit(rows, in_blocks(y, 5), weights)
    assert min(n_reads(tmp_path)) > 10
    with monkeypatch.context() as patch:
        patch.setattr(InProcess, "memory", np.inf)
        held = clone(model).fit(rows, in_blocks(y, 5), weights)
    np.testing.assert_allclose(model.coef_, held.coef_, atol=1e-13)
    assert model.n_iter_ == held.n_iter_
    plain = HFWLogisticRegression(*params, **TIGHTER).fit(X, y, weights)
    assert_same(model, plain, atol=1e-7 if name == "nuclear" else 1e-8)
    before = n_reads(tmp_path)
    score = model.to_local().score(X, y, weights)
    assert model.score(rows, in_blocks(y, 5), weights) == pytest.approx(score)
    assert max(np.subtract(n_reads(tmp_path), before)) <= 3


def test_blocks_that_fit_are_read_once(tiny_blocks, tmp_path):
    DaskHFWLogisticRegression("l1", 2.0).fit(in_files(X, tmp_path), in_blocks(Y2))
    assert n_reads(tmp_path) == [1, 1, 1, 1]


def test_blocks_that_do_not_fit_may_be_empty_or_of_unknown_length(little_memory, tmp_path):
    rows, labels = in_files(X, tmp_path), in_files(Y2, tmp_path)
    kept = rows[:, 0] > np.quantile(X[:, 0], 0.6)
    model = DaskHFWLogisticRegression("l1", 2.0, **TIGHT).fit(rows[kept], labels[kept])
    some = X[:, 0] > np.quantile(X[:, 0], 0.6)
    assert_same(model, HFWLogisticRegression("l1", 2.0, **TIGHT).fit(X[some], Y2[some]))
    assert max(n_reads(tmp_path)) > 10


def test_frames_that_do_not_fit_are_read_again(little_memory, loaded, tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    files = [tmp_path / f"{k}.csv" for k in range(3)]
    for file, part in zip(files, np.array_split(np.arange(N), 3), strict=True):
        pd.DataFrame(X[part], columns=list("abcde")).assign(y=Y2[part]).to_csv(file, index=False)
    frame = dd.read_csv([str(file) for file in files])
    model = DaskHFWLogisticRegression("l1", 2.0, **TIGHT).fit(frame[list("abcde")], frame["y"])
    assert_same(model, HFWLogisticRegression("l1", 2.0, **TIGHT).fit(X, Y2))
    np.testing.assert_array_equal(model.feature_names_in_, list("abcde"))
    assert len(loaded) == 1


def test_what_is_much_work_is_done_once(little_memory, tmp_path):
    """Each block of centred data needs all blocks."""
    rows = in_files(X, tmp_path)
    model = DaskHFWLogisticRegression("l1", 2.0, **TIGHT).fit(rows - rows.mean(axis=0), in_blocks(Y2))
    assert n_reads(tmp_path) == [1, 1, 1, 1]
    assert_same(model, HFWLogisticRegression("l1", 2.0, **TIGHT).fit(X - X.mean(axis=0), Y2))


@pytest.fixture
def loaded(monkeypatch):
    """The lists of blocks that are loaded and held in this process."""
    found, load = [], InProcess.load
    monkeypatch.setattr(InProcess, "load", lambda self, delayed: found.append(delayed) or load(self, delayed))
    return found


@pytest.mark.parametrize("collection", [in_blocks, lambda X: in_blocks(X)[:, 1:]], ids=["array", "slice"])
def test_data_that_is_in_the_graph_is_sent_once(monkeypatch, loaded, collection):
    monkeypatch.setattr(InProcess, "memory", 0.0)
    rows, labels = collection(np.tile(X, (400, 1))), in_blocks(np.tile(Y2, 400))
    DaskHFWLogisticRegression("l1", 2.0).fit(rows, labels)
    assert len(loaded) == 2
    DaskHFWLogisticRegression("l1", 2.0).fit(da.ones((42_000, 5), chunks=10_500) * np.arange(5), labels)
    assert len(loaded) == 3


def test_what_is_wrong_with_blocks_that_are_read_again_is_told(little_memory, tmp_path):
    model = DaskHFWLogisticRegression("l1", 2.0).fit(*CLASSIFIED)
    with raises_and_keeps(model, ValueError, "X contains NaN or infinity, in block 2 "):
        model.fit(in_files(with_one(X, np.nan), tmp_path), in_blocks(Y2))
    with raises_and_keeps(model, ValueError, "no such file"):
        model.fit(in_files(X, tmp_path).map_blocks(failing, meta=X[:0]), in_blocks(Y2))


# On a cluster.


@pytest.fixture(scope="module")
def cluster():
    with (
        time_limit(),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
    ):
        if hasattr(signal, "SIGALRM"):
            signal.alarm(0)
        yield cluster


@pytest.fixture
def client(cluster):
    """A client that no estimator finds by itself."""
    with time_limit(), distributed.Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2)
        yield client


@pytest.mark.parametrize("name, is_sparse", [("l1", True), ("l2", False), ("nuclear", False)])
def test_on_a_cluster_the_model_is_the_same(client, name, is_sparse):
    params, y = SETS[name]
    rows, labels, weights = in_blocks(X, 3), in_blocks(y, 3), in_blocks(WEIGHTS, 3)
    rows = as_sparse(rows) if is_sparse else rows
    model = DaskHFWLogisticRegression(*params, client=client, tol=1e-12).fit(rows, labels, weights)
    plain = HFWLogisticRegression(*params, tol=1e-12).fit(X, y, WEIGHTS)
    assert_same(model, plain)
    assert model.client is client
    assert model.score(rows, labels, weights) == pytest.approx(plain.score(X, y, WEIGHTS))
    found = client.compute(model.predict_proba(rows)).result()
    np.testing.assert_allclose(found, plain.predict_proba(X), atol=1e-7)


@pytest.mark.parametrize("loss", TARGETS)
def test_on_a_cluster_the_regressor_is_the_same(client, loss):
    y = TARGETS[loss]
    model = DaskHFWRegressor("l1", 1.5, loss=loss, client=client, **TIGHT).fit(in_blocks(X), in_blocks(y, 3))
    plain = HFWRegressor("l1", 1.5, loss=loss, **TIGHT).fit(X, y)
    assert_same(model, plain)
    assert model.score(in_blocks(X), in_blocks(y)) == pytest.approx(plain.score(X, y))


def test_on_a_cluster_frames_and_arrays_are_cut_into_blocks(client):
    model = DaskHFWLogisticRegression("l1", 2.0, client=client, **TIGHT)
    plain = HFWLogisticRegression("l1", 2.0, **TIGHT).fit(X, Y2)
    assert_same(model.fit(X, Y2), plain)
    assert_same(model.fit(sparse.csr_matrix(X), Y2), plain)
    assert isinstance(model.predict(X), np.ndarray)
    assert_same(model.fit(*frames()), plain)


def test_on_a_cluster_fewer_rows_than_blocks_are_enough(client):
    model = DaskHFWRegressor("l1", 1.5, client=client, **TIGHT).fit(X[:2], TARGETS["huber"][:2])
    assert_same(model, HFWRegressor("l1", 1.5, **TIGHT).fit(X[:2], TARGETS["huber"][:2]))


def test_on_a_cluster_persisted_blocks_stay(client):
    rows, labels = client.persist([in_blocks(X), in_blocks(Y2)])
    model = DaskHFWLogisticRegression("l1", 2.0, client=client, **TIGHT)
    plain = HFWLogisticRegression("l1", 2.0, **TIGHT).fit(X, Y2)
    assert_same(model.fit(rows, labels), plain)
    assert_same(model.fit(rows, labels), plain)


def test_on_a_cluster_nothing_is_left_behind(client):
    DaskHFWLogisticRegression("l1", 2.0, client=client).fit(in_blocks(X), in_blocks(Y2))
    until = time.monotonic() + 20.0
    while client.futures and time.monotonic() < until:
        time.sleep(0.05)
    assert not client.futures


def test_the_current_client_is_used(client, monkeypatch):
    used = []
    run = OnCluster.run
    monkeypatch.setattr(OnCluster, "run", lambda self, *args: used.append(self.client) or run(self, *args))
    model = DaskHFWLogisticRegression("l1", 2.0, **TIGHT)
    with client.as_current():
        model.fit(in_blocks(X), in_blocks(Y2))
    assert set(used) == {client}
    assert model.client is None
    used.clear()
    model.fit(in_blocks(X), in_blocks(Y2))
    assert not used


def test_on_a_cluster_what_fails_in_a_task_is_told(client):
    def failing(part):
        raise ValueError("no such file")

    model = DaskHFWLogisticRegression("l1", 2.0, client=client)
    model.fit(in_blocks(X), in_blocks(Y2))
    rows = in_blocks(X).map_blocks(failing, meta=X[:0])
    with raises_and_keeps(model, ValueError, "no such file"):
        model.fit(rows, in_blocks(Y2))
    with raises_and_keeps(model, ValueError, "no such file"):
        model.score(rows, in_blocks(Y2))


@pytest.mark.parametrize("name", ["NaN", "negative weight", "complex", "uneven widths", "more targets"])
def test_on_a_cluster_wrong_rows_are_named(client, name):
    make, message = WRONG_ROWS[name]
    model = DaskHFWLogisticRegression("l1", 2.0, client=client).fit(*CLASSIFIED)
    with raises_and_keeps(model, ValueError, message):
        model.fit(*make())


def at_pass(monkeypatch, number, act):
    """Have something done before a pass over the blocks."""
    passes, run = [], OnCluster.run

    def counted(self, *args):
        passes.append(None)
        if len(passes) == number:
            act()
        return run(self, *args)

    monkeypatch.setattr(OnCluster, "run", counted)
    return passes


@pytest.mark.parametrize("number", [1, 5, 12])
def test_a_client_that_is_closed_between_passes(cluster, client, monkeypatch, number):
    model = DaskHFWLogisticRegression("l1", 2.0, client=client).fit(in_blocks(X), in_blocks(Y2))
    with distributed.Client(cluster, set_as_default=False) as other:
        model.client = other
        at_pass(monkeypatch, number, other.close)
        with raises_and_keeps(model, RuntimeError, "client of DaskHFWLogisticRegression .*closed"):
            model.fit(in_blocks(X), in_blocks(Y2))


def test_a_client_that_is_closed_while_it_waits(cluster, client):
    def slow(part):
        import time

        time.sleep(4.0)
        return part

    model = DaskHFWLogisticRegression("l1", 2.0, client=client).fit(in_blocks(X), in_blocks(Y2))
    with distributed.Client(cluster, set_as_default=False) as other:
        model.client = other
        error = "client of DaskHFWLogisticRegression .*closed"
        with raises_and_keeps(model, RuntimeError, error), after(1.0, other.close):
            model.fit(in_blocks(X, 2).map_blocks(slow, meta=X[:0]), in_blocks(Y2, 2))


needs_sigkill = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no SIGKILL")


@needs_sigkill
@pytest.mark.parametrize("source", ["collection", "array"])
def test_a_fit_survives_the_death_of_a_worker(client, monkeypatch, source):
    pids = client.run(os.getpid)
    passes = at_pass(monkeypatch, 8, lambda: os.kill(next(iter(pids.values())), signal.SIGKILL))
    rows, labels = (in_blocks(X), in_blocks(Y2)) if source == "collection" else (X, Y2)
    model = DaskHFWLogisticRegression("l1", 2.0, client=client, **TIGHT).fit(rows, labels)
    assert len(passes) > 8
    with pytest.raises(ProcessLookupError):
        os.kill(next(iter(pids.values())), 0)
    assert_same(model, HFWLogisticRegression("l1", 2.0, **TIGHT).fit(X, Y2))


@needs_sigkill
def test_a_fit_survives_the_death_of_a_worker_at_any_time(client):
    pids = list(client.run(os.getpid).values())
    model = DaskHFWRegressor("l1", 3.0, loss="huber", client=client, **TIGHT)
    with after(0.4, os.kill, pids[-1], signal.SIGKILL):
        model.fit(in_blocks(X), in_blocks(SEVERAL))
    assert_same(model, HFWRegressor("l1", 3.0, loss="huber", **TIGHT).fit(X, SEVERAL))


@needs_sigkill
def test_a_fit_that_reads_blocks_again_survives_the_death_of_a_worker(
    client, monkeypatch, little_memory, tmp_path
):
    pids = client.run(os.getpid)
    at_pass(monkeypatch, 8, lambda: os.kill(next(iter(pids.values())), signal.SIGKILL))
    model = DaskHFWLogisticRegression("l2", 1.5, client=client, tol=1e-12)
    model.fit(in_files(X, tmp_path), in_files(Y2, tmp_path))
    assert_same(model, HFWLogisticRegression("l2", 1.5, tol=1e-12).fit(X, Y2))
    assert max(n_reads(tmp_path)) > 10


def test_blocks_are_held_where_the_workers_have_memory_for_them(client, tiny_blocks, tmp_path):
    assert OnCluster(client).memory > 1e8
    DaskHFWLogisticRegression("l2", 1.5, client=client).fit(in_files(X, tmp_path), in_blocks(Y2))
    assert n_reads(tmp_path) == [1, 1, 1, 1]


def test_persisted_blocks_are_not_read_again(client, little_memory, tmp_path):
    rows = client.persist(in_files(X, tmp_path))
    DaskHFWLogisticRegression("l2", 1.5, client=client).fit(rows, in_blocks(Y2))
    assert n_reads(tmp_path) == [1, 1, 1, 1]


def test_the_scheduler_is_told_how_large_blocks_are():
    """By default an object of a class that dask does not know has some fifty bytes, and is moved at will."""
    sizeof = pytest.importorskip("dask.sizeof").sizeof
    dense, rows = np.zeros((1000, 10)), sparse.random(1000, 50, 0.1, format="csr", random_state=0)
    loss = LogisticLoss(np.ones(1000), np.ones(1000))
    assert sizeof({"design": design_matrix(dense), "loss": loss}) >= dense.nbytes + 16_000
    assert sizeof(design_matrix(rows)) >= 2 * rows.data.nbytes
    assert sizeof(loss.hessian(loss.evaluate(np.zeros(1000)))) >= 8_000
