"""Quadratic models, minimised over a ball of groups: what a Newton step of a corrector comes down to.

The norm is the one whose unit ball is the convex hull of the models with at most `support_size` groups and
Euclidean norm one. With ``w_g`` the part of a model in a group,

    |w|^2 = min of sum_g |w_g|^2 / theta_g over theta in [0, 1] with sum at most support_size

(Argyriou, Foygel and Srebro, 2012). At the minimum theta is one for the groups larger than a level, which
are *whole*, and the size of the group divided by the level for the others, the *tail*. So on either side of
zero the square of the norm is smooth: a sum of squares over the whole groups, and a square of a sum over the
tail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf, dpotrs

from .._protocols import Array
from .._sums import NEGLIGIBLE_SUM, TINY, inner
from ._newton_step import conjugate_gradients
from ._quadratics import RIDGE

_MAX_PASSES = 60
# With a factored matrix, a few products take the ridge out again. Without, they are the work.
_FACTORED_PRODUCTS, _MAX_PRODUCTS = 3, 40
# How often groups that crossed zero are kept there, and the others solved for again. Without that it takes
# 2.6 times the equations on w7a in groups at a multiplier of 3e-8, and 1.7 times on Farm Ads at 3e-4.
_MAX_BARS = 5
# A step that has to be shortened leads to damped ones: by this share of the diagonal, and ten times as much
# each time it is not enough. Shortening a step for its flat directions leaves all others where they were:
# on w7a at that multiplier, 2202 systems of equations were solved without damping, and 375 with it.
_DAMPING, _DAMPING_FACTOR = 1e-3, 10.0
_LEAST_DAMPING, _MOST_DAMPING = 1e-6, 1.0
_MAX_BACKTRACKS, _BACKTRACK = 8, 0.25
# The multiplier waits until the model can fall for it by no more than about this share of the gap: while
# groups still come and go it would swing to and fro. It changes by this factor at most, unless it is next to
# nothing.
_SOLVED, _LARGEST_CHANGE = 0.3, 100.0
_ROUNDING = 1e-12


@final
@dataclass(frozen=True)
class GroupNorm:
    """A norm of groups of coordinates, and its dual.

    Parameters
    ----------
    groups : ndarray of ints
        The group of each coordinate, numbered from zero.
    n_groups : int
    support_size : int
        One: the sum of the sizes of the groups. The number of groups: the Euclidean norm.
    """

    groups: npt.NDArray[np.intp]
    n_groups: int
    support_size: int

    def sums(self, values: Array) -> Array:
        """Return the sum over each group."""
        return np.bincount(self.groups, values, minlength=self.n_groups).astype(np.float64, copy=False)

    def sizes(self, x: Array) -> Array:
        """Return the Euclidean norm of each group."""
        result: Array = np.sqrt(self.sums(x * x))
        return result

    def level(self, sizes: Array) -> tuple[float, int]:
        """Return the size above which groups are whole, and how many groups the tail counts for."""
        if self.support_size >= self.n_groups:
            return 0.0, 1
        descending = np.sort(sizes)[::-1]
        n_whole = np.arange(self.support_size)
        tails = np.cumsum(descending[::-1])[::-1][: self.support_size]
        levels = tails / (self.support_size - n_whole)
        n = int(np.flatnonzero(np.append(True, descending[n_whole[1:] - 1] > levels[1:]))[-1])
        return float(levels[n]), self.support_size - n

    def of(self, x: Array) -> float:
        """Return the norm."""
        sizes = self.sizes(x)
        return float(np.sqrt(sizes @ np.maximum(sizes, self.level(sizes)[0])))

    def normal(self, x: Array) -> Array:
        """Return the gradient of half the square of the norm, the smallest one."""
        sizes = self.sizes(x)
        level = self.level(sizes)[0]
        factors = np.divide(level, sizes, where=(sizes > 0.0) & (sizes < level), out=np.ones_like(sizes))
        return np.asarray(factors[self.groups] * x)

    def dual(self, slope: Array) -> float:
        """Return the Euclidean norm of the largest groups."""
        sizes = self.sizes(slope)
        if self.support_size < self.n_groups:
            sizes = np.partition(sizes, -self.support_size)[-self.support_size :]
        return float(np.sqrt(sizes @ sizes))


@final
class QuadraticModel:
    """The model ``<linear, w> + <w, H w>/2``, which counts the products with ``H``.

    Parameters
    ----------
    product : callable
        Returns ``H w``.
    matrix : ndarray or None
        ``H``, where it is known.
    diagonal : ndarray
        Its diagonal.
    linear : ndarray
    """

    def __init__(
        self, product: Callable[[Array], Array], matrix: Array | None, diagonal: Array, linear: Array
    ) -> None:
        self.matrix, self.linear = matrix, linear
        self.diagonal = np.maximum(diagonal, RIDGE * RIDGE * diagonal.max())
        self._product = product
        self.n_products = 0

    def product(self, x: Array) -> Array:
        """Return ``H x``."""
        self.n_products += 1
        return self._product(x)

    def rise(self, x: Array, image: Array, moved: Array, moved_image: Array) -> float:
        """Return by how much the model is larger at a second point; the products of both are known.

        Values are the same up to rounding long before their difference is.
        """
        return inner(self.linear + 0.5 * (image + moved_image), moved - x)


def minimise_over_ball(
    model: QuadraticModel,
    norm: GroupNorm,
    radius: float,
    start: Array,
    other: Array,
    multiplier: float,
    target: float,
    precision: float,
    max_products: float,
) -> tuple[Array | None, float]:
    """Minimise a model over a ball, until it is no higher than at a point and its gap is at most `target`.

    For a multiplier, the model plus that times half the square of the norm is minimised by Newton's method.
    Meanwhile the multiplier goes to where the norm is the radius, by the iteration of More and Sorensen
    (1983). What is outside is scaled into the ball.

    Parameters
    ----------
    model : QuadraticModel
    norm : GroupNorm
    radius : float
    start : ndarray
    other : ndarray
        The point of the ball.
    multiplier : float
        A guess.
    target : float
    precision : float
        By how much conjugate gradients are to reduce the residual.
    max_products : float
        No pass begins after as many.

    Returns
    -------
    best : ndarray or None
        The one with the smallest gap of those that are no higher than `other`; None if there is none.
    multiplier : float
        Of half the square of the norm.
    """
    x, image, damping = start, model.product(start), 0.0
    best, smallest, other_image = None, np.inf, model.product(other)
    wanted = _Multiplier(multiplier)
    traces = norm.sums(model.diagonal)
    for _ in range(_MAX_PASSES):
        found = _Penalised(model, norm, wanted.value, damping, traces, precision).descend(x, image)
        if found is None and damping >= _MOST_DAMPING:
            break
        if found is None or found.shortened:
            damping = max(_DAMPING, _DAMPING_FACTOR * damping)
        else:
            damping = damping / _DAMPING_FACTOR if damping > _LEAST_DAMPING else 0.0
        if found is None:
            continue
        x, image, step = found.x, found.image, found.step

        size = norm.of(x)
        scale = radius / size if size > radius else 1.0
        slope = model.linear + scale * image
        gap = scale * inner(slope, x) + radius * norm.dual(slope)
        if gap < smallest and model.rise(other, other_image, scale * x, scale * image) <= 0.0:
            best, smallest = scale * x, gap
            if gap <= target:
                break
        if model.n_products >= max_products:
            break
        if step.decrease <= _SOLVED * gap:
            normal = norm.normal(x)[step.piece.free]
            wanted.move(size, radius, inner(normal, step.solve(normal)), target)
    return best, wanted.value


class _Multiplier:
    """The multiplier for which the norm is the radius, or zero, and two bounds that it is between."""

    def __init__(self, value: float) -> None:
        self.value = value
        self._low, self._high = 0.0, np.inf

    def move(self, size: float, radius: float, bend: float, target: float) -> None:
        """Take a step of More and Sorensen.

        `size` is the norm where the model is solved for the present multiplier, and `bend` how fast half of
        its square falls as the multiplier grows.
        """
        # The slope of the model has a dual norm of the multiplier times the size there, and that only grows
        # as the norm falls. Where the model was not solved well enough, a bound may be wrong: the newer one
        # counts.
        bound = self.value * size / radius
        if size > radius:
            self._low, self._high = bound, self._high if self._high > bound else np.inf
        else:
            self._low, self._high = self._low if self._low < bound else 0.0, bound
        wanted = self.value
        if bend > 0.0:
            wanted = max(wanted + (size / radius - 1.0) * size * size / bend, 0.0)
        # One that could win no more than `target` may as well be zero.
        if self.value * radius * radius > target:
            wanted = min(max(wanted, self.value / _LARGEST_CHANGE), self.value * _LARGEST_CHANGE)
        if wanted < self._low or wanted > self._high:
            if self._high == np.inf:
                wanted = self._low
            else:
                wanted = float(np.sqrt(self._low * self._high)) or 0.5 * self._high
        self.value = wanted


@final
class _Piece:
    """Half the square of the norm, times a multiplier, where it is smooth: on the side of zero of a point.

    Its second derivative is the multiplier in the whole groups. In the tail, groups bend sideways of their
    directions, the more the smaller they are, and along their directions all of them together.

    Parameters
    ----------
    norm : GroupNorm
    x : ndarray
    slope : ndarray
        Of the model: where groups that are zero would go.
    multiplier : float
    traces : ndarray
        Of the second derivative of the model in each group.
    barred : ndarray of bools
        Groups that stay zero.
    """

    def __init__(
        self,
        norm: GroupNorm,
        x: Array,
        slope: Array,
        multiplier: float,
        traces: Array,
        barred: npt.NDArray[np.bool_],
    ) -> None:
        self._norm = norm
        sizes, slopes = norm.sizes(x), norm.sizes(slope)
        level, room = norm.level(sizes)
        absent = sizes == 0.0
        joins = absent & ~barred & (slopes > (1.0 + _ROUNDING) * multiplier * level)
        lengths = np.maximum(np.where(absent, slopes, sizes), TINY)
        self._directions = np.where(absent[norm.groups], -slope, x) / lengths[norm.groups]
        # Where the level is zero the square of the norm has no kink.
        self._in_tail = (sizes <= level) & (level > 0.0)
        in_tail = self._in_tail[norm.groups]
        self.free = np.flatnonzero((~absent | joins)[norm.groups])
        self.gradient = multiplier * np.where(in_tail, level * self._directions, x)[self.free]

        # Groups that join are as large as a step along the slope alone would make them.
        joining = np.maximum(slopes - multiplier * level, 0.0) / np.maximum(traces + multiplier, TINY)
        lengths = np.where(absent, joining, sizes)
        several = np.bincount(norm.groups, minlength=norm.n_groups) > 1
        bends = self._in_tail & several & (lengths > 0.0)
        bend = np.divide(multiplier * level, lengths, where=bends, out=np.zeros_like(lengths))
        self._groups = norm.groups[self.free]
        self._bend = bend[self._groups]
        self._whole = np.where(in_tail[self.free], 0.0, multiplier)
        self._units = self._directions[self.free]
        self._tail = np.where(in_tail[self.free], self._units, 0.0)
        self._spread = multiplier / room

    def curved(self, change: Array) -> Array:
        """Return the second derivative times a change of the free coordinates."""
        bent = self._bend * (change - self._units * self._along(change))
        return self._whole * change + bent + self._spread * inner(self._tail, change) * self._tail

    def inverse(self, diagonal: Array) -> Callable[[Array], Array]:
        """Return the inverse of a diagonal plus the second derivative.

        By the formula of Sherman and Morrison, first for each group and then for the tail.
        """
        flat = diagonal + self._whole
        stiff = flat + self._bend
        remainders = self._along(self._units * flat / stiff)
        turn = np.divide(self._bend * self._units, stiff * remainders, where=remainders > 0.0, out=0.0 * flat)

        def within_groups(residual: Array) -> Array:
            solved = residual / stiff
            return np.asarray(solved + turn * self._along(solved))

        tail = within_groups(self._tail)
        share = self._spread / (1.0 + self._spread * inner(self._tail, tail))

        def solve(residual: Array) -> Array:
            solved = within_groups(residual)
            return np.asarray(solved - share * inner(self._tail, solved) * tail)

        return solve

    def inverse_with(self, matrix: Array, ridge: Array) -> Callable[[Array], Array] | None:
        """Return the inverse of a matrix plus a ridge plus the second derivative; None where that fails."""
        total = matrix[np.ix_(self.free, self.free)]
        if self._bend.any():
            units = np.sqrt(self._bend) * self._units
            total -= np.where(self._groups[:, np.newaxis] == self._groups, units[:, np.newaxis] * units, 0.0)
        total += (self._spread * self._tail)[:, np.newaxis] * self._tail
        total[np.diag_indices(len(total))] += ridge + self._whole + self._bend
        factor, failed = dpotrf(total, overwrite_a=1)
        return None if failed else lambda residual: dpotrs(factor, residual)[0]

    def crossed(self, x: Array) -> npt.NDArray[np.bool_]:
        """Return which groups of the tail have crossed zero."""
        return self._in_tail & (self._norm.sums(self._directions * x) < 0.0)

    def _along(self, values: Array) -> Array:
        """Return for each free coordinate the inner product of its group with the group's direction."""
        sums = np.bincount(self._groups, self._units * values, minlength=self._norm.n_groups)
        return np.asarray(sums[self._groups])


@dataclass(frozen=True)
class _Step:
    """A Newton step.

    Attributes
    ----------
    piece : _Piece
        Where it is one.
    solve : callable
        About the inverse of the second derivative there.
    change : ndarray
    decrease : float
        By how much the function would fall without the kinks, times two.
    """

    piece: _Piece
    solve: Callable[[Array], Array]
    change: Array
    decrease: float


@dataclass(frozen=True)
class _Pass:
    """Where a descent has led.

    Attributes
    ----------
    x, image : ndarray
        The point, and its product.
    step : _Step
    shortened : bool
        Whether the step was too long.
    """

    x: Array
    image: Array
    step: _Step
    shortened: bool


@dataclass(frozen=True)
class _Penalised:
    """A model plus a multiplier times half the square of the norm, and its descent.

    Attributes
    ----------
    model : QuadraticModel
    norm : GroupNorm
    multiplier : float
    damping : float
        The second derivative is that much larger, relative to the diagonal of the model.
    traces : ndarray
        See `_Piece`.
    precision : float
    """

    model: QuadraticModel
    norm: GroupNorm
    multiplier: float
    damping: float
    traces: Array
    precision: float

    def falls(self, x: Array, image: Array, moved: Array, moved_image: Array) -> bool:
        """Whether the function is no larger at a second point; the products of both are known."""
        size, moved_size = self.norm.of(x), self.norm.of(moved)
        grows = 0.5 * self.multiplier * (moved_size - size) * (moved_size + size)
        rounding = NEGLIGIBLE_SUM * self.multiplier * size * size
        return self.model.rise(x, image, moved, moved_image) + grows <= rounding

    def descend(self, x: Array, image: Array) -> _Pass | None:
        """Go down by a Newton step; None where that is not possible.

        Groups that cross zero stay there. If the function rises, the others are solved for again. If that
        does not help, the first step is shortened: where it is short enough, the function falls along it.
        """
        barred = np.zeros(self.norm.n_groups, dtype=bool)
        first = step = self._newton_step(x, image, barred)
        base = x
        for _ in range(_MAX_BARS):
            if step is None:
                break
            crossed = step.piece.crossed(base + step.change)
            moved = self._without(crossed, base + step.change)
            moved_image = self.model.product(moved)
            if self.falls(x, image, moved, moved_image):
                return _Pass(moved, moved_image, step, shortened=False)
            if not crossed.any():
                break
            barred |= crossed
            base = self._without(barred, x)
            step = self._newton_step(base, self.model.product(base), barred)
        if first is None:
            return None
        for n in range(1, _MAX_BACKTRACKS):
            moved = x + _BACKTRACK**n * first.change
            moved = self._without(first.piece.crossed(moved), moved)
            moved_image = self.model.product(moved)
            if self.falls(x, image, moved, moved_image):
                return _Pass(moved, moved_image, first, shortened=True)
        return None

    def _newton_step(self, x: Array, image: Array, barred: npt.NDArray[np.bool_]) -> _Step | None:
        """Solve for the free groups; None where the equations fail."""
        model, slope = self.model, self.model.linear + image
        piece = _Piece(self.norm, x, slope, self.multiplier, self.traces, barred)
        diagonal = model.diagonal[piece.free]
        ridge = self.damping * diagonal
        if not len(piece.free):
            return None

        def product(values: Array) -> Array:
            padded = np.zeros_like(x)
            padded[piece.free] = values
            return np.asarray(model.product(padded)[piece.free] + ridge * values + piece.curved(values))

        if model.matrix is None:
            solve, limit = piece.inverse(diagonal + ridge), _MAX_PRODUCTS
        else:
            factored = piece.inverse_with(model.matrix, ridge + RIDGE * diagonal)
            if factored is None:
                return None
            solve, limit = factored, _FACTORED_PRODUCTS
        residual = -(slope[piece.free] + piece.gradient)
        change = np.zeros_like(x)
        change[piece.free], _ = conjugate_gradients(product, solve, residual, self.precision, limit)
        return _Step(piece, solve, change, inner(residual, change[piece.free]))

    def _without(self, gone: npt.NDArray[np.bool_], x: Array) -> Array:
        """Return the point with some groups set to zero."""
        return np.where(gone[self.norm.groups], 0.0, x)
