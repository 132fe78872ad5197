"""Frank-Wolfe with heavy-ball momentum, in prediction space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from ._certificate import AveragePlane
from ._momentum import Weighted
from ._protocols import Array, Constraint, Hint, Iterate, Line, LinearMap, Loss, Momentum, StepRule
from ._restart import GapRestart
from ._steps import LineSearch
from ._trace import Trace

# An iterative oracle is asked for a slack of at most this fraction of the gap. On MovieLens 100K, less made
# it slower and the steps hardly better, more made it faster and the bound much worse.
_ORACLE_SHARE = 0.25


@final
@dataclass(frozen=True)
class State:
    """What a callback is given at each iterate.

    Attributes
    ----------
    iteration : int
        Number of steps taken so far.
    x, predictions : the iterate and its predictions
    objective : float
        The loss at this iterate.
    lower_bound : float
        The best lower bound of the optimum so far.
    gap : float
        Best objective so far minus `lower_bound`.
    """

    iteration: int
    x: Iterate
    predictions: Array
    objective: float
    lower_bound: float
    gap: float


@final
@dataclass(frozen=True)
class Result:
    """The best iterate of a run and its certificate.

    Attributes
    ----------
    x, predictions, intercept : the best iterate
    objective : float
        Its loss.
    lower_bound : float
        A proven lower bound of the optimum.
    gap : float
        ``objective - lower_bound``: the optimum is at most this far below `objective`.
    n_iter : int
        Number of steps.
    n_restarts : int
    status : {"converged", "max_iter", "stopped"}
        Whether the gap is within the tolerance and, if not, what ended the run: the limit or the callback.
    trace : dict of str to ndarray
        See `Trace`.
    """

    x: Iterate
    predictions: Array
    intercept: float | Array
    objective: float
    lower_bound: float
    gap: float
    n_iter: int
    n_restarts: int
    status: str
    trace: dict[str, npt.NDArray[Any]]


def frank_wolfe(
    loss: Loss,
    linear_map: LinearMap,
    constraint: Constraint,
    *,
    momentum: Momentum | None = None,
    step_rule: StepRule | None = None,
    restart: GapRestart | None = None,
    tolerance: float = 0.0,
    max_iter: int = 1000,
    start: Iterate | None = None,
    callback: Callable[[State], bool | None] | None = None,
) -> Result:
    """Minimise ``loss(A x)`` over a convex set, with a bound on the distance to the optimum.

    Parameters
    ----------
    loss : Loss
    linear_map : LinearMap
        The data ``A``.
    constraint : Constraint
    momentum : Momentum, default=Weighted()
    step_rule : StepRule, default=LineSearch()
    restart : GapRestart, optional
        By default there are no restarts.
    tolerance : float
        Stop when the certified gap is at most this.
    max_iter : int
        Largest number of steps.
    start : optional
        A point of the set. By default zero if it is in the set, else the atom that the gradient at zero
        points to.
    callback : callable, optional
        Called with a `State` at each iterate; ends the run by returning True.

    Returns
    -------
    Result

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import DesignMatrix, L1Ball, SquaredLoss, frank_wolfe
    >>> X, y = np.eye(3), np.array([3.0, 1.0, 0.0])
    >>> result = frank_wolfe(SquaredLoss(y, np.full(3, 1 / 3)), DesignMatrix(X), L1Ball(2.0), tolerance=1e-3)
    >>> result.x
    array([2., 0., 0.])
    >>> result.status, bool(result.gap <= 1e-3)
    ('converged', True)
    """
    momentum = momentum or Weighted()
    step_rule = step_rule or LineSearch()
    constraint.check(linear_map.zeros().shape)
    x = _origin(loss, linear_map, constraint) if start is None else start
    predictions = linear_map.apply(x)
    evaluation = loss.evaluate(predictions)
    best_x, best_predictions, best = x, predictions, evaluation
    rounding = _rounding(linear_map, constraint)
    plane, atom = None, None
    lower_bound, average_bound, clock = loss.infimum, -np.inf, 0.0
    n_restarts = 0
    trace = Trace()
    for iteration in range(max_iter + 1):
        hint = Hint(iteration, atom, _ORACLE_SHARE * (best.value - lower_bound))
        weight = momentum.weight(clock) if plane else 1.0
        newest, minimum = AveragePlane.tangent(evaluation), None
        if restart and weight < 1.0:
            plain = constraint.lmo(linear_map.adjoint(newest.residual), hint)
            plain_bound = newest.lower_bound(plain, rounding)
            lower_bound = max(lower_bound, plain_bound)
            if restart.due(evaluation.value - average_bound, evaluation.value - plain_bound):
                weight, minimum, clock = 1.0, plain, restart.clock(evaluation.value - average_bound)
                n_restarts += 1

        plane = plane.blend(newest, weight) if plane else newest
        minimum = minimum or constraint.lmo(linear_map.adjoint(plane.residual), hint)
        atom, average_bound = minimum.atom, plane.lower_bound(minimum, rounding)
        lower_bound = max(lower_bound, average_bound)
        gap = best.value - lower_bound

        state = State(iteration, x, predictions, evaluation.value, lower_bound, gap)
        stopped = callback is not None and callback(state)
        step = np.nan
        if not (last := bool(stopped or gap <= tolerance or iteration == max_iter)):
            change = atom.image(linear_map) - predictions
            step = step_rule.step(Line(loss, x, atom, predictions, change, evaluation, momentum.step(clock)))
        trace.add(
            objective=evaluation.value,
            lower_bound=lower_bound,
            gap=gap,
            step=step,
            weight=weight,
            atoms=_size(x),
        )
        if last:
            status = "converged" if gap <= tolerance else "stopped" if stopped else "max_iter"
            break

        x = (1.0 - step) * x + step * atom
        predictions = predictions + step * change
        evaluation = loss.evaluate(predictions, evaluation.intercept)
        clock += 1.0
        if evaluation.value < best.value:
            best_x, best_predictions, best = x, predictions, evaluation
    return Result(
        best_x,
        best_predictions,
        best.intercept,
        best.value,
        lower_bound,
        gap,
        iteration,
        n_restarts,
        status,
        trace.columns(),
    )


def _origin(loss: Loss, linear_map: LinearMap, constraint: Constraint) -> Iterate:
    zero = linear_map.zeros()
    if constraint.contains_zero:
        return zero
    return zero + constraint.lmo(linear_map.adjoint(loss.evaluate(linear_map.apply(zero)).residual)).atom


def _rounding(linear_map: LinearMap, constraint: Constraint) -> float:
    """Bound what rounding in a direction changes in its minimum, for residuals whose sizes sum to one."""
    error = linear_map.adjoint_rounding()
    effect = abs(constraint.lmo(error).value) + abs(constraint.lmo(-error).value)
    if not effect < np.inf:
        raise ValueError("The data times the constraint's radius is too large for floating-point numbers.")
    return effect


def _size(x: Iterate) -> int:
    return int(np.count_nonzero(x)) if isinstance(x, np.ndarray) else len(x)
