import copy

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skfw import HFWImputer
from skfw.engine import NuclearBall


def with_holes(X, share=0.3, seed=0):
    holes = np.random.default_rng(seed).uniform(size=X.shape) < share
    return np.where(holes, np.nan, X), holes


def error(imputer, X, missing, holes, scale):
    return np.sqrt(np.mean(((imputer.fit_transform(missing) - X) / scale)[holes] ** 2))


@pytest.mark.parametrize("load", [load_digits, load_iris])
def test_better_than_means(load):
    X = load().data.astype(float)
    X = X[:, X.std(axis=0) > 0]
    missing, holes = with_holes(X)
    scale = X.std(axis=0)
    imputer = HFWImputer(random_state=0)
    assert error(imputer, X, missing, holes, scale) < 0.85 * error(SimpleImputer(), X, missing, holes, scale)
    assert imputer.completion_.converged_


def test_observed_values_stay_and_new_rows_are_like_known_ones():
    X = load_iris().data
    missing, holes = with_holes(X)
    imputer = HFWImputer(0.7, tol=1e-6, random_state=0).fit(missing[:100])
    completed = imputer.transform(missing)
    np.testing.assert_array_equal(completed[~holes], X[~holes])
    assert np.isfinite(completed).all()
    # The rows that were fitted get what the model says of them.
    model = imputer.completion_
    rows, columns = np.nonzero(holes[:100])
    known = np.isin(rows, model.row_ids_)
    rows, columns = rows[known], columns[known]
    expected = (
        model.predict(np.column_stack([rows, columns])) * imputer.scales_[columns] + imputer.means_[columns]
    )
    np.testing.assert_allclose(completed[rows, columns], expected, atol=1e-2)
    # Each row is transformed on its own.
    np.testing.assert_allclose(imputer.transform(missing[120:121]), completed[120:121], atol=1e-9)


def test_complete_and_empty_rows_and_columns():
    X = load_iris().data
    np.testing.assert_array_equal(HFWImputer().fit_transform(X), X)
    missing = X.copy()
    missing[3], missing[:, 2] = np.nan, np.nan
    imputer = HFWImputer(random_state=0)
    completed = imputer.fit_transform(missing)
    np.testing.assert_array_equal(completed[:, 2], 0.0)
    np.testing.assert_allclose(completed[3], imputer.means_, rtol=0.1)
    with pytest.raises(ValueError, match="no observed value"):
        imputer.fit(np.full((3, 2), np.nan))


@pytest.mark.parametrize(
    "values, expected",
    [
        (np.full((4, 3), 2.5), np.full((4, 3), 2.5)),
        (np.eye(1), np.eye(1)),
        (np.array([[1.0, np.nan], [np.nan, np.nan]]), np.array([[1.0, 0.0], [1.0, 0.0]])),
        (np.array([[2.5, 7.0], [np.nan, 7.0], [2.5, np.nan]]), np.array([[2.5, 7.0]] * 3)),
    ],
    ids=["constant", "one value", "one value of four", "constant columns"],
)
def test_odd_data(values, expected):
    np.testing.assert_array_equal(HFWImputer().fit_transform(values), expected)


def test_sparse_input_holds_the_observed_values():
    X = load_iris().data
    missing, holes = with_holes(X)
    rows, columns = np.nonzero(~holes)
    stored = sparse.csr_matrix((X[rows, columns], (rows, columns)), shape=X.shape)
    expected = HFWImputer(random_state=0).fit_transform(missing)
    for container in (stored, stored.tocsc()):
        np.testing.assert_allclose(HFWImputer(random_state=0).fit_transform(container), expected, atol=1e-9)


def test_names_and_dtypes():
    frame = load_iris(as_frame=True).data.astype(np.float32)
    frame.iloc[::3, 1] = np.nan
    completed = HFWImputer(random_state=0).set_output(transform="pandas").fit_transform(frame)
    assert list(completed.columns) == list(frame.columns)
    assert set(completed.dtypes) == {np.dtype(np.float32)}
    assert isinstance(completed, pd.DataFrame)
    assert not completed.isna().any().any()


def test_in_a_pipeline_with_a_grid():
    X, y = load_iris(return_X_y=True)
    missing, _ = with_holes(X)
    pipeline = make_pipeline(HFWImputer(random_state=0), LogisticRegression(max_iter=1000))
    search = GridSearchCV(pipeline, {"hfwimputer__radius": [None, 0.5, 2.0]}, error_score="raise").fit(
        missing, y
    )
    assert search.best_score_ > 0.8


class Spectator:
    """A callback that only looks."""

    def setup(self, estimator, context):
        pass

    teardown = on_fit_task_begin = on_fit_task_end = setup


@pytest.mark.parametrize(
    "name, value",
    [
        ("radius", 0.0),
        ("radius", "1"),
        ("radius", True),
        ("bias_penalty", 0.0),
        ("bias_penalty", None),
        ("tol", -1.0),
        ("tol", "a"),
        ("max_iter", "a"),
        ("max_iter", 0),
    ],
)
@pytest.mark.parametrize("watched", [False, True])
def test_bad_parameters(name, value, watched):
    imputer = HFWImputer(**{name: value})
    if watched:
        pytest.importorskip("sklearn.callback")
        imputer.set_callbacks(Spectator())
    with pytest.raises(ValueError, match=f"{name} must be .* got {name}={value!r}"):
        imputer.fit(load_iris().data)


def test_the_search_for_a_radius_ends_before_values_are_interpolated(monkeypatch):
    tried, fit = [], HFWImputer._column_space

    def spy(self, radius, *args):
        tried.append(radius)
        return fit(self, radius, *args)

    monkeypatch.setattr(HFWImputer, "_column_space", spy)
    imputer = HFWImputer(random_state=0).fit(with_holes(load_iris().data)[0])
    assert tried[-1] == imputer.radius_
    *searched, worse = tried[:-1]
    assert searched == sorted(searched)
    assert imputer.radius_ in searched
    assert worse < 8.0


@pytest.mark.parametrize("block", [1, 100])
def test_rows_are_completed_in_blocks(monkeypatch, block):
    missing, _ = with_holes(load_iris().data)
    imputer = HFWImputer(0.7, random_state=0).fit(missing)
    expected = imputer.transform(missing)
    monkeypatch.setattr("skfw._imputer._BLOCK", block)
    np.testing.assert_allclose(imputer.transform(missing), expected, rtol=1e-9)


def test_the_units_of_the_columns_do_not_choose_the_radius():
    """Of half of the columns low radii are best, of the others high ones; no unit makes either decide."""
    rng = np.random.default_rng(0)
    structure = rng.normal(size=(60, 1)) @ rng.normal(size=(1, 5)) + 0.05 * rng.normal(size=(60, 5))
    X = with_holes(np.column_stack([structure, rng.normal(size=(60, 5))]))[0]
    radii = [
        HFWImputer(random_state=0).fit(X * np.repeat(units, 5)).radius_
        for units in ([1.0, 1.0], [2.0**20, 1.0], [1.0, 2.0**20])
    ]
    assert radii[0] == radii[1] == radii[2]


@pytest.mark.parametrize("unit", [1e200, 1e-200])
def test_values_without_squares(unit):
    missing, _ = with_holes(load_iris().data)
    expected = HFWImputer(0.7, random_state=0).fit_transform(missing)
    completed = HFWImputer(0.7, random_state=0).fit_transform(unit * missing)
    np.testing.assert_allclose(completed / unit, expected, rtol=1e-9)


@pytest.mark.parametrize("constant", [0.1, 1e6 + 0.1])
def test_the_rounding_of_a_mean_is_no_signal(constant):
    missing, _ = with_holes(np.column_stack([load_iris().data, np.zeros(150)]))
    expected = HFWImputer(0.7, random_state=0).fit_transform(missing)
    missing[:, 4] += constant
    imputer = HFWImputer(0.7, random_state=0)
    completed = imputer.fit_transform(missing)
    assert imputer.scales_[4] == 1.0
    np.testing.assert_allclose(completed[:, :4], expected[:, :4], rtol=1e-9)
    np.testing.assert_allclose(completed[:, 4] - constant, expected[:, 4], atol=1e-9 * constant)


def test_random_state_reaches_the_oracle(monkeypatch):
    seeds = []

    def spy(*args, random_state=None):
        seeds.append(random_state)
        return NuclearBall(*args, random_state=random_state)

    monkeypatch.setattr("skfw._imputer.NuclearBall", spy)
    missing, _ = with_holes(load_iris().data)
    for random_state in (0, 0, 1):
        HFWImputer(0.7, random_state=random_state).fit(missing)
    first, same, other = seeds
    assert first == same
    assert first not in (None, other)


@pytest.mark.parametrize("radius", [None, 0.7])
def test_an_interrupted_fit_leaves_the_last_model(monkeypatch, radius):
    frame = load_iris(as_frame=True).data
    frame[frame > 5.0] = np.nan
    imputer = HFWImputer(radius, random_state=0).fit(frame)
    expected, before = imputer.transform(frame), copy.copy(vars(imputer))
    other = with_holes(load_digits().data)[0]

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("skfw._certified.frank_wolfe", interrupt)
        with pytest.raises(KeyboardInterrupt):
            imputer.fit(other)
    with pytest.raises(ValueError, match="no observed value"):
        imputer.fit(np.full((3, 2), np.nan))
    assert vars(imputer).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(imputer).items())
    np.testing.assert_array_equal(imputer.transform(frame), expected)
    imputer.fit(other[:50])
    assert (imputer.n_features_in_, hasattr(imputer, "feature_names_in_")) == (64, False)


@pytest.mark.filterwarnings("error")
def test_the_warning_points_at_the_caller_and_leaves_a_whole_model():
    missing, _ = with_holes(load_digits().data[:100])
    imputer = HFWImputer(2.0, tol=1e-9, max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning, match="certified gap") as caught:
        imputer.fit(missing)
    assert [warning.filename for warning in caught] == [__file__]
    expected = imputer.transform(missing)
    imputer.set_params(max_iter=1000, tol=0.1).fit(missing[:, :32])
    with pytest.raises(ConvergenceWarning):
        imputer.set_params(max_iter=1, tol=1e-9).fit(missing)
    np.testing.assert_array_equal(imputer.transform(missing), expected)
    assert imputer.n_iter_ == imputer.completion_.n_iter_ == 1
