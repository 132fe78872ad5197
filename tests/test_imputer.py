import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_digits, load_iris
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skfw import HFWImputer


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
    "values", [np.full((4, 3), 2.5), np.eye(1), np.array([[1.0, np.nan], [np.nan, np.nan]])]
)
def test_odd_data(values):
    completed = HFWImputer().fit_transform(values)
    assert np.isfinite(completed).all()
    np.testing.assert_array_equal(completed[np.isfinite(values)], values[np.isfinite(values)])


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


@pytest.mark.parametrize("params", [{"radius": 0.0}, {"radius": "1"}, {"bias_penalty": 0.0}, {"tol": -1.0}])
def test_bad_parameters(params):
    with pytest.raises(ValueError, match=next(iter(params))):
        HFWImputer(**params).fit(load_iris().data)


def test_the_search_for_a_radius_ends_before_values_are_interpolated(monkeypatch):
    tried, fit = [], HFWImputer._fit_entries

    def spy(self, *args):
        tried.append(self.radius_)
        return fit(self, *args)

    monkeypatch.setattr(HFWImputer, "_fit_entries", spy)
    imputer = HFWImputer(random_state=0).fit(with_holes(load_iris().data)[0])
    assert tried[-1] == imputer.radius_
    *searched, worse = tried[:-1]
    assert searched == sorted(searched)
    assert imputer.radius_ in searched
    assert worse < 8.0
