import numpy as np
import pytest
from problems import peak_of
from scipy import sparse
from sklearn.base import clone

from skfw import HFWLogisticRegression
from skfw.engine import (
    DenseDesign,
    DiagonalHessian,
    Extent,
    L2Ball,
    LogisticLoss,
    MappedDesign,
    Problem,
    SparseDesign,
    SparseRows,
    best_corrector,
    design_matrix,
    frank_wolfe,
)

FORMATS = {
    "dense": np.ascontiguousarray,
    "fortran": np.asfortranarray,
    "csr": sparse.csr_matrix,
    "csc": sparse.csc_matrix,
    "rows": sparse.csr_matrix,
}
EPSILON = np.finfo(np.float64).eps
with_all_formats = pytest.mark.parametrize("format", FORMATS)
in_both_precisions = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def design_of(format, X, n_outputs=None):
    return design_matrix(FORMATS[format](X), n_outputs, by_rows=format == "rows")


def random_matrix(shape=(500, 7), dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.normal(size=shape) * (rng.uniform(size=shape) < 0.4)
    return X.astype(dtype)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks so small that the data has many of them, and a last one that is not full."""
    sizes = {"BLOCK": 70, "_FEWEST_ROWS": 9, "_GRAM_BLOCK": 150, "_SQUARES_BLOCK": 50}
    for name, size in sizes.items():
        monkeypatch.setattr(f"skfw.engine.data._design_matrix.{name}", size)


def test_the_kind_of_the_data_decides():
    assert isinstance(design_matrix(np.eye(2)), DenseDesign)
    for kind in (sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array, sparse.csc_array):
        assert isinstance(design_matrix(kind(np.eye(2))), SparseDesign)
        assert isinstance(design_matrix(kind(np.eye(2)), by_rows=True), SparseRows)
    assert isinstance(design_matrix(np.eye(2), by_rows=True), DenseDesign)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array])
def test_sparse_data_that_is_nearly_dense_and_not_large_becomes_an_array(kind, dtype, monkeypatch):
    X = np.maximum(np.random.default_rng(0).normal(size=(30_000, 20)), -0.5).astype(dtype)
    X[X == -0.5] = 0.0
    design = design_matrix(kind(X), 2)
    assert isinstance(design, DenseDesign)
    exact = X.T.astype(np.float64) @ X[:, :2]
    np.testing.assert_allclose(design.adjoint(X[:, :2]), exact, rtol=1e-12)
    assert np.array_equal(design.adjoint_size()[:, 0], np.abs(X).max(axis=0))
    assert isinstance(design_matrix(kind(X), by_rows=True), SparseRows)
    assert isinstance(design_matrix(kind(np.where(X > 1.0, X, 0.0))), SparseDesign)
    monkeypatch.setattr("skfw.engine.data._design_matrix._GRAM_BLOCK", 500_000)
    assert isinstance(design_matrix(kind(X)), SparseDesign)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n_rows", [1, 2, 3, 7, 64, 1001])
def test_largest_values_of_any_number_of_rows(n_rows, order):
    X = np.asarray(random_matrix((n_rows, 3)), order=order)
    assert np.array_equal(design_matrix(X).largest_values, np.abs(X).max(axis=0))


@pytest.mark.parametrize("n_outputs", [None, 3])
@in_both_precisions
@with_all_formats
def test_products(format, dtype, n_outputs, small_blocks):
    X = random_matrix(dtype=dtype)
    exact = X.astype(np.float64)
    design = design_of(format, X, n_outputs)
    rng = np.random.default_rng(1)
    x = rng.normal(size=design.zeros().shape)
    r = rng.normal(size=design.apply(x).shape)
    # Accumulated in float64 whatever the data: the error is that of float64.
    np.testing.assert_allclose(design.apply(x), exact @ x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(design.adjoint(r), exact.T @ r, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(design.apply(design.zeros()), np.zeros(r.shape))
    np.testing.assert_array_equal(
        design.adjoint_size().T, np.broadcast_to(np.abs(exact).max(axis=0), x.T.shape)
    )
    assert design.n_atoms(np.where(x > 0.0, x, 0.0)) == np.sum(x > 0.0)

    indices = np.array([4, 1, 6])
    values = np.array([2.1, -1.0, 0.3])
    few = design.zeros()
    few.flat[indices] = values
    np.testing.assert_allclose(design.apply_sparse(indices, values), exact @ few, atol=1e-13)
    if n_outputs:
        left, right = rng.normal(size=7), rng.normal(size=3)
        np.testing.assert_allclose(
            design.apply_rank_one(left, right), exact @ np.outer(left, right), atol=1e-12
        )


@with_all_formats
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
@pytest.mark.parametrize("n_outputs", [None, 3])
def test_squared_norm(format, scale, n_outputs):
    X = random_matrix((200, 30))
    weights = np.random.default_rng(2).uniform(size=200)
    exact = np.linalg.eigvalsh(X.T @ (weights[:, np.newaxis] * X))[-1]
    found = design_of(format, X * scale, n_outputs).squared_norm(weights) / scale / scale
    assert exact * (1 - 1e-12) <= found <= 1.011 * exact


@with_all_formats
def test_zero_design(format):
    design = design_matrix(FORMATS[format](np.zeros((3, 2))))
    assert design.squared_norm(np.ones(3)) == 0.0
    for numbers in (design.adjoint_size(), design.squares(np.ones(3))):
        np.testing.assert_array_equal(numbers, np.zeros(2))
    assert np.all(design.adjoint_error(1.0) == np.finfo(np.float64).tiny)  # no more than what may underflow
    np.testing.assert_array_equal(design.gram(np.ones(3)), np.zeros((2, 2)))


@pytest.mark.parametrize("shape", [(500, 7), (60, 80)])
@in_both_precisions
@with_all_formats
def test_parts_and_squares(format, dtype, shape, small_blocks):
    X = random_matrix(shape, dtype)
    X[:, [0, -1]] = 0.0  # features without any value, at both ends
    exact = X.astype(np.float64)
    design = design_of(format, X)
    rng = np.random.default_rng(1)
    weights = rng.uniform(size=shape[0])
    np.testing.assert_allclose(design.gram(weights), exact.T @ (weights[:, np.newaxis] * exact), atol=1e-12)
    np.testing.assert_allclose(design.squares(weights), (exact**2).T @ weights, rtol=1e-12)
    both = np.column_stack([weights, rng.uniform(size=shape[0])])
    np.testing.assert_allclose(design.squares(both), (exact**2).T @ both, rtol=1e-12)

    features, rows = np.array([1, 3, 5]), np.arange(0, shape[0], 7)
    x = rng.normal(size=3)
    np.testing.assert_allclose(design.restrict(features).apply(x), exact[:, features] @ x, atol=1e-12)
    x = rng.normal(size=shape[1])
    np.testing.assert_allclose(design.subset(rows).apply(x), exact[rows] @ x, atol=1e-12)


@pytest.mark.parametrize("block", [100, 10**6])
@pytest.mark.parametrize("cheap", ["_SPARSE_GRAM_TERM", "_DENSE_GRAM_TERM"])
@with_all_formats
def test_gram_both_ways(format, cheap, block, monkeypatch):
    """The way of forming it is chosen by cost; both give the same matrix, in one block or in many."""
    monkeypatch.setattr(f"skfw.engine._costs.{cheap}", 0.0)
    monkeypatch.setattr("skfw.engine.data._design_matrix._GRAM_BLOCK", block)
    X = random_matrix((200, 30))
    weights = np.random.default_rng(1).uniform(size=200)
    exact = X.T @ (weights[:, np.newaxis] * X)
    np.testing.assert_allclose(design_of(format, X).gram(weights), exact, atol=1e-12)


@pytest.mark.parametrize("block", [100, 10**6])
@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
@with_all_formats
def test_rough_gram(format, scale, block, monkeypatch):
    """In single precision, whatever the units of the features; a feature may be zero."""
    monkeypatch.setattr("skfw.engine.data._design_matrix._GRAM_BLOCK", block)
    X = random_matrix((200, 30)) * scale ** np.linspace(-1.0, 1.0, 30)
    X[:, 4] = 0.0
    weights = np.random.default_rng(1).uniform(size=200)
    weights[::3] = 0.0
    design = design_matrix(FORMATS[format](X))
    found, exact = design.rough_gram(weights), design.gram(weights)
    sizes = np.sqrt(np.diag(exact))
    assert found.dtype == np.float64
    assert np.all(np.abs(found - exact) <= 1e-5 * np.multiply.outer(sizes, sizes))


@pytest.mark.parametrize("cheap", ["_SPARSE_GRAM_TERM", "_DENSE_GRAM_TERM"])
@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_matrix])
def test_stored_duplicates_are_summed_without_touching_the_input(kind, by_rows, cheap, monkeypatch):
    monkeypatch.setattr(f"skfw.engine._costs.{cheap}", 0.0)
    stored = np.array([1.0, 2.0, 4.0, -3.0]), np.array([0, 0, 1, 1]), np.array([0, 2, 4])
    X = kind(stored, shape=(2, 2))
    dense, plain = X.toarray(), kind(X.toarray())
    design, weights = design_matrix(X, by_rows=by_rows), np.array([0.5, 2.0])
    np.testing.assert_array_equal(design.apply(np.array([1.0, 5.0])), dense @ [1.0, 5.0])
    np.testing.assert_array_equal(design.adjoint(np.array([1.0, 5.0])), dense.T @ [1.0, 5.0])
    np.testing.assert_array_equal(design.apply_sparse(np.array([0, 1]), np.ones(2)), dense.sum(axis=1))
    np.testing.assert_array_equal(design.squares(weights), weights @ dense**2)
    np.testing.assert_allclose(design.gram(weights), dense.T @ (weights[:, np.newaxis] * dense))
    np.testing.assert_array_equal(design.adjoint_size(), np.abs(dense).max(axis=0))
    np.testing.assert_array_equal(design.adjoint_error(1.0), design_matrix(plain).adjoint_error(1.0))
    assert X.nnz == 4


def test_sparse_data_is_transposed_once_and_never_copied_again():
    csr = sparse.csr_matrix(random_matrix())
    assert np.shares_memory(design_matrix(csr)._rows.data, csr.data)
    csc = csr.tocsc()
    assert np.shares_memory(design_matrix(csc)._columns.data, csc.data)
    assert np.shares_memory(design_matrix(csc)._transposed.data, csc.data)


def test_sparse_data_is_not_copied_where_it_is_held_by_rows(small_blocks):
    csr = sparse.csr_matrix(random_matrix((2000, 70)))
    design = design_matrix(csr, by_rows=True)
    weights = np.ones(2000)

    def used():
        design.apply(np.ones(70)), design.adjoint(weights), design.squares(weights), Extent.of(design)

    used()
    assert peak_of(used) < csr.data.nbytes / 2


@pytest.mark.parametrize("n_outputs", [None, 2])
@in_both_precisions
@with_all_formats
def test_adjoint_size_is_the_largest_absolute_value_whatever_its_sign(format, dtype, n_outputs):
    X = np.array([[1.0, -5.0, 0.0, -2.0], [3.0, 2.0, 0.0, -1.0], [-2.0, 0.0, 0.0, -4.0]], dtype=dtype)
    size = design_of(format, X, n_outputs).adjoint_size()
    expected = np.array([3.0, 5.0, 0.0, 4.0])
    np.testing.assert_array_equal(size, expected if n_outputs is None else np.column_stack([expected] * 2))


def adversarial_design(dtype, n=100_000):
    """Long sums whose errors add up, a short one, and negative numbers that are not short in binary."""
    X = np.ones((n, 4))
    X[:, 1], X[3:, 1] = 1e3, 0.0
    X[:, 2] = -0.1
    X[:, 3] = np.random.default_rng(0).normal(size=n)
    return X.astype(dtype)


@pytest.mark.parametrize("kind", ["equal", "alternating", "geometric", "random"])
@pytest.mark.parametrize("n_outputs", [None, 2])
@in_both_precisions
@with_all_formats
def test_adjoint_error_is_a_bound(format, dtype, n_outputs, kind):
    X = adversarial_design(dtype)
    n = len(X)
    residual = {
        "equal": np.full(n, 0.1),
        "alternating": np.where(np.arange(n) % 2, -0.1, 0.3),
        "geometric": 0.999 ** np.arange(n),
        "random": np.random.default_rng(1).normal(size=n),
    }[kind]
    terms = X.astype(np.longdouble) * residual.astype(np.longdouble)[:, np.newaxis]
    exact = terms.sum(axis=0)
    size = float(np.abs(residual).sum())
    design = design_of(format, X, n_outputs)
    bound, found = design.adjoint_error(1.0) * size, design.adjoint(residual)
    if n_outputs:
        both = design.adjoint(np.column_stack([residual, -residual]))
        assert bound.shape == both.shape
        assert np.all(np.abs(both - np.outer(exact, [1.0, -1.0])) <= bound)
        bound = bound[:, 0]
    assert np.all(np.abs(found - exact) <= bound)
    # A library may add in any order, in sequence for one, where the errors are largest.
    in_sequence = np.cumsum(X.astype(np.float64) * residual[:, np.newaxis], axis=0)[-1]
    assert np.all(np.abs(in_sequence - exact) <= bound)
    # And yet it is no more than every rounding at its worst: some for each stored product.
    stored = n if isinstance(design, DenseDesign) else np.count_nonzero(X, axis=0)
    assert np.all(bound <= EPSILON * (stored + 70) * np.abs(X).max(axis=0) * size)


def test_with_more_features_than_samples_a_euclidean_ball_needs_no_columns():
    X = random_matrix((60, 80)) * np.geomspace(1e-3, 1e3, 80)
    X[:, 7] = 0.0
    design = design_matrix(sparse.csr_matrix(X))
    loss = LogisticLoss(np.where(np.arange(60) % 2, 1.0, -1.0), np.full(60, 1.0 / 60.0), True)
    problem = Problem(loss, design, L2Ball(1e-3))
    result = frank_wolfe(problem, corrector=best_corrector(problem), tolerance=1e-8)
    assert result.status == "converged"
    assert "_columns" not in vars(design)
    sizes, counts = np.abs(X).max(axis=0), np.count_nonzero(X, axis=0)
    assert np.array_equal(design.n_terms, counts)
    assert np.all(sizes <= design.adjoint_bound())
    assert np.all(design.adjoint_bound() <= np.where(counts, sizes.max(), 0.0))
    assert np.all(EPSILON / 2.0 * counts * sizes <= design.adjoint_error(1.0))
    np.testing.assert_allclose(design.squares(loss.weights), np.square(X).T @ loss.weights)
    assert np.array_equal(design.adjoint_size(), sizes)


def test_errors_of_long_sums_are_of_the_order_of_their_length():
    """What the bound must allow for does occur: the square root of the length would not do."""
    X, residual = adversarial_design(np.float64), np.full(100_000, 0.1)
    design = design_matrix(sparse.csr_matrix(X))
    exact = float((X[:, 0].astype(np.longdouble) * residual).sum())
    error = abs(design.adjoint(residual)[0] - exact) / np.abs(residual).sum()
    assert np.sqrt(len(X)) * EPSILON < error <= design.adjoint_error(1.0)[0]


@with_all_formats
def test_sample_is_a_fraction_of_many_rows(format):
    make = FORMATS[format]
    assert design_matrix(make(random_matrix((4000, 3)))).sample is None
    assert design_matrix(make(random_matrix((8000, 1001)))).sample is None
    X = random_matrix((8000, 3))
    rows, sample = design_matrix(make(X), 2).sample
    assert len(np.unique(rows)) == sample.shape[0] == 1000
    x = np.random.default_rng(0).normal(size=(3, 2))
    np.testing.assert_allclose(sample.apply(x), X[rows] @ x, atol=1e-14)


def mapped(X, folder):
    """Return the same data in files that are mapped to memory."""
    arrays = (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)
    found = []
    for number, array in enumerate(arrays):
        file = folder / f"{number}.npy"
        np.save(file, array)
        found.append(np.load(file, mmap_mode="r"))
    return sparse.csr_matrix(tuple(found), shape=X.shape) if sparse.issparse(X) else found[0]


@pytest.fixture
def in_small_blocks(monkeypatch):
    """Blocks of a memory map have about seven rows of twelve numbers, and are counted."""
    monkeypatch.setattr("skfw.engine.data._design_matrix._MAPPED_BLOCK", 84)
    sizes, block = [], MappedDesign._block
    monkeypatch.setattr(
        MappedDesign, "_block", lambda self, rows: sizes.append(rows.stop - rows.start) or block(self, rows)
    )
    return sizes


@pytest.mark.parametrize("n_outputs", [None, 3])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_memory_map_is_read_block_by_block(kind, n_outputs, dtype, tmp_path, in_small_blocks):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(50, 12)) * (rng.uniform(size=(50, 12)) < 0.6)).astype(dtype)
    X = sparse.csr_matrix(X) if kind == "sparse" else X
    plain, design = design_matrix(X, n_outputs), design_matrix(mapped(X, tmp_path), n_outputs)
    assert isinstance(design, MappedDesign)
    x, part = rng.normal(size=plain.zeros().shape), np.array([0, 3, 4, 11])
    residual = rng.normal(size=(50,) if n_outputs is None else (50, 3))
    weights, few = rng.uniform(size=50), (np.array([1, 3]), np.array([2.0, -1.0]))
    for one, other in ((plain, design), (plain.restrict(part), design.restrict(part))):
        model = x[: one.shape[1]]
        np.testing.assert_allclose(other.apply(model), one.apply(model), atol=1e-12)
        np.testing.assert_allclose(other.apply_sparse(*few), one.apply_sparse(*few), atol=1e-12)
        np.testing.assert_allclose(other.adjoint(residual), one.adjoint(residual), atol=1e-12)
        np.testing.assert_allclose(other.squares(residual**2), one.squares(residual**2), rtol=1e-9)
        np.testing.assert_allclose(other.gram(weights), one.gram(weights), atol=1e-6)
        np.testing.assert_allclose(other.adjoint_size(), one.adjoint_size())
        np.testing.assert_allclose(other.adjoint_error(1.0), one.adjoint_error(1.0))
    np.testing.assert_allclose(
        design.restrict(part).restrict(np.array([1, 2])).apply(np.ones_like(x[:2])),
        plain.restrict(part[1:3]).apply(np.ones_like(x[:2])),
        atol=1e-12,
    )
    assert max(in_small_blocks) < 20


@with_all_formats
def test_samples_without_weight_have_no_part_in_a_gram_matrix(format, monkeypatch):
    monkeypatch.setattr("skfw.engine.data._design_matrix._GRAM_BLOCK", 20)
    X, weights = random_matrix((50, 6)), np.random.default_rng(0).uniform(size=50)
    weights[::3] = weights[10:35] = 0.0
    design = design_of(format, X)
    expected = X.T @ (weights[:, np.newaxis] * X)
    np.testing.assert_allclose(design.gram(weights), expected, atol=1e-6)
    np.testing.assert_allclose(design.rough_gram(weights), expected, atol=1e-6)
    assert not design.gram(np.zeros(50)).any()


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_rough_second_derivative_reads_a_memory_map_block_by_block(kind, tmp_path, in_small_blocks):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 12))
    design = design_matrix(mapped(sparse.csr_matrix(X) if kind == "sparse" else X, tmp_path))
    hessian = DiagonalHessian(np.where(rng.uniform(size=20_000) < 0.5, 1.0, 1e-4), fit_intercept=True)
    # Curvatures and places take a number a row each; products are not kept until all blocks are read.
    assert peak_of(lambda: hessian.rough_gram(design)) < 0.5 * X.nbytes
    assert max(in_small_blocks) < 20


@pytest.mark.parametrize("constraint", ["l1", "l2"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_model_of_a_memory_map_is_that_of_the_data(kind, constraint, tmp_path, in_small_blocks):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(8000, 12)) * (rng.uniform(size=(8000, 12)) < 0.6)
    y = X @ rng.normal(size=12) + rng.logistic(size=8000) > 0.0
    X = sparse.csr_matrix(X) if kind == "sparse" else X
    model = HFWLogisticRegression(constraint, 3.0, tol=1e-10)
    expected, found = clone(model).fit(X, y), model.fit(mapped(X, tmp_path), y)
    np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-4)
    assert found.converged_
    assert found.lower_bound_ <= expected.objective_
    assert expected.lower_bound_ <= found.objective_
    assert len(in_small_blocks) > 1000
    assert max(in_small_blocks) < 50
