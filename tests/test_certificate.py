"""The certificate: whatever is combined, the lower bound is below the optimum and the rates hold."""

import numpy as np
import pytest
from problems import MOMENTA, PROBLEMS, STEPS, problem

from skfw.engine import (
    AveragePlane,
    DenseVector,
    DesignMatrix,
    GapRestart,
    L1Ball,
    LinearMinimum,
    LogisticLoss,
    NoMomentum,
    Smooth,
    best_corrector,
    frank_wolfe,
)

N_ITER = 40
# The optima come from another solver and are known to about this.
KNOWN_TO = 1e-9

every_problem = pytest.mark.parametrize("names", PROBLEMS, ids=lambda names: "-".join(map(str, names)))
every_step = pytest.mark.parametrize("step", [*STEPS, "smooth"])
every_extra = pytest.mark.parametrize("extra", ["none", "restart", "corrector"])


def run(p, momentum, step, extra="none", **options):
    return frank_wolfe(
        p.loss,
        p.linear_map,
        p.constraint,
        momentum=MOMENTA[momentum],
        step_rule=Smooth(p.lipschitz) if step == "smooth" else STEPS[step],
        restart=GapRestart(p.scale) if extra == "restart" else None,
        corrector=best_corrector(p.loss, p.linear_map, p.constraint) if extra == "corrector" else None,
        max_iter=N_ITER,
        **options,
    )


@every_problem
@pytest.mark.parametrize("momentum", MOMENTA)
@every_step
@every_extra
def test_bound_is_below_the_optimum_and_rates_hold(names, momentum, step, extra):
    p = problem(*names)
    feasible = []
    result = run(
        p, momentum, step, extra, callback=lambda state: feasible.append(is_feasible(p, state.x)) and None
    )
    objective, bound = result.trace["objective"], result.trace["lower_bound"]
    assert bound.max() <= p.optimum + KNOWN_TO
    assert objective.min() >= p.optimum - KNOWN_TO
    assert all(feasible)

    # The certified gap: of the best iterate, never growing, never negative, and what is returned.
    np.testing.assert_array_equal(result.trace["gap"], np.minimum.accumulate(objective) - bound)
    assert np.diff(result.trace["gap"]).max(initial=0.0) <= 0.0
    assert result.gap == result.trace["gap"][-1] >= 0.0
    assert result.objective == objective.min()
    assert p.loss.evaluate(p.linear_map.apply(result.x)).value == pytest.approx(result.objective, rel=1e-12)

    k = np.arange(1, len(objective))
    gap = (objective - bound)[1:]
    if momentum in ("weighted", "adaptive"):
        assert np.all(gap <= 2.0 * p.scale / (k + 1))
    if momentum == "uniform" and extra != "restart":
        assert np.all(gap <= p.scale * np.cumsum(1.0 / k) / (2.0 * k))
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


def is_feasible(p, x):
    if not p.constraint.contains_zero:  # the simplex
        return x.min() >= 0.0 and abs(x.sum() - p.constraint.radius) <= 1e-12
    return p.constraint.norm(x) <= p.constraint.radius * (1 + 1e-12)


@every_problem
def test_gap_closes(names):
    """Bound and objective meet: neither is a loose one."""
    p = problem(*names)
    result = frank_wolfe(p.loss, p.linear_map, p.constraint, max_iter=3000, tolerance=1e-3)
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


def test_average_plane():
    p = problem("logistic", "l2", False)
    rng = np.random.default_rng(0)
    points = [AveragePlane.tangent(p.loss.evaluate(rng.normal(size=24))) for _ in range(3)]
    plane = points[0].blend(points[1], 0.5).blend(points[2], 0.2)
    weights = np.array([0.4, 0.4, 0.2])
    np.testing.assert_allclose(plane.residual, weights @ [point.residual for point in points])
    assert plane.offset == pytest.approx(weights @ [point.offset for point in points])
    minimum = LinearMinimum(DenseVector(np.zeros(1)), value=-0.5, slack=0.25)
    assert plane.lower_bound(minimum) == pytest.approx(plane.offset - 0.75)
    assert plane.lower_bound(minimum) < plane.offset - 0.75  # rounded down
    assert plane.size >= np.abs(plane.residual).sum()
    expected = plane.lower_bound(minimum) - 1e-3 * plane.size
    assert plane.lower_bound(minimum, rounding=1e-3) == pytest.approx(expected)


@pytest.mark.parametrize("mean", [0.0, 1e6, 1.7e9, 1e12])
def test_bound_survives_cancellation(mean):
    """Features with a large mean, such as times: most digits of the gradient are rounding."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 1)) + mean
        y = np.where(rng.uniform(size=60) < 0.5, 1.0, -1.0)
        loss, weights = LogisticLoss(y, np.full(60, 1 / 60), True), np.full(60, 1 / 60)
        result = frank_wolfe(loss, DesignMatrix(X), L1Ball(0.01), momentum=NoMomentum(), max_iter=20)
        exact = min(exact_loss(X[:, 0], y, weights, x) for x in (-0.01, 0.01, result.x[0]))
        assert result.lower_bound <= exact


def exact_loss(X, y, weights, x):
    """The logistic loss at its best intercept, in extended precision on centred features."""
    z = (X - X.mean()).astype(np.longdouble) * np.longdouble(x)
    intercept = np.longdouble(0)
    for _ in range(50):
        p = 1 / (1 + np.exp(-(z + intercept)))
        intercept -= (weights * (p - (y > 0))).sum() / (weights * p * (1 - p)).sum()
    return (weights * np.log1p(np.exp(-y * (z + intercept)))).sum()


def test_plain_frank_wolfe_has_nothing_to_restart():
    assert run(problem("logistic", "l2", True), "none", "line_search", "restart").n_restarts == 0


@pytest.mark.parametrize("constraint", ["l1", "l2", "linf", "n_support", "group", "simplex", "nuclear"])
def test_adaptive_weight_maximises_the_bound(constraint):
    """Against a fine grid of weights, at each iteration that did not have to fall back."""
    p = problem("multinomial", constraint, True)
    momentum = MOMENTA["adaptive"]
    states = []
    trace = run(
        p, "adaptive", "line_search", False, callback=lambda state: states.append(state) and None
    ).trace
    planes = [AveragePlane.tangent(p.loss.evaluate(state.predictions)) for state in states]

    def bound(plane):
        return plane.lower_bound(p.constraint.lmo(p.linear_map.adjoint(plane.residual)))

    past, searched = planes[0], 0
    for k in range(1, len(planes)):
        weight = trace["weight"][k]
        here = bound(past.blend(planes[k], weight))
        if weight != momentum.weight(k):
            best = max(bound(past.blend(planes[k], other)) for other in np.linspace(0.0, 1.0, 101))
            assert here >= best - 0.02 * (trace["objective"][k] - best) - 1e-12
            searched += 1
        past = past.blend(planes[k], weight)
    assert searched > N_ITER / 2


def test_adaptive_needs_one_adjoint_an_iteration():
    p = problem("logistic", "l1", True)

    class Counting(DesignMatrix):
        adjoints = 0

        def adjoint(self, residual):
            self.adjoints += 1
            return super().adjoint(residual)

    design = Counting(p.linear_map.rows)
    frank_wolfe(p.loss, design, p.constraint, momentum=MOMENTA["adaptive"], max_iter=20)
    assert design.adjoints == 21
