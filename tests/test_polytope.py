import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import OptimizeResult, linprog, minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from skfw import HFWLogisticRegression, HFWRegressor
from skfw.engine import Box, LinearSystem, Polytope
from skfw.engine.constraints import _polytope

RNG = np.random.default_rng(4)
A_UB, B_UB = RNG.normal(size=(3, 5)), np.array([0.2, 0.5, 0.1])
A_EQ, B_EQ = RNG.normal(size=(1, 5)), np.array([0.3])
BOUNDS = np.column_stack([-RNG.uniform(0.5, 1.5, 5), RNG.uniform(0.5, 1.5, 5)])
SET = Polytope(A_UB, B_UB, A_EQ, B_EQ, BOUNDS)


@pytest.mark.parametrize("shape", [(5,), (5, 2)])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_oracle_finds_the_best_vertex_and_proves_it(shape, scale):
    SET.check(shape)
    for _ in range(10):
        direction = scale * RNG.normal(size=shape)
        minimum = SET.lmo(direction)
        atom = np.zeros(shape) + minimum.atom
        assert np.vdot(direction, atom) == pytest.approx(minimum.value, rel=1e-12)
        columns = zip(direction.reshape(5, -1).T, atom.reshape(5, -1).T, strict=True)
        optimum = 0.0
        for column, vertex in columns:
            assert SET.system(5).worst_miss(vertex) <= 1e-9
            optimum += linprog(column / scale, A_UB, B_UB, A_EQ, B_EQ, BOUNDS).fun * scale
        assert minimum.value == pytest.approx(optimum, rel=1e-8)
        assert 0.0 <= minimum.slack <= 1e-9 * abs(optimum)


@pytest.mark.parametrize("seed", range(20))
def test_bound_holds_for_any_multipliers(monkeypatch, seed):
    """Whatever the solver claims: multipliers that are wrong, of the wrong sign, or huge; not the vertex."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=5)
    optimum = SET.lmo(direction).value
    middle = np.mean([SET.lmo(rng.normal(size=5)).atom.array for _ in range(9)], axis=0)
    units = np.exp2(np.frexp(SET.system(5).sizes)[1])

    def careless(objective, *args, **options):
        found = linprog(objective, *args, **options)
        size = 10.0 ** rng.uniform(-9, 9)
        noise = [size * rng.normal(size=len(part.marginals)) for part in (found.ineqlin, found.eqlin)]
        return OptimizeResult(
            x=middle / units,
            ineqlin=OptimizeResult(marginals=found.ineqlin.marginals + noise[0]),
            eqlin=OptimizeResult(marginals=found.eqlin.marginals + noise[1]),
        )

    monkeypatch.setattr(_polytope, "linprog", careless)
    minimum = SET.lmo(direction)
    assert minimum.value == pytest.approx(direction @ middle)
    assert minimum.value > optimum + 1e-3
    assert minimum.value - minimum.slack <= optimum + 1e-12


def test_rounding_of_the_bound_is_allowed_for(monkeypatch):
    """The bound that the multipliers prove in rational numbers is not smaller than the one that is used."""
    rng = np.random.default_rng(5)
    solved = []
    monkeypatch.setattr(
        _polytope, "linprog", lambda *args, **options: solved.append(linprog(*args, **options)) or solved[-1]
    )
    for _ in range(40):
        rows = rng.normal(size=(4, 5)) * 10.0 ** rng.integers(-3, 4, size=(4, 5))
        polytope = Polytope(rows, np.abs(rows) @ np.full(5, 0.1), bounds=(-1.0, 1.0))
        program = _polytope._LinearProgram(polytope.system(5))
        direction = rng.uniform(0.5, 1.0, size=5) * rng.choice([-1.0, 1.0], size=5)
        bound = program.minimise(direction).bound
        y = [Fraction(min(number, 0.0)) for number in solved[-1].ineqlin.marginals.tolist()]
        scaled = program._system
        slopes = [
            Fraction(g) / 2 - sum(Fraction(a) * weight for a, weight in zip(column, y, strict=True))
            for g, column in zip((2 * direction).tolist(), scaled.A_ub.T.tolist(), strict=True)
        ]
        exact = sum(Fraction(b) * weight for b, weight in zip(scaled.b_ub.tolist(), y, strict=True))
        exact += sum(
            min(slope * Fraction(low), slope * Fraction(high))
            for slope, low, high in zip(slopes, scaled.lower.tolist(), scaled.upper.tolist(), strict=True)
        )
        assert program._units.tolist() == [2.0] * 5
        assert Fraction(bound) <= 2 * exact
        assert bound == pytest.approx(2.0 * float(exact), rel=1e-12)


@pytest.mark.parametrize("bound", [1e2, 1e5, 1e9])
@pytest.mark.parametrize("classifier", [False, True])
def test_constraints_hold_though_bounds_are_far(bound, classifier):
    """What is negligible beside the bounds is not so beside the coefficients."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5))
    y = X @ np.arange(1.0, 6.0) + rng.normal(size=200)
    rows = [[1, -1, 0, 0, 0], [0, 1, -1, 0, 0], [0, 0, -1, 1, 0], [0, 0, 0, 1, -0.5]]
    estimator = HFWLogisticRegression if classifier else HFWRegressor
    fits = [
        estimator(Polytope(rows, np.zeros(4), np.ones((1, 5)), [1.0], (-size, size)), max_iter=60)
        for size in (10.0, bound)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        near, far = (model.fit(X, y > 0 if classifier else y) for model in fits)
    assert abs(far.coef_.sum() - 1.0) <= 1e-12
    assert (rows @ far.coef_.ravel()).max() <= 1e-12
    assert far.lower_bound_ <= near.objective_
    assert far.objective_ >= near.lower_bound_


@pytest.mark.parametrize("bound", [1e2, 1e6, 1e9])
def test_a_start_outside_is_not_taken_for_a_model(bound):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X @ [1.0, 2.0, 3.0] + rng.normal(size=200)
    model = HFWRegressor(Polytope(np.ones((1, 3)), [2.0], bounds=(-bound, bound)), warm_start=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        wide = model.fit(X, y).objective_
        model.set_params(constraint__b_ub=[1.5]).fit(X, y)
    assert model.coef_.sum() <= 1.5 + 1e-12
    assert model.objective_ > wide + 0.1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("corrective", [False, True])
def test_entries_too_small_for_the_solver_count(corrective):
    """HiGHS takes entries of a row below 1e-9 of the largest for zero."""
    row = np.append(1.0, np.full(399, 9e-10))
    polytope = Polytope(A_eq=[row], b_eq=[0.0], bounds=(-1.0, 1.0))
    model = HFWRegressor(polytope, fit_intercept=False, corrective=corrective, max_iter=20)
    model.fit(np.eye(400), np.full((400, 2), 3.0))
    np.testing.assert_allclose(model.coef_ @ row, 0.0, atol=1e-15)
    assert polytope.system(400).nearly_meets(polytope.lmo(np.ones(400)).atom.array)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("corrective", [False, True])
def test_coefficients_are_within_their_bounds_exactly(corrective):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 6)), rng.integers(0, 3, 300)
    bounds = np.array([(0.1, 0.1)] + [(-1.0, 0.3)] * 5)
    for models in (Polytope([[1] * 6], [1.0], bounds=bounds), Box(*bounds.T)):
        coef = HFWLogisticRegression(models, corrective=corrective, max_iter=40).fit(X, y).coef_
        assert np.all(coef[:, 0] == 0.1)
        assert np.all((bounds[:, 0] <= coef) & (coef <= bounds[:, 1]))


def test_points_are_restored():
    system = SET.system(5)
    for _ in range(20):
        inside = np.mean([SET.lmo(RNG.normal(size=5)).atom.array for _ in range(3)], axis=0)
        moved = inside + 1e-3 * RNG.normal(size=5)
        found = system.restored(moved)
        assert not system.nearly_meets(moved)
        assert system.nearly_meets(found)
        assert np.abs(found - moved).max() <= 0.1
    single = Polytope(bounds=(0.5, 0.5)).system(2)
    np.testing.assert_array_equal(single.restored(np.array([0.4, 0.7])), [0.5, 0.5])


def test_a_solver_that_gives_up_is_not_believed(monkeypatch):
    monkeypatch.setattr(_polytope, "linprog", lambda *_, **__: OptimizeResult(x=None, message="no idea"))
    with pytest.raises(RuntimeError, match="HiGHS could not minimise over the polytope: no idea"):
        SET.lmo(np.ones(5))


def test_what_a_run_needs_to_know():
    points = [np.zeros(5) + SET.lmo(RNG.normal(size=5)).atom for _ in range(30)]
    farthest = max(np.linalg.norm(a - b) for a in points for b in points)
    assert farthest <= SET.diameter((5,)) <= 5 * farthest
    error = RNG.uniform(size=5)
    assert max((error * np.abs(point)).sum() for point in points) <= SET.error_effect(error, np.zeros(5))
    mean = np.mean(points, axis=0)
    np.testing.assert_array_equal(SET.scale_into(mean), mean)
    assert SET.scale_into(2.0 * mean) is None
    assert not SET.contains_zero
    assert Polytope([[1.0, 1.0]], [0.0], bounds=(-1.0, 1.0)).contains_zero
    assert not Polytope([[1.0, 1.0]], [-0.1], bounds=(-1.0, 1.0)).contains_zero
    assert not Polytope(bounds=[(-1.0, 1.0), (0.1, 1.0)]).contains_zero


def test_systems():
    system = SET.system(5)
    units = np.exp2(RNG.integers(-20, 20, 5))
    scaled, moved = system.scaled(units), system.moved(np.ones(5))
    rows = np.abs(np.vstack([scaled.A_ub, scaled.A_eq])).max(axis=1)
    assert np.all((rows >= 0.5) & (rows <= 1.0))
    for _ in range(20):
        x = RNG.normal(size=5) / 2
        fits = [
            np.all(each.A_ub @ point <= each.b_ub) and np.all((each.lower <= point) & (point <= each.upper))
            for each, point in ((system, x), (scaled, x / units), (moved, x - 1.0))
        ]
        assert len(set(fits)) == 1
        balanced = x - np.linalg.pinv(A_EQ) @ (A_EQ @ x - B_EQ)
        meets = np.all(A_UB @ balanced <= B_UB) and np.all(np.clip(balanced, *BOUNDS.T) == balanced)
        assert meets == (system.worst_miss(balanced) <= 1e-12)
        assert system.worst_miss(x) >= np.abs(A_EQ @ x - B_EQ).max()
    some = system.restrict(np.array([0, 3]))
    assert isinstance(some, LinearSystem)
    np.testing.assert_array_equal(some.A_ub, A_UB[:, [0, 3]])
    np.testing.assert_array_equal(some.upper, BOUNDS[[0, 3], 1])


@pytest.mark.parametrize(
    "polytope, message",
    [
        (Polytope([[1, 0, 0], [-1, 0, 0]], [0.3, -0.4], bounds=(-1, 1)), "The polytope is empty"),
        (Polytope(A_eq=[[1, 1, 1]], b_eq=[5], bounds=(-1, 1)), "The polytope is empty"),
        (Polytope([[1, 0, 0]], [0.3]), "bounds must be a pair of numbers, .* finite; got bounds=None"),
        (
            Polytope([[1, 0, 0]], [0.3], bounds=(0, None)),
            r"bounds must be .* all finite; got bounds=\(0, None\)",
        ),
        (Polytope(bounds=(0, np.inf)), "bounds must be .* all finite"),
        (Polytope(bounds=(1, 0)), "bounds must be a lowest and a highest value; got 1 above 0 for feature 0"),
        (Polytope(bounds=np.zeros((4, 2))), r"a pair for each of 3 features.* shape \(4, 2\)"),
        (Polytope([[1, 0, 0], [1]], [0.3, 0.3], bounds=(0, 1)), "A_ub must be a matrix"),
        (Polytope([[1j, 0, 0]], [0.3], bounds=(0, 1)), "A_ub must be a matrix"),
        (Polytope([[1] * 3, [-1] * 3], [1, -1.05], bounds=(-1e9, 1e9)), "The polytope is empty"),
        (Polytope([[1, 0]], [0.3], bounds=(0, 1)), r"A_ub must be a matrix of shape \(1, 3\)"),
        (Polytope([[1, 0, 0]], [0.3, 1], bounds=(0, 1)), r"A_ub must be a matrix of shape \(2, 3\)"),
        (Polytope([[1, 0, 0]], bounds=(0, 1)), "A_ub and b_ub must be given together"),
        (Polytope(b_eq=[0.3], bounds=(0, 1)), "A_eq and b_eq must be given together"),
        (Polytope([[1, 0, np.nan]], [0.3], bounds=(0, 1)), "A_ub must be a matrix .* all finite"),
        (Polytope([[1, 0, 0]], [np.inf], bounds=(0, 1)), "b_ub must be a sequence of numbers, all finite"),
        (Polytope([[1, 0, 0]], 0.3, bounds=(0, 1)), "b_ub must be a sequence of numbers"),
        (Polytope(A_eq="x", b_eq=[0.3], bounds=(0, 1)), "A_eq must be a matrix"),
    ],
)
def test_wrong_polytopes(polytope, message):
    with pytest.raises(ValueError, match=message):
        HFWRegressor(polytope).fit(RNG.normal(size=(9, 3)), np.arange(9.0))


# The estimators.


@pytest.mark.parametrize("loss", ["squared_error", "huber", "poisson", "logistic"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_agrees_with_another_solver(loss, kind):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(90, 5))
    z = X @ rng.normal(size=5)
    y = {"logistic": np.sign(z + rng.logistic(size=90)), "poisson": rng.poisson(np.exp(z / 4))}.get(
        loss, z + rng.normal(size=90)
    )
    model = HFWLogisticRegression(SET) if loss == "logistic" else HFWRegressor(SET, loss=loss, epsilon=0.5)
    model.set_params(tol=1e-9).fit(kind(X), y)

    def mean_loss(variables):
        p = X @ variables[:5] + variables[5]
        if loss == "logistic":
            return np.logaddexp(0.0, -y * p).mean()
        if loss == "poisson":
            deviance = np.exp(p) - y * p - y + np.where(y > 0, y * np.log(np.maximum(y, 1)), 0.0)
            return deviance.mean()
        size = np.abs(p - y)
        return np.where((size < 0.5) | (loss != "huber"), 0.5 * size**2, 0.5 * (size - 0.25)).mean()

    limits = [
        {"type": "ineq", "fun": lambda v: B_UB - A_UB @ v[:5]},
        {"type": "eq", "fun": lambda v: A_EQ @ v[:5] - B_EQ},
    ]
    reference = minimize(
        mean_loss,
        np.zeros(6),
        bounds=[*BOUNDS, (None, None)],
        constraints=limits,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert SET.system(5).worst_miss(model.coef_.ravel()) <= 1e-9
    assert model.converged_
    assert model.lower_bound_ <= reference.fun + 1e-10
    assert model.objective_ <= reference.fun + 1e-8
    np.testing.assert_allclose(model.coef_.ravel(), reference.x[:5], atol=2e-4)
    assert mean_loss(np.append(model.coef_, model.intercept_)) == pytest.approx(model.objective_)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_constraints_of_several_classes_and_sparse_rows(as_sparse):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(150, 5))
    y = np.argmax(X[:, :3] + rng.gumbel(size=(150, 3)), axis=1)
    kind = sparse.csr_matrix if as_sparse else np.asarray
    polytope = Polytope(kind(A_UB), B_UB, kind(A_EQ), B_EQ, BOUNDS)
    model = HFWLogisticRegression(polytope, tol=1e-4).fit(X, y)
    assert model.converged_
    assert max(SET.system(5).worst_miss(coef) for coef in model.coef_) <= 1e-9


def test_limits_can_be_searched_and_cloned():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(80, 3))
    y = X @ [1.0, 2.0, 3.0] + 0.1 * rng.normal(size=80)
    polytope = Polytope(np.ones((1, 3)), np.array([1.0]), bounds=(-10.0, 10.0))
    search = GridSearchCV(HFWRegressor(polytope), {"constraint__b_ub": [[2.0], [4.0], [8.0]]}).fit(X, y)
    assert search.best_params_ == {"constraint__b_ub": [8.0]}
    again = clone(search.best_estimator_).fit(X, y)
    np.testing.assert_array_equal(again.coef_, search.best_estimator_.coef_)


def test_warm_starts_inside_and_outside():
    rng = np.random.default_rng(9)
    X = rng.normal(size=(80, 3))
    y = X @ [1.0, 2.0, 3.0] + rng.normal(size=80)
    model = HFWRegressor(Polytope(np.ones((1, 3)), [2.0], bounds=(-9.0, 9.0)), warm_start=True, tol=1e-8)
    first = model.fit(X, y).n_iter_
    assert model.fit(X, y).n_iter_ < first
    model.set_params(constraint__b_ub=[1.0]).fit(X, y)
    assert model.converged_
    assert model.coef_.sum() == pytest.approx(1.0)
