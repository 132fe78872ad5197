"""The preconditioner of the descent on factors, against dense matrices."""

import numpy as np
import pytest
from scipy import sparse

from skfw.engine import FeatureMap
from skfw.engine.correctors._stiffness import Stiffness

N_ROWS, RANK = 60, 3


def problem(n_features, scale=1.0, seed=0):
    """Return a map, curvatures, a Gram matrix and weights; most rows have each of the features."""
    rng = np.random.default_rng(seed)
    features = scale * (1.0 + 0.1 * rng.normal(size=(N_ROWS, n_features)))
    features *= rng.uniform(size=features.shape) < 0.9
    others = rng.normal(size=(40, RANK)) * [3.0, 1.0, 0.3]
    curvatures = rng.uniform(0.1, 1.0, size=(N_ROWS, 1))
    factor_map = FeatureMap(sparse.csr_matrix(features))
    squares = rng.uniform(0.5, 2.0, size=(N_ROWS + n_features, 1))
    return factor_map, curvatures, others.T @ others, squares, np.hstack([np.eye(N_ROWS), features])


def renewed(factor_map, *numbers, times=1):
    stiffness = Stiffness(factor_map, np.random.default_rng(0))
    for _ in range(times):
        stiffness.renew(*numbers)
    return stiffness


def as_matrix(function, n_rows):
    units = np.eye(n_rows * RANK).reshape(-1, n_rows, RANK)
    return np.stack([function(unit).ravel() for unit in units], axis=1)


def second_derivative(A, curvatures, gram, ridge):
    """The product of two matrices, and what is added for the norm."""
    stiff, shares = A.T @ (curvatures * A), gram * (RANK / np.trace(gram))
    return lambda factors: stiff @ factors @ shares + ridge * factors


@pytest.mark.parametrize("n_features", [0, 1, 5, 30])
@pytest.mark.parametrize("multiplier", [0.0, 0.1])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 1e3])
def test_it_is_symmetric_and_positive_definite(n_features, multiplier, scale):
    factor_map, curvatures, gram, squares, A = problem(n_features, scale)
    gram[:, 0] = gram[0] = 0.0  # a factor that is not used
    stiffness = renewed(factor_map, curvatures, gram, squares, multiplier)
    for kind in (np.float64, np.float32):
        numbers = (each.astype(kind) for each in (curvatures, gram, squares))
        stiffness.renew(*numbers, multiplier)  # once more, from where it was
        assert stiffness.solve(np.ones((A.shape[1], RANK), dtype=kind)).dtype == kind
        matrix = as_matrix(lambda unit, kind=kind: stiffness.solve(unit.astype(kind)), A.shape[1])
        roots = np.sqrt(matrix.diagonal())
        scaled = matrix / np.outer(roots, roots)
        np.testing.assert_allclose(scaled, scaled.T, atol=1e2 * np.finfo(kind).eps)
        assert np.linalg.eigvalsh(scaled.astype(np.float64)).min() > 0.0


def test_without_features_it_is_the_inverse():
    factor_map, curvatures, gram, squares, A = problem(0)
    stiffness = renewed(factor_map, curvatures, gram, squares, 0.5)
    apply = second_derivative(A, curvatures, gram, 0.5 * squares)
    factors = np.random.default_rng(1).normal(size=(N_ROWS, RANK))
    np.testing.assert_allclose(stiffness.solve(apply(factors)), factors, rtol=1e-10)


def test_it_is_the_inverse_where_features_make_it_stiff():
    """On the leading eigenvector, if what is added is a multiple of the diagonal."""
    factor_map, curvatures, gram, _, A = problem(6)
    diagonal = (A**2).T @ curvatures
    stiffness = renewed(factor_map, curvatures, gram, diagonal, 0.5, times=20)
    apply = second_derivative(A, curvatures, gram, 0.5 * diagonal)
    roots = np.sqrt(diagonal)
    values, vectors = np.linalg.eigh((A / roots.T).T @ (curvatures * (A / roots.T)))
    assert values[-1] > 5.0
    factors = vectors[:, -1:] * np.random.default_rng(1).normal(size=RANK) / roots
    np.testing.assert_allclose(stiffness.solve(apply(factors)), factors, rtol=1e-9, atol=1e-12)


def n_steps(apply, precondition, solution, share=0.01):
    """Return how many steps of conjugate gradients from zero leave this share of what there is to win."""
    found, direction, error, count = np.zeros_like(solution), 0.0, np.inf, 0
    while np.vdot(solution - found, apply(solution - found)) > share * np.vdot(solution, apply(solution)):
        residual = apply(solution - found)
        step = precondition(residual)
        error, previous = np.vdot(residual, step), error
        direction = step + (error / previous) * direction
        found = found + error / np.vdot(direction, apply(direction)) * direction
        count += 1
    return count


@pytest.mark.parametrize("n_features", [30, 100])
@pytest.mark.parametrize("multiplier", [0.01, 0.1])
def test_few_steps_where_most_rows_have_all_features(n_features, multiplier):
    factor_map, curvatures, gram, squares, A = problem(n_features, n_features**-0.5)
    ridge = multiplier * squares
    apply = second_derivative(A, curvatures, gram, ridge)
    slope = A.T @ (1.0 + np.random.default_rng(1).normal(size=(N_ROWS, RANK)))
    solution = np.linalg.solve(as_matrix(apply, A.shape[1]), slope.ravel()).reshape(slope.shape)
    stiffness = renewed(factor_map, curvatures, gram, squares, multiplier)
    diagonal = (A**2).T @ curvatures * np.diag(gram * (RANK / np.trace(gram))) + ridge
    with_features = n_steps(apply, stiffness.solve, solution)
    assert with_features <= 3
    assert with_features < n_steps(apply, lambda residual: residual / diagonal, solution)
