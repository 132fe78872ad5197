"""Losses of samples in blocks, with the intercept profiled out over all of them.

A block's loss has no intercept of its own: it is the sum of its samples' weighted losses, evaluated at
predictions that the intercept was added to. Values, planes and second derivatives of blocks add up. The best
intercept is found by Newton's method, whose steps are sums over the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self, final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from .._protocols import Array, Design, Evaluation, Hessian, Loss
from .._shards import Deferred, Pieces, Runner, ShardVector
from .._sums import TINY, UNIT_ROUNDOFF, column_sums
from ._hessians import DiagonalHessian
from ._separable import normalised

# The intercept is good enough when the residual sums to this fraction of its size: each step of Newton's
# method is a pass over all samples, and what is left is balanced by other planes.
_ENOUGH, _NEWTON_STEPS = 1e-12, 100
# After so many steps one begins anew, at the smallest of the best intercepts of the blocks.
_MANY_STEPS = 8
# Where it sums to this fraction the loss may be rounding, and no shorter step is tried.
_NEAR = 1e-6
# Each time a step leads uphill, it is made this much shorter; where it is damped again, this much longer.
_BACKTRACK, _GROWTH = 0.25, 4.0
# Of the largest slope: what is then added to the second derivative. No step is longer than this: predictions
# would be nothing but rounding beside the intercept.
_DAMPING, _LARGEST_STEP = 0.01, 1e6
# How often planes aside are looked for further out.
_DOUBLINGS = 60
# Planes whose residuals sum to zero up to this fraction of their sizes do so but for rounding.
_BALANCED = 64.0 * UNIT_ROUNDOFF


class BlockLoss(Protocol):
    """What is asked of the loss of a block, beside what is asked of any loss."""

    def some(self, rows: npt.NDArray[np.intp]) -> Self:
        """Return the loss of some of the samples, with the weights that they have."""
        ...

    def joined(self, others: Sequence[Self], fit_intercept: bool) -> Loss:
        """Return the loss of these and other samples, with the weights that they have."""
        ...


@final
class ShardedLoss(Loss):
    """A loss of samples in blocks.

    Parameters
    ----------
    runner : Runner
        Where the blocks are.
    losses : Pieces
        The loss of each block, without intercept: a `SeparableLoss`, a `SeveralTargets` or a
        `MultinomialLoss`, whose weights sum to one over all blocks.
    pattern : Loss
        One of the same kind, of any samples, with an intercept if this one has it.
    n_outputs : int or None
        How many predictions a sample has; None if they are numbers.
    fit_intercept : bool
    """

    def __init__(
        self,
        runner: Runner,
        losses: Pieces,
        pattern: Loss,
        n_outputs: int | None = None,
        fit_intercept: bool = False,
    ) -> None:
        self.runner, self.losses, self.n_outputs = runner, losses, n_outputs
        self.fit_intercept = fit_intercept
        self.curvature, self.is_quadratic = pattern.curvature, pattern.is_quadratic  # type: ignore[misc]
        self.infimum, self.largest_prediction = pattern.infimum, pattern.largest_prediction  # type: ignore[misc]
        self.weights = ShardVector.of(Deferred(_weights, losses))
        self._planes_aside: _PlanesAside | None = None
        # The second derivatives in the intercepts, by residuals, while these are in use.
        self._curvatures: WeakKeyDictionary[Pieces, Array] = WeakKeyDictionary()

    def evaluate(self, predictions: ShardVector, intercept: float | Array = 0.0) -> Evaluation:
        """Evaluate the loss; see `Loss`."""
        if not self.fit_intercept:
            return self._at(predictions, None).evaluation
        found = self._near_best(predictions, np.broadcast_to(intercept, (self.n_outputs or 1,)))
        evaluation = self._balanced(found)
        self._curvatures[_only_piece(evaluation.residual)] = found.curvature
        return evaluation

    def curvature_along(self, evaluation: Evaluation, change: ShardVector) -> float:
        """Return the second derivative of the profiled loss along `change`."""
        return self.hessian(evaluation).along(change)

    def curvature_bound(self, change: ShardVector) -> float:
        """Return an upper bound, around the mean change if there is an intercept."""
        mean = self.runner.sums(_mean, self.losses, change)[0] if self.fit_intercept else 0.0
        return float(self.runner.sums(_curvature_bound, self.losses, change, mean)[0])

    def hessian(self, evaluation: Evaluation) -> ShardedHessian:
        """Return the curvature of the profiled loss at the evaluated point."""
        hessians = Deferred(_hessian, self.losses, evaluation.residual)
        return ShardedHessian(self, hessians, self._curvatures.get(_only_piece(evaluation.residual)))

    def subset(self, rows: Pieces) -> Loss | None:
        """Return the loss of some of the samples, which are brought here."""
        first, *others = self.runner.parts(self.runner.map(_some, self.losses, rows))
        whole: Loss = first.joined(others, self.fit_intercept)
        return whole.subset(np.arange(len(whole.weights)))

    def _at(self, predictions: ShardVector | None, intercept: Array | None) -> _Found:
        """Evaluate the loss at an intercept; without predictions, where all are zero."""
        if predictions is not None and len(predictions.terms) > 1:
            # So that vectors long gone need not be kept.
            predictions.terms = {Deferred(_same, ShardVector(predictions.terms)): 1.0}
        where = self.losses, predictions, intercept, self.n_outputs
        value, offset, size, offset_size, slope, slope_size, curvature = self.runner.sums(_evaluate, *where)
        best: float | Array = 0.0 if self.n_outputs is None else np.zeros(self.n_outputs)
        if intercept is not None:
            best = float(intercept[0]) if self.n_outputs is None else intercept
        # Of most intercepts that are tried nobody needs it.
        residual = ShardVector.of(Deferred(_residual, *where))
        evaluation = Evaluation(float(value), residual, float(offset), float(size), float(offset_size), best)
        return _Found(evaluation, intercept, slope, float(slope_size), curvature)

    def _near_best(self, predictions: ShardVector | None, guess: Array) -> _Found:
        """Return the loss at the best intercept, about."""
        found = self._at(predictions, guess)
        return (
            self._best_number(predictions, found)
            if self.n_outputs is None
            else self._best_numbers(predictions, found)
        )

    def _best_number(self, predictions: ShardVector | None, found: _Found) -> _Found:
        """Newton's method for one intercept: the slope increases with it, so there is a bracket."""
        low, high, boldness, crawls = -np.inf, np.inf, 1.0, False
        before: _Found | None = None
        for number in range(_NEWTON_STEPS):
            if found.is_finite and found.slope_sum <= _ENOUGH * found.slope_size:
                break
            if not found.is_finite or number == _MANY_STEPS:  # far from any
                own = self.runner.parts(self.runner.map(_own_intercept, self.losses, predictions))
                least = min((each for each in own if low < each < high), default=found.intercept[0])
                found, crawls, before = self._at(predictions, np.array([least])), False, None
                if not found.is_finite:
                    break
            here = float(found.intercept[0])
            low, high = (here, high) if found.slope[0] < 0.0 else (low, here)
            following = here + found.step_after(before)
            by_newton = low < following < high and not crawls
            if not by_newton and np.isfinite(low) and np.isfinite(high):
                following = (low + high) / 2.0
            elif not by_newton:  # nothing curves here; the slope keeps steps short
                following = here + boldness * float(found.newton_step(_DAMPING)[0])
                boldness *= _GROWTH
            if not low < following < high:
                break
            tried = self._at(predictions, np.array([following]))
            if tried.is_finite:
                crawls = by_newton and tried.slope_sum > 0.5 * found.slope_sum
                found, before = tried, found
            else:  # exponentials that are too large
                high, crawls = following, True
        return found

    def _best_numbers(self, predictions: ShardVector | None, found: _Found) -> _Found:
        """Newton's method for several intercepts, kept from going uphill."""
        boldness = 1.0
        for _ in range(_NEWTON_STEPS):
            if found.slope_sum <= _ENOUGH * found.slope_size:
                break
            following = self._at(predictions, found.intercept + found.newton_step())
            if not following.is_better_than(found):
                if found.slope_sum <= _NEAR * found.slope_size:  # the rest is rounding
                    break
                step, boldness = boldness * found.newton_step(_DAMPING), _GROWTH * boldness
                following = self._at(predictions, found.intercept + step)
                while not following.is_better_than(found) and np.any(
                    found.intercept + step != found.intercept
                ):
                    step, boldness = _BACKTRACK * step, 1.0
                    following = self._at(predictions, found.intercept + step)
            falls = following.evaluation.value < found.evaluation.value
            if not falls and following.slope_sum >= found.slope_sum:
                break
            found = following
        return found

    def _balanced(self, found: _Found) -> Evaluation:
        """Make the residual sum to zero, by an average with planes whose residuals sum to other signs.

        An average of planes below the loss is below it. The others have a weight of the order of what is
        left of the sum.
        """
        evaluation = found.evaluation
        if not found.slope.any():
            return evaluation
        if self._planes_aside is None:
            self._planes_aside = self._find_planes_aside(found.intercept)
        aside = self._planes_aside
        shares, error = nnls(aside.slopes.T, -found.slope)
        used = np.flatnonzero(shares)
        own = 1.0 / (1.0 + float(shares.sum()))
        residual = Deferred(
            _balanced,
            self.losses,
            evaluation.residual,
            own,
            own * shares[used],
            aside.intercepts[used],
            self.n_outputs,
        )
        offset, size, offset_size = (
            own * (mine + float(shares @ theirs))
            for mine, theirs in (
                (evaluation.offset, aside.offsets),
                (evaluation.size, aside.sizes),
                (evaluation.offset_size, aside.offset_sizes),
            )
        )
        if error > _BALANCED * found.slope_size:  # then it is not below the loss at each intercept
            offset = -np.inf
        return replace(
            evaluation, residual=ShardVector.of(residual), offset=offset, size=size, offset_size=offset_size
        )

    def _find_planes_aside(self, guess: Array) -> _PlanesAside:
        """Return planes that touch the loss of predictions that are zero, on both sides of the best one.

        A run begins with these predictions, so the guess is mostly the best one.
        """
        best = self._near_best(None, guess)
        curvatures = np.diag(best.curvature)
        distances = np.divide(
            2.0 * best.slope_size, curvatures, out=np.ones_like(curvatures), where=curvatures > TINY
        )
        found = []
        for output in range(len(curvatures)):
            for sign in (-1.0, 1.0):
                distance = distances[output] if 0.0 < distances[output] < np.inf else 1.0
                for _ in range(_DOUBLINGS):
                    intercept = best.intercept.copy()
                    intercept[output] += sign * distance
                    plane = self._at(None, intercept)
                    if sign * plane.slope[output] > _BALANCED * plane.slope_size:
                        break
                    distance *= 2.0
                else:
                    raise ValueError("There is no best intercept: the loss falls forever in one direction.")
                found.append(plane)
        evaluations = [plane.evaluation for plane in found]
        return _PlanesAside(
            np.array([plane.intercept for plane in found]),
            np.array([plane.slope for plane in found]),
            np.array([each.offset for each in evaluations]),
            np.array([each.size for each in evaluations]),
            np.array([each.offset_size for each in evaluations]),
        )


@final
@dataclass(frozen=True)
class _Found:
    """The loss at an intercept, with its derivatives in that."""

    evaluation: Evaluation
    intercept: Any
    slope: Array
    slope_size: float
    curvature: Array

    @property
    def slope_sum(self) -> float:
        """How far the intercept is from the best one."""
        return float(np.abs(self.slope).sum())

    @property
    def is_finite(self) -> bool:
        """Whether all numbers are."""
        numbers = np.concatenate([[self.evaluation.value], self.slope, self.curvature.ravel()])
        return bool(np.isfinite(numbers).all())

    def newton_step(self, damping: float = 0.0) -> Array:
        """Return the step of Newton's method; with damping it is at most about the inverse of that."""
        matrix = self.curvature + damping * float(np.abs(self.slope).max()) * np.eye(len(self.slope))
        step = -np.asarray(np.linalg.lstsq(matrix, self.slope, rcond=None)[0], dtype=np.float64)
        return np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)

    def step_after(self, before: _Found | None) -> float:
        """Return the step of Newton's method for one intercept, made better by where it came from.

        As a function of the slope, the intercept is interpolated by the cubic polynomial with the values and
        derivatives at both places: where Newton's method takes four passes, this mostly takes three.
        """
        step = float(self.newton_step()[0])
        if before is None or min(self.curvature[0, 0], before.curvature[0, 0]) <= TINY:
            return step
        slope, change = float(self.slope[0]), float(before.slope[0] - self.slope[0])
        if not abs(slope) < abs(change):
            return step
        own, other = 1.0 / float(self.curvature[0, 0]), 1.0 / float(before.curvature[0, 0])
        share, distance = -slope / change, float(before.intercept[0] - self.intercept[0])
        square = 3.0 * distance - (2.0 * own + other) * change
        cube = (own + other) * change - 2.0 * distance
        more = share * share * (square + share * cube)
        return step + more if abs(more) < 0.5 * abs(step) else step

    def is_better_than(self, other: _Found) -> bool:
        """Whether the loss is lower. Near the optimum it is rounding, and the slope shows the progress."""
        is_lower = self.evaluation.value < other.evaluation.value
        return is_lower or self.slope_sum < 0.5 * other.slope_sum


@final
@dataclass(frozen=True)
class _PlanesAside:
    """Planes at other intercepts, one in each entry; `slopes` are the sums of their residuals."""

    intercepts: Array
    slopes: Array
    offsets: Array
    sizes: Array
    offset_sizes: Array


@final
class ShardedHessian(Hessian):
    """The second derivative of a loss of samples in blocks, with the best intercept following predictions.

    Parameters
    ----------
    loss : ShardedLoss
    hessians : Pieces
        That of each block, with the intercept held fixed.
    curvature : ndarray, optional
        The second derivative in the intercepts, where it is known.
    """

    def __init__(self, loss: ShardedLoss, hessians: Pieces, curvature: Array | None = None) -> None:
        self.loss, self.hessians, self._runner = loss, hessians, loss.runner
        self.diagonal = ShardVector.of(Deferred(_diagonal, hessians))
        if curvature is not None:
            self._curvature = curvature
        self._feature_means: tuple[Design | None, Array] = (None, np.zeros(0))

    def apply(self, change: ShardVector) -> ShardVector:
        """Return how the residual changes."""
        mean = None
        if self.loss.fit_intercept and change.origin is not None:
            # Many changes are of the same design: the means of its features are one pass for all of them.
            slope = float(self._means(change.origin.design) @ change.origin.model)
            mean = np.array([slope / max(float(self._curvature[0, 0]), TINY)])
        elif self.loss.fit_intercept:
            mean = self._mean_change(change)
        return ShardVector.of(Deferred(_image, self.hessians, change, mean))

    def along(self, change: ShardVector) -> float:
        """Return the second derivative along a change."""
        mean = self._mean_change(change) if self.loss.fit_intercept else None
        return float(self._runner.sums(_along, self.hessians, change, mean)[0])

    def gram(self, design: Design) -> Array | None:
        """Return the second derivative in the models of a design."""
        if self.loss.n_outputs is not None:
            return None
        result = design.gram(self.diagonal)
        if self.loss.fit_intercept:
            means = self._means(design)
            result -= np.outer(means, means / max(float(self._curvature[0, 0]), TINY))
        return result

    def output_grams(self, design: Design, rows: Pieces | None = None) -> list[Array] | None:
        """Return the second derivative of each output alone, over some samples, whose design is here."""
        if rows is None:
            matrix = self.gram(design)
            return None if matrix is None else [matrix]
        found = np.concatenate(self._runner.parts(self._runner.map(_taken, self.diagonal, rows)))
        columns = found.reshape(len(found), -1).T
        fit_intercept = self.loss.fit_intercept
        return [
            DiagonalHessian(np.ascontiguousarray(column), fit_intercept).gram(design) for column in columns
        ]

    @cached_property
    def _curvature(self) -> Array:
        """The second derivative in the intercepts."""
        return np.asarray(self._runner.sums(_intercept_curvature, self.hessians, self.diagonal)[0])

    def _means(self, design: Design) -> Array:
        """Return the weighted sum of each feature of a design."""
        if self._feature_means[0] is not design:
            self._feature_means = design, design.adjoint(self.diagonal)
        return self._feature_means[1]

    def _mean_change(self, change: ShardVector) -> Array:
        """Return the change of predictions that the intercepts make up for."""
        (slope,) = self._runner.sums(_intercept_slope, self.hessians, change)
        return np.asarray(np.linalg.lstsq(self._curvature, slope, rcond=None)[0], dtype=np.float64)


def _only_piece(vector: ShardVector) -> Pieces:
    (piece,) = vector.terms
    return piece


# What is done with a block.


def _weights(loss: Loss) -> Array:
    return np.asarray(loss.weights)


def _same(part: Array) -> Array:
    return part


def _evaluate(
    loss: Loss, predictions: Array | None, intercept: Array | None, n_outputs: int | None
) -> tuple[float, float, float, float, Array, float, Array]:
    evaluation = _evaluation(loss, predictions, intercept, n_outputs)
    residual = evaluation.residual
    slope, curvature = np.zeros(1), np.zeros((1, 1))
    if intercept is not None:
        with np.errstate(over="ignore", invalid="ignore"):  # what is too far is given up
            slope = _column_sums(residual)
            curvature = _curvature_in_intercepts(loss.hessian(evaluation), residual.shape)
    numbers = evaluation.value, evaluation.offset, evaluation.size, evaluation.offset_size
    return (*numbers, slope, float(np.abs(residual).sum()), curvature)


def _residual(loss: Loss, predictions: Array | None, intercept: Array | None, n_outputs: int | None) -> Array:
    return np.asarray(_evaluation(loss, predictions, intercept, n_outputs).residual)


def _evaluation(
    loss: Loss, predictions: Array | None, intercept: Array | None, n_outputs: int | None
) -> Evaluation:
    shape = (len(loss.weights),) if n_outputs is None else (len(loss.weights), n_outputs)
    shifted = np.zeros(shape) if predictions is None else predictions
    with np.errstate(over="ignore", invalid="ignore"):
        if intercept is not None:
            shifted = shifted + (intercept[0] if n_outputs is None else intercept)
        return loss.evaluate(shifted)


def _own_intercept(loss: Any, predictions: Array | None) -> float:
    """Return the best intercept of a block alone; NaN if there is none."""
    shifted = np.zeros(len(loss.weights)) if predictions is None else predictions
    alone = replace(loss, weights=normalised(loss.weights), fit_intercept=True)
    try:
        with np.errstate(all="ignore"):
            return float(alone.evaluate(shifted).intercept)
    except ValueError:
        return np.nan


def _balanced(
    loss: Loss, residual: Array, own: float, shares: Array, intercepts: Array, n_outputs: int | None
) -> Array:
    result: Array = own * residual
    for share, intercept in zip(shares.tolist(), intercepts, strict=True):
        shifted = np.zeros(residual.shape) + (intercept[0] if n_outputs is None else intercept)
        result += share * loss.evaluate(shifted).residual
    return result


def _hessian(loss: Loss, residual: Array) -> Hessian:
    return loss.hessian(Evaluation(0.0, residual, 0.0, 0.0, 0.0))


def _diagonal(hessian: Hessian) -> Array:
    return np.asarray(hessian.diagonal)


def _image(hessian: Hessian, change: Array, mean: Array | None) -> Array:
    return np.asarray(hessian.apply(change if mean is None else _less(change, mean)))


def _along(hessian: Hessian, change: Array, mean: Array | None) -> tuple[float]:
    centred = change if mean is None else _less(change, mean)
    return (float((centred * hessian.apply(centred)).sum()),)


def _intercept_slope(hessian: Hessian, change: Array) -> tuple[Array]:
    return (_column_sums(hessian.apply(change)),)


def _intercept_curvature(hessian: Hessian, diagonal: Array) -> tuple[Array]:
    return (_curvature_in_intercepts(hessian, diagonal.shape),)


def _curvature_in_intercepts(hessian: Hessian, shape: tuple[int, ...]) -> Array:
    if len(shape) == 1:
        return np.array([[float(hessian.diagonal.sum())]])
    units = np.eye(shape[1])
    return np.array([_column_sums(hessian.apply(np.broadcast_to(unit, shape))) for unit in units])


def _mean(loss: Loss, change: Array) -> tuple[Array]:
    return (_column_sums((loss.weights * change.T).T),)


def _curvature_bound(loss: Loss, change: Array, mean: Array | float) -> tuple[float]:
    return (loss.curvature_bound(_less(change, mean)),)


def _some(loss: Any, rows: npt.NDArray[np.intp]) -> Any:
    return loss.some(rows)


def _taken(vector: Array, rows: npt.NDArray[np.intp]) -> Array:
    return vector[rows]


def _less(change: Array, mean: Any) -> Array:
    result: Array = change - (float(np.asarray(mean).ravel()[0]) if change.ndim == 1 else mean)
    return result


def _column_sums(vector: Array) -> Array:
    return np.array([vector.sum()]) if vector.ndim == 1 else column_sums(vector)
