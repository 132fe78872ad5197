"""Quadratics over a simplex, against SLSQP and against all choices of what is free."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

from skfw.engine.correctors._quadratics import (
    _shorten,
    descend_over_simplex,
    into_simplex,
    solve_over_simplex,
)


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


def enumerated(matrix, linear, total, exactly):
    """The smallest value over all faces of the simplex: exact, for few weights."""
    size = len(linear)
    best = np.inf if exactly else 0.0
    for n_free in range(1, size + 1):
        for face in combinations(range(size), n_free):
            free = list(face)
            bordered = np.block([[matrix[np.ix_(free, free)], np.ones((n_free, 1))], [np.ones(n_free), 0.0]])
            candidates = [np.linalg.solve(bordered, np.append(-linear[free], total))[:-1]]
            if not exactly:
                candidates.append(np.linalg.solve(matrix[np.ix_(free, free)], -linear[free]))
            for u in candidates:
                if u.min() >= 0.0 and u.sum() <= total * (1 + 1e-12):
                    best = min(best, linear[free] @ u + u @ matrix[np.ix_(free, free)] @ u / 2)
    return best


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
        assert value(matrix, linear, u) <= previous + 1e-12 * (1 + abs(previous))
        assert products <= 70
    best = reference(matrix, linear, total, exactly)
    assert value(matrix, linear, u) == pytest.approx(best, abs=1e-6 * (1 + abs(best)))


@totals
def test_descent_from_within(total, exactly):
    """The start's sum may be less than the total, where that is allowed: it is not held there."""
    for seed in range(8):
        matrix, linear = random_quadratic(seed)
        u = np.full(len(linear), total / len(linear) * (1.0 if exactly else 0.3))
        for _ in range(10):
            u, _ = descend_over_simplex(
                lambda v, matrix=matrix: matrix @ v,
                linear + matrix @ u,
                u,
                np.diag(matrix),
                total,
                exactly,
                1e-9,
                1e-3,
                60,
            )
            assert_feasible(u, total, exactly)
        best = reference(matrix, linear, total, exactly)
        assert value(matrix, linear, u) == pytest.approx(best, abs=1e-6 * (1 + abs(best)))


def test_descent_spends_no_more_products_than_it_may():
    matrix, linear = random_quadratic(0, size=40, rank=60)
    for limit in (1, 5, 20):
        u, products = descend_over_simplex(
            lambda v: matrix @ v, linear, np.zeros(40), np.diag(matrix), 5.0, False, 0.0, 0.0, limit
        )
        assert products <= limit + 4  # those that bring a step back into the set come on top
        assert value(matrix, linear, u) < 0.0


def test_descent_with_a_better_preconditioner():
    """With the inverse of a Hessian close by, a few products do what takes many with the diagonal."""
    rng = np.random.default_rng(0)
    matrix, _ = random_quadratic(0, size=40, rank=60)
    best = rng.uniform(0.1, 0.2, 40)
    near = np.linalg.inv(matrix + 0.05 * np.diag(np.diag(matrix) * rng.uniform(size=40)))
    start, total = np.full(40, best.sum() / 40), float(best.sum())
    needed = []
    for precondition in (None, lambda residual: near @ residual):
        u, products = descend_over_simplex(
            lambda v: matrix @ v,
            matrix @ (start - best),
            start,
            np.diag(matrix),
            total,
            True,
            1e-9,
            0.0,
            500,
            precondition,
        )
        np.testing.assert_allclose(u, best, rtol=1e-5)
        needed.append(products)
    assert needed[1] < 0.5 * needed[0]


@pytest.mark.parametrize(
    "start", [[0.3, 0.3, 0.1, 0.3], [0.0, 0.3, 0.1, 0.1], [0.01, 0.3, 0.1, 0.1], [0.1, 0.1, 0.1, 0.1]]
)
def test_the_same_atom_twice(start):
    """To exchange one for the other costs nothing: a step that does is long, and uphill when cut off."""
    matrix, gradient, u = np.eye(4), np.array([-1.0, -1.2, -1.0, 0.0]), np.array(start)
    matrix[:2, :2] = 1e4
    inverse, calls = np.linalg.inv(matrix + 1e-6 * np.diag(np.diag(matrix))), []
    linear = gradient - matrix @ u
    found, products = descend_over_simplex(
        lambda v: matrix @ v,
        gradient,
        u,
        np.diag(matrix),
        1.0,
        False,
        1e-9,
        1e-6,
        60,
        lambda residual: calls.append(1) or inverse @ residual,
    )
    assert value(matrix, linear, found) < value(matrix, linear, u)
    assert len(calls) < 0.5 * products  # such a preconditioner is used no more


@pytest.mark.parametrize("tight", [False, True])
def test_a_step_that_a_zero_weight_stops_goes_on_along_the_boundary(tight):
    """Two weights of one atom, the first zero, go in opposite directions: cut off, the step is uphill."""
    matrix = np.eye(4)
    matrix[:2, :2] = 1e4
    slope, change = np.array([-1.0, -1.0, -1.0, 0.0]), np.array([-1e3, 1e3, 0.1, -0.1])
    weights = np.array([0.0, 0.3, 0.1, 0.6])
    step, image, tight, products = _shorten(
        weights, slope, change, matrix @ change, lambda v: matrix @ v, 1.0 if tight else 2.0, tight
    )
    assert products == 5
    assert slope @ step + step @ image / 2 < 0.0
    np.testing.assert_allclose(image, matrix @ step)
    assert step[0] == 0.0
    assert_feasible(weights + step, 1.0 if tight else 2.0, tight)


def test_descent_ends_where_slopes_agree():
    """At the minimum no product is needed to see that it is one."""
    matrix, linear = random_quadratic(0)
    best = solve_over_simplex(matrix.copy(), linear, np.ones(12, bool), 0.5, True)
    u, products = descend_over_simplex(
        lambda v: matrix @ v, linear + matrix @ best, best, np.diag(matrix), 0.5, True, 1e-6, 1e-3, 60
    )
    assert products == 0
    np.testing.assert_allclose(u, best, rtol=1e-12)


@totals
@pytest.mark.parametrize("shift", [-20.0, 0.0, 20.0])
def test_solve_against_all_faces(total, exactly, shift):
    """With linear parts that pull outwards, inwards, and both: multipliers of both signs."""
    for seed in range(8):
        matrix, linear = random_quadratic(seed, size=6, rank=8)
        found = solve_over_simplex(matrix.copy(), linear + shift, np.ones(6, bool), total, exactly)
        assert_feasible(found, total, exactly)
        best = enumerated(matrix, linear + shift, total, exactly)
        assert value(matrix, linear + shift, found) == pytest.approx(best, abs=1e-7 * (1 + abs(best)))


def test_pivots_do_not_cycle():
    """Nearly dependent atoms, for which freeing and fixing all at once goes round in circles."""
    for seed in range(300):
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(3, 9)) + 1e-3 * rng.normal(size=(9, 9))[:3]
        matrix = root.T @ root + 1e-4 * np.eye(9)
        linear = rng.normal(size=9)
        free = rng.uniform(size=9) < 0.5
        free[0] = True
        found = solve_over_simplex(matrix.copy(), linear, free, 1.0, True)
        assert_feasible(found, 1.0, True)
        slope = linear + matrix @ found
        # No weight can be moved to where the slope is less: the condition of optimality.
        assert slope @ found - slope.min() <= 1e-6 * (1 + np.abs(slope).max())


@pytest.mark.parametrize("exactly", [False, True])
def test_nothing_free(exactly):
    """Then nothing is solved for; but the sum is what it must be."""
    found = solve_over_simplex(np.eye(3), np.ones(3), np.zeros(3, bool), 6.0, exactly)
    np.testing.assert_array_equal(found, np.full(3, 2.0 if exactly else 0.0))


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
