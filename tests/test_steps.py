"""Step rules: each minimises what it says it minimises."""

from dataclasses import replace

import numpy as np
import pytest
from problems import LOSSES, problem

from skfw.engine import DenseVector, Directional, LineSearch, LogisticLoss, ParameterFree, Segment, Smooth


def make_segment(loss_name, intercept, seed, towards=1.0):
    p = problem(loss_name, "l2", intercept)
    rng = np.random.default_rng(seed)
    x, atom = rng.normal(size=p.problem.null.x.shape), towards * rng.normal(size=p.problem.null.x.shape)
    return p, p.problem.segment(p.problem.at(x), DenseVector(atom), 0.25)


@pytest.mark.parametrize("loss_name", LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("towards", [0.1, 1.0, 30.0])
def test_smooth_and_directional_minimise_their_bounds(loss_name, intercept, towards):
    for seed in range(8):
        p, segment = make_segment(loss_name, intercept, seed, towards)
        slope = np.vdot(segment.evaluation.residual, segment.change)
        distance = np.sum((segment.x - segment.atom.array) ** 2)
        bounds = {
            Smooth(p.lipschitz): p.lipschitz * distance,
            Directional(): p.problem.loss.curvature_bound(segment.change),
        }
        for rule, curvature in bounds.items():
            end = rule.step(segment)
            step = end.step
            assert step == pytest.approx(np.clip(-slope / curvature, 0, 1), abs=1e-14)
            bound = segment.evaluation.value + slope * step + curvature * step**2 / 2
            assert end.value <= bound + 1e-14
            np.testing.assert_allclose(end.predictions, segment.predictions + step * segment.change)
            assert end.value == pytest.approx(segment.loss.evaluate(end.predictions).value, rel=1e-14)
        assert Directional().step(segment).step >= Smooth(p.lipschitz).step(segment).step - 1e-14


def test_a_step_goes_no_further_than_the_atom():
    """Here the bounds fall beyond it."""
    p = problem("squared", "l2", False).problem
    slopes = p.data.adjoint(p.null.evaluation.residual)
    short = p.segment(p.null, DenseVector(-1e-3 * slopes), 0.25)
    for rule in (Smooth(p.lipschitz), Directional(), LineSearch()):
        assert rule.step(short).step == 1.0


@pytest.mark.parametrize("rule", [Smooth(1.0), Directional(), LineSearch()])
def test_no_step_uphill_or_along_nothing(rule):
    p = problem("logistic", "l2", True).problem
    nowhere = p.segment(p.null, DenseVector(np.zeros(4)), 0.5)
    uphill = replace(nowhere, change=p.null.evaluation.residual, atom=DenseVector(np.ones(4)))
    for segment in (nowhere, uphill):
        end = rule.step(segment)
        assert end.step == 0.0
        assert end.evaluation is segment.evaluation  # and nothing is evaluated


@pytest.mark.parametrize("rule", [Directional(), LineSearch()])
def test_steps_along_an_immense_change(rule):
    """The square of the change overflows; the step is tiny, but it is the right one."""
    loss = LogisticLoss(np.array([1.0, -1.0, 1.0]), np.full(3, 1 / 3))
    z, change = np.zeros(3), np.array([1.0, 1.0, 0.5])
    data = problem("logistic", "l2", False).problem.data
    small, immense = (
        Segment(loss, data, z, loss.evaluate(z), scale * change, z, DenseVector(z), 0.5)
        for scale in (10.0, 1e201)
    )
    assert rule.step(immense).step * 1e200 == pytest.approx(rule.step(small).step)


def test_parameter_free_step_is_the_momentums():
    assert ParameterFree().step(make_segment("squared", False, 0)[1]).step == 0.25
