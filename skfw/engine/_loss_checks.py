"""Whether a loss keeps the promises that a certificate rests on, as far as that can be seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import final

import numpy as np

from ._protocols import Array, Evaluation, Loss, Shape
from ._sums import SUM_ROUNDING, TINY, inner

_ORDINARY_SCALES = (0.0, 0.1, 0.1, 1.0, 1.0, 3.0, 3.0)
_FAR_SCALES = (30.0, 1e3, 1e6)
_DESCENT, _DESCENT_STEPS = 0.1, 20
# The shorter a step, the less the second derivative hides an error of the first, and the more rounding does.
_STEPS = tuple(0.1**k for k in range(8))
# How well an intercept must be found, relative to the numbers that a loss adds up. Its plane must be exact.
_PRECISION = 1e-8
# Second derivatives decide how fast a run is, and not what it proves: smaller errors are of no consequence.
_CURVATURE_PRECISION = 1e-3

_TOO_HIGH = "Lower bounds would be above the optimum: the certificate would be false."


def check_loss(loss: Loss, shape: Shape | None = None, *, random_state: int = 0) -> None:
    """Check whether a loss keeps the promises of `Loss`.

    It is evaluated at many predictions: ordinary ones, some towards its minimum, huge ones, and others close
    to these. The values must be finite and convex, and the residual must be their derivative. The plane of
    each evaluation must touch the loss there, and lie below it at all the others. The second derivative must
    be that of the residual, within the bounds that the loss states, and the same everywhere if it says so.

    That is no proof: the loss may be wrong at predictions, or for targets, that are not tried.

    Parameters
    ----------
    loss : Loss
        With its targets and weights. With few samples each of them counts for more.
    shape : tuple of ints, optional
        Shape of the predictions, such as ``(n_samples, n_classes)``; by default that of the weights.
    random_state : int
        Seed of the predictions; another one tries others.

    Raises
    ------
    AssertionError
        If a promise is broken. The message names it, with the function of a `SeparableLoss` that is most
        likely wrong, and says what that does to a certificate. Errors that the loss itself raises are passed
        on.

    See Also
    --------
    check_constraint : The same for a set.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import SquaredLoss, check_loss
    >>> check_loss(SquaredLoss(np.array([3.0, 1.0, 0.0]), np.full(3, 1 / 3), fit_intercept=True))
    """
    _check_weights("weights", loss.weights)
    rng = np.random.default_rng(random_state)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        ordinary = list(_ordinary_points(loss, np.shape(loss.weights) if shape is None else shape, rng))
        lowest = _descend(loss, ordinary[-1])
        far = list(_far_points(loss, lowest, rng))
        lines = [line for point in (*ordinary, lowest) for line in _lines(loss, point, rng)]
        # Each check relies on what the ones before it have found right, so that a message names the culprit.
        _check_convexity(loss, ordinary, rng)
        for line in lines:
            _check_residual(line)
        for point in ordinary:
            _check_offset(point)
        points = [*ordinary, lowest, *far]
        _check_planes((at, other) for at in points for other in points)
        for line in lines:
            _check_planes(line.pairs)
        for point in points:
            _check_bounds(loss, point)
        for line in lines:
            _check_second_derivative(loss, line)
        for point in points:
            _check_curvature(loss, point, rng.normal(size=point.predictions.shape))
        if loss.is_quadratic:
            _check_quadratic(loss, points, rng)
        _check_subset(loss, ordinary[-1], rng)


@final
@dataclass(frozen=True)
class _Point:
    """Predictions, and the loss there."""

    predictions: Array
    evaluation: Evaluation

    @property
    def value(self) -> float:
        return self.evaluation.value

    @cached_property
    def magnitude(self) -> float:
        """What the numbers that value and plane are made of add up to: rounding errors are relative to it."""
        largest = np.abs(self.predictions).max() + np.abs(self.evaluation.intercept).max()
        return float(
            abs(self.value)
            + self.evaluation.offset_size
            + np.abs(self.evaluation.residual).sum() * largest
            + TINY
        )


@final
@dataclass(frozen=True)
class _Line:
    """A point, and others at several steps from it along a change, ahead and behind."""

    start: _Point
    kind: str
    change: Array
    others: list[tuple[float, _Point, _Point]]

    @property
    def pairs(self) -> Iterator[tuple[_Point, _Point]]:
        """The start with each of the others, and each of the others with the start."""
        for _, ahead, behind in self.others:
            for other in (ahead, behind):
                yield from ((self.start, other), (other, self.start))


def _check_weights(name: str, weights: Array) -> None:
    if not (np.all(weights > 0.0) and abs(weights.sum() - 1.0) <= SUM_ROUNDING):
        raise AssertionError(
            f"{name} must be positive and sum to one; got weights from {weights.min():g} with a sum of "
            f"{weights.sum():.9g}."
        )


def _evaluate(loss: Loss, predictions: Array, intercept: float | Array = 0.0) -> _Point:
    """Evaluate the loss, and check what can be seen at one point alone."""
    given, largest = predictions.copy(), float(np.abs(predictions).max())
    try:
        evaluation = loss.evaluate(predictions, intercept)
    except FloatingPointError as error:
        raise AssertionError(
            f"evaluate: {error}, at predictions of up to {largest:.3g}. The loss must be finite for those of "
            f"up to largest_prediction={loss.largest_prediction:g}."
        ) from error
    if not np.array_equal(predictions, given):
        raise AssertionError("evaluate changes the predictions. They would no longer be those of the model.")
    value, residual, offset = evaluation.value, evaluation.residual, evaluation.offset
    if np.shape(residual) != predictions.shape:
        raise AssertionError(
            f"evaluate: residual must have the shape of the predictions, {predictions.shape}; "
            f"got {np.shape(residual)}."
        )
    if not (np.all(np.isfinite([value, offset])) and np.all(np.isfinite(residual))):
        raise AssertionError(
            f"evaluate: value={value}, offset={offset} and a residual of up to {np.abs(residual).max()} at "
            f"predictions of up to {largest:.3g}. The loss must be finite for those of up to "
            f"largest_prediction={loss.largest_prediction:g}."
        )
    return _Point(predictions, evaluation)


def _ordinary_points(loss: Loss, shape: Shape, rng: np.random.Generator) -> Iterator[_Point]:
    for scale in _ORDINARY_SCALES:
        yield _evaluate(loss, scale * rng.normal(size=shape))


def _descend(loss: Loss, point: _Point) -> _Point:
    """Go towards the minimum, where a run ends, but not so far that the residual is nothing but rounding."""
    if not 0.0 < loss.curvature < np.inf:
        return point
    lengths = 0.5 / (loss.curvature * _by_sample(loss.weights, point.predictions.shape))
    enough = _DESCENT * np.abs(point.evaluation.residual).sum()
    for _ in range(_DESCENT_STEPS):
        predictions = point.predictions - lengths * point.evaluation.residual
        below = _evaluate(loss, predictions, point.evaluation.intercept)
        if not below.value < point.value:
            break
        point = below
        if np.abs(point.evaluation.residual).sum() <= enough:
            break
    return point


def _far_points(loss: Loss, point: _Point, rng: np.random.Generator) -> Iterator[_Point]:
    """Evaluate the loss at large predictions, up to half of the largest, and where an intercept would be."""
    shape, largest = point.predictions.shape, loss.largest_prediction / 2.0
    for scale in (*(scale for scale in _FAR_SCALES if scale < largest), largest):
        yield _evaluate(loss, rng.uniform(-scale, scale, size=shape))
        yield _evaluate(loss, point.predictions + rng.choice([-scale, scale]) * _shift(shape, rng))


def _lines(loss: Loss, start: _Point, rng: np.random.Generator) -> Iterator[_Line]:
    shape = start.predictions.shape
    normal, alone = rng.normal(size=shape), np.zeros(shape)
    alone.flat[rng.integers(alone.size)] = 1.0
    yield _line(loss, start, "a shift of all predictions", _shift(shape, rng))
    yield _line(loss, start, "a change of all predictions", normal / np.abs(normal).max())
    yield _line(loss, start, "a change of one prediction", alone)


def _line(loss: Loss, start: _Point, kind: str, change: Array) -> _Line:
    def at(step: float) -> _Point:
        return _evaluate(loss, start.predictions + step * change, start.evaluation.intercept)

    return _Line(start, kind, change, [(step, at(step), at(-step)) for step in _STEPS])


def _shift(shape: Shape, rng: np.random.Generator) -> Array:
    """Return ones, of one of the outputs: what an intercept takes back."""
    shift = np.zeros(shape).reshape(shape[0], -1)
    shift[:, rng.integers(shift.shape[1])] = 1.0
    return shift.reshape(shape)


def _check_convexity(loss: Loss, points: list[_Point], rng: np.random.Generator) -> None:
    for first, second in combinations(points, 2):
        weight = rng.random()
        between = _evaluate(loss, (1.0 - weight) * first.predictions + weight * second.predictions)
        average = (1.0 - weight) * first.value + weight * second.value
        if not between.value <= average + _PRECISION * max(first.magnitude, second.magnitude):
            raise AssertionError(
                f"evaluate: value is not convex (sample_value, in a SeparableLoss). Between two points it is "
                f"{between.value:.9g}, and may be at most their average, {average:.9g}. Planes would not lie "
                f"below the loss: the certificate would be false."
            )


def _check_residual(line: _Line) -> None:
    """Compare slopes with differences: a convex function rises by at least as much as its tangent."""
    start = line.start
    slope = inner(start.evaluation.residual, line.change)
    for step, ahead, behind in line.others:
        for other, tangent in ((ahead, step * slope), (behind, -step * slope)):
            rise = other.value - start.value
            if rise < tangent - _PRECISION * max(start.magnitude, other.magnitude):
                raise AssertionError(
                    f"evaluate: residual is not the derivative of value (sample_slope and sample_value, in a "
                    f"SeparableLoss). With {line.kind} by {step:g} value rises by {rise:.9g}, and residual "
                    f"says that it is at least {tangent:.9g}. If there is an intercept, residual must sum to "
                    f"zero; it sums to {start.evaluation.residual.sum():.3g}. {_TOO_HIGH}"
                )


def _check_offset(point: _Point) -> None:
    evaluation = point.evaluation
    height = point.value - inner(evaluation.residual, point.predictions)
    if not abs(evaluation.offset - height) <= _PRECISION * point.magnitude:
        raise AssertionError(
            f"evaluate: offset is not the height of the tangent plane at zero (minus the mean of "
            f"sample_conjugate, in a SeparableLoss). It is {evaluation.offset:.9g}, but value less the inner "
            f"product of residual and predictions is {height:.9g}. Too large, it makes a certificate false; "
            f"too small, gaps do not close."
        )


def _check_planes(pairs: Iterable[tuple[_Point, _Point]]) -> None:
    """Check that the plane at each first point is no higher than the loss at the second, but for rounding."""
    for at, other in pairs:
        plane, z = at.evaluation, other.predictions
        height = plane.offset + inner(plane.residual, z)
        sizes = plane.offset_size + inner(np.abs(plane.residual), np.abs(z)) + other.magnitude
        if not height <= other.value + SUM_ROUNDING * sizes:
            raise AssertionError(
                f"evaluate: the plane of residual and offset does not lie below the loss. The one at "
                f"predictions of up to {np.abs(at.predictions).max():.3g} is {height - other.value:.3g} "
                f"above value={other.value:.9g} at others of up to {np.abs(z).max():.3g}. Perhaps offset has "
                f"lost digits (sample_conjugate, in a SeparableLoss). If there is an intercept, residual "
                f"must sum to zero; it sums to {plane.residual.sum():.3g}. {_TOO_HIGH}"
            )


def _check_bounds(loss: Loss, point: _Point) -> None:
    evaluation = point.evaluation
    if not point.value >= loss.infimum - SUM_ROUNDING * point.magnitude:
        raise AssertionError(
            f"infimum={loss.infimum:g} is no lower bound: value is {point.value:.9g} at predictions of up to "
            f"{np.abs(point.predictions).max():.3g}. {_TOO_HIGH}"
        )
    total = float(np.abs(evaluation.residual).sum())
    for name, stated, least, meaning in (
        ("size", evaluation.size, total, "the sum of the residual's absolute values"),
        ("offset_size", evaluation.offset_size, abs(evaluation.offset), "the absolute value of offset"),
    ):
        if not (1.0 + SUM_ROUNDING) * stated >= least - TINY:
            raise AssertionError(
                f"evaluate: {name} is {stated:.9g}, and must be at least {least:.9g}, {meaning}. Lower "
                f"bounds would be reduced by too little for rounding errors, and may be above the optimum."
            )


def _check_second_derivative(loss: Loss, line: _Line) -> None:
    start, change = line.start, line.change
    hessian = loss.hessian(start.evaluation)
    diagonal, product = hessian.diagonal, hessian.apply(change)
    if np.shape(diagonal) != change.shape or not np.all(diagonal >= 0.0):
        raise AssertionError(
            f"hessian: diagonal must be non-negative, with the predictions' shape {change.shape}; got "
            f"numbers from {np.min(diagonal):.3g} with shape {np.shape(diagonal)}. Correctors would fail."
        )
    # An intercept may take most of the curvature away, and is not found to more digits for that.
    size = np.maximum(np.abs(product), np.abs(diagonal * change)).max()
    misses = []
    for step, ahead, behind in line.others:
        residuals = ahead.evaluation.residual, behind.evaluation.residual
        miss = np.abs(product - (residuals[0] - residuals[1]) / (2.0 * step)).max()
        misses.append(miss - SUM_ROUNDING * np.abs(residuals).max() / step)
    if not min(misses) <= _CURVATURE_PRECISION * size:
        raise AssertionError(
            f"hessian: apply does not return how residual changes (sample_curvature, in a SeparableLoss). "
            f"For {line.kind} it returns numbers of up to {np.abs(product).max():.6g}, which are off by up "
            f"to {min(misses):.6g}. The certificate would hold, but runs would be slow."
        )
    along, expected = loss.curvature_along(start.evaluation, change), inner(change, product)
    if not abs(along - expected) <= _CURVATURE_PRECISION * inner(diagonal, change * change):
        raise AssertionError(
            f"curvature_along returns {along:.6g} for {line.kind}, and by hessian it is {expected:.6g}. The "
            f"certificate would hold, but runs would be slow."
        )


def _check_curvature(loss: Loss, point: _Point, change: Array) -> None:
    """Check the bounds of the second derivative."""
    diagonal = loss.hessian(point.evaluation).diagonal
    largest = float((diagonal / _by_sample(loss.weights, change.shape)).max())
    if not largest <= (1.0 + SUM_ROUNDING) * loss.curvature:
        raise AssertionError(
            f"curvature={loss.curvature:g} is no upper bound of a sample's second derivative, which is "
            f"{largest:.9g} for one of them. Steps would be too long, and may increase the loss."
        )
    along, bound = loss.curvature_along(point.evaluation, change), loss.curvature_bound(change)
    if not along <= bound + SUM_ROUNDING * inner(diagonal, change * change):
        raise AssertionError(
            f"curvature_bound returns {bound:.9g} (by curvature, in a SeparableLoss), but the second "
            f"derivative is {along:.9g}. Steps would be too long, and may increase the loss."
        )


def _check_quadratic(loss: Loss, points: list[_Point], rng: np.random.Generator) -> None:
    """Check that the second derivative is the same at all points."""
    change = rng.normal(size=points[0].predictions.shape)
    products = [loss.hessian(point.evaluation).apply(change) for point in points]
    differences = [np.abs(product - products[0]).max() for product in products]
    if not max(differences) <= _CURVATURE_PRECISION * np.abs(products[0]).max():
        raise AssertionError(
            f"is_quadratic is True, but the second derivative is not the same everywhere. For one change, "
            f"hessian.apply returns numbers of up to {np.abs(products[0]).max():.6g} at some predictions, "
            f"and others differ from these by up to {max(differences):.6g}. The certificate would hold, but "
            f"steps would have a wrong length."
        )


def _check_subset(loss: Loss, point: _Point, rng: np.random.Generator) -> None:
    """Check that all samples in another order are the same loss, and that the weights of some sum to one."""
    rows = rng.permutation(len(loss.weights))
    part = loss.subset(rows[: (len(rows) + 1) // 2])
    if part is not None:
        _check_weights("subset: weights", part.weights)
    whole = loss.subset(rows)
    if whole is not None:
        again = _evaluate(whole, point.predictions[rows])
        difference = np.abs(again.evaluation.residual - point.evaluation.residual[rows]).max()
        if not max(abs(again.value - point.value), difference) <= _PRECISION * point.magnitude:
            raise AssertionError(
                f"subset: all samples in another order have a value of {again.value:.9g} instead of "
                f"{point.value:.9g}, and a residual that differs by up to {difference:.3g}. The start from a "
                f"sample would be that of another problem."
            )


def _by_sample(weights: Array, shape: Shape) -> Array:
    """Return weights that are multiplied with all predictions of a sample."""
    return weights.reshape(-1, *(1 for _ in shape[1:]))
