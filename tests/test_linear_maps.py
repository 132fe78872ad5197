import numpy as np
import pytest
from scipy import sparse

from skfw.engine import DesignMatrix, FactoredMatrix, ObservedEntries
from skfw.engine._sums import inner

FORMATS = {
    "dense": np.asarray,
    "fortran": np.asfortranarray,
    "csr": sparse.csr_matrix,
    "csc": sparse.csc_matrix,
}


def random_matrix(shape=(5000, 7), dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.normal(size=shape) * (rng.uniform(size=shape) < 0.4)
    return X.astype(dtype)


@pytest.mark.parametrize("n_outputs", [None, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("format", FORMATS)
def test_design_matrix_products(format, dtype, n_outputs):
    X = random_matrix(dtype=dtype)
    exact = X.astype(np.float64)
    design = DesignMatrix(FORMATS[format](X), n_outputs)
    rng = np.random.default_rng(1)
    x = rng.normal(size=design.zeros().shape)
    r = rng.normal(size=design.apply(x).shape)
    # Accumulated in float64 whatever the data: the error is that of float64.
    np.testing.assert_allclose(design.apply(x), exact @ x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(design.adjoint(r), exact.T @ r, rtol=1e-12, atol=1e-11)
    assert np.vdot(design.apply(x), r) == pytest.approx(np.vdot(x, design.adjoint(r)), rel=1e-10)

    indices = np.array([4, 1, 6])
    values = np.array([2.0, -1.0, 0.5])
    few = design.zeros()
    few.flat[indices] = values
    np.testing.assert_allclose(design.apply_sparse(indices, values), exact @ few, atol=1e-13)
    if n_outputs:
        left, right = rng.normal(size=7), rng.normal(size=3)
        np.testing.assert_allclose(
            design.apply_rank_one(left, right), exact @ np.outer(left, right), atol=1e-12
        )


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
@pytest.mark.parametrize("n_outputs", [None, 3])
def test_design_matrix_squared_norm(format, scale, n_outputs):
    X = random_matrix((200, 30))
    weights = np.random.default_rng(2).uniform(size=200)
    exact = np.linalg.eigvalsh(X.T @ (weights[:, np.newaxis] * X))[-1]
    found = DesignMatrix(FORMATS[format](X * scale), n_outputs).squared_norm(weights) / scale / scale
    assert exact * (1 - 1e-12) <= found <= 1.011 * exact


def test_zero_design_has_norm_zero():
    assert DesignMatrix(np.zeros((3, 2))).squared_norm(np.ones(3)) == 0.0


@pytest.mark.parametrize("format", ["csr", "csc"])
def test_stored_duplicates_are_summed_without_touching_the_input(format):
    kind = {"csr": sparse.csr_matrix, "csc": sparse.csc_matrix}[format]
    X = kind((np.array([1.0, 2.0, 4.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
    design = DesignMatrix(X)
    np.testing.assert_array_equal(design.apply_sparse(np.array([0, 1]), np.ones(2)), X.toarray().sum(axis=1))
    assert X.nnz == 3


def test_sparse_data_is_transposed_once_and_never_copied_again():
    csr = sparse.csr_matrix(random_matrix())
    assert np.shares_memory(DesignMatrix(csr).rows.data, csr.data)
    csc = csr.tocsc()
    assert np.shares_memory(DesignMatrix(csc).columns.data, csc.data)
    assert np.shares_memory(DesignMatrix(csc).transposed.data, csc.data)


def test_observed_entries():
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 6, 30), rng.integers(0, 4, 30)  # with repetitions
    entries = ObservedEntries(rows, columns, (6, 4))
    left, right = rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    x = FactoredMatrix(left, right, np.array([2.0, -1.0]))
    dense = (left * [2.0, -1.0]) @ right.T
    np.testing.assert_allclose(entries.apply(x), dense[rows, columns], atol=1e-14)
    r = rng.normal(size=30)
    adjoint = entries.adjoint(r)
    expected = np.zeros((6, 4))
    np.add.at(expected, (rows, columns), r)
    np.testing.assert_allclose(adjoint.toarray(), expected, atol=1e-14)
    v = rng.normal(size=4)
    np.testing.assert_allclose(adjoint @ v, expected @ v, atol=1e-13)
    weights = rng.uniform(size=30)
    totals = np.zeros((6, 4))
    np.add.at(totals, (rows, columns), weights)
    assert entries.squared_norm(weights) == pytest.approx(totals.max())
    with pytest.raises(TypeError, match="rank-one"):
        entries.apply_sparse(np.array([0]), np.array([1.0]))


@pytest.mark.parametrize("share", [0.001, 0.2])
@pytest.mark.parametrize("shape", [(500, 400), (3, 1000), (5000, 600)])
@pytest.mark.parametrize("rank", [0, 1, 30])
def test_entries_of_a_product(shape, share, rank):
    """Few or many of all entries, which are computed in different ways, in one block or several."""
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.uniform(size=shape) < share)
    left, right = rng.normal(size=(shape[0], rank)), rng.normal(size=(shape[1], rank))
    expected = (left @ right.T)[rows, columns]
    for order in (slice(None), slice(None, None, -1)):
        entries = ObservedEntries(rows[order], columns[order], shape)
        np.testing.assert_allclose(entries.products(left, right), expected[order], atol=1e-12)
        residual = rng.normal(size=len(rows))
        dense = np.zeros(shape)
        dense[rows[order], columns[order]] = residual
        np.testing.assert_array_equal(entries.adjoint(residual).toarray(), dense)
        single = entries.products(left.astype(np.float32), right.astype(np.float32))
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, expected[order], atol=1e-4)


@pytest.mark.parametrize("block", [7, 1000])
@pytest.mark.parametrize("repeated", [False, True])
def test_margins(block, repeated, monkeypatch):
    monkeypatch.setattr("skfw.engine._linear_maps._SPREAD_BLOCK", block)
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.uniform(size=(6, 5)) < 0.7)
    if repeated:
        rows, columns = np.append(rows, rows[:4]), np.append(columns, columns[:4])
    entries, values = ObservedEntries(rows, columns, (6, 5)), rng.normal(size=len(rows))
    expected = np.append(np.bincount(rows, values, 6), np.bincount(columns, values, 5))
    np.testing.assert_allclose(entries.margins(values), expected, atol=1e-14)
    numbers = rng.normal(size=11)
    np.testing.assert_array_equal(entries.spread(numbers), numbers[rows] + numbers[6 + columns])


def test_sum_of_many_products():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 1_500_000))
    assert inner(a, b) == pytest.approx(float(np.longdouble(a) @ np.longdouble(b)), rel=1e-12)


@pytest.mark.parametrize("shape", [(5000, 7), (300, 400)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("format", FORMATS)
def test_parts_and_squares_of_a_design(format, dtype, shape):
    X = random_matrix(shape, dtype)
    exact = X.astype(np.float64)
    design = DesignMatrix(FORMATS[format](X))
    rng = np.random.default_rng(1)
    weights = rng.uniform(size=shape[0])
    np.testing.assert_allclose(design.gram(weights), exact.T @ (weights[:, np.newaxis] * exact), atol=1e-9)
    np.testing.assert_allclose(design.squares(weights), (exact**2).T @ weights, rtol=1e-12)
    both = np.column_stack([weights, 2 * weights])
    np.testing.assert_allclose(design.squares(both), (exact**2).T @ both, rtol=1e-12)

    features, rows = np.array([1, 3, 6]), np.arange(0, shape[0], 7)
    x = rng.normal(size=3)
    np.testing.assert_allclose(design.restrict(features).apply(x), exact[:, features] @ x, atol=1e-12)
    x = rng.normal(size=shape[1])
    np.testing.assert_allclose(design.subset(rows).apply(x), exact[rows] @ x, atol=1e-10)


@pytest.mark.parametrize("format", FORMATS)
def test_gram_both_ways(format, monkeypatch):
    """The way of forming it is chosen by cost; both give the same matrix, in one block or in many."""
    X = random_matrix((200, 30))
    weights = np.random.default_rng(1).uniform(size=200)
    exact = X.T @ (weights[:, np.newaxis] * X)
    for name, value in [("_SPARSE_GRAM_TERM", 0.0), ("_DENSE_GRAM_TERM", 0.0), ("_GRAM_BLOCK", 100)]:
        monkeypatch.setattr(f"skfw.engine._linear_maps.{name}", value)
        np.testing.assert_allclose(DesignMatrix(FORMATS[format](X)).gram(weights), exact, atol=1e-12)


def test_sample_is_a_fraction_of_many_rows():
    few = DesignMatrix(random_matrix((4000, 3)))
    assert few.sample[1] is few
    wide = DesignMatrix(random_matrix((8000, 1001)))
    assert wide.sample[1] is wide
    many = DesignMatrix(random_matrix((8000, 3)))
    rows, sample = many.sample
    assert len(np.unique(rows)) == 1000
    np.testing.assert_array_equal(sample.rows, many.rows[rows])
