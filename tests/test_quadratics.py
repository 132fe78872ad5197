"""Quadratics over a simplex, against SLSQP."""

import numpy as np
import pytest
from scipy.optimize import minimize

from skfw.engine._quadratics import descend_over_simplex, into_simplex, solve_over_simplex


def random_quadratic(seed, size=12, rank=20):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(rank, size)) * rng.uniform(0.2, 3.0, size)
    return root.T @ root, rng.normal(size=size) * 5.0 - 3.0


def reference(matrix, linear, total, exactly):
    constraint = {
        "type": "eq" if exactly else "ineq",
        "fun": lambda u: total - u.sum(),
        "jac": lambda u: -np.ones_like(u),
    }
    return minimize(
        lambda u: (linear @ u + u @ matrix @ u / 2, linear + matrix @ u),
        np.full(len(linear), total / len(linear)),
        jac=True,
        bounds=[(0, None)] * len(linear),
        constraints=[constraint],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    ).fun


def value(matrix, linear, u):
    return linear @ u + u @ matrix @ u / 2


def assert_feasible(u, total, exactly):
    assert u.min() >= 0.0
    assert u.sum() <= total * (1 + 1e-14)
    if exactly:
        assert u.sum() == pytest.approx(total, rel=1e-14)


problems = pytest.mark.parametrize("seed", range(12))
totals = pytest.mark.parametrize("total, exactly", [(0.5, False), (50.0, False), (0.5, True), (50.0, True)])


@problems
@totals
@pytest.mark.parametrize("guess", [0.0, 0.5, 1.0])
def test_solve(seed, total, exactly, guess):
    matrix, linear = random_quadratic(seed)
    free = np.random.default_rng(seed).uniform(size=len(linear)) < guess
    free[0] = True
    found = solve_over_simplex(matrix.copy(), linear, free, total, exactly)
    assert_feasible(found, total, exactly)
    best = reference(matrix, linear, total, exactly)
    assert value(matrix, linear, found) == pytest.approx(best, abs=1e-7 * (1 + abs(best)))


@problems
@totals
def test_descend(seed, total, exactly):
    """One call is a part of the way; a few of them arrive."""
    matrix, linear = random_quadratic(seed)
    u = np.zeros(len(linear))
    u[:2] = total / 2 if exactly else 0.0
    for _ in range(10):
        previous = value(matrix, linear, u)
        u, products = descend_over_simplex(
            lambda v: matrix @ v, linear + matrix @ u, u, np.diag(matrix), total, exactly, 1e-9, 1e-3, 60
        )
        assert_feasible(u, total, exactly)
        assert products <= 70
    best = reference(matrix, linear, total, exactly)
    assert value(matrix, linear, u) == pytest.approx(best, abs=1e-6 * (1 + abs(best)))
    assert value(matrix, linear, u) <= previous + 1e-9


def test_solve_with_dependent_atoms():
    """The same atom twice, and one that is an average of others: the minimum is the same."""
    matrix, linear = random_quadratic(0, size=4)
    mix = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1], [0.5, 0.5, 0, 0]])
    found = solve_over_simplex(mix @ matrix @ mix.T, mix @ linear, np.ones(6, bool), 2.0, True)
    assert value(matrix, linear, mix.T @ found) == pytest.approx(
        reference(matrix, linear, 2.0, True), rel=1e-6
    )


def test_solve_gives_up_on_a_broken_matrix():
    assert solve_over_simplex(-np.eye(2), np.ones(2), np.ones(2, bool), 1.0, False) is None


def test_into_simplex():
    np.testing.assert_array_equal(into_simplex(np.array([-1.0, 1.0, 3.0]), 2.0, False), [0.0, 0.5, 1.5])
    np.testing.assert_array_equal(into_simplex(np.array([-1.0, 0.5, 0.5]), 2.0, False), [0.0, 0.5, 0.5])
    np.testing.assert_array_equal(into_simplex(np.array([-1.0, 0.5, 0.5]), 2.0, True), [0.0, 1.0, 1.0])
    np.testing.assert_array_equal(into_simplex(np.array([-1.0, -2.0]), 2.0, True), [1.0, 1.0])
