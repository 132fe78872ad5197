"""Polytopes: coefficients that meet linear inequalities and equations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast, final

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from .._atoms import DenseVector
from .._linear_system import LinearSystem, power_of_two
from .._protocols import Array, Constraint, Hint, LinearMinimum, Shape
from .._sums import euclidean_norm, sum_error
from ._box import check_crossing, check_numbers

# How far from its bounds a solution of HiGHS may be, relative to the sizes of coefficients and rows; the
# smallest that it takes.
_TOLERANCE = 1e-10
# A polytope is empty if what HiGHS takes for a point of it misses a row by more than this share of its size.
_CLEARLY = 1e-11


@final
@dataclass(eq=False)  # arrays have no single truth value
class Polytope(Constraint):
    """Coefficients with ``A_ub v <= b_ub``, ``A_eq v = b_eq`` and bounds, named as in SciPy's `linprog`.

    The oracle is a linear program, which HiGHS solves. What its solution misses of the constraints is put
    right, up to the rounding of numbers as large as the bounds. The bound that it proves does not rest on
    HiGHS: for any Lagrange multipliers ``y <= 0`` and ``z``, no point of the polytope has a smaller
    ``<g, v>`` than ``b_ub^T y + b_eq^T z`` plus the minimum of ``(g - A_ub^T y - A_eq^T z) v`` over the
    bounds. Where a model has several outputs, the constraints hold for the coefficients of each of them.

    Parameters
    ----------
    A_ub : array or sparse matrix of shape (n_inequalities, n_features), optional
    b_ub : array of shape (n_inequalities,), optional
    A_eq : array or sparse matrix of shape (n_equations, n_features), optional
    b_eq : array of shape (n_equations,), optional
    bounds : pair of floats, or array of shape (n_features, 2)
        The lowest and the highest value of all coefficients, or of each of them. They must be finite, because
        the proof rests on them. Where a coefficient has no bound, give one that it will not reach, but not
        one that is larger by many powers of ten: vertices are as large as the bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import Polytope
    >>> increasing = Polytope(A_ub=[[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]], b_ub=[0.0, 0.0], bounds=(-1.0, 1.0))
    >>> increasing.lmo(np.array([-3.0, 4.0, -2.0])).atom
    DenseVector(array=array([-1., -1.,  1.]))
    """

    A_ub: Any = None
    b_ub: Any = None
    A_eq: Any = None
    b_eq: Any = None
    bounds: Any = None
    geometry: ClassVar[str] = "polytope"

    @property
    def contains_zero(self) -> bool:  # type: ignore[override]
        """Whether the zero model meets all constraints."""
        lower, upper = np.reshape(self.bounds, (-1, 2)).T
        within = bool(np.all(lower <= 0.0) and np.all(upper >= 0.0))
        meets = self.b_ub is None or bool(np.min(self.b_ub, initial=0.0) >= 0.0)
        return within and meets and (self.b_eq is None or not np.any(self.b_eq))

    def check(self, shape: Shape) -> None:
        """Raise a ValueError if a parameter does not fit, or if the polytope is empty or has no bounds."""
        n_features = shape[0]
        wanted = f"a pair of numbers, or a pair for each of {n_features} features (not None)"
        check_numbers("bounds", self.bounds, [(2,), (n_features, 2)], wanted)
        check_crossing("bounds must be a lowest and a highest value", *np.reshape(self.bounds, (-1, 2)).T)
        for kind, matrix, limits in (("ub", self.A_ub, self.b_ub), ("eq", self.A_eq, self.b_eq)):
            if (matrix is None) != (limits is None):
                raise ValueError(f"A_{kind} and b_{kind} must be given together; one of them is None.")
            if matrix is not None:
                n_rows = np.shape(limits)[0] if np.ndim(limits) else 1
                check_numbers(f"b_{kind}", limits, [(n_rows,)], "a sequence of numbers")
                wanted = f"a matrix of shape ({n_rows}, {n_features}), a row for each number of b_{kind}"
                check_numbers(f"A_{kind}", _unpacked(matrix), [(n_rows, n_features)], wanted)
        system = self.system(n_features)
        found = _LinearProgram(system).find()
        if found is None or not system.nearly_meets(found, _CLEARLY):
            raise ValueError(
                "The polytope is empty: no coefficients meet A_ub, b_ub, A_eq, b_eq and bounds together."
            )

    def system(self, n_features: int) -> LinearSystem:
        """Return the constraints as arrays."""
        A_ub, A_eq = (
            np.zeros((0, n_features)) if matrix is None else np.asarray(_unpacked(matrix), dtype=np.float64)
            for matrix in (self.A_ub, self.A_eq)
        )
        b_ub, b_eq = (
            np.asarray([] if limits is None else limits, dtype=np.float64)
            for limits in (self.b_ub, self.b_eq)
        )
        lower, upper = np.broadcast_to(np.asarray(self.bounds, dtype=np.float64), (n_features, 2)).T
        return LinearSystem(A_ub, b_ub, A_eq, b_eq, lower, upper)

    def lmo(self, direction: Array, hint: Hint | None = None) -> LinearMinimum:
        """Minimise ``<direction, v>`` over the polytope by a linear program, one for each output."""
        program = _LinearProgram(self.system(len(direction)))
        columns = direction.reshape(len(direction), -1).T
        found = [program.minimise(column) for column in columns]
        atom = np.stack([minimum.atom for minimum in found], axis=1).reshape(direction.shape)
        value, bound = sum(minimum.value for minimum in found), sum(minimum.bound for minimum in found)
        return LinearMinimum(DenseVector(atom), value, max(value - bound, 0.0))

    def diameter(self, shape: Shape) -> float:
        """Return the length of the diagonal of the box of the bounds, which is not smaller."""
        system = self.system(shape[0])
        return euclidean_norm(system.upper - system.lower) * float(np.sqrt(np.prod(shape[1:])))

    def scale_into(self, x: Array) -> Array | None:
        """Return a model that meets the constraints; None for any other."""
        system = self.system(len(x))
        return x if all(system.nearly_meets(column) for column in x.reshape(len(x), -1).T) else None

    def restored(self, x: Array) -> Array:
        """Return a point next to one that misses constraints a little, and misses them by rounding only."""
        system = self.system(len(x))
        columns = [system.restored(column) for column in x.reshape(len(x), -1).T]
        return np.stack(columns, axis=1).reshape(x.shape)

    def error_effect(self, error: Array, zero: Array) -> float:
        """Return the largest inner product of the errors with the sizes of a point within the bounds."""
        system = self.system(len(zero))
        return float((error.reshape(len(zero), -1) * system.sizes[:, np.newaxis]).sum())


@dataclass(frozen=True)
class _Found:
    atom: Array
    value: float
    bound: float


class _LinearProgram:
    """Linear programs over a system, in units in which its coefficients and rows have sizes of about one.

    The units are powers of two, so nothing is rounded by them.
    """

    def __init__(self, system: LinearSystem) -> None:
        self._given = system
        self._units = power_of_two(system.sizes)
        self._system = system.scaled(self._units)

    def solve(self, objective: Array) -> Any:
        """Return what HiGHS finds."""
        system = self._system
        return linprog(
            objective,
            system.A_ub,
            system.b_ub,
            system.A_eq,
            system.b_eq,
            cast(Any, np.column_stack([system.lower, system.upper])),
            options={"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE},
        )

    def find(self) -> Array | None:
        """Return any point of the polytope; None if there is none."""
        found = self.solve(np.zeros(len(self._units)))
        return None if found.x is None else self._given.restored(self._units * found.x)

    def minimise(self, direction: Array) -> _Found:
        """Return the best vertex, its value, and a bound that no point of the polytope is below."""
        system = self._system
        objective = self._units * direction
        unit = float(power_of_two(np.abs(objective).max(keepdims=True))[0])
        objective = objective / unit
        found = self.solve(objective)
        if found.x is None:
            raise RuntimeError(f"HiGHS could not minimise over the polytope: {found.message}")
        atom = self._given.restored(self._units * found.x)
        y, z = np.minimum(found.ineqlin.marginals, 0.0), found.eqlin.marginals
        slopes = objective - system.A_ub.T @ y - system.A_eq.T @ z
        bound = system.b_ub @ y + system.b_eq @ z
        bound += np.minimum(slopes * system.lower, slopes * system.upper).sum()
        sizes = np.abs(objective) + np.abs(system.A_ub).T @ -y + np.abs(system.A_eq).T @ np.abs(z)
        total = sizes @ system.sizes + np.abs(system.b_ub) @ -y + np.abs(system.b_eq) @ np.abs(z)
        bound -= sum_error(len(y) + len(z) + len(objective)) * total
        return _Found(atom, float((direction * atom).sum()), unit * float(bound))


def _unpacked(matrix: Any) -> Any:
    """Return what is not sparse."""
    return cast(Any, matrix).toarray() if sparse.issparse(matrix) else matrix
