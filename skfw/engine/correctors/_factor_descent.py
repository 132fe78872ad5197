"""A corrector for low-rank matrices: descent on the factors inside a nuclear-norm ball.

A matrix is in the ball if and only if it is ``U V^T`` with ``|U|^2 + |V|^2 <= 2 radius``: a Euclidean ball of
factors. There the loss is no longer convex, but any descent serves, because the lower bound does not depend
on how the iterates came about. New directions come from the top singular vectors of the gradient, so that no
stationary point but the optimum can hold the iterate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np
from scipy.linalg import qr, svd

from .._atoms import FactoredMatrix, RankOne
from .._certificate import Cut
from .._eigenvalues import start_noise
from .._problem import Problem
from .._protocols import Array, Corrector, Entries, Evaluation, Point
from .._sums import TINY, inner
from .._threads import BLOCK, add_up, map_blocks, row_blocks
from ._stiffness import Stiffness

# New singular vectors at once: this many, or this share of those already there if that is more.
_BATCH, _BATCH_SHARE = 20, 0.5
# More of them, up to this multiple of those there, while the last one has this share of what the first has
# beyond the multiplier: then the gap will not be small before all these are in the model. MovieLens 1M takes
# three quarters of the time, without features, and 100K half of it to a small gap. Not before there is a
# model, which tells the noise from what there is to find: made data of rank 5 takes twice as long.
_ALIKE, _LARGEST_SHARE = 0.4, 4.0
# They are found by this many rounds of subspace iteration, with some vectors more than wanted.
_ROUNDS, _SPARE = 2, 4
# A descent ends when the next step promises less than this fraction of the gap, times the relative gap.
_SHARE = 0.01
_MAX_STEPS = 30
# The preconditioner is made anew after this many steps.
_STALE = 5
# With at least this many entries, factors are improved in single precision until the gap is this fraction
# of the first objective; with fewer it would save nothing. Objective, radius, weights and features must be
# within the range of single precision.
_MANY_ENTRIES, _COARSE = 10_000, 1e-3
_SMALLEST, _LARGEST = 1e-15, 1e15
# Entries in a block of sums over them: what is computed for these stays in the cache.
_BLOCK = 1 << 15
# After a descent, steps towards single atoms go on while each reduces the gap to this fraction, up to this
# many. With features, MovieLens takes three quarters of the time.
_WORTH, _MAX_ATOMS = 0.75, 3
# What dropping small singular values may cost, as a fraction of what the descent has won.
_NEGLIGIBLE = 0.001
_SIGNIFICANT, _ON_SPHERE = 1e-6, 1e-5
# Steps that a search along a direction tries first, and how often it refines the best.
_STEPS = np.geomspace(2.0**-30, 2.0**6, 73)
_REFINEMENTS, _FINER = 2, 17


@dataclass(frozen=True)
class _Model:
    """The factors, of the rows and then of the columns, with their predictions and the loss there.

    `sides` are the factors of the matrix that is observed: those of its rows, and those of its columns.
    """

    factors: Array
    sides: tuple[Array, Array]
    predictions: Array
    evaluation: Evaluation

    @property
    def slope(self) -> float:
        """The inner product of the gradient with the matrix."""
        return inner(self.evaluation.residual, self.predictions)


@final
class FactorDescent(Corrector):
    """Adds singular vectors of the gradient to the factors, and improves all factors together.

    Preconditioned conjugate gradients on the ball of the factors. Along a direction the
    quadratic upper bound of the loss is a polynomial in the step, so a search needs no product with the data.

    A descent may leave a direction of a large slope along which there is next to nothing to win, because the
    loss is curved so much; with features there are some that biases nearly make up for. The bound sees the
    slope alone. So a descent ends with Frank-Wolfe steps, as long as they reduce the gap by much.

    Parameters
    ----------
    problem : Problem of Entries
        Its loss must have a finite `curvature`.
    radius : float
    row_weights, column_weights : ndarray
        The norm is that of the matrix with rows and columns multiplied by these.
    seed : int
    max_rank : int, optional
        The rank of all iterates is at most this. A run may then end far from the optimum, as its gap says.
    """

    def __init__(
        self,
        problem: Problem[Entries],
        radius: float,
        row_weights: Array,
        column_weights: Array,
        seed: int = 0,
        max_rank: int | None = None,
    ) -> None:
        self.problem, self.radius, self.max_rank = problem, radius, max_rank
        self.is_exclusive = max_rank is not None
        self.loss, self.entries = problem.loss, problem.data
        self._weights = np.concatenate([row_weights, column_weights])[:, np.newaxis]
        self._rng = start_noise(seed)
        self._iterate: FactoredMatrix | None = None
        self._factors: Array = np.zeros((len(self._weights), 0))
        self._coarse_gap: float | None = None
        shape = problem.data.observed.shape
        self._weight_matrix = problem.data.observed.adjoint(problem.loss.weights)
        marginals = self._weight_matrix @ np.ones(shape[1]), self._weight_matrix.T @ np.ones(shape[0])
        self._totals = [totals[:, np.newaxis] for totals in marginals]
        maps = problem.data.row_map, problem.data.column_map
        self._has_features = not all(factor_map.is_identity for factor_map in maps)
        self._stiffness = [Stiffness(factor_map, self._rng) for factor_map in maps]

    def improve(self, point: Point, newest: Cut, gap: float) -> Point:
        """Add new singular vectors, and descend until better factors could reduce the gap by little."""
        if point.x is not self._iterate:  # a step was taken without this corrector
            self._iterate = point.x
            self._factors = self._balanced(np.vstack([point.x.left * point.x.weights, point.x.right]), 0.0)
        if self._coarse_gap is None:
            numbers = point.value, self.radius, self._weights.min() ** 2, self._weights.max() ** 2
            in_range = all(_SMALLEST < number < _LARGEST for number in (*numbers, *self._squared_lengths()))
            many = len(point.predictions) >= _MANY_ENTRIES
            self._coarse_gap = _COARSE * point.value if in_range and many else np.inf
        precision = np.float32 if gap > self._coarse_gap else np.float64
        factors: Array = self._factors.astype(precision)
        predictions: Array = point.predictions.astype(precision, copy=False)
        model = _Model(factors, self._sides(factors), predictions, point.evaluation)
        model = self._descend(self._enlarge(model, newest), gap)
        if self.max_rank is not None and model.factors.shape[1] > self.max_rank:
            factors = self._balanced(model.factors, 0.0)[:, : self.max_rank]
            sides = self._sides(factors)
            model = self._descend(self._at(factors, sides, self._predict(*sides), model), gap)
        multiplier, fall = self._multiplier(model), point.value - model.evaluation.value
        factors = model.factors.astype(np.float64)
        factors = self._balanced(factors, _NEGLIGIBLE * fall / multiplier if multiplier else 0.0)
        sides = self._sides(factors)
        model = self._at(factors, sides, self._predict(*sides), model)
        if self._has_features and self.max_rank is None:
            model = self._step_to_atoms(model, newest, gap, precision)
        if not model.evaluation.value < point.value:
            if precision == np.float64:
                return point
            self._coarse_gap = np.inf  # perhaps for want of precision
            return self.improve(point, newest, gap)
        self._factors = model.factors
        left, right = self._split(self._factors)
        self._iterate = FactoredMatrix.from_svd(left, np.ones(left.shape[1]), right)
        return Point(self._iterate, model.predictions, model.evaluation)

    def _step_to_atoms(self, model: _Model, newest: Cut, gap: float, precision: type) -> _Model:
        """Take Frank-Wolfe steps as long as each reduces the gap by much."""
        basis: Array = self._right_vector(newest).astype(precision)
        for _ in range(_MAX_ATOMS):
            matrix, unit = self._weighted(self.entries.adjoint(model.evaluation.residual), precision)
            left, values, basis = self._top_vectors(matrix, basis, 1)
            last_gap, gap = gap, self.radius * (float(values[0]) * unit - self._multiplier(model))
            if gap > _WORTH * last_gap:
                break
            # In single precision they are longer than one by rounding, and the model would leave the ball.
            vectors = [side[:, :1].astype(np.float64) for side in (left, basis)]
            units = [vector / np.linalg.norm(vector) for vector in vectors]
            model = self._towards(model, units[0], units[1], np.ones(1))
        return model

    def _squared_lengths(self) -> tuple[float, float]:
        """Return the largest squared norm of a row, in each of the two maps."""
        row_squares, column_squares = self.entries.row_map.squares, self.entries.column_map.squares
        left, right = self._split(np.ones(len(self._weights)))
        return float(row_squares.apply(left).max()), float(column_squares.apply(right).max())

    def _split(self, factors: Array) -> tuple[Array, Array]:
        n_rows = self.entries.shape[0]
        return factors[:n_rows], factors[n_rows:]

    def _sides(self, factors: Array) -> tuple[Array, Array]:
        """Return the factors of the rows and of the columns that are observed."""
        left, right = self._split(factors)
        return self.entries.row_map.apply(left), self.entries.column_map.apply(right)

    def _predict(self, left: Array, right: Array) -> Array:
        return np.asarray(self.entries.observed.products(left, right))

    def _slope(self, model: _Model) -> Array:
        """Return the gradient in the factors."""
        left, right = model.sides
        matrix = self.entries.observed.adjoint(model.evaluation.residual).astype(left.dtype)
        rows = self.entries.row_map.adjoint(matrix @ right)
        columns = self.entries.column_map.adjoint(matrix.T @ left)
        return np.vstack([rows, columns])

    def _renew_preconditioner(self, model: _Model, squares: Array, multiplier: float) -> None:
        weights = self._weight_matrix.astype(model.factors.dtype)
        others = zip(model.sides[::-1], self._totals[::-1], (weights, weights.T), strict=True)
        for stiffness, part, (other, totals, matrix) in zip(
            self._stiffness, self._split(squares), others, strict=True
        ):
            # Of each row, one number for all factors: it does not depend on the basis that they have.
            curvatures = self.loss.curvature * (matrix @ np.mean(other**2, axis=1, keepdims=True))
            gram = other.T @ (totals.astype(other.dtype) * other)
            stiffness.renew(curvatures, gram, part, multiplier)

    def _precondition(self, slope: Array) -> Array:
        parts = zip(self._stiffness, self._split(slope), strict=True)
        return np.vstack([stiffness.solve(part) for stiffness, part in parts])

    def _multiplier(self, model: _Model) -> float:
        """Return the Lagrange multiplier of the bound on the norm, at a stationary point."""
        return max(-model.slope / self.radius, 0.0)

    def _balanced(self, factors: Array, negligible: float) -> Array:
        """Return orthogonal factors of equal norms, without the singular values negligible in sum.

        The others take over their part of the norm.
        """
        left, right = self._split(self._weights * factors)
        left, values, right = FactoredMatrix(left, right, np.ones(left.shape[1])).svd()
        kept = np.cumsum(values[::-1])[::-1] > negligible
        total = min(float(values.sum()), self.radius)
        values = values[kept] * (total / max(float(values[kept].sum()), TINY))
        result: Array = np.vstack([left[:, kept], right[:, kept]]) * np.sqrt(values) / self._weights
        return np.ascontiguousarray(result)

    def _weighted(self, direction: Any, precision: type) -> tuple[Any, float]:
        """Return the matrix whose singular vectors point to atoms, and the unit that it is in."""
        row_weights, column_weights = self._split(self._weights)
        matrix = (1.0 / row_weights) * direction * (1.0 / column_weights[:, 0])
        unit = max(float(abs(matrix).max()), TINY)  # so that squares do not overflow or underflow
        return (matrix / unit).astype(precision), unit

    def _right_vector(self, newest: Cut) -> Array:
        """Return that of the atom of a cut, as a column."""
        _, column_weights = self._split(self._weights)
        result: Array = column_weights * cast(RankOne, newest.minimum.atom).right[:, np.newaxis]
        return result

    def _enlarge(self, model: _Model, newest: Cut) -> _Model:
        """Step towards the mean of the singular vectors that the gradient has beyond those of the model."""
        precision = model.factors.dtype.type
        matrix, unit = self._weighted(newest.direction, precision)
        multiplier = self._multiplier(model) / unit
        rank = model.factors.shape[1]
        n_added, most = max(_BATCH, int(_BATCH_SHARE * rank)), max(_BATCH, int(_LARGEST_SHARE * rank))
        right = self._right_vector(newest).astype(precision)
        while True:
            left, values, right = self._top_vectors(matrix, right, n_added)
            excess = values[:n_added] - multiplier
            if n_added >= most or len(excess) < n_added or excess[-1] < _ALIKE * excess[0]:
                break
            n_added = min(2 * n_added, most)
        # Vectors of singular values that are nothing but rounding point anywhere.
        excess = np.maximum(excess - _SIGNIFICANT * values[0], 0.0)
        added = np.flatnonzero(excess)
        if not len(added):
            return model
        return self._towards(model, left[:, added], right[:, added], excess[added] / excess.sum())

    def _towards(self, model: _Model, left: Array, right: Array, shares: Array) -> _Model:
        """Go towards the mean of the atoms of these singular vectors, as far as the loss falls."""
        new = np.ascontiguousarray(np.vstack([-left, right]))
        new *= np.sqrt(shares * self.radius) / self._weights
        sides = self._sides(new)
        change = self._predict(*sides) - model.predictions
        fall = -inner(model.evaluation.residual, change)
        bend = self._bend(change, model)
        if not fall > 0.0:
            return model
        step = fall / bend if fall < bend else 1.0
        old_share, new_share = (1.0 - step) ** 0.5, step**0.5

        def enlarged(old: Array, added: Array) -> Array:
            # In rows, as all factors are: a sum of both orders takes several times as long.
            return np.ascontiguousarray(np.hstack([old_share * old, new_share * added]))

        left, right = map(enlarged, model.sides, sides)
        predictions = model.predictions + step * change
        return self._at(enlarged(model.factors, new), (left, right), predictions, model)

    def _top_vectors(self, matrix: Any, basis: Array, wanted: int) -> tuple[Array, Array, Array]:
        """Return the largest singular values of a matrix and their vectors, from a basis of some of these."""
        size = min(wanted + _SPARE, *matrix.shape)
        more = self._rng.standard_normal((matrix.shape[1], size - basis.shape[1]), dtype=basis.dtype)
        basis = np.hstack([basis, more])
        for _ in range(_ROUNDS):
            basis = qr(matrix.T @ (matrix @ basis), mode="economic")[0]
        left, values, right = svd(matrix @ basis, full_matrices=False)
        return left, values, basis @ right.T

    def _bend(self, change: Array, model: _Model) -> float:
        """Return the second derivative along a change of the predictions, or an upper bound."""
        if not self.loss.is_quadratic:
            return self.loss.curvature_bound(change)
        return self.loss.curvature_along(model.evaluation, change.astype(np.float64, copy=False))

    def _products(self, model: _Model, first: Array, second: Array) -> tuple[Array, Array]:
        """Return slope and second derivative of the loss, or of an upper bound, along three changes.

        These are the predictions themselves, `first` and `second`. Of a quadratic loss the image of the
        predictions is known. All else is bounded as if biases stayed where they are: to find how they follow
        would take longer than the few steps more that it saves.
        """
        residual, weights, kind = model.evaluation.residual, self.loss.weights, model.predictions.dtype
        null_residual = self.problem.null.evaluation.residual

        def products(part: slice) -> Array:
            changes = model.predictions[part], first[part], second[part]
            curvatures = (self.loss.curvature * weights[part]).astype(kind, copy=False)
            images = [curvatures * change for change in changes]
            if self.loss.is_quadratic:
                images[0] = residual[part] - null_residual[part].astype(kind, copy=False)
            pairs = [[np.dot(row, change) for change in changes] for row in (residual[part], *images)]
            return np.array(pairs, dtype=np.float64)

        slopes, *bends = add_up(map_blocks(products, row_blocks(len(residual), _BLOCK)))
        lower = np.tril(np.transpose(bends))  # entries with the image of the predictions, not with the bound
        return slopes, lower + np.tril(lower, -1).T

    def _at(self, factors: Array, sides: tuple[Array, Array], predictions: Array, last: _Model) -> _Model:
        rough = factors.dtype == np.float32
        evaluate = self.loss.evaluate_roughly if rough else self.loss.evaluate
        evaluation = evaluate(predictions, last.evaluation.intercept)
        return _Model(factors, sides, predictions, evaluation)

    def _descend(self, model: _Model, gap: float) -> _Model:
        """Minimise over the factors by conjugate gradients."""
        if not model.factors.shape[1]:
            return model
        squares = (self._weights**2).astype(model.factors.dtype)
        slope, direction = np.zeros_like(model.factors), np.zeros_like(model.factors)
        fall = np.inf
        for n_steps in range(_MAX_STEPS):
            size = float(self._norm_products(squares, model.factors, model.factors)[1])
            multiplier = self._multiplier(model)
            held = multiplier > 0.0 and size >= 2.0 * self.radius * (1.0 - _ON_SPHERE)
            past_slope, past_fall = slope, fall
            slope = self._slope(model)
            if held:
                slope += (multiplier * squares) * model.factors
            if n_steps % _STALE == 0:
                # With the multiplier in any case: norm that a step adds in the ball may be missing later.
                self._renew_preconditioner(model, squares, multiplier)
            ascent = self._precondition(slope)
            fall = float(np.vdot(slope, ascent))
            # The gap is of first order in the distance to the optimum, what a step wins is of second.
            if fall <= _SHARE * gap * min(gap / max(model.evaluation.value, TINY), 1.0):
                break
            # Polak and Ribiere's conjugate direction, or the steepest one where that does not go down.
            direction *= max((fall - float(np.vdot(past_slope, ascent))) / past_fall, 0.0)
            direction -= ascent
            if np.vdot(slope, direction) >= 0.0:
                direction = -ascent
            following = self._search(model, direction, squares, size, held)
            if following is None:
                break
            model = following
        return model

    def _norm_products(self, squares: Array, factors: Array, direction: Array) -> Array:
        """Return the products of the norm of a direction with factors, and with itself."""

        def products(part: slice) -> Array:
            weighted = (squares[part] * direction[part]).ravel()
            pair = [np.dot(weighted, other[part].ravel()) for other in (factors, direction)]
            return np.array(pair, dtype=np.float64)

        blocks = row_blocks(len(factors), max(BLOCK // factors.shape[1], 1))
        return add_up(map_blocks(products, blocks))

    def _search(
        self, model: _Model, direction: Array, squares: Array, size: float, held: bool
    ) -> _Model | None:
        """Go along a direction of the factors, and back to the ball; None if there is nothing to win.

        Where the constraint is active, they stay on the sphere. Scaled by the root of s, the factors
        ``U + t dU`` and ``V + t dV`` predict ``s (predictions + t first + t^2 second)``.
        """
        sides, changes = model.sides, self._sides(direction)
        second = self._predict(*changes)
        first = self._predict(sides[0] + changes[0], sides[1] + changes[1])
        first -= second
        first -= model.predictions
        slopes, bends = self._products(model, first, second)
        cross, square = self._norm_products(squares, model.factors, direction).tolist()

        def shrinkage(steps: Any) -> Any:
            share = 2.0 * self.radius / (size + steps * (2.0 * cross + steps * square))
            return share if held else np.minimum(share, 1.0)

        def rise(steps: Array) -> Array:
            share = shrinkage(steps)
            change = np.stack([share - 1.0, share * steps, share * steps * steps])
            result: Array = slopes @ change + 0.5 * np.sum(change * (bends @ change), axis=0)
            return result

        steps = _STEPS
        for _ in range(_REFINEMENTS):
            best = int(np.argmin(rise(steps)))
            steps = np.linspace(steps[max(best - 1, 0)], steps[min(best + 1, len(steps) - 1)], _FINER)
        values = rise(steps)
        if not values.min() < 0.0:
            return None
        step = float(steps[np.argmin(values)])
        share = float(shrinkage(step))
        predictions = second
        for factor, summand in ((step, first), (step, model.predictions)):
            predictions *= factor
            predictions += summand
        predictions *= share

        def moved(factors: Array, change: Array) -> Array:
            result = step * change
            result += factors
            result *= share**0.5
            return result

        left, right = map(moved, sides, changes)
        return self._at(moved(model.factors, direction), (left, right), predictions, model)
