import numpy as np
import pytest
from problems import dense_completion, problem

from skfw.engine import (
    Adaptive,
    Constraint,
    DenseVector,
    DesignMatrix,
    FactoredMatrix,
    L1Ball,
    L2Ball,
    LinearMap,
    LinearMinimum,
    LineSearch,
    LogisticLoss,
    NoMomentum,
    NuclearBall,
    ObservedEntries,
    ParameterFree,
    Simplex,
    SquaredLoss,
    Weighted,
    frank_wolfe,
)

P = problem("logistic", "l1", True)


def solve(**options):
    return frank_wolfe(P.loss, P.linear_map, P.constraint, **options)


def test_callback_sees_each_iterate_and_stops_the_run():
    states = []

    def callback(state):
        states.append(state)
        return state.iteration == 3

    result = solve(callback=callback, max_iter=10)
    assert result.status == "stopped"
    assert [state.iteration for state in states] == [0, 1, 2, 3]
    assert result.n_iter == 3
    np.testing.assert_array_equal([state.objective for state in states], result.trace["objective"])
    np.testing.assert_array_equal([state.gap for state in states], result.trace["gap"])
    for state in states:
        np.testing.assert_allclose(P.linear_map.apply(state.x), state.predictions, atol=1e-13)


def test_status_is_read_off_the_certificate():
    assert solve(max_iter=2).status == "max_iter"
    assert solve(max_iter=500, tolerance=1e-2).status == "converged"
    # A callback that stops a run which is within the tolerance does not hide that.
    assert solve(max_iter=500, tolerance=1e-2, callback=lambda state: state.gap <= 1e-2).status == "converged"
    # The last iterate counts too.
    needed = solve(max_iter=500, tolerance=1e-2).n_iter
    assert solve(max_iter=needed, tolerance=1e-2).status == "converged"
    assert solve(max_iter=needed - 1, tolerance=1e-2).status == "max_iter"


def test_best_iterate_is_returned_where_the_last_is_worse():
    result = solve(momentum=NoMomentum(), step_rule=ParameterFree(), max_iter=7)
    objective = result.trace["objective"]
    assert np.diff(objective).max() > 0  # these steps do go up
    assert result.objective == objective.min()
    assert P.loss.evaluate(P.linear_map.apply(result.x)).value == pytest.approx(objective.min())


def test_bad_constraint_is_refused_before_the_run():
    with pytest.raises(ValueError, match=r"got radius=-1\.0"):
        frank_wolfe(P.loss, P.linear_map, L1Ball(-1.0))


def test_trace_columns():
    result = solve(max_iter=5)
    trace = result.trace
    assert list(trace) == ["objective", "lower_bound", "gap", "step", "weight", "atoms", "seconds"]
    assert {len(column) for column in trace.values()} == {6}
    assert trace["atoms"].dtype.kind == "i"
    assert trace["atoms"][0] == 0
    np.testing.assert_allclose(trace["weight"], 2 / (np.arange(6) + 2))
    assert np.isnan(trace["step"][-1])
    assert np.isfinite(trace["step"][:-1]).all()
    assert np.all(np.diff(trace["seconds"]) >= 0)


def test_the_same_input_gives_the_same_bits():
    first, second = solve(max_iter=30), solve(max_iter=30)
    np.testing.assert_array_equal(first.x, second.x)
    np.testing.assert_array_equal(first.trace["gap"], second.trace["gap"])


def test_a_known_infimum_ends_a_run_on_separable_data():
    """The loss is never negative: a model with almost none is almost optimal, whatever the planes say."""
    loss = LogisticLoss(np.array([-1.0, 1.0]), np.full(2, 0.5))
    result = frank_wolfe(loss, DesignMatrix(np.array([[-1.0], [1.0]])), L2Ball(1e6), tolerance=1e-3)
    assert result.status == "converged"
    assert result.n_iter < 10
    assert result.lower_bound >= 0.0


def test_data_times_radius_must_be_a_number():
    loss = LogisticLoss(np.array([-1.0, 1.0]), np.full(2, 0.5))
    with pytest.raises(ValueError, match="too large for floating-point"):
        frank_wolfe(loss, DesignMatrix(np.array([[-1e300], [1e300]])), L1Ball(1e100))


def test_start():
    cold = solve(max_iter=50)
    warm = solve(max_iter=50, start=cold.x)
    assert warm.trace["objective"][0] == pytest.approx(cold.objective)
    assert warm.objective <= cold.objective + 1e-15
    simplex = frank_wolfe(P.loss, P.linear_map, Simplex(0.5), max_iter=0)
    assert np.count_nonzero(simplex.x) == 1
    assert simplex.x.sum() == pytest.approx(0.5)


def test_one_adjoint_and_one_image_each_iteration():
    """What prediction space is for: no other product with the data, whatever the step rule."""

    class Counting(LinearMap):
        def __init__(self, inner):
            self.inner, self.calls = inner, {"apply": 0, "adjoint": 0, "apply_sparse": 0}

        def zeros(self):
            return self.inner.zeros()

        def apply(self, x):
            self.calls["apply"] += 1
            return self.inner.apply(x)

        def apply_sparse(self, indices, values):
            self.calls["apply_sparse"] += 1
            return self.inner.apply_sparse(indices, values)

        def apply_rank_one(self, left, right):
            raise AssertionError

        def adjoint(self, residual):
            self.calls["adjoint"] += 1
            return self.inner.adjoint(residual)

        def adjoint_rounding(self):
            return self.inner.adjoint_rounding()

        def squared_norm(self, weights):
            raise AssertionError

    for rule in (LineSearch(), ParameterFree()):
        counting = Counting(P.linear_map)
        frank_wolfe(P.loss, counting, P.constraint, step_rule=rule, max_iter=20)
        assert counting.calls == {"apply": 1, "adjoint": 21, "apply_sparse": 20}


def test_a_constraint_of_ones_own():
    class Box(Constraint):
        """Coefficients between zero and an upper limit."""

        contains_zero = True

        def __init__(self, upper):
            self.upper = upper

        def lmo(self, direction, hint=None):
            atom = np.where(direction < 0, self.upper, 0.0)
            return LinearMinimum(DenseVector(atom), float(np.vdot(direction, atom)))

        def diameter(self, shape):
            return float(np.linalg.norm(np.broadcast_to(self.upper, shape)))

    y = np.array([2.0, 0.3, -1.0])
    loss = SquaredLoss(y, np.full(3, 1 / 3))
    result = frank_wolfe(loss, DesignMatrix(np.eye(3)), Box(1.0), momentum=NoMomentum(), tolerance=1e-3)
    np.testing.assert_allclose(result.x, np.clip(y, 0, 1), atol=0.05)
    assert result.status == "converged"


def test_slack_of_an_inexact_oracle_lowers_the_bound():
    class Sloppy(Constraint):
        contains_zero = True

        def __init__(self, slack):
            self.slack = slack

        def lmo(self, direction, hint=None):
            minimum = P.constraint.lmo(direction)
            return LinearMinimum(minimum.atom, minimum.value, self.slack)

        def diameter(self, shape):
            return P.constraint.diameter(shape)

    exact, sloppy = (frank_wolfe(P.loss, P.linear_map, Sloppy(s), max_iter=20) for s in (0.0, 0.125))
    assert sloppy.lower_bound == pytest.approx(exact.lower_bound - 0.125)


@pytest.mark.parametrize("momentum", [Weighted(), NoMomentum()])
@pytest.mark.parametrize("shape", [(40, 30), (130, 110)], ids=["dense oracle", "lanczos"])
def test_completion_against_a_dense_proximal_solver(momentum, shape):
    """Nuclear-norm completion, certified, against projected gradient with full singular values."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(shape[0], 2)) @ rng.normal(size=(2, shape[1])) + 0.3 * rng.normal(size=shape)
    rows, columns = np.nonzero(rng.uniform(size=shape) < 0.5)
    y, weights = truth[rows, columns], rng.uniform(0.5, 1.5, len(rows))
    weights /= weights.sum()
    radius = 0.6 * np.linalg.norm(truth, "nuc")
    optimum = dense_completion(shape, rows, columns, y, weights, radius)
    null = 0.5 * weights @ y**2
    result = frank_wolfe(
        SquaredLoss(y, weights),
        ObservedEntries(rows, columns, shape),
        NuclearBall(radius),
        momentum=momentum,
        max_iter=1500,
        tolerance=1e-2 * null,
    )
    assert result.status == "converged"
    assert np.all(result.trace["lower_bound"] <= optimum + 1e-9 * null)
    assert result.objective >= optimum - 1e-9 * null
    assert isinstance(result.x, FactoredMatrix)
    assert NuclearBall(radius).norm(result.x) <= radius * (1 + 1e-9)


class DenselyObserved(ObservedEntries):
    """Observed entries whose adjoint is a dense matrix."""

    def adjoint(self, residual):
        return super().adjoint(residual).toarray()

    def adjoint_rounding(self):
        return super().adjoint_rounding().toarray()


def test_averages_of_sparse_directions_are_those_of_dense_ones():
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.uniform(size=(20, 15)) < 0.5)
    values = rng.normal(size=len(rows))
    loss, ball = SquaredLoss(values, np.full(len(rows), 1.0 / len(rows))), NuclearBall(5.0)
    runs = [
        frank_wolfe(loss, kind(rows, columns, (20, 15)), ball, momentum=Adaptive(), max_iter=15)
        for kind in (ObservedEntries, DenselyObserved)
    ]
    assert np.any((runs[0].trace["weight"] > 0.0) & (runs[0].trace["weight"] < 1.0))
    for name in ("objective", "lower_bound", "weight"):
        np.testing.assert_allclose(runs[0].trace[name], runs[1].trace[name], rtol=1e-6)
