import numpy as np
import pytest
from scipy import sparse

from skfw.engine import FeatureMap

N_ROWS = 6
FEATURES = {"none": 0.0, "zero": 0.0, "some": 1.0, "huge": 1e100, "tiny": 1e-100}


def example(name):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(N_ROWS, 3)) * (rng.uniform(size=(N_ROWS, 3)) < 0.6)
    features = FEATURES[name] * features[:, : 0 if name == "none" else 3]
    return FeatureMap(sparse.csr_matrix(features)), np.hstack([np.eye(N_ROWS), features]), rng


every_kind = pytest.mark.parametrize("name", FEATURES)


@every_kind
@pytest.mark.parametrize("rank", [(), (1,), (5,)])
def test_products_are_those_of_the_dense_matrix(name, rank):
    feature_map, dense, rng = example(name)
    assert feature_map.shape == dense.shape
    assert feature_map.is_identity == (name == "none")
    factors, rows = rng.normal(size=(dense.shape[1], *rank)), rng.normal(size=(N_ROWS, *rank))
    np.testing.assert_allclose(feature_map.apply(factors), dense @ factors, rtol=1e-12)
    np.testing.assert_allclose(feature_map.adjoint(rows), dense.T @ rows, rtol=1e-12)
    squares = feature_map.squares
    np.testing.assert_allclose(squares.apply(factors), dense**2 @ factors, rtol=1e-12)
    np.testing.assert_allclose(squares.adjoint(rows), (dense**2).T @ rows, rtol=1e-12)


def test_products_have_the_precision_of_the_factors():
    feature_map, dense, rng = example("some")
    for kind in (np.float32, np.float64):
        factors = rng.normal(size=(dense.shape[1], 2)).astype(kind)
        result = feature_map.apply(factors)
        assert result.dtype == feature_map.adjoint(result).dtype == kind
        np.testing.assert_allclose(result, dense @ factors, rtol=1e3 * np.finfo(kind).eps)


@every_kind
@pytest.mark.parametrize("weight", [1e-70, 1.0, 1e70])
def test_longest_row(name, weight):
    feature_map, dense, rng = example(name)
    for scales in (np.full(dense.shape[1], weight), weight ** rng.uniform(0.0, 1.0, dense.shape[1])):
        expected = max(float(np.hypot.reduce(row * scales)) for row in dense)  # which does not overflow
        assert feature_map.largest_row(scales) == pytest.approx(expected, rel=1e-12)


@every_kind
def test_squared_norm_is_an_upper_bound(name):
    feature_map, dense, _ = example(name)
    assert feature_map.squared_norm >= np.linalg.norm(dense, 2) ** 2 * (1 - 1e-12)
    if name == "none":
        assert feature_map.squared_norm == 1.0


def test_squared_norm_of_a_feature_that_all_rows_have():
    feature_map = FeatureMap(sparse.csr_matrix(np.full((50, 1), 3.0)))
    assert feature_map.squared_norm == pytest.approx(1.0 + 50 * 9.0)


def test_most_terms_of_a_sum():
    features = np.zeros((7, 4))
    assert FeatureMap(sparse.csr_matrix(features)).n_terms == 1  # the row itself
    features[2] = 1.0
    assert FeatureMap(sparse.csr_matrix(features)).n_terms == 5
    features[:, 1] = 1.0
    assert FeatureMap(sparse.csr_matrix(features)).n_terms == 8
    assert FeatureMap.identity(3).n_terms == 1


def test_whole_numbers_do_not_overflow():
    """Squares of integers wrap around without a word, and a bound of rounding errors depends on them."""
    features = sparse.csr_matrix(np.array([[4_000_000_000, 5_000_000_000], [1, 0]]))
    for whole in (features, features.astype(np.uint64)):
        feature_map = FeatureMap(whole)
        assert feature_map.largest_row(np.ones(4)) == pytest.approx(np.hypot(4e9, 5e9))
        assert feature_map.largest_feature == 5e9
    assert feature_map.apply(np.ones(4)).tolist() == [9e9 + 1.0, 2.0]
