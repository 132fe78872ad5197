import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from skfw import HFWMatrixCompletion, entries_to_matrix, matrix_to_entries


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
    assert entries_to_matrix([], [], (2, 3)).shape == (2, 3)


def test_repeated_entries_get_their_mean():
    entries = np.array([[0, 1], [1, 0], [0, 1], [0, 1]])
    matrix = entries_to_matrix(entries, [1.0, 5.0, 2.0, 6.0])
    np.testing.assert_array_equal(matrix, [[np.nan, 3.0], [5.0, np.nan]])


def test_whole_numbers_are_indices():
    np.testing.assert_array_equal(entries_to_matrix([[0.0, 1.0]], [2]), [[np.nan, 2.0]])
    np.testing.assert_array_equal(entries_to_matrix(np.array([[0, 1]], np.uint8), [2]), [[np.nan, 2.0]])


FRAME = pd.DataFrame([[1.0, np.nan, 2.0], [np.nan, 4.0, 5.0]])


@pytest.mark.parametrize(
    "rows, columns, kind",
    [
        (["ann", "bob"], ["x", "y", "z"], object),
        ([10, 20], ["x", "y", "z"], object),
        ([10, 20], [7, 8, 9], np.int64),
        ([2**60, 2**60 + 1], [0.5, 1.5, 2.5], object),
        (pd.to_datetime(["2020-01-01", "2020-01-02"]), ["x", "y", "z"], object),
        ([10, 20], pd.MultiIndex.from_tuples([("x", 1), ("x", 2), ("y", 1)]), object),
    ],
    ids=["strings", "mixed", "integers", "numbers", "dates", "tuples"],
)
def test_labels_of_a_frame_are_ids(rows, columns, kind):
    frame = FRAME.set_axis(rows, axis=0).set_axis(columns, axis=1)
    entries, values = matrix_to_entries(frame)
    assert entries.dtype == kind
    first, second = frame.index
    x, y, z = frame.columns
    assert entries.tolist() == [[first, x], [first, z], [second, y], [second, z]]
    np.testing.assert_array_equal(values, [1.0, 2.0, 4.0, 5.0])
    model = HFWMatrixCompletion(random_state=0).fit(entries, values)
    assert model.row_ids_.tolist() == [first, second]
    assert model.column_ids_.tolist() == [x, y, z]
    assert np.abs(model.predict(entries) - model.mean_).min() > 0.0


def test_frames_of_other_numbers():
    integers = FRAME.astype("Int64").assign(more=[1, 2])
    assert matrix_to_entries(integers)[1].tolist() == [1.0, 2.0, 1.0, 4.0, 5.0, 2.0]
    assert matrix_to_entries(pd.DataFrame([[1, 2]]))[0].tolist() == [[0, 0], [0, 1]]
