"""What the estimators share: the run of the solver and the fitted attributes that certify it."""

from __future__ import annotations

import warnings
from contextlib import contextmanager, nullcontext
from functools import cache
from threading import Lock
from time import perf_counter

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import ThreadpoolController

from ._params import check_flag, check_integer, check_number, make_momentum, make_step_rule
from .engine import (
    Constraint,
    DesignMatrix,
    GapRestart,
    LinearMap,
    Loss,
    Result,
    State,
    best_corrector,
    frank_wolfe,
    sample_start,
)

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:
        """Stands in for scikit-learn's own: there are no callbacks."""

    def with_callbacks(method):
        """Return the method as it is."""
        return method


# Data is small if two products with it take less than so many seconds.
_SMALL = 2e-3


class _OneBlasThread:
    """Limits BLAS to one thread while a fit is inside; fits may run in several threads at a time."""

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limit = _thread_control().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *exception) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limit.restore_original_limits()


@cache
def _thread_control() -> ThreadpoolController:
    return ThreadpoolController()  # looks for the libraries, which takes milliseconds


_one_blas_thread = _OneBlasThread()


class CertifiedFitMixin(CallbackSupportMixin):
    """Solves the problem an estimator has built, and sets the attributes of the certificate."""

    def _check_solver_params(self) -> None:
        make_momentum(self.momentum)
        make_step_rule(self.step_size, lambda: 1.0)
        check_flag("restart", self.restart)
        check_number("tol", self.tol, at_least=0.0)
        check_integer("max_iter", self.max_iter, at_least=1)
        check_integer("verbose", self.verbose, at_least=0)
        check_flag("warm_start", self.warm_start)
        if self.lipschitz is not None:
            check_number("lipschitz", self.lipschitz, above=0.0)

    @contextmanager
    def _callbacks(self, X, y, sample_weight, model):
        """Tell scikit-learn's callbacks of a fit; yield what tells them of an iterate.

        `model` gives the fitted attributes for an iterate and its intercept. They are asked for only if a
        callback wants to see the model.
        """
        # Where scikit-learn keeps them. Telling nobody would cost a tenth of a fast iteration.
        if not getattr(self, "_skl_callbacks", None):
            yield None
            return
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        data = {"estimator": self, "X": X, "y": y, "metadata": metadata}
        fit = self._init_callback_context(max_subtasks=self.max_iter + 1)
        fit.call_on_fit_task_begin(**data)

        def report(state: State) -> bool:
            iterate = fit.subcontext(task_name="iteration")
            iterate.call_on_fit_task_begin(**data)
            return iterate.call_on_fit_task_end(
                **data, reconstruction_attributes=lambda: model(state.x, state.intercept)
            )

        yield report
        fit.call_on_fit_task_end(**data, reconstruction_attributes={})

    def _solve(
        self,
        loss: Loss,
        linear_map: LinearMap,
        constraint: Constraint,
        start,
        *,
        unit: float = 1.0,
        corrective: bool = False,
        report=None,
    ) -> Result:
        """Run the solver; the objective is reported in units of `unit`, and each iterate to `report`."""

        @cache
        def lipschitz() -> float:
            if self.lipschitz is not None:
                return float(self.lipschitz)
            return loss.curvature * linear_map.squared_norm(loss.weights)

        zero = linear_map.zeros()
        constraint.check(zero.shape)
        null = loss.evaluate(linear_map.apply(zero)).value
        restart = None
        if self.restart:
            diameter = float(constraint.diameter(zero.shape))
            restart = GapRestart(lipschitz() * diameter * diameter)
        options = {"momentum": make_momentum(self.momentum)}
        options["step_rule"] = make_step_rule(self.step_size, lipschitz)
        # Correctors call BLAS thousands of times. On small arrays a second thread saves nothing, and on a
        # busy machine every call waits until it has been given a processor.
        small = corrective and linear_map.product_cost < _SMALL
        with _one_blas_thread if small else nullcontext():
            if corrective and start is None and isinstance(linear_map, DesignMatrix):
                start = sample_start(loss, linear_map, constraint, null=null, **options)
            result = frank_wolfe(
                loss,
                linear_map,
                constraint,
                restart=restart,
                corrector=best_corrector(loss, linear_map, constraint) if corrective else None,
                tolerance=self.tol * null,
                max_iter=self.max_iter,
                start=start,
                callback=_Printer(unit, report) if self.verbose else report,
                **options,
            )
        self.n_iter_ = result.n_iter
        self.n_restarts_ = result.n_restarts
        self.converged_ = result.status == "converged"
        self.objective_ = unit * result.objective
        self.lower_bound_ = unit * result.lower_bound
        self.gap_ = unit * result.gap
        self.multiplier_ = unit * result.multiplier
        self.trace_ = dict(result.trace)
        with np.errstate(over="ignore"):  # an infinite gap is a valid one
            for name in ("objective", "lower_bound", "gap"):
                self.trace_[name] = unit * self.trace_[name]
        if self.verbose:
            print(f"{result.status} after {result.n_iter} iterations, certified gap {self.gap_:.3g}")
        if result.status in ("max_iter", "stalled"):
            relative = result.gap / null if null > 0.0 else np.inf
            advice = "raise max_iter, scale the features, or lower the radius"
            if result.status == "stalled":
                advice = "scale the features, or lower the radius: nothing moved any more"
            warnings.warn(
                f"{type(self).__name__} stopped after {result.n_iter} steps (max_iter={self.max_iter}) with "
                f"a certified gap of {self.gap_:.3g}, which is {relative:.3g} of the objective of the zero "
                f"model; tol={self.tol:g} was asked for. The model is feasible and the gap is valid. For a "
                f"smaller one {advice}.",
                ConvergenceWarning,
                stacklevel=3 + hasattr(self, "_init_callback_context"),  # which wraps `fit`
            )
        return result


class _Printer:
    """Prints the iterations 0, 1, ..., 9, 10, 20, ..., 90, 100, 200, ... of a run as a table."""

    def __init__(self, unit: float, report) -> None:
        self._unit, self._report, self._began = unit, report, perf_counter()

    def __call__(self, state: State) -> bool | None:
        if state.iteration == 0:
            print(f"{'iteration':>9} {'objective':>12} {'gap':>9} {'atoms':>7} {'seconds':>8}")
        if not str(state.iteration)[1:].strip("0"):
            objective, gap = self._unit * state.objective, self._unit * state.gap
            seconds = perf_counter() - self._began
            print(f"{state.iteration:9d} {objective:12.6g} {gap:9.2e} {state.atoms:7d} {seconds:8.2f}")
        return self._report(state) if self._report else None
