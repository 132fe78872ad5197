import numpy as np
import pytest
from scipy import sparse

from skfw.engine import (
    DenseVector,
    EntryMatrix,
    FactoredMatrix,
    ObservedEntries,
    RankOne,
    SparseVector,
    design_matrix,
)
from skfw.engine._atoms import singular_values

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 5))
LEFT, RIGHT = (v / np.linalg.norm(v) for v in (RNG.normal(size=5), RNG.normal(size=3)))
MATRIX = RNG.normal(size=(5, 3))
# An atom, the same as a matrix.
ATOMS = {
    "sparse": (SparseVector(np.array([3, 14]), np.array([2.0, -1.0])), np.zeros((5, 3))),
    "dense": (DenseVector(MATRIX), MATRIX),
    "rank_one": (RankOne(LEFT, RIGHT, -1.5), -1.5 * np.outer(LEFT, RIGHT)),
}
ATOMS["sparse"][1].flat[[3, 14]] = [2.0, -1.0]


@pytest.mark.parametrize("kind", ATOMS)
def test_atoms_behave_like_their_matrices(kind):
    atom, matrix = ATOMS[kind]
    x = RNG.normal(size=(5, 3))
    before = x.copy()
    np.testing.assert_allclose(0.3 * x + 0.7 * atom, 0.3 * x + 0.7 * matrix, atol=1e-15)
    np.testing.assert_array_equal(x, before)
    assert atom.squared_distance(x) == pytest.approx(np.sum((x - matrix) ** 2))
    np.testing.assert_allclose(atom.image(design_matrix(X, 3)), X @ matrix, atol=1e-14)
    assert atom.inner(x) == pytest.approx(np.vdot(x, matrix), rel=1e-12)
    assert (-2.0 * atom).inner(x) == pytest.approx(-2.0 * np.vdot(x, matrix), rel=1e-12)


def test_factored_matrix_follows_the_dense_one_through_compressions():
    rng = np.random.default_rng(1)
    x, dense = FactoredMatrix.zeros((30, 20)), np.zeros((30, 20))
    snapshots = []
    for _ in range(300):
        left, right = rng.normal(size=30), rng.normal(size=20)
        atom = RankOne(left / np.linalg.norm(left), right / np.linalg.norm(right), -2.0)
        assert atom.squared_distance(x) == pytest.approx(np.sum((dense - atom_matrix(atom)) ** 2), rel=1e-9)
        snapshots.append((x, dense))
        x, dense = 0.9 * x + 0.1 * atom, 0.9 * dense + 0.1 * atom_matrix(atom)
    assert len(x) <= 64  # compressed to the rank, at most 20, every now and then
    for earlier, expected in snapshots[::50]:  # iterates are values: later steps do not change them
        np.testing.assert_allclose(to_dense(earlier), expected, atol=1e-12)
    v = rng.normal(size=20)
    np.testing.assert_allclose(x @ v, dense @ v, atol=1e-12)
    left, values, right = x.svd()
    np.testing.assert_allclose(values, np.linalg.svd(dense, compute_uv=False), atol=1e-12)
    np.testing.assert_allclose((left * values) @ right.T, dense, atol=1e-12)
    assert x.squared_norm == pytest.approx(np.sum(dense**2))


def test_factored_matrix_zero_and_full_steps():
    zero = FactoredMatrix.zeros((4, 3))
    atom = RankOne(np.eye(4)[0], np.eye(3)[1], 2.0)
    assert len(0.0 * (zero + atom)) == 0
    assert len(zero + 0.0 * atom) == 0
    assert zero.squared_norm == 0.0
    assert [part.shape for part in zero.svd()] == [(4, 0), (0,), (3, 0)]


def test_rank_one_atom_on_observed_entries():
    atom, matrix = ATOMS["rank_one"]
    rows, columns = np.array([0, 4, 2]), np.array([1, 2, 2])
    entries = ObservedEntries(rows, columns, (5, 3))
    np.testing.assert_allclose(atom.image(entries), matrix[rows, columns])
    direction = sparse.csr_matrix(([1.0, 2.0, 3.0], (rows, columns)), shape=(5, 3))
    assert atom.inner(EntryMatrix(direction)) == pytest.approx(matrix[rows, columns] @ [1.0, 2.0, 3.0])


@pytest.mark.parametrize("scale", [1e200, -1e200])
def test_a_distance_whose_square_is_too_large(scale):
    """An infinite distance, not an error: it is only ever compared with others."""
    atom = RankOne(LEFT, RIGHT, scale)
    with np.errstate(over="ignore"):
        assert atom.squared_distance(np.zeros((5, 3))) == np.inf
        assert atom.squared_distance(FactoredMatrix.zeros((5, 3))) == np.inf


def test_distance_to_itself_is_never_negative():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        left, right = rng.normal(size=5), rng.normal(size=3)
        atom = RankOne(left / np.linalg.norm(left), right / np.linalg.norm(right), 3.0)
        for x in (atom_matrix(atom), FactoredMatrix.zeros((5, 3)) + atom):
            assert 0.0 <= atom.squared_distance(x) <= 1e-14


def random_factored(rng, n_terms, shape=(30, 20)):
    left, right = rng.normal(size=(shape[0], n_terms)), rng.normal(size=(shape[1], n_terms))
    return FactoredMatrix(left, right, rng.normal(size=n_terms))


@pytest.mark.parametrize("n_left", [0, 3, 60])
@pytest.mark.parametrize("n_right", [0, 3, 40])
def test_sums_of_factored_matrices(n_left, n_right):
    """Of few terms or of many, when those of the first are compressed to its rank."""
    rng = np.random.default_rng(2)
    a, b = random_factored(rng, n_left), random_factored(rng, n_right)
    total = 0.5 * a + -2.0 * b
    np.testing.assert_allclose(to_dense(total), 0.5 * to_dense(a) - 2.0 * to_dense(b), atol=1e-10)
    assert len(total) == (n_left if n_left + n_right <= 64 else 20) + n_right
    assert len(total.svd()[1]) == min(n_left + n_right, 20)


def test_capacity_is_that_of_the_rank():
    """A matrix whose rank is above the usual capacity is not compressed at every step."""
    rng = np.random.default_rng(3)
    x = FactoredMatrix.from_svd(*random_factored(rng, 70, (100, 90)).svd())
    assert len(x) == 70
    for n_more in range(1, 71):
        x = x + RankOne(np.eye(100)[0], np.eye(90)[0], 1.0)
        assert len(x) == 70 + n_more
    assert len(x + RankOne(np.eye(100)[0], np.eye(90)[0], 1.0)) <= 73


def test_singular_values_of_weighted_matrices():
    rng = np.random.default_rng(4)
    x = random_factored(rng, 3)
    rows, columns = rng.uniform(0.5, 2.0, 30), rng.uniform(0.5, 2.0, 20)
    exact = np.linalg.svd(to_dense(x) * np.outer(rows, columns), compute_uv=False)
    np.testing.assert_allclose(singular_values(x, rows, columns), exact[:3], rtol=1e-12)
    np.testing.assert_allclose(singular_values(to_dense(x), rows, columns), exact, atol=1e-12)


def atom_matrix(atom):
    return atom.scale * np.outer(atom.left, atom.right)


def to_dense(x):
    return (x.left * x.weights) @ x.right.T
