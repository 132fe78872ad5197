"""A problem: what is known of it before a run, and what another set inherits."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from problems import LOSSES, PROBLEMS, data, problem

from skfw.engine import (
    AveragePlane,
    DenseDesign,
    L1Ball,
    L2Ball,
    LineSearch,
    LInfBall,
    LogisticLoss,
    MultinomialLoss,
    ObservedEntries,
    Problem,
    Simplex,
    SquaredLoss,
    StepRule,
    best_corrector,
    design_matrix,
    frank_wolfe,
    sample_start,
)

P = problem("logistic", "l1", True).problem


class Counting(DenseDesign):
    """Counts the products with models, and the norms."""

    applied = norms = 0

    def apply(self, x):
        self.applied += 1
        return super().apply(x)

    def squared_norm(self, weights):
        self.norms += 1
        return super().squared_norm(weights)


@pytest.mark.parametrize("names", PROBLEMS, ids=lambda names: "-".join(map(str, names)))
def test_lipschitz_constant_and_diameter(names):
    """The constant is an upper bound, 1 % above the spectral one at most."""
    p = problem(*names)
    assert p.lipschitz <= p.problem.lipschitz <= 1.0101 * p.lipschitz
    constraint = p.problem.constraint
    assert p.problem.diameter == constraint.diameter(p.problem.null.x.shape)


@pytest.mark.parametrize("loss_name", LOSSES)
def test_gradients_change_no_faster_than_the_lipschitz_constant(loss_name):
    p, rng = problem(loss_name, "l2", True).problem, np.random.default_rng(0)
    for scale in (1e-4, 1.0):
        first, second = (scale * rng.normal(size=p.null.x.shape) for _ in range(2))
        gradients = [p.data.adjoint(p.at(x).evaluation.residual) for x in (first, second)]
        change = np.linalg.norm(gradients[0] - gradients[1])
        assert change <= p.lipschitz * np.linalg.norm(first - second) * (1 + 1e-6)


def test_bad_constraint_is_refused_before_the_run():
    with pytest.raises(ValueError, match=r"got radius=-1\.0"):
        P.within(L1Ball(-1.0))
    with pytest.raises(ValueError, match=r"got radius=-1\.0"):
        Problem(P.loss, P.data, L1Ball(-1.0))


@pytest.mark.parametrize(
    "argument, wrong",
    [("loss", np.ones(24)), ("loss", SquaredLoss), ("data", np.ones((24, 4))), ("constraint", "l1")],
)
def test_what_a_problem_is_made_of(argument, wrong):
    parts = {"loss": P.loss, "data": P.data, "constraint": P.constraint, argument: wrong}
    with pytest.raises(
        TypeError, match=f"{argument} must be a {argument.title()}, such as .*; got {argument}="
    ):
        Problem(**parts)


def test_points():
    x = np.array([0.1, -0.2, 0.0, 0.3])
    point = P.at(x)
    assert point.x is x
    np.testing.assert_array_equal(point.predictions, P.data.apply(x))
    assert point.value == point.evaluation.value == P.loss.evaluate(point.predictions).value
    assert np.count_nonzero(P.null.x) == 0
    assert P.null.value == P.at(np.zeros(4)).value


def test_the_intercept_of_a_point_close_by_is_where_the_search_begins():
    guesses = []

    class Recorded(LogisticLoss):
        def evaluate(self, predictions, intercept=0.0):
            guesses.append(intercept)
            return super().evaluate(predictions, intercept)

    _, weights, signs, *_ = data()
    recorded = Problem(Recorded(signs, weights, True), P.data, P.constraint)
    near = recorded.null.evaluation
    recorded.point(recorded.null.x, recorded.null.predictions, near)
    assert guesses == [0.0, near.intercept]


def test_start():
    assert P.start is P.null
    corner = P.within(Simplex(0.5)).start
    slopes = P.data.adjoint(P.null.evaluation.residual)
    np.testing.assert_array_equal(corner.x, 0.5 * (np.arange(4) == slopes.argmin()))
    np.testing.assert_allclose(corner.predictions, P.data.apply(corner.x))


def test_the_same_problem_in_another_set():
    """What is known of loss and data is kept, and not computed again; what depends on the set is not."""
    counting = Counting(data()[0])
    first = Problem(P.loss, counting, L1Ball(1.0))
    assert (counting.applied, counting.norms) == (0, 0)
    before = first.within(L2Ball(3.0))  # nothing is known yet, and nothing is computed for it
    assert (counting.applied, counting.norms) == (0, 0)
    null, lipschitz, diameter = first.null, first.lipschitz, first.diameter
    applied = counting.applied  # the norm's iterations are products as well
    second = first.within(L2Ball(3.0))
    assert second.null is null
    assert second.lipschitz == lipschitz
    assert (counting.applied, counting.norms) == (applied, 1)
    assert second.constraint == L2Ball(3.0)
    assert (diameter, second.diameter) == (2.0, 6.0)
    assert (second.loss, second.data) == (first.loss, first.data)
    assert (before.null.value, before.lipschitz) == (null.value, lipschitz)
    # The bound allows for rounding in this set, not in the one before.
    plane = AveragePlane.tangent(null.evaluation)
    assert second.minimise(plane).bound == Problem(P.loss, P.data, L2Ball(3.0)).minimise(plane).bound


def test_predictions_of_zero_are_formed_once():
    """A run starts there; and what it returns is predicted afresh."""
    counting = Counting(data()[0])
    p = Problem(P.loss, counting, P.constraint)
    frank_wolfe(p, max_iter=5)
    assert counting.applied == 2
    frank_wolfe(p.within(L1Ball(2.0)), max_iter=5)
    assert counting.applied == 3


def test_minimum_of_an_average_needs_no_product():
    """Its direction is the average of directions; the bound is that of the average's residual."""
    points = [P.at(x) for x in np.random.default_rng(0).normal(size=(2, 4))]
    past, newest = (P.minimise(AveragePlane.tangent(point.evaluation)) for point in points)
    for weight in (0.0, 0.3, 1.0):
        average = P.minimise_average(past, newest, weight)
        plane = past.plane.blend(newest.plane, weight)
        direct = P.minimise(plane)
        np.testing.assert_allclose(average.direction, direct.direction, atol=1e-15)
        assert average.bound == pytest.approx(direct.bound, rel=1e-13)
        assert average.minimum.atom.indices == direct.minimum.atom.indices
        assert average.plane.offset == plane.offset


def test_multiplier_is_how_fast_the_optimum_falls():
    """Against the difference of two optima."""
    for ball in (L1Ball, L2Ball):
        below, here, above = (
            frank_wolfe(
                p := P.within(ball(radius)), corrector=best_corrector(p), tolerance=1e-11, max_iter=200
            )
            for radius in (0.399, 0.4, 0.401)
        )
        assert here.multiplier == pytest.approx((below.objective - above.objective) / 2e-3, rel=1e-3)


def test_segment_and_line():
    point = P.at(np.array([0.1, 0.2, 0.0, 0.0]))
    atom = P.constraint.lmo(np.arange(4.0)).atom
    segment = P.segment(point, atom, 0.25)
    end = P.data.apply(P.null.x + atom)
    np.testing.assert_allclose(segment.change, end - point.predictions)
    np.testing.assert_allclose(segment.predictions + segment.change, end, atol=1e-15)
    assert (segment.x, segment.atom, segment.parameter_free_step) == (point.x, atom, 0.25)
    assert segment.at(1.0).value == pytest.approx(P.loss.evaluate(end).value)
    assert P.line(point.predictions, point.evaluation, segment.change).slope == segment.slope


def sampled(n_samples=9000, n_classes=2):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_samples, 10))
    labels = (X @ rng.normal(size=(10, n_classes)) + rng.gumbel(size=(n_samples, n_classes))).argmax(axis=1)
    weights = rng.uniform(0.5, 2.0, n_samples)
    return X, labels, weights / weights.sum()


def test_the_problem_of_a_sample():
    X, labels, weights = sampled()
    loss, design = LogisticLoss(2.0 * labels - 1.0, weights, True), design_matrix(X)
    p = Problem(loss, design, L2Ball(3.0))
    rows, some = design.sample
    sample = p.sample
    assert len(rows) == 9000 // 8
    assert (sample.data, sample.constraint) == (some, p.constraint)
    np.testing.assert_array_equal(sample.loss.targets, loss.targets[rows])
    assert sample.loss.weights.sum() == pytest.approx(1.0)
    # A second sample of it would be too small.
    assert sample.sample is None
    assert P.sample is None


def test_a_sample_without_all_labels_makes_no_problem():
    X, _, weights = sampled()
    rows, _ = design_matrix(X).sample
    labels = np.full(9000, 0)
    labels[np.setdiff1d(np.arange(9000), rows)[:5]] = 1
    for loss in (LogisticLoss(2.0 * labels - 1.0, weights), MultinomialLoss(labels, 2, weights)):
        outputs = None if isinstance(loss, LogisticLoss) else 2
        p = Problem(loss, design_matrix(X, outputs), L2Ball(3.0))
        assert p.sample is None
        assert sample_start(p) is None


class Slow(L2Ball):
    """An oracle that is never sure, but a little surer each time: gaps fall in every iteration, by little."""

    geometry = ""
    calls = 0

    def lmo(self, direction, hint=None):
        self.calls += 1
        return replace(super().lmo(direction), slack=0.5 - 1e-4 * self.calls)


class Counted(StepRule):
    """Counts the steps that are tried in each of the samples, by their sizes."""

    def __init__(self):
        self.tried = Counter()

    def step(self, segment):
        self.tried[len(segment.loss.weights)] += 1
        return LineSearch().step(segment)


@pytest.mark.parametrize("max_iter, steps", [(1, 1), (7, 7), (1000, 50)])
def test_a_start_takes_few_steps_in_each_sample(max_iter, steps):
    """The smallest sample is fitted from zero, the next one from there; all the data is only looked at."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40_000, 10))
    y = X @ rng.normal(size=10) + 1.4 * rng.normal(size=40_000)
    p = Problem(SquaredLoss(y, np.full(40_000, 1 / 40_000)), design_matrix(X), Slow(5.0))
    rule = Counted()
    start = sample_start(p, step_rule=rule, max_iter=max_iter)
    assert rule.tried == {5000: steps, 625: steps}
    assert start.value == p.at(start.x).value < p.null.value


def test_a_start_that_is_no_better_than_zero_is_of_no_use():
    """The sample says what all the data contradicts."""
    X, _, weights = sampled()
    rows, _ = design_matrix(X).sample
    signs = -np.sign(X[:, 0])
    signs[rows] = np.sign(X[rows, 0])
    p = Problem(LogisticLoss(signs, weights), design_matrix(X), L2Ball(3.0))
    assert p.sample is not None
    assert sample_start(p) is None


@pytest.mark.parametrize("constraint", [L1Ball(10.0), L2Ball(5.0)], ids=str)
def test_sample_start(constraint):
    X, labels, weights = sampled()
    p = Problem(LogisticLoss(2.0 * labels - 1.0, weights, True), design_matrix(X), constraint)
    start = sample_start(p)
    assert constraint.norm(start.x) <= constraint.radius * (1 + 1e-12)
    cold, warm = (
        frank_wolfe(p, corrector=best_corrector(p), tolerance=1e-6, start=point) for point in (None, start)
    )
    assert warm.trace["gap"][0] < 0.2 * cold.trace["gap"][0]
    assert warm.n_iter < cold.n_iter
    few = design_matrix(X[:1000])
    assert sample_start(Problem(p.loss.subset(np.arange(1000)), few, constraint)) is None


def test_observed_entries_need_atoms_of_rank_one():
    entries = ObservedEntries(np.array([0, 1]), np.array([1, 0]), (2, 2))
    loss = SquaredLoss(np.ones(2), np.full(2, 0.5))
    with pytest.raises(ValueError, match=r"rank-one atoms, such as NuclearBall; got constraint=L1Ball"):
        Problem(loss, entries, L1Ball(1.0))


@pytest.mark.parametrize(
    "loss, radius",
    [(LogisticLoss, 1e305), (SquaredLoss, 1e305), (SquaredLoss, 1e160)],
    ids=["logistic", "squared", "squares"],
)
@pytest.mark.parametrize("ball", [L1Ball, L2Ball, LInfBall])
def test_data_times_radius_is_too_large(loss, radius, ball):
    """It is said so before anything overflows."""
    large = Problem(
        loss(np.array([1.0, -1.0]), np.full(2, 0.5)), design_matrix(10.0 * np.eye(2)), ball(radius)
    )
    with pytest.raises(ValueError, match="too large for floating-point numbers"):
        frank_wolfe(large, max_iter=3)


def test_data_near_the_largest_number():
    design = design_matrix(np.array([[1.7e308, 1.7e308], [1.0, -1.7e308]]))
    large = Problem(LogisticLoss(np.array([1.0, -1.0]), np.full(2, 0.5)), design, LInfBall(1.0))
    with pytest.raises(ValueError, match="too large for floating-point numbers"):
        frank_wolfe(large, max_iter=3)


def test_the_largest_values_are_found_once():
    """They take a pass over the data, and the bound needs them several times."""
    calls = []

    class Counted(DenseDesign):
        def _find_largest_values(self):
            calls.append(1)
            return super()._find_largest_values()

    design = Counted(np.random.default_rng(0).normal(size=(20, 4)))
    problem = Problem(SquaredLoss(np.ones(20), np.full(20, 1 / 20)), design, L1Ball(1.0))
    frank_wolfe(problem, max_iter=5)
    frank_wolfe(problem.within(L2Ball(1.0)), max_iter=5)
    assert len(calls) == 1
