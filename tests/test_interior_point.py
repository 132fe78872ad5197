import numpy as np
import pytest
from scipy.optimize import minimize

from skfw.engine import (
    ActiveAtoms,
    AveragePlane,
    InteriorPoint,
    LinearSystem,
    LogisticLoss,
    Polytope,
    Problem,
    SquaredLoss,
    best_corrector,
    design_matrix,
    frank_wolfe,
)
from skfw.engine.correctors._interior_point import solve_over_polytope


def system(rng, size, n_rows, n_equations):
    """Return constraints that zero meets, in units in which they are about one."""
    A_ub, A_eq = rng.uniform(-1, 1, size=(n_rows, size)), rng.uniform(-1, 1, size=(n_equations, size))
    lower, upper = -rng.uniform(0.0, 0.5, size), rng.uniform(0.1, 0.5, size)
    lower[::3] = 0.0
    return LinearSystem(A_ub, rng.uniform(0.0, 0.3, n_rows), A_eq, np.zeros(n_equations), lower, upper)


@pytest.mark.parametrize(
    "size, n_rows, n_equations", [(4, 0, 0), (6, 3, 0), (6, 3, 1), (8, 20, 2), (20, 5, 5)]
)
@pytest.mark.parametrize("rank", [2, 50])
@pytest.mark.parametrize("seed", range(3))
def test_models_are_minimised_over_a_polytope(size, n_rows, n_equations, rank, seed):
    rng = np.random.default_rng(seed)
    limits = system(rng, size, n_rows, n_equations)
    X = rng.normal(size=(rank, size))
    hessian, slope = X.T @ X / rank, rng.uniform(-1, 1, size)

    def value(u):
        return slope @ u + 0.5 * u @ hessian @ u

    constraints = [
        {"type": "ineq", "fun": lambda u: limits.b_ub - limits.A_ub @ u, "jac": lambda u: -limits.A_ub},
        {"type": "eq", "fun": lambda u: limits.A_eq @ u - limits.b_eq, "jac": lambda u: limits.A_eq},
    ]
    reference = minimize(
        value,
        np.zeros(size),
        jac=lambda u: slope + hessian @ u,
        bounds=list(zip(limits.lower, limits.upper, strict=True)),
        constraints=[each for each in constraints if len(each["jac"](None))],
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    found = solve_over_polytope(hessian, slope, limits, 1e-9)
    assert limits.worst_miss(found) <= 1e-10
    assert reference.fun - 1e-8 <= value(found) <= 0.999 * reference.fun + 1e-8
    loose = solve_over_polytope(hessian, slope, limits, 1e-2)
    assert reference.fun - 1e-8 <= value(loose) <= reference.fun + 2e-2


def test_what_is_tight_is_met_exactly():
    limits = LinearSystem(
        np.array([[1.0, 1.0, 0.0]]), np.array([0.5]), np.zeros((0, 3)), np.zeros(0), np.zeros(3), np.ones(3)
    )
    found = solve_over_polytope(np.eye(3), np.array([-1.0, -0.8, 0.7]), limits, 1e-6)
    np.testing.assert_allclose(found, [0.35, 0.15, 0.0], atol=1e-14)
    assert found[2] == 0.0


def test_a_start_need_not_be_feasible():
    """After a step that HiGHS has led, a constraint may be missed by rounding."""
    limits = LinearSystem(
        np.array([[1.0, 1.0]]), np.array([-1e-12]), np.zeros((0, 2)), np.zeros(0), -np.ones(2), np.ones(2)
    )
    found = solve_over_polytope(np.eye(2), np.array([-1.0, -0.5]), limits, 1e-9)
    np.testing.assert_allclose(found, [0.25, -0.25], atol=1e-9)


def test_no_model_is_better_than_a_wrong_one():
    """An empty polytope, and a model that is no number."""
    rows = np.array([[1.0, 0.0], [-1.0, 0.0]])
    empty = LinearSystem(rows, np.array([-0.5, 0.4]), np.zeros((0, 2)), np.zeros(0), -np.ones(2), np.ones(2))
    assert solve_over_polytope(np.eye(2), np.ones(2), empty, 1e-9) is None
    free = LinearSystem(rows[:0], np.zeros(0), np.zeros((0, 2)), np.zeros(0), -np.ones(2), np.ones(2))
    assert solve_over_polytope(np.full((2, 2), np.nan), np.ones(2), free, 1e-9) is None


def random_problem(n_features, n_outputs=None, loss=LogisticLoss):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, n_features))
    targets = np.sign(X[:, 0] + rng.logistic(size=60))
    polytope = Polytope(rng.normal(size=(2, n_features)), np.full(2, 0.1), bounds=(-0.5, 0.5))
    return Problem(loss(targets, np.full(60, 1 / 60), True), design_matrix(X, n_outputs), polytope)


def test_which_corrector_a_polytope_gets():
    assert isinstance(best_corrector(random_problem(5)), InteriorPoint)
    assert isinstance(best_corrector(random_problem(3001)), ActiveAtoms)


@pytest.mark.parametrize("loss", [LogisticLoss, SquaredLoss])
def test_a_run_takes_few_steps(loss):
    problem = random_problem(20, loss=loss)
    result = frank_wolfe(problem, corrector=best_corrector(problem), tolerance=1e-9, max_iter=20)
    assert result.status == "converged"
    assert result.n_iter <= 8
    assert np.all(result.trace["step"][:-1] == 0.0)
    plain = frank_wolfe(problem, max_iter=300)
    assert plain.lower_bound <= result.objective <= plain.objective
    assert result.lower_bound <= plain.objective


def test_a_target_that_could_not_be_restored_is_not_taken(monkeypatch):
    problem = random_problem(5)
    newest = problem.minimise(AveragePlane.tangent(problem.null.evaluation))
    gap = problem.null.value - newest.bound
    assert best_corrector(problem).improve(problem.null, newest, gap) is not problem.null
    monkeypatch.setattr(LinearSystem, "restored", lambda self, x: x + 0.5)
    assert best_corrector(problem).improve(problem.null, newest, gap) is problem.null


def test_fixed_coefficients_stay():
    problem = random_problem(4)
    bounds = [(0.2, 0.2), (-1.0, 1.0), (0.0, 0.0), (-1.0, 1.0)]
    problem = problem.within(Polytope([[0.0, 1.0, 0.0, 1.0]], [0.1], bounds=bounds))
    result = frank_wolfe(problem, corrector=best_corrector(problem), tolerance=1e-9)
    assert result.status == "converged"
    np.testing.assert_array_equal(result.x[[0, 2]], [0.2, 0.0])
    point = problem.within(Polytope(bounds=np.full((4, 2), 0.25)))
    result = frank_wolfe(point, corrector=best_corrector(point), tolerance=0.0, max_iter=3)
    np.testing.assert_array_equal(result.x, np.full(4, 0.25))
