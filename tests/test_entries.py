import numpy as np
import pytest
from scipy import sparse

from skfw import entries_to_matrix, matrix_to_entries


def test_there_and_back():
    rng = np.random.default_rng(0)
    matrix = np.where(rng.uniform(size=(5, 4)) < 0.5, np.nan, rng.normal(size=(5, 4)))
    entries, values = matrix_to_entries(matrix)
    assert len(values) == np.isfinite(matrix).sum()
    np.testing.assert_array_equal(entries_to_matrix(entries, values, matrix.shape), matrix)
    np.testing.assert_array_equal(entries_to_matrix(entries[::-1], values[::-1], matrix.shape), matrix)


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix])
def test_stored_zeros_are_observed_and_stored_nan_is_not(container):
    stored = container(
        (np.array([0.0, 2.0, np.nan]), (np.array([0, 1, 1]), np.array([1, 0, 2]))), shape=(2, 4)
    )
    entries, values = matrix_to_entries(stored)
    found = {tuple(entry): value for entry, value in zip(entries.tolist(), values.tolist(), strict=True)}
    assert found == {(0, 1): 0.0, (1, 0): 2.0}


@pytest.mark.parametrize("shape", [None, (3, 3)])
def test_indices_count_from_zero(shape):
    with pytest.raises(IndexError, match="count from zero; got row 2, column -1"):
        entries_to_matrix([[0, 0], [2, -1], [1, 1]], [1.0, 2.0, 3.0], shape)


def test_nothing_observed():
    entries, values = matrix_to_entries(np.full((2, 3), np.nan))
    assert entries.shape == (0, 2)
    assert entries_to_matrix(entries, values).shape == (0, 0)
    assert np.isnan(entries_to_matrix(entries, values, (2, 3))).all()
