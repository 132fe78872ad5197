import numpy as np
import pytest
from problems import LOSSES, problem
from scipy.optimize import minimize_scalar

from skfw.engine import (
    Constant,
    DenseVector,
    Directional,
    Line,
    LineSearch,
    LogisticLoss,
    NoMomentum,
    ParameterFree,
    Smooth,
    Uniform,
    Weighted,
)


def make_line(loss_name, intercept, seed, towards=1.0):
    p = problem(loss_name, "l2", intercept)
    rng = np.random.default_rng(seed)
    x, atom = rng.normal(size=p.shape), towards * rng.normal(size=p.shape)
    z = p.linear_map.apply(x)
    return p, Line(
        p.loss,
        x,
        DenseVector(atom),
        z,
        p.linear_map.apply(atom) - z,
        p.loss.evaluate(z),
        parameter_free_step=0.25,
    )


def value_along(line, step):
    return line.loss.evaluate(line.predictions + step * line.change).value


@pytest.mark.parametrize("loss_name", LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("towards", [0.1, 1.0, 30.0])
def test_line_search_is_exact(loss_name, intercept, towards):
    for seed in range(8):
        _, line = make_line(loss_name, intercept, seed, towards)
        step = LineSearch().step(line)
        reference = minimize_scalar(
            lambda t, line=line: value_along(line, t),
            bounds=(0, 1),
            method="bounded",
            options={"xatol": 1e-10},
        )
        assert 0.0 <= step <= 1.0
        assert (
            value_along(line, step) <= min(reference.fun, value_along(line, 0), value_along(line, 1)) + 1e-14
        )


@pytest.mark.parametrize("far", [1e4, 1e6])
def test_line_search_comes_back_from_a_far_end_without_curvature(far):
    loss = LogisticLoss(np.array([1.0, -1.0]), np.array([0.5, 0.5]))
    here, there = np.array([-1.0, -1.0]) * far, np.array([2.0, 1.0]) * far
    line = Line(loss, here, DenseVector(there), here, there - here, loss.evaluate(here), 0.5)
    assert value_along(line, LineSearch().step(line)) <= 1e-6  # at the start and the end it is `far` / 2


@pytest.mark.parametrize("loss_name", LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
def test_smooth_and_directional_minimise_their_bounds(loss_name, intercept):
    for seed in range(8):
        p, line = make_line(loss_name, intercept, seed)
        slope = np.vdot(line.evaluation.residual, line.change)
        distance = np.sum((line.x - line.atom.array) ** 2)
        bounds = {
            Smooth(p.lipschitz): p.lipschitz * distance,
            Directional(): p.loss.curvature_bound(line.change),
        }
        for rule, curvature in bounds.items():
            step = rule.step(line)
            assert step == pytest.approx(np.clip(-slope / curvature, 0, 1), abs=1e-14)
            assert (
                value_along(line, step)
                <= line.evaluation.value + slope * step + curvature * step**2 / 2 + 1e-14
            )
        assert Directional().step(line) >= Smooth(p.lipschitz).step(line) - 1e-14


@pytest.mark.parametrize("rule", [Smooth(1.0), Directional(), LineSearch()])
def test_no_step_uphill_or_along_nothing(rule):
    _, line = make_line("logistic", True, 0)
    residual = line.evaluation.residual
    uphill = Line(line.loss, line.x, line.atom, line.predictions, residual, line.evaluation, 0.5)
    assert rule.step(uphill) == 0.0
    nowhere = Line(line.loss, line.x, line.atom, line.predictions, 0.0 * residual, line.evaluation, 0.5)
    assert rule.step(nowhere) == 0.0


@pytest.mark.parametrize("rule", [Directional(), LineSearch()])
def test_steps_along_an_immense_change(rule):
    """The square of the change overflows; the step is tiny, but it is the right one."""
    loss = LogisticLoss(np.array([1.0, -1.0, 1.0]), np.full(3, 1 / 3))
    z, change = np.zeros(3), np.array([1.0, 1.0, 0.5])
    small, immense = (
        Line(loss, z, DenseVector(z), z, scale * change, loss.evaluate(z), 0.5) for scale in (10.0, 1e201)
    )
    assert rule.step(immense) * 1e200 == pytest.approx(rule.step(small))


def test_parameter_free_steps_and_weights():
    assert ParameterFree().step(make_line("squared", False, 0)[1]) == 0.25
    for k in (0, 1, 7):
        assert (
            Weighted().weight(k) == Weighted().step(k) == NoMomentum().step(k) == pytest.approx(2 / (k + 2))
        )
        assert Uniform().weight(k) == Uniform().step(k) == pytest.approx(1 / (k + 1))
        assert Constant(0.6).weight(k) == 0.6
        assert Constant(0.6).step(k) == pytest.approx(2 / (k + 3))
        assert NoMomentum().weight(k) == 1.0
