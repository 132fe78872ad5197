"""The solver: what a run does, what it returns, and what it asks of data and oracle."""

from dataclasses import replace
from fractions import Fraction
from time import perf_counter

import numpy as np
import pytest
from problems import data, dense_completion, problem

from skfw.engine import (
    Adaptive,
    AveragePlane,
    Constraint,
    Corrector,
    DenseVector,
    EntryMatrix,
    FactoredMatrix,
    L1Ball,
    L2Ball,
    LinearMinimum,
    LineSearch,
    LogisticLoss,
    NoMomentum,
    NuclearBall,
    ObservedEntries,
    ParameterFree,
    Problem,
    Simplex,
    SquaredLoss,
    StepRule,
    Uniform,
    Weighted,
    design_matrix,
    frank_wolfe,
)

P = problem("logistic", "l1", True).problem
# Here runs without a corrector never arrive: no two of their iterates are the same.
ROUND = problem("logistic", "l2", True).problem


def solve(**options):
    return frank_wolfe(P, **options)


def on_one_feature(X, labels, constraint):
    loss = LogisticLoss(np.array(labels, dtype=float), np.full(len(labels), 1 / len(labels)))
    return Problem(loss, design_matrix(X), constraint)


class Wrapped(Constraint):
    """A ball, with an oracle that can be watched or made worse."""

    contains_zero = True

    def __init__(self, slack=0.0):
        self.slack, self.hints = slack, []

    def lmo(self, direction, hint=None):
        if hint is not None:
            self.hints.append(hint)
        return replace(ROUND.constraint.lmo(direction), slack=self.slack, memory=len(self.hints))

    def diameter(self, shape):
        return ROUND.constraint.diameter(shape)


def test_callback_sees_each_iterate_and_stops_the_run():
    states = []

    def callback(state):
        states.append(state)
        return state.iteration == 3

    result = solve(callback=callback, max_iter=10)
    assert result.status == "stopped"
    assert [state.iteration for state in states] == [0, 1, 2, 3]
    assert result.n_iter == 3
    # The last row may differ by rounding: what is returned is predicted afresh.
    for name in ("objective", "lower_bound", "gap", "atoms"):
        seen = [getattr(state, name) for state in states]
        np.testing.assert_array_equal(seen[:-1], result.trace[name][:-1])
        assert seen[-1] == pytest.approx(result.trace[name][-1], rel=1e-12)
    for state in states:
        np.testing.assert_allclose(P.data.apply(state.x), state.predictions, atol=1e-13)
        assert state.intercept == pytest.approx(P.loss.evaluate(state.predictions).intercept, rel=1e-9)


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
    assert result.objective == pytest.approx(objective.min(), rel=1e-12)
    assert result.objective < objective[-1]
    best = P.at(result.x)
    assert best.value == pytest.approx(result.objective, rel=1e-12)
    np.testing.assert_allclose(result.predictions, best.predictions, rtol=1e-12)
    # The intercept and the multiplier are those of this iterate too, not of the last one.
    states = []
    solve(momentum=NoMomentum(), step_rule=ParameterFree(), max_iter=7, callback=states.append)
    assert result.intercept == pytest.approx(best.evaluation.intercept, rel=1e-9)
    assert abs(result.intercept - states[-1].intercept) > 1e-4
    assert result.multiplier == pytest.approx(P.multiplier(best), rel=1e-9)


def test_a_run_ends_at_the_first_iterate_within_the_tolerance():
    """Even where that is the start, and where the callback has the last word on it."""
    result = solve(tolerance=10.0)
    assert (result.status, result.n_iter, len(result.trace["gap"])) == ("converged", 0, 1)
    assert solve(max_iter=0).status == "max_iter"
    assert solve(callback=lambda state: True).status == "stopped"


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


def test_seconds_count_from_when_the_work_began():
    began = perf_counter() - 1000.0
    assert solve(max_iter=3, began=began).trace["seconds"].min() >= 1000.0
    assert solve(max_iter=3).trace["seconds"].max() < 1000.0


def test_a_known_infimum_ends_a_run_on_separable_data():
    """The loss is never negative: a model with almost none is almost optimal, whatever the planes say."""
    separable = on_one_feature(np.array([[-1.0], [1.0]]), [-1, 1], L2Ball(1e6))
    result = frank_wolfe(separable, tolerance=1e-3)
    assert result.status == "converged"
    assert result.n_iter < 10
    assert result.lower_bound >= 0.0


def test_data_times_radius_must_be_a_number():
    immense = on_one_feature(np.array([[-1e300], [1e300]]), [-1, 1], L1Ball(1e100))
    with pytest.raises(ValueError, match="too large for floating-point"):
        frank_wolfe(immense)


@pytest.mark.parametrize("tolerance", [0.0, 1e-3])
def test_what_is_returned_is_the_loss_of_the_model(tolerance):
    """Predictions that were updated along lines keep the rounding of what has cancelled since.

    Here they have values of 1e11, and the best model is close to zero.
    """
    immense = on_one_feature(np.full((3, 1), 3e11), [-1, 1, -1], L2Ball(2.5))
    result = frank_wolfe(
        immense, momentum=Uniform(), step_rule=ParameterFree(), max_iter=60, tolerance=tolerance
    )
    assert result.objective == immense.at(result.x).value
    np.testing.assert_array_equal(result.predictions, immense.data.apply(result.x))
    assert result.gap == result.objective - result.lower_bound == result.trace["gap"][-1]
    assert result.status == ("converged" if result.gap <= tolerance else "max_iter")


def test_start():
    cold = solve(max_iter=50)
    warm = solve(max_iter=50, start=P.at(cold.x))
    assert warm.trace["objective"][0] == pytest.approx(cold.objective)
    assert warm.objective <= cold.objective + 1e-15
    simplex = frank_wolfe(P.within(Simplex(0.5)), max_iter=0)
    assert np.count_nonzero(simplex.x) == 1
    assert simplex.x.sum() == pytest.approx(0.5)


class Idle(Corrector):
    """Changes nothing."""

    def improve(self, point, newest, gap):
        return point


def test_a_corrected_run_that_gains_nothing_ends():
    """At the optimum, up to rounding: the same gap for 20 iterations, and not for fewer."""
    aims = np.array([3.0, 1.0, 0.0])
    corner = Problem(SquaredLoss(aims, np.full(3, 1 / 3)), design_matrix(np.eye(3)), L1Ball(2.0))
    start = corner.at(np.array([2.0, 0.0, 0.0]))
    result = frank_wolfe(corner, momentum=NoMomentum(), corrector=Idle(), start=start, max_iter=100)
    assert (result.status, result.n_iter) == ("stalled", 20)
    # Without a corrector, slow progress is what a run is made of.
    assert frank_wolfe(corner, momentum=NoMomentum(), start=start, max_iter=100).status == "max_iter"
    # Progress starts the count anew.
    assert frank_wolfe(ROUND, corrector=Idle(), max_iter=60).status == "max_iter"


def test_a_corrector_that_overflows_does_no_harm():
    """What it warns of is not the user's business; what is not finite is not better."""

    class Overflowing(Corrector):
        def improve(self, point, newest, gap):
            assert not np.isfinite(np.float64(1e300) * np.float64(1e300))
            return point

    with np.errstate(all="raise"):
        assert solve(corrector=Overflowing(), max_iter=3).n_iter == 3


def test_hints_tell_the_oracle_what_it_can_use():
    """Keys never repeat, neither in a run nor in one that starts elsewhere; memory comes back."""
    first, second, again = Wrapped(), Wrapped(), Wrapped()
    cold = frank_wolfe(ROUND.within(first), momentum=Adaptive(), max_iter=20)
    frank_wolfe(ROUND.within(second), momentum=Adaptive(), max_iter=20, start=ROUND.at(cold.x))
    frank_wolfe(ROUND.within(again), momentum=Adaptive(), max_iter=20)
    keys = [hint.key for hint in first.hints + second.hints]
    assert len(first.hints) > 21  # an adaptive momentum asks more than once an iteration
    assert len(set(keys)) == len(keys)
    assert [hint.key for hint in again.hints] == [hint.key for hint in first.hints]  # but runs repeat
    # Within a run the number of the call is enough to tell two of them apart.
    assert len({hint.key[0] for hint in first.hints}) == len(first.hints)
    assert first.hints[0].memory is None
    assert all(0 < hint.memory < number for number, hint in enumerate(first.hints[1:], start=2))


@pytest.mark.parametrize("corrector, share", [(None, 0.25), (Idle(), 0.1)], ids=["steps", "corrected"])
def test_the_oracle_is_asked_for_a_fraction_of_the_gap(corrector, share):
    oracle = Wrapped()
    trace = frank_wolfe(ROUND.within(oracle), momentum=NoMomentum(), corrector=corrector, max_iter=10).trace
    # Before the first plane the loss's infimum, which is zero, is the only bound.
    gaps = np.append(
        trace["objective"][0], np.minimum.accumulate(trace["objective"])[1:] - trace["lower_bound"][:-1]
    )
    np.testing.assert_allclose([hint.accuracy for hint in oracle.hints], share * gaps, rtol=1e-9)


def test_where_the_newest_plane_is_enough_none_is_searched_for():
    """Past planes are averaged in to prove a smaller gap: at the end of a run nobody needs one."""
    options, points, watched = {"momentum": Adaptive(), "corrector": Idle()}, [], Wrapped()
    frank_wolfe(
        ROUND.within(watched), **options, max_iter=3, callback=lambda state: points.append(state.point)
    )
    assert len(watched.hints) > 4
    newest = points[3].value - ROUND.minimise(AveragePlane.tangent(points[3].evaluation)).bound
    oracle = Wrapped()
    result = frank_wolfe(ROUND.within(oracle), **options, tolerance=1.001 * newest)
    assert (result.status, result.n_iter, len(oracle.hints)) == ("converged", 3, 4)
    assert result.gap <= newest


def counting(data_class):
    class Counting(data_class):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.calls = {"apply": 0, "adjoint": 0, "apply_sparse": 0}

        def apply(self, x):
            self.calls["apply"] += 1
            return super().apply(x)

        def apply_sparse(self, indices, values):
            self.calls["apply_sparse"] += 1
            return super().apply_sparse(indices, values)

        def adjoint(self, residual):
            self.calls["adjoint"] += 1
            return super().adjoint(residual)

        def squared_norm(self, weights):
            raise AssertionError

    return Counting


@pytest.mark.parametrize("momentum", [Weighted(), NoMomentum(), Adaptive()], ids=str)
@pytest.mark.parametrize("rule", [LineSearch(), ParameterFree()], ids=str)
def test_one_adjoint_and_one_image_each_iteration(rule, momentum):
    """What prediction space is for: no other product with the data, whatever the step rule."""
    design = counting(type(P.data))(data()[0])
    frank_wolfe(Problem(P.loss, design, P.constraint), momentum=momentum, step_rule=rule, max_iter=20)
    # Predictions are formed twice: of zero, which is the start, and of what is returned.
    images = design.calls.pop("apply_sparse")
    assert design.calls == {"apply": 2, "adjoint": 21}
    assert images == 20 or isinstance(momentum, Adaptive)  # which may make a step again


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
    boxed = Problem(SquaredLoss(y, np.full(3, 1 / 3)), design_matrix(np.eye(3)), Box(1.0))
    result = frank_wolfe(boxed, momentum=NoMomentum(), tolerance=1e-3)
    assert np.isnan(result.multiplier)  # a set without a radius
    np.testing.assert_allclose(result.x, np.clip(y, 0, 1), atol=0.05)
    assert result.status == "converged"


def test_slack_of_an_inexact_oracle_lowers_the_bound():
    exact, sloppy = (frank_wolfe(ROUND.within(Wrapped(slack)), max_iter=20) for slack in (0.0, 0.125))
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
    entries = ObservedEntries(rows, columns, shape)
    completion = Problem(SquaredLoss(y, weights), entries, NuclearBall(radius))
    result = frank_wolfe(completion, momentum=momentum, max_iter=1500, tolerance=1e-2 * null)
    assert result.status == "converged"
    assert np.all(result.trace["lower_bound"] <= optimum + 1e-9 * null)
    assert result.objective >= optimum - 1e-9 * null
    assert isinstance(result.x, FactoredMatrix)
    assert NuclearBall(radius).norm(result.x) <= radius * (1 + 1e-9)


def test_averages_of_sparse_directions_are_those_of_dense_ones(monkeypatch):
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.uniform(size=(20, 15)) < 0.5)
    values = rng.normal(size=len(rows))
    loss, ball = SquaredLoss(values, np.full(len(rows), 1.0 / len(rows))), NuclearBall(5.0)
    runs = []
    for dense_from, kind in ((0.6, EntryMatrix), (0.4, np.ndarray)):
        monkeypatch.setattr("skfw.engine.data._observed_entries._DENSE", dense_from)
        entries = ObservedEntries(rows, columns, (20, 15))
        assert isinstance(entries.adjoint(values), kind)
        runs.append(frank_wolfe(Problem(loss, entries, ball), momentum=Adaptive(), max_iter=15))
    assert np.any((runs[0].trace["weight"] > 0.0) & (runs[0].trace["weight"] < 1.0))
    for name in ("objective", "lower_bound", "weight"):
        np.testing.assert_allclose(runs[0].trace[name], runs[1].trace[name], rtol=1e-6)


def test_a_run_is_never_worse_than_its_start():
    """Where rounding has spoiled the predictions, what steps seemed to win may be none."""
    loss = LogisticLoss(np.array([1.0, -1.0]), np.array([0.6, 0.4]))

    class Misleading(StepRule):
        """A step whose loss is not that of the model it leads to."""

        def step(self, segment):
            end = segment.at(0.5)
            return replace(end, evaluation=replace(end.evaluation, value=1e-9))

    problem = Problem(loss, design_matrix(np.ones((2, 2))), L1Ball(100.0))
    result = frank_wolfe(problem, step_rule=Misleading(), max_iter=5)
    assert result.trace["objective"][1] == 1e-9
    assert result.objective == problem.null.value
    np.testing.assert_array_equal(result.x, np.zeros(2))
    assert result.gap == result.objective - result.lower_bound >= 0.0


def test_an_evaluation_of_a_step_rule_is_not_made_again():
    calls = []

    class Counted(type(P.loss)):
        def evaluate(self, predictions, intercept=0.0):
            calls.append(predictions)
            return super().evaluate(predictions, intercept)

    loss = Counted(**{name: getattr(P.loss, name) for name in ("targets", "weights", "fit_intercept")})
    frank_wolfe(Problem(loss, P.data, P.constraint), step_rule=ParameterFree(), max_iter=10)
    assert len(calls) == 1 + 10 + 1  # the start, the steps, and the best iterate at the end


def test_what_is_returned_is_the_loss_of_the_matrix_whatever_its_terms():
    """Terms that cancel are gone from the matrix, and so are the digits that they cost."""
    rng = np.random.default_rng(0)
    entries = ObservedEntries(np.repeat(np.arange(6), 5), np.tile(np.arange(5), 6), (6, 5))
    problem = Problem(SquaredLoss(rng.normal(size=30), np.full(30, 1 / 30)), entries, NuclearBall(1e16))
    left, right = rng.normal(size=(6, 2)), rng.normal(size=(5, 2))
    terms = FactoredMatrix(left[:, [0, 0, 1]], right[:, [0, 0, 1]], np.array([1e14, -1e14, 1.0]))
    result = frank_wolfe(problem, start=problem.at(terms), max_iter=0)
    # In rational numbers: whether they cancel at all in those of the machine depends on its BLAS.
    left, weights, right = (
        np.vectorize(Fraction)(part) for part in (result.x.left, result.x.weights, result.x.right)
    )
    matrix = ((left * weights) @ right.T).astype(np.float64)
    assert problem.loss.evaluate(matrix.ravel()).value == pytest.approx(result.objective, rel=1e-9)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"problem": np.eye(3)}, r"problem must be a Problem, such as Problem\(loss, data, constraint\)"),
        ({"momentum": "weighted"}, r"momentum must be a Momentum, such as Weighted\(\); got"),
        ({"step_rule": LineSearch}, r"step_rule must be a StepRule, such as LineSearch\(\); got"),
        ({"corrector": True}, r"corrector must be a Corrector, such as best_corrector\(problem\); got"),
        ({"start": np.zeros(3)}, r"start must be a Point, such as problem.at\(x\); got"),
        ({"max_iter": -1}, "max_iter must be at least 0; got max_iter=-1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_arguments_of_the_wrong_kind(arguments, message):
    given = {"problem": problem("squared", "l2", False).problem, **arguments}
    with pytest.raises((TypeError, ValueError), match=message):
        frank_wolfe(**given)


def test_a_result_is_shown_in_one_line():
    result = frank_wolfe(problem("squared", "l2", False).problem, max_iter=3)
    expected = f"Result(status='max_iter', n_iter=3, objective={result.objective:.6g}, gap={result.gap:.3g})"
    assert repr(result) == expected


@pytest.mark.parametrize("radius", [1e-3, 1e-2, 0.1, 0.7])
def test_a_tolerance_relative_to_what_was_won(radius):
    """It is the same promise at every radius, and takes no model for what is a small one."""
    small = P.within(L1Ball(radius))
    null = small.null.value
    result = frank_wolfe(small, relative_tolerance=0.1)
    optimum = frank_wolfe(small, tolerance=1e-9, max_iter=100_000).objective
    assert result.status == "converged"
    assert 0.0 < result.gap <= 0.1 * (null - result.objective)
    assert null - result.objective >= 0.9 * (null - optimum)
    before = result.trace["gap"][:-1] > 0.1 * (null - np.minimum.accumulate(result.trace["objective"][:-1]))
    assert before.all()  # and no iteration more than that takes


def test_either_tolerance_ends_a_run():
    null = P.null.value
    assert solve(tolerance=null, relative_tolerance=1e-9).n_iter == 0
    assert solve(tolerance=1e-12, relative_tolerance=0.5).n_iter == solve(relative_tolerance=0.5).n_iter
    assert frank_wolfe(ROUND, relative_tolerance=0.0, max_iter=5).status == "max_iter"


class Alone(Corrector):
    """Takes some steps towards the newest atom, and then no more."""

    is_exclusive = True

    def __init__(self, problem, n_steps):
        self.problem, self.n_left = problem, n_steps

    def improve(self, point, newest, gap):
        self.n_left -= 1
        if self.n_left < 0:
            return point
        return self.problem.at(0.9 * point.x + 0.1 * newest.minimum.atom)


def test_where_the_corrector_alone_moves_its_end_is_that_of_the_run():
    result = frank_wolfe(ROUND, corrector=Alone(ROUND, 3), max_iter=50)
    assert result.status == "stalled"
    assert result.n_iter == 4  # the last of which found nothing
    np.testing.assert_array_equal(result.trace["step"][:-1], 0.0)
    assert result.gap > 0.0
