"""The certificate: whatever is combined, the lower bound is below the optimum and the rates hold."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from problems import COUNT_PROBLEMS, KNOWN_PROBLEMS, MOMENTA, STEPS, problem

from skfw.engine import (
    AveragePlane,
    Constant,
    Constraint,
    Cut,
    DenseVector,
    ErrorEffect,
    GapRestart,
    L1Ball,
    LinearMinimum,
    LInfBall,
    LogisticLoss,
    MultinomialLoss,
    NoMomentum,
    Problem,
    Smooth,
    SparseVector,
    SquaredLoss,
    Weighted,
    best_corrector,
    design_matrix,
    frank_wolfe,
)

N_ITER = 40
# The optima come from another solver and are known to about this.
KNOWN_TO = 1e-9

every_problem = pytest.mark.parametrize("make", KNOWN_PROBLEMS.values(), ids=KNOWN_PROBLEMS)
every_step = pytest.mark.parametrize("step", [*STEPS, "smooth"])
# Plain Frank-Wolfe has no past to forget, and an adaptive weight forgets it by itself.
FORGETTING = ("weighted", "uniform", "constant")
every_momentum = pytest.mark.parametrize(
    "momentum, extra",
    [
        (momentum, extra)
        for momentum in MOMENTA
        for extra in ("none", "restart", "corrector")
        if extra != "restart" or momentum in FORGETTING
    ],
)


def run(p, momentum, step, extra="none", **options):
    chooser = MOMENTA[momentum]
    return frank_wolfe(
        p.problem,
        momentum=GapRestart(chooser, p.scale) if extra == "restart" else chooser,
        step_rule=Smooth(p.lipschitz) if step == "smooth" else STEPS[step],
        corrector=best_corrector(p.problem) if extra == "corrector" else None,
        max_iter=N_ITER,
        **options,
    )


@every_problem
@every_momentum
@every_step
def test_bound_is_below_the_optimum_and_rates_hold(make, momentum, step, extra):
    p = make()
    feasible = []
    result = run(
        p, momentum, step, extra, callback=lambda state: feasible.append(is_feasible(p, state.x)) and None
    )
    objective, bound, gap = (result.trace[name] for name in ("objective", "lower_bound", "gap"))
    assert bound.max() <= p.optimum + KNOWN_TO
    assert objective.min() >= p.optimum - KNOWN_TO
    assert all(feasible)

    # The certified gap: of the best iterate, never growing, never negative, and what is returned. Rounding
    # comes in at the end alone, where the best iterate is predicted afresh.
    best = np.minimum.accumulate(objective)
    np.testing.assert_array_equal(gap[:-1], (best - bound)[:-1])
    assert gap[-1] == pytest.approx(best[-1] - bound[-1], abs=1e-12 * best[-1])
    assert np.diff(gap).max(initial=0.0) <= 1e-12 * best[-1]
    assert result.gap == gap[-1] == result.objective - result.lower_bound
    assert gap.min() >= 0.0
    assert result.lower_bound == bound[-1]
    assert result.objective == pytest.approx(best[-1], rel=1e-12)
    # Biases of rows and columns are not found to more digits from another start.
    assert p.problem.at(result.x).value == pytest.approx(result.objective, rel=1e-10)

    k = np.arange(1, len(objective))
    guaranteed = (objective - bound)[1:]
    if momentum in ("weighted", "adaptive"):
        assert np.all(guaranteed <= 2.0 * p.scale / (k + 1))
    if momentum == "uniform" and extra != "restart":
        assert np.all(guaranteed <= p.scale * np.cumsum(1.0 / k) / (2.0 * k))
    if step != "parameter_free":
        assert np.diff(objective).max(initial=0.0) <= 1e-15
    if momentum == "weighted" and step == "parameter_free" and extra == "restart":
        # After a restart the step is 2/(k + 2 + C), and the bound is 2 L D^2 / (k + C).
        steps = result.trace["step"][:-1]
        assert np.all(2.0 / steps - 2.0 >= np.arange(len(steps)) - 1e-9)  # C is at least 1 + the past
        later = steps < 1.0
        assert np.all(
            (objective - bound)[:-1][later] <= 2.0 * p.scale / (2.0 / steps[later] - 2.0) * (1 + 1e-12)
        )


@pytest.mark.parametrize("names", COUNT_PROBLEMS, ids=lambda names: "-".join(map(str, names)))
@pytest.mark.parametrize("momentum", MOMENTA)
@pytest.mark.parametrize("step", ["parameter_free", "line_search"])
@pytest.mark.parametrize("extra", ["none", "corrector"])
def test_bounds_without_a_lipschitz_constant(names, momentum, step, extra):
    """There are no rates, but bounds and descent need convexity only."""
    p = problem(*names)
    result = run(p, momentum, step, extra)
    assert result.trace["lower_bound"].max() <= p.optimum + KNOWN_TO
    assert result.trace["objective"].min() >= p.optimum - KNOWN_TO
    assert is_feasible(p, result.x)
    if step == "line_search":
        assert np.diff(result.trace["objective"]).max(initial=0.0) <= 1e-15
    if extra == "corrector" and momentum == "adaptive":
        assert result.gap <= 1e-6 * p.problem.null.value


def is_feasible(p, x):
    constraint = p.problem.constraint
    if constraint.geometry == "polytope":
        system, columns = constraint.system(len(x)), x.reshape(len(x), -1).T
        return max(system.worst_miss(column) for column in columns) <= 1e-9
    if constraint.geometry == "box":
        return np.abs(x - constraint.scale_into(x)).max() <= 1e-14
    if constraint.geometry == "simplex":
        return x.min() >= 0.0 and abs(x.sum() - constraint.radius) <= 1e-12
    return constraint.norm(x) <= constraint.radius * (1 + 1e-12)


@every_problem
def test_gap_closes(make):
    """Bound and objective meet: neither is a loose one."""
    p = make()
    result = frank_wolfe(p.problem, max_iter=3000, tolerance=1e-3)
    assert result.status == "converged"
    assert result.objective - p.optimum <= result.gap <= 1e-3
    assert result.n_iter == len(result.trace["gap"]) - 1
    assert np.all(result.trace["gap"][:-1] > 1e-3)  # it stopped as soon as it could


def test_restart_forgets_the_past_and_sets_the_clock_forward():
    p = problem("logistic", "l2", False)
    assert run(p, "weighted", "parameter_free").n_restarts == 0
    result = run(p, "weighted", "parameter_free", "restart")
    assert result.n_restarts > 0
    fresh = result.trace["weight"] == 1.0  # the average is the newest plane alone
    assert fresh.sum() == 1 + result.n_restarts
    # From there on the steps are those of a run that is older than it is.
    first = np.flatnonzero(fresh)[1]
    assert result.trace["step"][first] <= 2.0 / (first + 3.0)


@pytest.mark.parametrize("constraint", ["l2", "linf", "group", "nuclear"])
def test_after_a_restart_the_gap_is_within_the_better_guarantee(constraint):
    """Steps of the momentum alone, whatever the bound before the restart was: 2 L D^2 / (k + C)."""
    p = problem("multinomial", constraint, False)
    result = run(p, "weighted", "parameter_free", "restart")
    steps, gap = result.trace["step"][:-1], (result.trace["objective"] - result.trace["lower_bound"])[:-1]
    restarts = np.flatnonzero(result.trace["weight"] == 1.0)[1:]
    assert result.n_restarts == len(restarts) > 0
    for restart in restarts[restarts < len(steps)]:
        head_start = 2.0 / steps[restart] - 2.0
        assert head_start >= restart + 1.0 - 1e-9
        later = np.arange(restart, len(steps))
        assert np.all(gap[later] <= 2.0 * p.scale / (later - restart + head_start) * (1.0 + 1e-12))


def test_average_plane():
    p = problem("logistic", "l2", False)
    rng = np.random.default_rng(0)
    points = [AveragePlane.tangent(p.problem.loss.evaluate(rng.normal(size=24))) for _ in range(3)]
    plane = points[0].blend(points[1], 0.5).blend(points[2], 0.2)
    weights = np.array([0.4, 0.4, 0.2])
    np.testing.assert_allclose(plane.residual, weights @ [point.residual for point in points])
    assert plane.offset == pytest.approx(weights @ [point.offset for point in points])
    assert plane.size == pytest.approx(weights @ [point.size for point in points])
    assert plane.size >= np.abs(plane.residual).sum()
    assert plane.offset_size == pytest.approx(weights @ [point.offset_size for point in points])
    assert points[0].blend(points[1], 1.0) is points[1]


@pytest.mark.parametrize("weight", [2.0, 1.01, -0.1, np.nan])
def test_what_is_no_average_proves_nothing(weight):
    """With a weight of 2 the plane lay above the loss, and the bound above the optimum."""
    p = problem("squared", "l2", False).problem
    plane = AveragePlane.tangent(p.null.evaluation)
    with pytest.raises(ValueError, match=f"must be from 0 to 1; got weight={weight}"):
        plane.blend(plane, weight)
    with pytest.raises(ValueError, match=f"must be from 0 to 1; got weight={weight}"):
        frank_wolfe(p, momentum=Constant(weight))


EPSILON, TINY = np.finfo(np.float64).eps, np.finfo(np.float64).tiny
NOWHERE = DenseVector(np.zeros(1))


def test_a_tangent_plane_knows_how_large_the_parts_of_its_offset_are():
    p = problem("squared", "l2", False)
    evaluation = p.problem.null.evaluation
    assert evaluation.offset_size > abs(evaluation.offset)
    assert AveragePlane.tangent(evaluation).offset_size == evaluation.offset_size
    entropy = problem("logistic", "l2", False).problem.null.evaluation
    assert entropy.offset_size == entropy.offset > 0.0  # a sum of positive numbers


def test_each_average_rounds_residual_and_offset_once_more():
    """Half a unit in the last place for the weight, each of two products and a sum; old errors fade."""
    plane = AveragePlane(np.ones(1), 5.0, 1.0, 8.0)
    assert (plane.residual_error, plane.offset_error) == (TINY, 0.0)
    small = AveragePlane(np.ones(1), 0.0, 1e-3, 1e-2)
    once = plane.blend(plane, 0.25)
    assert once.residual_error == pytest.approx(2.0 * EPSILON, rel=1e-12)
    assert once.offset_error == pytest.approx(16.0 * EPSILON, rel=1e-12)
    for past, newest, share in ((once, small, 0.75), (small, once, 0.25)):
        twice = past.blend(newest, 0.25)
        # An error stays as large as it was, however much smaller than its plane the average is.
        assert twice.residual_error == pytest.approx((2.0 * share + 2.0 * twice.size) * EPSILON, rel=1e-12)
        rounded = 16.0 * share + 2.0 * twice.offset_size
        assert twice.offset_error == pytest.approx(rounded * EPSILON, rel=1e-12)
    assert once.blend(plane, 1.0) is plane


def test_errors_of_averages_are_bounds():
    """In exact arithmetic, over many averages of planes that become smaller."""
    rng = np.random.default_rng(0)
    for decay in (1.0, 0.99, 0.9):
        planes = [rng.normal(size=2) * decay**k for k in range(300)]
        average = AveragePlane(np.array([planes[0][0]]), planes[0][1], *np.abs(planes[0]))
        exact = [Fraction(float(number)) for number in planes[0]]
        for k, (residual, offset) in enumerate(planes[1:], 1):
            newest = AveragePlane(np.array([residual]), offset, abs(residual), abs(offset))
            weight = 2.0 / (k + 2.0)
            average = average.blend(newest, weight)
            share = Fraction(weight)
            following = [Fraction(float(number)) for number in planes[k]]
            exact = [(1 - share) * a + share * b for a, b in zip(exact, following, strict=True)]
            assert abs(Fraction(float(average.residual[0])) - exact[0]) <= Fraction(average.residual_error)
            assert abs(Fraction(float(average.offset)) - exact[1]) <= Fraction(average.offset_error)


@pytest.mark.parametrize(
    "plane, minimum, effect, allowance",
    [
        # What the oracle was off, without any rounding that is larger than the smallest numbers.
        (AveragePlane(np.ones(1), 0.0, 0.0, 0.0), (0.0, 0.125), (0.0, 0.0, 0.0), 0.125),
        # The rounding of a product with the data, for a residual of this size.
        (AveragePlane(np.ones(1), 0.0, 3.0, 0.0), (0.0, 0.0), (0.25, 0.0, 0.0), 0.75),
        # Products with the data that underflow, whatever the size.
        (AveragePlane(np.ones(1), 0.0, 0.0, 0.0), (0.0, 0.0), (0.0, 0.25, 0.0), 0.25),
        # The rounding of averages, of the residual and of the offset.
        (AveragePlane(np.ones(1), 0.0, 0.0, 0.0, 1e-3), (0.0, 0.0), (0.0, 0.0, 2.0), 2e-3),
        (AveragePlane(np.ones(1), 0.0, 0.0, 0.0, 0.0, 1e-3), (0.0, 0.0), (0.0, 0.0, 2.0), 1e-3),
        # The rounding of the offset, whose parts may have cancelled, and of the minimum, of either sign.
        (AveragePlane(np.ones(1), 0.0, 0.0, 1e6), (0.0, 0.0), (0.0, 0.0, 0.0), 64e6 * EPSILON),
        (AveragePlane(np.ones(1), 1e6, 0.0, 0.0), (-1e6, 0.0), (0.0, 0.0, 0.0), 64e6 * EPSILON),
        (AveragePlane(np.ones(1), -1e6, 0.0, 0.0), (1e6, 0.0), (0.0, 0.0, 0.0), 64e6 * EPSILON),
        # Numbers so small that they have lost digits, in the sums and in the residual.
        (AveragePlane(np.ones(1), 0.0, 0.0, 0.0), (0.0, 0.0), (0.0, 0.0, 0.0), TINY),
        (AveragePlane(np.ones(1), 0.0, 0.0, 0.0), (0.0, 0.0), (0.0, 0.0, 1e300), 1e300 * TINY),
    ],
    ids="slack product underflow average averages offset fall rise tiny residual".split(),  # noqa: SIM905
)
def test_what_a_bound_allows_for(plane, minimum, effect, allowance):
    """Each alone: the bound is `offset` plus the minimum's value, less this."""
    found = plane.lower_bound(LinearMinimum(NOWHERE, *minimum), ErrorEffect(*effect))
    assert -found == pytest.approx(allowance, rel=1e-9, abs=0.0)


class Differences(Constraint):
    """The hull of all e_i - e_j: it has a point in common with zero, but does not say so, and is flat."""

    def lmo(self, direction, hint=None):
        places = np.array([int(direction.argmin()), int(direction.argmax())])
        value = float(direction[places[0]] - direction[places[1]])
        if places[0] == places[1]:
            places = np.array([0, 1])
        return LinearMinimum(SparseVector(places, np.array([1.0, -1.0])), value)

    def diameter(self, shape):
        return float(np.sqrt(8.0))


@pytest.mark.parametrize("contains_zero", [False, True])
def test_effect_of_errors_in_a_set_of_ones_own(contains_zero):
    """The oracle finds nothing for errors that are all alike; their effect is not nothing for all that."""
    constraint = Differences()
    constraint.contains_zero = contains_zero
    zero, rng = np.zeros(5), np.random.default_rng(0)
    assert constraint.lmo(np.ones(5)).value == 0.0
    for errors in (np.ones(5), rng.uniform(size=5), np.eye(5)[0]):
        largest = np.sort(errors)[-2:].sum()  # of e_i - e_j, entry by entry
        assert constraint.error_effect(errors, zero) >= largest
    assert constraint.error_effect(zero, zero) == 0.0


def test_effect_of_errors_far_from_zero():
    """A small set with a large norm: its diameter alone would say that errors have no effect."""

    class Far(Constraint):
        def lmo(self, direction, hint=None):
            return LinearMinimum(DenseVector(np.array([1e6, 0.0])), 1e6 * float(direction[0]))

        def diameter(self, shape):
            return 0.0

    assert Far().error_effect(np.array([1.0, 0.0]), np.zeros(2)) >= 1e6


@pytest.mark.parametrize("mean", [0.0, 1e6, 1.7e9, 1e12])
@pytest.mark.parametrize("momentum", ["none", "weighted", "adaptive"])
def test_bound_survives_cancellation(mean, momentum):
    """Features with a large mean, such as times: most digits of the gradient are rounding."""
    for seed in range(25):
        X, y, weights = cancelling(seed, mean, 1)
        loss, constraint = LogisticLoss(y, weights, True), L1Ball(0.01)
        flat = Problem(loss, design_matrix(X), constraint)
        result = frank_wolfe(flat, momentum=MOMENTA[momentum], max_iter=20)
        exact = min(exact_loss(X, y, weights, np.array([x])) for x in (-0.01, 0.01, result.x[0]))
        assert result.lower_bound <= exact


@pytest.mark.parametrize("mean", [0.0, 1.7e9, 1e12])
@pytest.mark.parametrize("momentum", ["none", "weighted"])
def test_bound_survives_cancellation_in_a_set_of_ones_own(mean, momentum):
    """All features have the same large mean, which no difference of two of them shows."""
    for seed in range(25):
        X, y, weights = cancelling(seed, mean, 3)
        flat = Problem(LogisticLoss(y, weights, True), design_matrix(X), Differences())
        result = frank_wolfe(flat, momentum=MOMENTA[momentum], max_iter=20)
        atoms = (np.eye(3)[i] - np.eye(3)[j] for i in range(3) for j in range(3) if i != j)
        exact = min(exact_loss(X, y, weights, x) for x in (result.x, *atoms))
        assert result.lower_bound <= exact


def cancelling(seed, mean, n_features):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, n_features)) + mean
    return X, np.where(rng.uniform(size=60) < 0.5, 1.0, -1.0), np.full(60, 1 / 60)


def exact_loss(X, y, weights, x):
    """The logistic loss at its best intercept, in extended precision on centred features."""
    z = (X - X.mean(axis=0)).astype(np.longdouble) @ x.astype(np.longdouble)
    intercept = np.longdouble(0)
    for _ in range(50):
        p = 1 / (1 + np.exp(-(z + intercept)))
        intercept -= (weights * (p - (y > 0))).sum() / (weights * p * (1 - p)).sum()
    return (weights * np.log1p(np.exp(-y * (z + intercept)))).sum()


def test_bound_survives_underflow():
    """Products of data and residuals have lost their digits, and the set is so large that it matters."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y = 1e-300 * rng.normal(size=(8, 3)), 1e-20 * rng.normal(size=8)
        p = Problem(SquaredLoss(y, np.full(8, 1 / 8)), design_matrix(X), L1Ball(3e279))
        result = frank_wolfe(p, momentum=MOMENTA["adaptive"], corrector=best_corrector(p), max_iter=30)
        errors = X.astype(np.longdouble) @ result.x.astype(np.longdouble) - y
        assert result.lower_bound <= (errors**2).mean() / 2
        assert result.gap >= 0.0


def test_bound_of_many_samples_in_rare_classes():
    """The residuals of a class cancel in their sum, which pairwise summation finds and sequences do not."""
    n, n_classes = 20_000, 3
    weights = np.full(n, 1 / n)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rare = 1e-2 * rng.uniform(size=2)
        labels = rng.choice(n_classes, n, p=[1 - rare.sum(), *rare])
        labels[:n_classes] = np.arange(n_classes)
        found = MultinomialLoss(labels, n_classes, weights, True).evaluate(np.zeros((n, n_classes)))
        counts = np.bincount(labels).astype(np.longdouble)
        exact = -(counts / n * np.log(counts / n)).sum()
        assert found.offset <= exact + 64 * EPSILON * found.offset_size
        sums = found.residual.astype(np.longdouble).sum(axis=0)
        assert np.abs(sums).max() <= 16 * EPSILON * np.abs(found.residual).sum()


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("constraint", [LInfBall(1.0), LInfBall(1e-3), L1Ball(50.0)], ids=str)
def test_a_gap_is_not_negative_where_predictions_are_long_sums(loss, constraint):
    """Two samples with many features that are all alike: rounding has the objective below the optimum."""
    n_features = 20_000
    X = np.repeat([[0.7], [0.7 * (1 - 1e-6)]], n_features, axis=1)
    weights = np.array([0.25, 0.75])
    for momentum in (NoMomentum(), Weighted(), GapRestart(Weighted(), 1e3)):
        targets = np.array([1.0, -1.0]) * (1.0 if loss == "logistic" else 1e-5)
        problem = Problem(
            {"logistic": LogisticLoss, "squared": SquaredLoss}[loss](targets, weights, True),
            design_matrix(X),
            constraint,
        )
        result = frank_wolfe(problem, momentum=momentum, max_iter=30)
        assert result.gap >= 0.0
        assert result.trace["gap"].min() >= 0.0
        assert result.lower_bound == result.objective - result.gap


def test_a_restart_where_rounding_has_the_objective_below_the_bound():
    """There is no gap to count iterations by, and none to close."""
    cut = Cut(AveragePlane(np.ones(1), 0.0, 0.0, 0.0), np.zeros(1), LinearMinimum(NOWHERE, 1.0), 1.0)
    higher = replace(cut, bound=1.0 + EPSILON)

    class Planes:
        past, newest, objective = cut, higher, 1.0

        def average(self, weight):
            return higher

    choice = GapRestart(Weighted(), 5.0).choose(Planes(), 3.0)
    assert (choice.restarted, choice.clock, choice.weight) == (False, 3.0, 0.4)
