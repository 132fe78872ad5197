import numpy as np
import pytest

from skfw.engine import DenseVector, DesignMatrix, FactoredMatrix, RankOne, SparseVector

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
    np.testing.assert_allclose(atom.image(DesignMatrix(X, 3)), X @ matrix, atol=1e-14)


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


def atom_matrix(atom):
    return atom.scale * np.outer(atom.left, atom.right)


def to_dense(x):
    return (x.left * x.weights) @ x.right.T
