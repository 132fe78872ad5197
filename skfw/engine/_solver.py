"""Frank-Wolfe with heavy-ball momentum, in prediction space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from ._certificate import AveragePlane, Cut
from ._correctors import ActiveAtoms
from ._linear_maps import DesignMatrix
from ._momentum import Adaptive, Weighted
from ._protocols import (
    Array,
    Constraint,
    Corrector,
    Hint,
    Iterate,
    Line,
    LinearMap,
    Loss,
    Momentum,
    Point,
    StepRule,
)
from ._restart import GapRestart
from ._steps import LineSearch
from ._sums import inner
from ._trace import Trace

# An iterative oracle is asked for a slack of at most this fraction of the gap. On MovieLens 100K, less made
# it slower and the steps hardly better, more made it faster and the bound much worse.
_ORACLE_SHARE = 0.25
# A corrected run ends when its gap has not become smaller for so many iterations.
_PATIENCE = 20
# A sample is not the data: how far from its own optimum a start needs to be at most.
_SAMPLE_TOLERANCE = 1e-2
_SAMPLE_ITERATIONS = 50


@final
@dataclass(frozen=True)
class State:
    """What a callback is given at each iterate.

    Attributes
    ----------
    iteration : int
        Number of steps taken so far.
    x, predictions, intercept : the iterate
    atoms : int
        The number of its nonzeros, or of its rank-one terms.
    objective : float
        Its loss.
    lower_bound : float
        The best lower bound of the optimum so far.
    gap : float
        Best objective so far minus `lower_bound`.
    """

    iteration: int
    x: Iterate
    predictions: Array
    intercept: float | Array
    atoms: int
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
    multiplier : float
        The Lagrange multiplier of the constraint: how fast the optimum falls as the radius grows. NaN for a
        set without a radius. Exact at the optimum, and about as accurate here as the gap is small.
    n_iter : int
        Number of steps.
    n_restarts : int
    status : {"converged", "max_iter", "stalled", "stopped"}
        Whether the gap is within the tolerance and, if not, what ended the run: the limit, the precision of
        floating-point numbers (a corrector gained nothing for many iterations), or the callback.
    trace : dict of str to ndarray
        See `Trace`.
    """

    x: Iterate
    predictions: Array
    intercept: float | Array
    objective: float
    lower_bound: float
    gap: float
    multiplier: float
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
    corrector: Corrector | None = None,
    tolerance: float = 0.0,
    max_iter: int = 1000,
    start: Iterate | None = None,
    callback: Callable[[State], bool | None] | None = None,
) -> Result:
    """Minimise ``loss(A x)`` over a convex set, with a bound on the distance to the optimum.

    The problem is :eq:`problem`, an iteration is :eq:`average` and :eq:`step`, and the bound is :eq:`gap`.

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
    corrector : Corrector, optional
        Improves each iterate over what has been discovered so far. By default the iterates are those of the
        steps alone. `Constraint.corrector` gives the one that is made for a set. It keeps the memory of one
        run, so each run needs a new one.
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
    constraint.check(linear_map.zeros().shape)
    trace = Trace()
    x = _origin(loss, linear_map, constraint) if start is None else start
    predictions = linear_map.apply(x)
    run = _Run(
        loss,
        linear_map,
        constraint,
        momentum or Weighted(),
        step_rule or LineSearch(),
        restart,
        corrector,
        Point(x, predictions, loss.evaluate(predictions)),
    )
    idle, last_gap = 0, np.inf
    for iteration in range(max_iter + 1):
        run.average_planes(iteration)
        point, lower_bound, gap = run.point, run.lower_bound, run.best.value - run.lower_bound
        atoms, intercept = _size(point.x), point.evaluation.intercept
        state = State(iteration, point.x, point.predictions, intercept, atoms, point.value, lower_bound, gap)
        stopped = callback is not None and callback(state)
        idle, last_gap = 0 if gap < last_gap else idle + 1, gap
        stalled = corrector is not None and idle >= _PATIENCE
        last = bool(stopped or stalled or gap <= tolerance or iteration == max_iter)
        step = np.nan if last else run.move(iteration)
        trace.add(
            objective=point.value,
            lower_bound=lower_bound,
            gap=gap,
            step=step,
            weight=run.weight,
            atoms=atoms,
        )
        if last:
            break
    return Result(
        run.best.x,
        run.best.predictions,
        run.best.evaluation.intercept,
        run.best.value,
        lower_bound,
        gap,
        _multiplier(run.best, constraint),
        iteration,
        run.n_restarts,
        _status(gap <= tolerance, bool(stopped), stalled),
        trace.columns(),
    )


def sample_start(
    loss: Loss,
    design: DesignMatrix,
    constraint: Constraint,
    *,
    momentum: Momentum | None = None,
    step_rule: StepRule | None = None,
    null: float,
) -> Iterate | None:
    """Fit a sample of the rows, and that from a sample of them: a start that costs a fraction of a run.

    Returns None where there are not enough rows for it, or where the fit is no better than none.

    Parameters
    ----------
    loss, design, constraint, momentum, step_rule : as in `frank_wolfe`
    null : float
        The loss of the model that is zero.
    """
    rows, sample = design.sample
    part = loss.subset(rows) if sample is not design else None
    if part is None:
        return None
    options: dict[str, Any] = {"momentum": momentum, "step_rule": step_rule}
    x = frank_wolfe(
        part,
        sample,
        constraint,
        corrector=best_corrector(part, sample, constraint),
        tolerance=_SAMPLE_TOLERANCE * null,
        max_iter=_SAMPLE_ITERATIONS,
        start=sample_start(part, sample, constraint, null=null, **options),
        **options,
    ).x
    return x if loss.evaluate(design.apply(x)).value < null else None


def best_corrector(loss: Loss, linear_map: LinearMap, constraint: Constraint) -> Corrector:
    """Return the corrector made for a set, or else the one for any set; for a single run."""
    return constraint.corrector(loss, linear_map) or ActiveAtoms(loss, linear_map)


class _Run:
    """The state of a run, and the two halves of an iteration that change it."""

    average: Cut  # the average of tangent planes
    past: Cut  # the same an iteration ago
    plain: Cut | None  # the newest tangent plane alone, where it was needed

    def __init__(
        self,
        loss: Loss,
        linear_map: LinearMap,
        constraint: Constraint,
        momentum: Momentum,
        step_rule: StepRule,
        restart: GapRestart | None,
        corrector: Corrector | None,
        start: Point,
    ) -> None:
        self.loss, self.linear_map, self.constraint = loss, linear_map, constraint
        self.momentum, self.step_rule, self.restart, self.corrector = momentum, step_rule, restart, corrector
        self.rounding = _rounding(linear_map, constraint)
        self.point = self.best = start
        self.lower_bound = loss.infimum
        self.weight, self.clock, self.n_restarts = 1.0, 0.0, 0
        # The largest curvature along a line so far. It is at most L D^2, which need not be known.
        self.reach = 0.0

    def average_planes(self, iteration: int) -> None:
        """Average the tangent plane at the iterate with the past ones: a lower bound of the optimum."""
        last = self.average.minimum.atom if iteration else None
        self.hint = Hint(iteration, last, _ORACLE_SHARE * (self.best.value - self.lower_bound))
        newest = AveragePlane.tangent(self.point.evaluation)
        if iteration == 0:
            self.average = self.plain = self._minimise(newest)
        else:
            self.past, self.plain = self.average, None
            if isinstance(self.momentum, Adaptive):
                self.plain = self._minimise(newest)
                self.weight, self.average = self.momentum.best(
                    self.past, self.plain, self._between, self.point.value
                )
            else:
                self._blend(newest)
        self.lower_bound = max(self.lower_bound, self.average.bound)

    def _blend(self, newest: AveragePlane) -> None:
        """Average with a weight that is given beforehand, or restart."""
        self.weight = self.momentum.weight(self.clock)
        if self.weight < 1.0 and (self.restart or self.corrector):
            self.plain = self._minimise(newest)
            self.lower_bound = max(self.lower_bound, self.plain.bound)
            average_gap = self.point.value - self.past.bound
            if self.restart and self.restart.due(average_gap, self.point.value - self.plain.bound):
                self.average, self.weight, self.clock = self.plain, 1.0, self.restart.clock(average_gap)
                self.n_restarts += 1
                return
        self.average = self._minimise(self.past.plane.blend(newest, self.weight))

    def move(self, iteration: int) -> float:
        """Go to the next iterate; return the step that led there, zero where it was the corrector."""
        adaptive = isinstance(self.momentum, Adaptive)
        corrected = point = self.point
        if self.corrector:
            if adaptive and not self.reach:
                self.reach = self._line().curvature_bound
            gap = point.value - self.lower_bound
            newest = self.plain or self.average
            # Squares of huge numbers overflow. What is not finite falls nowhere, and leads nowhere.
            with np.errstate(all="ignore"):
                corrected = self.corrector.improve(point, newest.direction, newest.minimum.atom, gap)
        following, step = corrected, 0.0
        if not adaptive or corrected is point or self._breaks_promise(corrected, iteration):
            following, step = self._step()
            if adaptive and self.plain and iteration and self._breaks_promise(following, iteration):
                self.weight = self.momentum.weight(self.clock)
                self.average = self._between(self.past, self.plain, self.weight)
                following, step = self._step()
            if corrected is not point and corrected.value <= following.value:
                following, step = corrected, 0.0
        self.clock += 1.0
        self.point = following
        if following.value < self.best.value:
            self.best = following
        return step

    def _line(self) -> Line:
        """Return the line to the average's atom, or to the newest plane's where that has no weight."""
        point = self.point
        atom = (self.plain if self.plain and not self.weight else self.average).minimum.atom
        change = atom.image(self.linear_map) - point.predictions
        parameter_free = self.momentum.step(self.clock)
        return Line(self.loss, point.x, atom, point.predictions, change, point.evaluation, parameter_free)

    def _step(self) -> tuple[Point, float]:
        """Take a Frank-Wolfe step."""
        line = self._line()
        step = self.step_rule.step(line)
        if isinstance(self.momentum, Adaptive):
            self.reach = max(self.reach, line.curvature_bound)
        predictions = line.predictions + step * line.change
        evaluation = self.loss.evaluate(predictions, line.evaluation.intercept)
        return Point((1.0 - step) * line.x + step * line.atom, predictions, evaluation), step

    def _breaks_promise(self, point: Point, iteration: int) -> bool:
        """Whether going to `point` would leave a larger gap than 2 L D^2 / (k+1) allows."""
        return point.value - self.average.bound > 2.0 * self.reach / (iteration + 2.0)

    def _minimise(self, plane: AveragePlane) -> Cut:
        direction = self.linear_map.adjoint(plane.residual)
        minimum = self.constraint.lmo(direction, self.hint)
        return Cut(plane, direction, minimum, plane.lower_bound(minimum, self.rounding))

    def _between(self, past: Cut, newest: Cut, weight: float) -> Cut:
        """Average two planes by their directions: no product with the data."""
        plane = past.plane.blend(newest.plane, weight)
        if not isinstance(newest.direction, np.ndarray):  # the residual itself, at its entries
            return self._minimise(plane)
        direction = (1.0 - weight) * past.direction + weight * newest.direction
        minimum = self.constraint.lmo(direction, self.hint)
        depth = max(past.depth, newest.depth) + 1
        # An average of directions is rounded by at most 2 eps times what the entries of each are a sum of.
        bound = plane.lower_bound(minimum, (1.0 + 2.0 * depth) * self.rounding)
        return Cut(plane, direction, minimum, bound, depth)


def _status(converged: bool, stopped: bool, stalled: bool) -> str:
    reasons = {"converged": converged, "stopped": stopped, "stalled": stalled, "max_iter": True}
    return next(name for name, applies in reasons.items() if applies)


def _multiplier(point: Point, constraint: Constraint) -> float:
    multiplier = -inner(point.evaluation.residual, point.predictions) / getattr(constraint, "radius", np.nan)
    # The loss cannot grow with a ball; inside of it the slope is zero, up to rounding.
    return max(multiplier, 0.0) if constraint.contains_zero else multiplier


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
