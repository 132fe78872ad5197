"""Newton steps over a polytope, whose quadratic models an interior-point method minimises."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dgetrf, dgetrs

from .._certificate import Cut
from .._linear_system import LinearSystem, power_of_two
from .._problem import Problem
from .._protocols import Array, Corrector, Design, Point
from ._newton_step import towards

_MAX_STEPS = 60
# A model is minimised up to this share of what that wins, or up to this share of the gap: what a step wins is
# of second order in the distance to the optimum, and the gap of first.
_SHARE_OF_WON, _NEGLIGIBLE = 1e-3, 1e-7
# A step goes this share of the way to where a slack or a multiplier would be zero.
_SHORT_OF_ZERO = 0.995
# The first slacks are at least this; the room of a coefficient is from a half to one.
_FIRST_SLACK = 0.1
# Constraints hold up to this.
_FEASIBLE = 1e-11
# Relative to the diagonal: so equations can be solved where features, or constraints, depend on each other.
# It makes steps a little shorter, not the solution another one.
_RIDGE, _REFINEMENTS = 1e-10, 2


@final
class InteriorPoint(Corrector):
    """Minimises the second-order model of the loss over the polytope, and goes towards that minimum.

    Parameters
    ----------
    problem : Problem of a Design
        Its models are vectors, and the Hessian of its loss can be formed.
    system : LinearSystem
        The constraints.
    """

    def __init__(self, problem: Problem[Design], system: LinearSystem) -> None:
        self.problem, self.system = problem, system

    def improve(self, point: Point, newest: Cut, gap: float) -> Point:
        """Take a Newton step."""
        x, system = point.x, self.system
        moving = np.flatnonzero(system.lower < system.upper)
        matrix = self.problem.loss.hessian(point.evaluation).gram(self.problem.data)
        if matrix is None or not len(moving):
            return point
        # In units of the room that coefficients have, and of the largest slope.
        units = power_of_two(system.upper - system.lower)
        slope = (units * newest.direction)[moving]
        size = float(np.abs(slope).max())
        if size == 0.0:
            return point
        hessian = (units[:, np.newaxis] * matrix * units / size)[np.ix_(moving, moving)]
        room = system.moved(x).restrict(moving).scaled(units[moving])
        change = solve_over_polytope(hessian, slope / size, room, _NEGLIGIBLE * gap / size)
        if change is None:
            return point
        target = x.copy()
        target[moving] += units[moving] * change
        # Where bounds are far apart, what is negligible in their units need not be so in those of the model.
        target = system.restored(target)
        if not system.nearly_meets(target):
            return point
        return towards(self.problem, point, target, self.problem.data.apply(target - x))


def solve_over_polytope(hessian: Array, slope: Array, system: LinearSystem, target: float) -> Array | None:
    """Minimise ``<slope, u> + <u, H u>/2`` over a polytope whose bounds leave room.

    It ends when it has all but a thousandth of what there is to win from zero, or all but `target`. This is
    Mehrotra's method with one step length, from a start that need not be feasible; then the equations of the
    constraints that hold with equality are solved, if that serves. None if it has not come to an end.
    """
    inequalities = _Inequalities(system)
    middle = (system.lower + system.upper) / 2.0
    slacks = np.maximum(inequalities.limits - inequalities.apply(middle), _FIRST_SLACK)
    iterate = _Iterate(middle, slacks, np.ones(len(slacks)), np.zeros(len(system.b_eq)))
    for _ in range(_MAX_STEPS):
        equations = _Equations(hessian, slope, system, inequalities, iterate)
        products = iterate.slacks * iterate.multipliers
        left = float(products.sum())
        won = -float((slope + 0.5 * (hessian @ iterate.u)) @ iterate.u)
        error = left + float(np.abs(equations.dual).sum())
        if error <= max(_SHARE_OF_WON * won, target) and equations.miss <= _FEASIBLE:
            return _polished(hessian, slope, system, iterate.u, iterate.slacks < iterate.multipliers)
        # How far one gets with all products at zero says how far to aim: Mehrotra's rule.
        step = equations.solve(products)
        length = iterate.longest(step)
        ahead = iterate.moved(step, length)
        centre = float(ahead.slacks @ ahead.multipliers / left) ** 3 * left / len(products)
        step = equations.solve(products + step.slacks * step.multipliers - centre)
        iterate = iterate.moved(step, _SHORT_OF_ZERO * iterate.longest(step))
    return None


@dataclass(frozen=True)
class _Iterate:
    """The variables, the slacks and multipliers of inequalities, the multipliers of equations; or a step."""

    u: Array
    slacks: Array
    multipliers: Array
    equation_multipliers: Array

    def longest(self, step: _Iterate) -> float:
        """Return the longest step, up to one, that leaves no slack and no multiplier negative."""
        values, changes = np.append(self.slacks, self.multipliers), np.append(step.slacks, step.multipliers)
        falls = changes < 0.0
        return float((values[falls] / -changes[falls]).min(initial=1.0))

    def moved(self, step: _Iterate, length: float) -> _Iterate:
        """Return where a step of this length leads."""
        return _Iterate(
            self.u + length * step.u,
            self.slacks + length * step.slacks,
            self.multipliers + length * step.multipliers,
            self.equation_multipliers + length * step.equation_multipliers,
        )


class _Equations:
    """The conditions of optimality at an iterate, and their Newton steps."""

    def __init__(
        self,
        hessian: Array,
        slope: Array,
        system: LinearSystem,
        inequalities: _Inequalities,
        iterate: _Iterate,
    ) -> None:
        self._hessian, self._inequalities, self._iterate = hessian, inequalities, iterate
        self._equations, self._n_rows = system.A_eq, len(system.b_ub)
        pull = inequalities.adjoint(iterate.multipliers) + system.A_eq.T @ iterate.equation_multipliers
        self.dual = slope + hessian @ iterate.u + pull
        self._primal = inequalities.apply(iterate.u) + iterate.slacks - inequalities.limits
        self._balance = system.A_eq @ iterate.u - system.b_eq
        self.miss = max(float(np.abs(self._primal).max()), float(np.abs(self._balance).max(initial=0.0)))

    @cached_property
    def _factors(self) -> tuple[Array, Array]:
        """The factors of the matrix of the equations, and the order of its rows.

        The multipliers of rows and equations remain unknowns. To eliminate them, too, would add terms to the
        Hessian that are so large in the end that its own digits are lost.
        """
        slacks, multipliers = self._iterate.slacks, self._iterate.multipliers
        size, n_rows = len(self._hessian), self._n_rows
        rows = np.vstack([self._inequalities.rows, self._equations])
        softness = np.full(len(rows), _RIDGE)  # of equations: they may depend on each other
        softness[:n_rows] = slacks[:n_rows] / multipliers[:n_rows]
        matrix = np.block([[self._hessian, rows.T], [rows, np.diag(-softness)]])
        at_upper, at_lower = np.split((multipliers / slacks)[n_rows:], 2)
        matrix[np.diag_indices(size)] += (
            at_upper + at_lower + _RIDGE * np.maximum(np.diag(self._hessian), 1.0)
        )
        factors, order, _ = dgetrf(matrix, overwrite_a=1)
        return factors, order

    def solve(self, products: Array) -> _Iterate:
        """Return the step to where slacks times multipliers have fallen by `products`, to first order."""
        slacks, multipliers = self._iterate.slacks, self._iterate.multipliers
        size, n_rows = len(self._hessian), self._n_rows
        at_bounds = (products - multipliers * self._primal) / slacks
        at_bounds[:n_rows] = 0.0
        at_rows = (products / multipliers - self._primal)[:n_rows]
        right = np.concatenate([self._inequalities.adjoint(at_bounds) - self.dual, at_rows, -self._balance])
        found = dgetrs(*self._factors, right)[0]
        u, row_step, equation_step = np.split(found, [size, size + n_rows])
        slack_step = -self._primal - self._inequalities.apply(u)
        multiplier_step = -(products + multipliers * slack_step) / slacks
        multiplier_step[:n_rows] = row_step
        return _Iterate(u, slack_step, multiplier_step, equation_step)


def _polished(
    hessian: Array, slope: Array, system: LinearSystem, u: Array, tight: npt.NDArray[np.bool_]
) -> Array:
    """Return the minimum where just the tight inequalities hold with equality, if it is one, else `u`."""
    n_rows, size = len(system.b_ub), len(u)
    rows, at_upper, at_lower = np.split(tight, [n_rows, n_rows + size])
    exact = np.where(at_upper, system.upper, np.where(at_lower, system.lower, 0.0))
    free = np.flatnonzero(~(at_upper | at_lower))
    if len(free):
        active = np.vstack([system.A_ub[rows], system.A_eq])
        limits = np.append(system.b_ub[rows], system.b_eq) - active @ exact
        right = np.append(-(slope + hessian @ exact)[free], limits)
        exact[free] = _solve_with_equations(hessian[np.ix_(free, free)], active[:, free], right)

    def value(point: Array) -> float:
        return float((slope + 0.5 * (hessian @ point)) @ point)

    is_minimum = system.worst_miss(exact) <= _FEASIBLE and value(exact) <= value(u)
    return exact if is_minimum else u


def _solve_with_equations(hessian: Array, rows: Array, right: Array) -> Array:
    """Return where a model is stationary among the points that solve equations, given both right sides."""
    matrix = np.block([[hessian, rows.T], [rows, np.zeros((len(rows), len(rows)))]])
    softened = matrix.copy()
    softened[np.diag_indices(len(right))] += _RIDGE * np.repeat([1.0, -1.0], [len(hessian), len(rows)])
    factors, order, _ = dgetrf(softened, overwrite_a=1)
    solution = dgetrs(factors, order, right)[0]
    for _ in range(_REFINEMENTS):
        solution += dgetrs(factors, order, right - matrix @ solution)[0]
    return np.asarray(solution[: len(hessian)])


class _Inequalities:
    """``A_ub u <= b_ub``, ``u <= upper`` and ``-u <= -lower`` as one."""

    def __init__(self, system: LinearSystem) -> None:
        self.rows = system.A_ub
        self.limits = np.concatenate([system.b_ub, system.upper, -system.lower])

    def apply(self, u: Array) -> Array:
        return np.concatenate([self.rows @ u, u, -u])

    def adjoint(self, multipliers: Array) -> Array:
        n_rows, size = self.rows.shape
        rows, upper, lower = np.split(multipliers, [n_rows, n_rows + size])
        return np.asarray(self.rows.T @ rows + upper - lower)
