"""Lines in prediction space: the search finds the minimum, ends where it should, and never goes uphill."""

from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import LOSSES, problem
from scipy.optimize import minimize_scalar

from skfw.engine import (
    DenseVector,
    Evaluation,
    Line,
    LineSearch,
    LogisticLoss,
    Loss,
    SquaredLoss,
    design_matrix,
    search,
)

ONE = design_matrix(np.ones((1, 1)))


def watched(line):
    """Return the same line, and a list of the steps at which its loss is evaluated from now on."""
    steps, place = [], int(np.abs(line.change).argmax())
    loss = copy(line.loss)

    def evaluate(predictions, intercept=0.0):
        steps.append(float((predictions - line.predictions).flat[place] / line.change.flat[place]))
        return line.loss.evaluate(predictions, intercept)

    object.__setattr__(loss, "evaluate", evaluate)  # losses are frozen
    return replace(line, loss=loss), steps


@dataclass(frozen=True)
class PiecewiseQuadratic(Loss):
    """Of one prediction: slopes at some places, and straight lines between them; flat outside.

    `origin` is its value at zero, `parts` what its slope is said to be a sum of.
    """

    places: tuple
    slopes: tuple
    weights: np.ndarray
    origin: float = 100.0
    parts: float = 0.0
    curvature: ClassVar[float] = np.inf

    def slope(self, z):
        return float(np.interp(z, self.places, self.slopes))

    def evaluate(self, predictions, intercept=0.0):
        z = float(predictions[0])
        inside = [place for place in self.places if min(z, 0.0) < place < max(z, 0.0)]
        knots = np.array(sorted([z, 0.0, *inside]))
        slopes = np.interp(knots, self.places, self.slopes)
        area = float(((slopes[1:] + slopes[:-1]) / 2.0) @ np.diff(knots))
        value = self.origin + (area if z >= 0.0 else -area)
        slope = self.slope(z)
        offset_size = abs(value) + abs(slope * z)
        size = max(abs(slope), self.parts)
        return Evaluation(value, np.array([slope]), value - slope * z, size, offset_size)

    def curvature_along(self, evaluation, change):
        """Nothing, where the slope is that of a flat end; else what the piece with this slope has."""
        slope = float(evaluation.residual[0])
        piece = np.searchsorted(self.slopes, slope)
        if piece == 0 or slope >= self.slopes[-1]:
            return 0.0
        rise = self.slopes[piece] - self.slopes[piece - 1]
        return rise / (self.places[piece] - self.places[piece - 1]) * float(change[0]) ** 2

    def curvature_bound(self, change):
        raise AssertionError

    def hessian(self, evaluation):
        raise AssertionError


def line_of(loss, start, change):
    start, change = np.array(start, dtype=float), np.array(change, dtype=float)
    return Line(loss, ONE, start, loss.evaluate(start), change)


def square(target, start, change):
    """A parabola with its minimum at `target`."""
    return line_of(SquaredLoss(np.array([float(target)]), np.ones(1)), [start], [change])


def make_line(loss_name, intercept, seed, towards):
    p = problem(loss_name, "l2", intercept).problem
    rng = np.random.default_rng(seed)
    x, atom = rng.normal(size=p.null.x.shape), towards * rng.normal(size=p.null.x.shape)
    return p.segment(p.at(x), DenseVector(atom), 0.25)


@pytest.mark.parametrize("loss_name", LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("towards", [0.1, 1.0, 30.0])
def test_line_search_is_exact(loss_name, intercept, towards):
    for seed in range(8):
        line = make_line(loss_name, intercept, seed, towards)
        step = LineSearch().step(line).step
        reference = minimize_scalar(
            lambda t, line=line: line.at(t).value, bounds=(0, 1), method="bounded", options={"xatol": 1e-10}
        )
        assert 0.0 <= step <= 1.0
        assert line.at(step).value <= min(reference.fun, line.at(0.0).value, line.at(1.0).value) + 1e-14


def test_a_line_and_its_derivatives():
    """Against differences; `slope` is for a change whose largest entry is one."""
    line = make_line("multinomial", True, 0, 1.0)
    assert line.length == np.abs(line.change).max()
    np.testing.assert_allclose(line.length * line.normalised_change, line.change)
    difference = (line.at(1e-6).value - line.at(-1e-6).value) / 2e-6
    assert line.slope * line.length == pytest.approx(difference, rel=1e-6)
    bent = (line.at(1e-3).value - 2 * line.at(0.0).value + line.at(-1e-3).value) / 1e-6
    assert 0.0 < bent <= line.curvature_bound
    assert line.curvature_bound == pytest.approx(line.loss.curvature_bound(line.change))
    assert line_of(SquaredLoss(np.ones(2), np.full(2, 0.5)), [0, 0], [0, 0]).curvature_bound == 0.0


def test_what_is_found_belongs_together():
    line = make_line("logistic", True, 2, 30.0)
    found = search(line, 1e-8)
    assert 0.0 < found.step < 1.0
    np.testing.assert_allclose(found.predictions, line.predictions + found.step * line.change, rtol=1e-12)
    assert found.evaluation.value == pytest.approx(line.loss.evaluate(found.predictions).value, rel=1e-14)


@pytest.mark.parametrize("precision", [0.3, 1e-2, 1e-8])
def test_a_search_ends_where_the_slope_is_a_fraction_of_the_first(precision):
    """And not later: a corrector asks for little, and pays for each evaluation."""
    n_found = 0
    for seed in range(8):
        line, steps = watched(make_line("logistic", False, seed, 30.0))
        if (found := search(line, precision)) is None:
            continue
        n_found += 1
        tried = list(steps)
        slopes = [float(line.at(step).evaluation.residual @ line.change) for step in [0.0, *tried]]
        assert abs(slopes[-1]) <= precision * -slopes[0] * (1 + 1e-9)
        assert all(abs(slope) > precision * -slopes[0] for slope in slopes[:-1])
        assert found.step == pytest.approx(tried[-1], rel=1e-9)
    assert n_found > 2


@pytest.mark.parametrize(
    "change", [0.0, 5e-324, -1.0, -1e-300], ids=["nowhere", "hardly", "uphill", "barely"]
)
def test_nothing_to_win(change):
    line, steps = watched(square(1.0, 0.0, change))
    assert search(line, 1e-8) is None
    assert search(line, 1e-8, first_step=1.0) is None
    assert steps == []


def test_at_the_minimum_there_is_nothing_to_win():
    assert search(square(1.0, 1.0, 5.0), 1e-8) is None


def test_the_end_of_the_line():
    """The loss still falls there: the end itself is found, and at once."""
    line, steps = watched(square(10.0, 0.0, 4.0))
    found = search(line, 1e-8)
    assert (found.step, found.predictions) == (1.0, 4.0)
    assert steps == [1.0]


def test_a_newton_step_is_tried_first():
    line, steps = watched(square(1.0, 0.0, 4.0))
    assert search(line, 1e-8).step == 0.25
    assert steps == [0.25]


def test_another_first_step():
    """It is taken if it is good enough, and else only where Newton's method goes on from."""
    line, steps = watched(square(1.0, 0.0, 4.0))
    assert search(line, 0.3, first_step=0.3).step == pytest.approx(0.3)
    assert steps == pytest.approx([0.3])
    steps.clear()
    assert search(line, 0.1, first_step=1.0).step == pytest.approx(0.25)
    assert steps == pytest.approx([1.0, 0.25])
    steps.clear()
    # Further on the loss still falls: the end of the line has not been tried.
    assert search(square(10.0, 0.0, 4.0), 1e-8, first_step=0.5).step == 1.0


@pytest.mark.parametrize("far", [1e4, 1e6])
@pytest.mark.parametrize("first_step", [None, 1.0])
def test_a_search_comes_back_from_a_far_end_without_curvature(far, first_step):
    loss = LogisticLoss(np.array([1.0, -1.0]), np.array([0.5, 0.5]))
    here, there = np.array([-1.0, -1.0]) * far, np.array([2.0, 1.0]) * far
    found = search(line_of(loss, here, there - here), 1e-8, first_step)
    assert found.evaluation.value <= 1e-6  # at the start and the end it is `far` / 2


def test_a_far_end_that_is_flat():
    """The loss falls to nothing long before: its end is as good as any other place there."""
    line, steps = watched(line_of(LogisticLoss(np.array([1.0]), np.ones(1)), [-5000.0], [1e4]))
    found = search(line, 1e-8)
    assert found.evaluation.value == 0.0
    assert steps == [1.0]


@pytest.mark.parametrize("rise", [1.0, 1e3, 1e6])
def test_halving_where_there_is_no_curvature(rise):
    """Slopes that jump from one plateau to another: Newton's method has nothing to say."""
    loss = PiecewiseQuadratic((2.9, 3.1), (-1.0, rise), np.ones(1))
    found = search(line_of(loss, [0.0], [1000.0]), 1e-8)
    assert found.predictions[0] == pytest.approx(2.9 + 0.2 / (1.0 + rise), abs=1e-6)
    assert abs(float(found.evaluation.residual[0])) <= 1e-8


def test_rounding_ends_a_search():
    """A slope that is rounding of its parts cannot be told from none, whatever the precision."""
    z = np.array([1e8, -1e8])
    loss = SquaredLoss(z + np.array([1e-8, 0.0]), np.full(2, 0.5))
    line, steps = watched(line_of(loss, z + 0.5, [1.0, 1.0]))
    found = search(line, 0.0)
    assert len(steps) < 10
    assert found is None or found.evaluation.value <= line.evaluation.value


@pytest.mark.parametrize("first_step", [None, 1.0])
def test_a_slope_of_nothing_may_lie_uphill(first_step):
    """Where even the first slope is rounding, all slopes look flat; the values tell."""
    loss = PiecewiseQuadratic((0.0, 1000.0), (-1e-16, 8e-16), np.ones(1), origin=1.0, parts=1.0)
    line = line_of(loss, [0.0], [1000.0])
    assert abs(line.at(1.0).evaluation.residual[0]) <= 4 * np.finfo(float).eps
    assert line.at(1.0).value > line.evaluation.value * (1 + 1e-13)
    found = search(line, 0.3, first_step)
    assert found is None or found.evaluation.value <= line.evaluation.value


def test_newton_steps_that_crawl_are_mixed_with_halvings():
    """A plateau said to have the curvature of the piece before it: a Newton step goes half a unit."""
    places, slopes = (0.0, 61.0, 62.0, 91.0, 92.0), (-0.5, -0.5, 0.5, 0.5, 1.5)
    line, steps = watched(line_of(PiecewiseQuadratic(places, slopes, np.ones(1)), [0.0], [121.0]))
    assert search(line, 1e-8).predictions[0] == pytest.approx(61.5)
    assert len(steps) < 20


@st.composite
def pieces(draw):
    """A convex loss of one prediction with kinks, plateaus and steep ends."""
    gaps = draw(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=6))
    rises = draw(st.lists(st.floats(0.0, 1e6), min_size=len(gaps), max_size=len(gaps)))
    first = draw(st.floats(-1e3, 0.0))
    places = draw(st.floats(-10.0, 10.0)) + np.cumsum([0.0, *gaps])
    slopes = first + np.cumsum([0.0, *rises])
    return PiecewiseQuadratic(tuple(places), tuple(slopes), np.ones(1))


@settings(max_examples=200)
@given(
    loss=pieces(),
    start=st.floats(-50.0, 50.0),
    change=st.floats(-1e4, 1e4),
    precision=st.sampled_from([1e-8, 0.3]),
    first_step=st.sampled_from([None, 1.0, 0.1]),
)
def test_never_uphill(loss, start, change, precision, first_step):
    line = line_of(loss, [start], [change])
    found = search(line, precision, first_step)
    if found is None:
        return
    assert 0.0 < found.step <= 1.0
    assert found.evaluation.value <= line.evaluation.value + 1e-13 * abs(line.evaluation.value)
    # It ends at a slope that is small, or negative at the end of the line, or between two neighbours.
    slope, at_start = float(found.evaluation.residual[0]) * np.sign(change), abs(float(line.slope))
    if precision < 0.1 and found.step < 1.0:
        beyond = loss.slope(float(found.predictions[0]) + 1e-9 * change) * np.sign(change)
        assert slope <= precision * at_start * (1.0 + 1e-9)
        assert beyond >= -precision * at_start * (1.0 + 1e-9)
