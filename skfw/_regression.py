"""Linear regression in a norm ball."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import d2_tweedie_score

from ._linear import LinearFitMixin, LinearPredictionMixin, dense_coefficients
from ._params import check_name, check_number
from .engine import HuberLoss, PoissonLoss, Problem, SeveralTargets, SquaredLoss, design_matrix

_LOSSES = ("squared_error", "huber", "poisson")


class RegressorPredictionMixin(LinearPredictionMixin):
    """Predictions of a regressor with `coef_`, `intercept_` and the parameter `loss`."""

    def predict(self, X):
        """Return the predictions; with the Poisson loss, the exponentials of the linear ones.

        Parameters
        ----------
        X : array, CSR or CSC of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
        """
        predictions = self._linear_predictions(X)
        return np.exp(predictions) if self.loss == "poisson" else predictions

    def score(self, X, y, sample_weight=None):
        """Return R², or with the Poisson loss D²: the share of the variance, or deviance, that is explained.

        Parameters
        ----------
        X : array, CSR or CSC of shape (n_samples, n_features)
        y : array of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array of shape (n_samples,), optional

        Returns
        -------
        float
            The mean over the targets, if there are several.
        """
        if self.loss != "poisson":
            return super().score(X, y, sample_weight)
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def __sklearn_tags__(self):
        """Declare several targets, and whether they may be negative."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.loss != "poisson"
        tags.target_tags.positive_only = self.loss == "poisson"
        return tags


class HFWRegressor(RegressorPredictionMixin, LinearFitMixin, RegressorMixin, BaseEstimator):
    r"""Linear regression with coefficients in a norm ball, and a certificate of optimality.

    Minimises the weighted mean loss over all models whose coefficients lie in a convex set, by Frank-Wolfe
    with heavy-ball momentum [1]_. The fitted `gap_` is a proven bound on the distance between the model's
    loss and the smallest one possible in the set. With the squared error and the l1 ball it is the Lasso as
    it was first written down [2]_.

    Parameters
    ----------
    constraint : {"l1", "l2", "linf", "n_support", "simplex", "nuclear"} or Constraint, default="l1"
        The set of the coefficients, as in `HFWLogisticRegression`; `skfw.engine.Box` and
        `skfw.engine.Polytope` are bounds and linear constraints. With several targets the entrywise sets
        constrain all coefficients together, and "nuclear", which needs several, is reduced-rank regression.
    radius : float or "scale", default="scale"
        Size of the set, in units of the target over those of the features. "scale" takes a radius that fits
        the data; `HFWRegressorCV` finds a better one. The radius binds if a larger one would lower the loss:
        `multiplier_` says by how much. Ignored if `constraint` is an object.
    loss : {"squared_error", "huber", "poisson"}, default="squared_error"
        - "squared_error": half the squared error.
        - "huber": the same for errors up to `epsilon`, and linear beyond.
        - "poisson": half the Poisson deviance, for targets that are not negative; the model predicts the
          exponential of its linear prediction. There is no Lipschitz constant, so the steps "smooth" and
          "directional" are not for it. There is one target only.
    epsilon : float, default=1.35
        For "huber": where a sample begins to count as an outlier, in units of the target. That is
        `epsilon` times `scale_` of scikit-learn's `HuberRegressor`.
    support_size : int, default=2
        For "n_support": how many nonzeros an atom has; 1 gives the l1 ball.
    momentum, step_size, corrective, restart, max_iter, max_time, lipschitz
        As in `HFWLogisticRegression`.
    tol : float, default=1e-4
        Stop when `gap_` is at most `tol` times the loss of the model with zero coefficients.
    fit_intercept : bool, default=True
        Whether to add an intercept, which is not constrained.
    warm_start : bool, default=False
        Whether to start from the last fit's coefficients, shrunk into the set if need be.
    verbose : int, default=0
        Whether to print the progress.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        The best coefficients found; they lie in the set, up to rounding to float32 for float32 data.
    intercept_ : float or ndarray of shape (n_targets,)
    radius_ : float
        The radius: the given one, that of a constraint object (NaN if it has none), or what "scale" gave.
    objective_ : float
        The weighted mean loss of the model; with several targets, the mean over them.
    lower_bound_ : float
        A proven lower bound of the smallest loss in the set, by equation :eq:`bound` of the user guide.
    gap_ : float
        ``objective_ - lower_bound_``, as in :eq:`gap`.
    multiplier_ : float
        The Lagrange multiplier of the constraint: how fast the smallest loss falls as the radius grows, zero
        if the constraint does not bind. It converts the radius to a penalty: `Lasso` has the same solution
        at ``alpha = multiplier_`` ("l1"), `Ridge` at ``alpha = n_samples * multiplier_ / radius`` ("l2").
        NaN for a set of your own without a method `multiplier`.
    converged_ : bool
        Whether `gap_` met `tol`.
    n_iter_ : int
        Number of iterations.
    n_restarts_ : int
    trace_ : dict of str to ndarray
        The run as a table, as in `HFWLogisticRegression`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)

    See Also
    --------
    HFWRegressorCV : Chooses the radius by cross-validation.
    sklearn.linear_model.Lasso : A penalty instead of a constraint.

    References
    ----------
    .. [1] B. Li, A. Sadeghi and G. B. Giannakis, "Heavy ball momentum for conditional gradient",
       NeurIPS 2021.
    .. [2] R. Tibshirani, "Regression shrinkage and selection via the lasso", Journal of the Royal Statistical
       Society B 58, 1996.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skfw import HFWRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = HFWRegressor("l1", radius=1000).fit(X, y)
    >>> round(model.score(X, y), 2), int((model.coef_ != 0).sum())
    (0.44, 4)
    >>> bool(abs(model.coef_).sum() <= 1000 + 1e-6), model.converged_
    (True, True)
    """

    def __init__(
        self,
        constraint="l1",
        radius="scale",
        *,
        loss="squared_error",
        epsilon=1.35,
        support_size=2,
        momentum="adaptive",
        step_size="line_search",
        corrective=True,
        restart=False,
        tol=1e-4,
        max_iter=1000,
        max_time=None,
        fit_intercept=True,
        lipschitz=None,
        warm_start=False,
        verbose=0,
    ):
        self.constraint = constraint
        self.radius = radius
        self.loss = loss
        self.epsilon = epsilon
        self.support_size = support_size
        self.momentum = momentum
        self.step_size = step_size
        self.corrective = corrective
        self.restart = restart
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.fit_intercept = fit_intercept
        self.lipschitz = lipschitz
        self.warm_start = warm_start
        self.verbose = verbose

    @property
    def _target_options(self):
        return {"multi_output": self.loss != "poisson", "y_numeric": True}

    def _check_params(self):
        super()._check_params()
        check_name("loss", self.loss, _LOSSES)
        check_number("epsilon", self.epsilon, above=0.0)
        if self.loss == "poisson" and self.step_size in ("smooth", "directional"):
            raise ValueError(
                f"step_size must be 'line_search' or 'parameter_free' for loss='poisson', whose gradient has "
                f"no Lipschitz constant; got step_size={self.step_size!r}."
            )
        if self.loss == "poisson" and self.restart:
            raise ValueError(
                "restart=True needs a Lipschitz constant, and the gradient of loss='poisson' has none."
            )

    def _prepare(self, X, y, sample_weight):
        """Return the problem of validated data, and the coding between its models and fitted attributes."""
        weights = self._weights(y, sample_weight)
        if not weights.all():
            X, y, weights = X[weights > 0.0], y[weights > 0.0], weights[weights > 0.0]
        targets = y.astype(np.float64)
        self._check_targets(targets)
        unit = self._target_unit(targets)
        # Of a constant target nothing is left, not even the rounding of its mean.
        origin = np.where(np.ptp(targets, axis=0) == 0.0, targets[0], 0.0)
        if self.loss == "poisson" or not self.fit_intercept:
            origin = np.zeros_like(origin)
        losses = self._losses(targets - origin, weights, unit, self.fit_intercept)
        design = design_matrix(X, n_outputs=None if len(losses) == 1 else len(losses))
        loss = losses[0] if len(losses) == 1 else SeveralTargets(tuple(losses))
        coding = TargetCoding(y.ndim == 2, X.dtype, origin, unit, self.loss == "poisson")
        return Problem(loss, design, self._constraint(1.0)), coding

    def _target_unit(self, targets):
        """Return a unit in which nothing overflows or underflows; a power of two, so that nothing is rounded.

        A set of one's own has numbers in the unit of the targets.
        """
        if self.loss == "poisson":
            return _power_of_two(targets) if self.fit_intercept else 1.0
        return _power_of_two(targets) if isinstance(self.constraint, str) else 1.0

    def _check_targets(self, targets):
        if self.loss != "poisson":
            return
        if targets.min() < 0.0:
            raise ValueError(f"y must not be negative for loss='poisson'; got y from {targets.min()}.")
        if self.fit_intercept and not targets.any(axis=0).all():
            raise ValueError(
                "y must have a positive value for loss='poisson'; got y that is zero everywhere."
            )

    def _losses(self, targets, weights=None, unit=1.0, fit_intercept=False):
        """Return the loss of each target, counted in a unit."""
        if self.loss == "huber":
            make = partial(HuberLoss, epsilon=self.epsilon / unit)
        else:
            make = {"squared_error": SquaredLoss, "poisson": PoissonLoss}[self.loss]
        return [make(column / unit, weights, fit_intercept) for column in _columns(targets)]


def _columns(values):
    """Return the targets one by one."""
    return [values] if values.ndim == 1 else list(np.ascontiguousarray(values.T))


def _power_of_two(values):
    """Return the power of two next to the largest absolute value; one if that is zero."""
    largest = float(np.abs(values).max())
    return float(2.0 ** np.clip(np.frexp(largest)[1] - 1, -1000, 1000)) if largest else 1.0


@dataclass(frozen=True)
class TargetCoding:
    """Between the models of the engine and the fitted attributes of a regressor.

    `origin` is what was subtracted from the targets, and `unit` what they were divided by.
    """

    several: bool
    dtype: np.dtype
    origin: np.ndarray
    unit: float
    is_log: bool

    @property
    def radius_unit(self):
        """What coefficients are multiplied by: those of logarithms have no unit."""
        return 1.0 if self.is_log else self.unit

    @property
    def loss_unit(self):
        """What losses are multiplied by."""
        return self.unit if self.is_log else self.unit * self.unit

    def decode(self, x, intercept):
        """Return the fitted attributes of a model."""
        intercept = intercept + np.log(self.unit) if self.is_log else intercept * self.unit + self.origin
        coef = (self.radius_unit * x.T).astype(self.dtype)
        if self.several:
            return {"coef_": np.atleast_2d(coef), "intercept_": np.atleast_1d(intercept).astype(self.dtype)}
        return {"coef_": coef, "intercept_": self.dtype.type(intercept)}

    def encode(self, estimator):
        """Return the model of a fitted regressor."""
        coef = dense_coefficients(estimator) / self.radius_unit
        return coef[:, 0] if coef.shape[1] == 1 else coef
