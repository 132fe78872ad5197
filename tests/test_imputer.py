import copy
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skfw import HFWImputer, HFWMatrixCompletion
from skfw._matrix_completion_cv import RadiusSearch
from skfw._params import make_constraint


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
    imputer = HFWImputer(random_state=0, keep_empty_features=True)
    completed = imputer.fit_transform(missing)
    np.testing.assert_array_equal(completed[:, 2], 0.0)
    np.testing.assert_allclose(completed[3], imputer.means_, rtol=0.1)
    np.testing.assert_array_equal(imputer.transform(X), X)
    without = HFWImputer(random_state=0).fit_transform(missing)
    np.testing.assert_array_equal(without, np.delete(completed, 2, axis=1))
    with pytest.raises(ValueError, match="no observed value"):
        imputer.fit(np.full((3, 2), np.nan))


@pytest.mark.parametrize(
    "values, expected",
    [
        (np.full((4, 3), 2.5), np.full((4, 3), 2.5)),
        (np.eye(1), np.eye(1)),
        (np.array([[1.0, np.nan], [np.nan, np.nan]]), np.array([[1.0], [1.0]])),
        (np.array([[2.5, 7.0], [np.nan, 7.0], [2.5, np.nan]]), np.array([[2.5, 7.0]] * 3)),
    ],
    ids=["constant", "one value", "one value of four", "constant columns"],
)
def test_odd_data(values, expected):
    np.testing.assert_array_equal(HFWImputer().fit_transform(values), expected)


@pytest.mark.parametrize("random_state", range(4))
def test_sparse_input_holds_the_observed_values(random_state):
    X = load_iris().data
    missing, holes = with_holes(X)
    rows, columns = np.nonzero(~holes)
    stored = sparse.csr_matrix((X[rows, columns], (rows, columns)), shape=X.shape)
    imputer = HFWImputer(random_state=random_state)
    expected = imputer.fit_transform(missing)
    for container in (stored, stored.tocsc()):
        np.testing.assert_array_equal(imputer.fit_transform(container), expected)


@pytest.mark.parametrize("missing_values", [-1, -1.5, 0, np.float64(7e9)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_missing_values_are_what_equals_them(missing_values, dtype):
    missing, holes = with_holes(load_iris().data.astype(dtype))
    expected = HFWImputer(0.7, random_state=0, add_indicator=True).fit_transform(missing)
    imputer = HFWImputer(0.7, random_state=0, add_indicator=True, missing_values=missing_values)
    filled = np.where(holes, dtype(missing_values), missing)
    np.testing.assert_array_equal(imputer.fit_transform(filled), expected)
    assert imputer.indicator_.missing_values == missing_values
    # Some of what is missing is stored, some is not.
    kept = ~holes | (np.arange(len(holes))[:, np.newaxis] % 2 == 0)
    rows, columns = np.nonzero(kept)
    stored = sparse.csr_matrix((filled[rows, columns], (rows, columns)), shape=holes.shape)
    np.testing.assert_array_equal(imputer.fit_transform(stored), expected)
    for method in (imputer.fit, imputer.transform):
        with pytest.raises(ValueError, match="contains NaN"):
            method(missing)


@pytest.mark.parametrize("keep_empty_features", [False, True])
@pytest.mark.parametrize("add_indicator", [False, True])
@pytest.mark.parametrize("names", [None, ["a", "b", "c", "d"]])
def test_columns_are_those_of_scikit_learn(keep_empty_features, add_indicator, names):
    missing, _ = with_holes(load_iris().data)
    missing[:, 0], missing[:, 2] = np.arange(150.0), np.nan  # without holes, and without values
    new = load_iris().data
    new[0, :2], new[:, 2] = np.nan, np.nan
    options = {"keep_empty_features": keep_empty_features, "add_indicator": add_indicator}
    ours, theirs = HFWImputer(0.7, random_state=0, **options), SimpleImputer(**options)
    for imputer in (ours, theirs):
        imputer.set_output(transform="pandas" if names else "default")
        imputer.fit(pd.DataFrame(missing, columns=names) if names else missing)
    assert list(ours.get_feature_names_out()) == list(theirs.get_feature_names_out())
    if not names:
        given = list("wxyz")
        assert list(ours.get_feature_names_out(given)) == list(theirs.get_feature_names_out(given))
    with pytest.raises(ValueError, match="input_features"):
        ours.get_feature_names_out(["a", "b"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SimpleImputer says which columns it drops
        for X in (missing, new):
            X = pd.DataFrame(X, columns=names) if names else X
            found, expected = ours.transform(X), theirs.transform(X)
            assert found.shape == expected.shape
            if names:
                assert list(found.columns) == list(expected.columns)
            n_completed = 3 + keep_empty_features
            found, expected = np.asarray(found), np.asarray(expected)
            np.testing.assert_array_equal(found[:, n_completed:], expected[:, n_completed:])
            np.testing.assert_array_equal(found[5:, 0], expected[5:, 0])
    if add_indicator:
        np.testing.assert_array_equal(ours.indicator_.features_, theirs.indicator_.features_)
    else:
        assert ours.indicator_ is None


def test_data_frames_with_nullable_integers():
    frame = load_iris(as_frame=True).data.round().astype("Int64")
    frame.iloc[::3, 1] = pd.NA
    completed = HFWImputer(0.7, random_state=0).fit_transform(frame)
    expected = HFWImputer(0.7, random_state=0).fit_transform(frame.to_numpy(dtype=float, na_value=np.nan))
    np.testing.assert_array_equal(completed, expected)


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
        ("missing_values", None),
        ("missing_values", "missing"),
        ("missing_values", np.inf),
        ("add_indicator", "yes"),
        ("keep_empty_features", 1),
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


def test_the_search_finds_the_best_radius_and_leaves_most_out(monkeypatch):
    """The scores are errors in values that the fits have not seen."""
    missing, _ = with_holes(load_wine().data)
    n_values = np.sum(~np.isnan(missing))
    tried, try_radius = {}, RadiusSearch.try_radius

    def spy(self, radius):
        try_radius(self, radius)
        [fold], model = self._folds, self.models[radius]
        X, y = fold.test
        known = {tuple(entry) for entry in np.argwhere(model._observed)}
        assert len(y) == np.ceil(0.1 * n_values)
        assert len(known) + len(y) == n_values
        assert not known & {tuple(entry) for entry in X}
        tried[radius] = np.mean((model.predict(X) - y) ** 2)

    monkeypatch.setattr(RadiusSearch, "try_radius", spy)
    imputer = HFWImputer(random_state=0).fit(missing)
    assert imputer.radius_ == imputer.completion_.radius_ == min(tried, key=tried.get)
    assert min(tried) < imputer.radius_ < max(tried)


def test_the_final_fit_starts_from_the_best_one(monkeypatch):
    starts, start = [], HFWMatrixCompletion._start

    def spy(self, model, *args):
        starts.append(model)
        return start(self, model, *args)

    monkeypatch.setattr(HFWMatrixCompletion, "_start", spy)
    imputer = HFWImputer(random_state=0).fit(with_holes(load_wine().data)[0])
    assert starts[-1].radius_ == imputer.radius_


def test_a_radius_that_adds_nothing_is_not_chosen():
    """From some radius on fits are within the tolerance at their start: their scores differ by rounding."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 10)) @ rng.normal(size=(10, 40))
    X += 0.2 * X.std() * rng.normal(size=X.shape)
    for seed in range(4):
        missing, holes = with_holes(X, seed=seed)
        imputer = HFWImputer(random_state=0)
        assert error(imputer, X, missing, holes, X.std(axis=0)) < 0.4
        assert imputer.radius_ < 6.0


@pytest.mark.parametrize("radius", [2.0, 5.0, 20.0])
@pytest.mark.parametrize("tol", [0.1, 1e-2])
def test_rows_are_held_where_the_ball_is_not(radius, tol):
    """The columns' factors fit nearly everything then; without a ridge, rows with few values explode."""
    X = load_breast_cancer().data
    missing, holes = with_holes(X)
    assert error(HFWImputer(radius, tol=tol, random_state=0), X, missing, holes, X.std(axis=0)) < 0.9


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


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    exponents=st.lists(st.integers(-900, 1023), min_size=4, max_size=4),
    radius=st.sampled_from([None, 0.7]),
)
def test_units_of_columns_change_nothing(seed, exponents, radius):
    """Up to the largest number there is; two to the power of -900 leaves room for small values."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 4)) + rng.normal(size=4)
    X /= 1.1 * np.abs(X).max()
    missing, _ = with_holes(X, seed=seed)
    expected = HFWImputer(radius, random_state=0).fit_transform(missing)
    imputer = HFWImputer(radius, random_state=0).fit(np.ldexp(missing, exponents))
    assert np.isfinite(imputer.means_).all()
    assert np.isfinite(imputer.scales_).all()
    completed = imputer.transform(np.ldexp(missing, exponents))
    in_range = np.abs(expected) < 1.0
    np.testing.assert_array_equal(np.ldexp(completed, np.negative(exponents))[in_range], expected[in_range])
    assert np.isfinite(completed).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["largest", "smallest", "all"])
def test_values_at_the_ends_of_the_range(dtype, seed, kind):
    rng, limits = np.random.default_rng(seed), np.finfo(dtype)
    X = rng.uniform(-1.0, 1.0, size=(30, 5))
    X[:, 0] = np.sign(X[:, 0])
    X[:, 1] = 1.0
    if kind == "largest":
        X = X * float(limits.max)
    elif kind == "smallest":
        X = X * 8.0 * float(limits.smallest_subnormal)
    else:
        X = np.sign(X) * np.exp2(rng.uniform(limits.minexp, limits.maxexp - 1, size=X.shape))
    missing, holes = with_holes(X.astype(dtype), seed=seed)
    imputer = HFWImputer(random_state=0).fit(missing)
    completed = imputer.transform(missing)
    assert completed.dtype == dtype
    assert np.isfinite(completed).all()
    assert np.isfinite([imputer.means_, imputer.scales_]).all()
    np.testing.assert_array_equal(completed[~holes], missing[~holes])
    if kind != "all":  # equal values
        np.testing.assert_allclose(completed[:, 1], X[:, 1].astype(dtype), rtol=1e-6)


def test_new_rows_may_be_much_larger_than_the_fitted_ones():
    missing, holes = with_holes(load_iris().data)
    imputer = HFWImputer(0.7, random_state=0).fit(missing)
    means, largest = np.where(holes, np.nan, imputer.means_), np.finfo(np.float64).max
    # What is added to a row's means is completed in proportion.
    change = imputer.transform(means + 1e6 * missing) - imputer.transform(means)
    for size in (1e100, 1e300):
        huge = imputer.transform(size * missing)
        np.testing.assert_allclose(huge[holes] / size, change[holes] / 1e6, rtol=1e-3, atol=1e-6)
    assert np.isfinite(imputer.transform(np.where(holes, np.nan, largest))).all()
    assert np.isfinite(imputer.transform(np.where(holes, np.nan, -largest))).all()


def test_a_column_of_equal_values_is_filled_with_them():
    missing, _ = with_holes(np.column_stack([load_iris().data, np.full(150, 3.5)]))
    np.testing.assert_array_equal(HFWImputer(2.0, random_state=0).fit_transform(missing)[:, 4], 3.5)


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


@pytest.mark.parametrize("radius", [None, 0.7])
def test_random_state_reaches_the_oracle(monkeypatch, radius):
    seeds = []

    def spy(*args, seed, **kwargs):
        seeds.append(seed)
        return make_constraint(*args, seed=seed, **kwargs)

    monkeypatch.setattr("skfw._matrix_completion.make_constraint", spy)
    monkeypatch.setattr(
        HFWMatrixCompletion, "_check_params", lambda self: None
    )  # it makes one without a seed
    missing, _ = with_holes(load_iris().data)
    found = []
    for random_state in (0, 0, 1, np.random.RandomState(0)):
        HFWImputer(radius, random_state=random_state).fit(missing)
        assert len(set(seeds)) == 1
        found.append(seeds[0])
        seeds.clear()
    first, same, other, instance = found
    assert first == same == instance
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
