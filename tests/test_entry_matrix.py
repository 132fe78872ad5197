import numpy as np
import pytest
from scipy import sparse

from skfw.engine import EntryMatrix


def example():
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(5, 4)) * (rng.uniform(size=(5, 4)) < 0.6)
    dense[2] = 0.0  # a row without entries
    return EntryMatrix(sparse.csr_matrix(dense)), dense, rng


def test_arithmetic_is_that_of_the_dense_matrix():
    matrix, dense, rng = example()
    row, column = rng.normal(size=4), rng.normal(size=(5, 1))
    for found, expected in [
        (matrix + matrix * row, dense + dense * row),
        (3.0 * matrix, 3.0 * dense),
        (matrix / 7.0, dense / 7.0),
        (abs(matrix), np.abs(dense)),
        (column * matrix, column * dense),
        (column * (matrix / 2.0) * row, column * (dense / 2.0) * row),
        (matrix.T, dense.T),
        (0.25 * matrix.T, 0.25 * dense.T),
    ]:
        np.testing.assert_array_equal(found.matrix.toarray(), expected)
        assert found.shape == expected.shape
    assert matrix.max() == dense.max()
    np.testing.assert_array_equal(np.sort(matrix.ravel()), np.sort(dense[dense != 0.0]))


def test_products():
    matrix, dense, rng = example()
    for vectors in (rng.normal(size=4), rng.normal(size=(4, 3))):
        np.testing.assert_allclose(matrix @ vectors, dense @ vectors, atol=1e-15)
    for vectors in (rng.normal(size=5), rng.normal(size=(5, 3))):
        np.testing.assert_allclose(matrix.T @ vectors, dense.T @ vectors, atol=1e-15)
    gram = matrix.T @ matrix
    assert isinstance(gram, np.ndarray)
    np.testing.assert_allclose(gram, dense.T @ dense, atol=1e-15)


def test_matrices_are_values():
    matrix, dense, _ = example()
    results = [2.0 * matrix, matrix + matrix, abs(matrix), matrix.astype(np.float32)]
    for result in results:
        result.matrix.data[:] = 0.0
    np.testing.assert_array_equal(matrix.matrix.toarray(), dense)


def test_precision():
    matrix, dense, _ = example()
    single = matrix.astype(np.float32)
    assert (single @ np.ones(4, dtype=np.float32)).dtype == np.float32
    np.testing.assert_array_equal(single.matrix.toarray(), dense.astype(np.float32))


def test_no_entries_at_all():
    assert EntryMatrix(sparse.csr_matrix((2, 3))).max() == 0.0


@pytest.mark.parametrize("factor", [np.float64(2.0), np.array(2.0)])
def test_numpy_numbers_are_numbers(factor):
    matrix, dense, _ = example()
    np.testing.assert_array_equal((factor * matrix).matrix.toarray(), 2.0 * dense)
