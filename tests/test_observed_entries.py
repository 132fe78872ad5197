import numpy as np
import pytest

from skfw.engine import EntryMatrix, FactoredMatrix, ObservedEntries, products_at

EPSILON = np.finfo(np.float64).eps


def dense(direction):
    return direction @ np.eye(direction.shape[1])


def repeated_entries():
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 6, 30), rng.integers(0, 4, 30)
    return ObservedEntries(rows, columns, (6, 4)), rng


def test_products_with_repeated_entries():
    entries, rng = repeated_entries()
    rows, columns = entries.row_indices, entries.column_indices
    left, right = rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    x = FactoredMatrix(left, right, np.array([2.0, -1.0]))
    product = (left * [2.0, -1.0]) @ right.T
    np.testing.assert_allclose(entries.apply(x), product[rows, columns], atol=1e-14)
    np.testing.assert_array_equal(
        entries.apply_rank_one(left[:, 0], right[:, 0]), left[rows, 0] * right[columns, 0]
    )
    assert (entries.n_atoms(x), entries.n_atoms(entries.zeros())) == (2, 0)
    r, expected = rng.normal(size=30), np.zeros((6, 4))
    np.add.at(expected, (rows, columns), r)
    np.testing.assert_allclose(dense(entries.adjoint(r)), expected, atol=1e-14)
    weights, totals = rng.uniform(size=30), np.zeros((6, 4))
    np.add.at(totals, (rows, columns), weights)
    assert entries.squared_norm(weights) == pytest.approx(totals.max())
    with pytest.raises(TypeError, match="rank-one"):
        entries.apply_sparse(np.array([0]), np.array([1.0]))


@pytest.mark.parametrize("blocks", ["large", "small"])
@pytest.mark.parametrize("share", [0.01, 0.2, 0.6])
@pytest.mark.parametrize("shape", [(50, 40), (3, 1000)])
@pytest.mark.parametrize("rank", [0, 1, 30])
def test_entries_of_a_product(shape, share, rank, blocks, monkeypatch):
    """Few, many or most of all entries, which are computed in different ways, in one block or several."""
    if blocks == "small":
        for name in ("_observed_entries._FULL_BLOCK", "_kernels._GATHERED_BLOCK"):
            monkeypatch.setattr(f"skfw.engine.data.{name}", 250)
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.uniform(size=shape) < share)
    left, right = rng.normal(size=(shape[0], rank)), rng.normal(size=(shape[1], rank))
    expected = (left @ right.T)[rows, columns]
    for order in (slice(None), slice(None, None, -1)):
        entries = ObservedEntries(rows[order], columns[order], shape)
        np.testing.assert_allclose(entries.products(left, right), expected[order], atol=1e-12)
        residual = rng.normal(size=len(rows))
        matrix = np.zeros(shape)
        matrix[rows[order], columns[order]] = residual
        np.testing.assert_array_equal(dense(entries.adjoint(residual)), matrix)
        assert isinstance(entries.adjoint(residual), np.ndarray if share > 0.5 else EntryMatrix)
        single = entries.products(left.astype(np.float32), right.astype(np.float32))
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, expected[order], atol=1e-4)
        np.testing.assert_allclose(
            products_at(left, right, rows[order], columns[order]), expected[order], atol=1e-12
        )


@pytest.mark.parametrize("repeated", [False, True])
def test_marginals(repeated):
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.uniform(size=(6, 5)) < 0.7)
    if repeated:
        rows, columns = np.append(rows, rows[:4]), np.append(columns, columns[:4])
    entries, values = ObservedEntries(rows, columns, (6, 5)), rng.normal(size=len(rows))
    expected = np.append(np.bincount(rows, values, 6), np.bincount(columns, values, 5))
    np.testing.assert_allclose(entries.marginals(values), expected, atol=1e-14)
    numbers = rng.normal(size=11)
    part = slice(3, 11)
    expected = numbers[rows[part]] + numbers[6 + columns[part]]
    np.testing.assert_array_equal(entries.spread(numbers, part), expected)


@pytest.mark.parametrize("rows, columns", [([0, 2], [0, 1]), ([0, -1], [0, 1]), ([0, 1], [0, 3])])
def test_wrong_indices_are_errors_and_not_other_entries(rows, columns):
    rows, columns = np.array(rows), np.array(columns)
    with pytest.raises(IndexError, match="are not all from 0 to"):
        ObservedEntries(rows, columns, (2, 3))
    with pytest.raises(IndexError, match="are not all from 0 to"):
        products_at(np.ones((2, 1)), np.ones((3, 1)), rows, columns)


def test_products_at_no_entries():
    none = np.zeros(0, dtype=np.intp)
    assert products_at(np.ones((2, 1)), np.ones((3, 1)), none, none).shape == (0,)


def test_adjoint_size_is_attained():
    entries, _ = repeated_entries()
    rows, columns = entries.row_indices, entries.column_indices
    expected = np.zeros((6, 4))
    expected[rows, columns] = 1.0  # a residual of one at any repetition, and none at the others
    np.testing.assert_allclose(dense(entries.adjoint_size()), expected, rtol=1e-15)
    ordered = ObservedEntries(np.array([0, 1]), np.array([1, 0]), (2, 2))
    np.testing.assert_array_equal(dense(ordered.adjoint_size()), [[0.0, 1.0], [1.0, 0.0]])


@pytest.mark.parametrize("kind", ["equal", "random"])
def test_adjoint_error_of_an_entry_that_is_repeated_often(kind):
    """One entry so often that the errors of its sum add up, one three times, and one once."""
    often = 100_000
    rows = np.append(np.zeros(often, dtype=np.intp), [1, 1, 1, 2])
    entries = ObservedEntries(rows, rows, (3, 3))
    rng = np.random.default_rng(0)
    residual = np.full(len(rows), 0.1) if kind == "equal" else rng.normal(size=len(rows))
    exact = [float(residual[rows == row].astype(np.longdouble).sum()) for row in range(3)]
    size, error = np.abs(residual).sum(), dense(entries.adjoint_error(1.0)).diagonal()
    found = dense(entries.adjoint(residual)).diagonal()
    assert np.all(np.abs(found - exact) <= error * size)
    assert np.all(error <= EPSILON * (np.array([often, 3, 1]) + 70))
    assert not entries.adjoint_error(0.0).ravel().any()  # nothing is multiplied, so nothing underflows
    if kind == "equal":  # the square root of the number would not do
        assert abs(found[0] - exact[0]) / size > np.sqrt(often) * EPSILON
