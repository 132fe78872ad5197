"""Linear regression along the radius: its path, and its cross-validation."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from ._radius_path import RadiusSearchMixin, path_arrays
from ._regression import HFWRegressor, RegressorPredictionMixin


def hfw_regression_path(X, y, radii=20, *, sample_weight=None, **params):
    """Fit a linear regression at each of several radii, each fit starting from the ones before.

    Parameters
    ----------
    X : array, CSR or CSC of shape (n_samples, n_features)
    y : array of shape (n_samples,) or (n_samples, n_targets)
    radii : int or array of floats, default=20
        The radii, or how many; see `HFWRegressorCV`.
    sample_weight : array of shape (n_samples,), optional
    **params
        Parameters of `HFWRegressor` other than `radius`.

    Returns
    -------
    radii : ndarray of shape (n_radii,)
        In ascending order.
    coefs : ndarray of shape (n_radii, n_features) or (n_radii, n_targets, n_features)
    intercepts : ndarray of shape (n_radii,) or (n_radii, n_targets)
    gaps : ndarray of shape (n_radii,)
        The certified gaps of the fits.

    See Also
    --------
    HFWRegressorCV : Chooses the radius by cross-validation.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skfw import hfw_regression_path
    >>> X, y = load_diabetes(return_X_y=True)
    >>> radii, coefs, intercepts, gaps = hfw_regression_path(X, y, radii=[500, 1000, 2000])
    >>> abs(coefs).sum(axis=1).round(6)
    array([ 500., 1000., 2000.])
    """
    if "radius" in params:
        raise TypeError("hfw_regression_path takes radii, not radius.")
    return path_arrays("hfw_regression_path", HFWRegressor(**params), X, y, radii, sample_weight)


def _negative_loss(model, X, y, sample_weight=None):
    """Return minus the mean loss of a fitted model, which is what the fits minimise."""
    predictions = model._linear_predictions(X).reshape(len(y), -1)
    with np.errstate(over="ignore"):  # of an exponential: there is no worse score
        losses = [
            loss.sample_value(column)
            for loss, column in zip(model._losses(y), predictions.T.astype(np.float64), strict=True)
        ]
        return -float(np.average(np.mean(losses, axis=0), weights=sample_weight))


class HFWRegressorCV(RegressorPredictionMixin, RadiusSearchMixin, RegressorMixin, BaseEstimator):
    """Linear regression in a norm ball whose radius is chosen by cross-validation.

    In each fold the radii are gone through in ascending order, each fit starting from the ones before. The
    model is then fitted to all data at the radius with the best mean score, starting from the mean of the
    folds' coefficients.

    Parameters
    ----------
    constraint : {"l1", "l2", "linf", "n_support", "simplex", "nuclear"} or Constraint, default="l1"
        The set of the coefficients, as in `HFWRegressor`. The radius of an object is set to each of the radii
        in turn.
    radii : int or array of floats, default=10
        The radii, or how many; see `HFWLogisticRegressionCV`.
    loss : {"squared_error", "huber", "poisson"}, default="squared_error"
    epsilon : float, default=1.35
        For "huber": where a sample begins to count as an outlier, in units of the target.
    support_size : int, default=2
        For "n_support": how many nonzeros an atom has.
    cv : int, cross-validation generator or iterable, optional
        By default five folds.
    scoring : str or callable, optional
        What to maximise, and what `score` returns. By default the mean loss of the held-out samples is
        minimised. `score` is then R², or D² with the Poisson loss.
    n_jobs : int, optional
        How many folds are worked on at the same time.
    momentum, step_size, corrective, restart, tol, max_iter, max_time, fit_intercept, lipschitz
        As in `HFWRegressor`, for each of the fits.
    verbose : int, default=0
        Whether to print the progress of each fit, with its fold and its radius.

    Attributes
    ----------
    radius_ : float
        The radius with the best mean score; the smallest of them if there are several.
    radii_ : ndarray of shape (n_radii,)
        All radii, in ascending order.
    scores_ : ndarray of shape (n_folds, n_radii)
    coef_, intercept_
        Of the fit to all data.
    objective_, lower_bound_, gap_, multiplier_, converged_, n_iter_, n_restarts_, trace_
        The certificate of that fit, as in `HFWRegressor`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)

    See Also
    --------
    HFWRegressor : The same with a given radius.
    hfw_regression_path : The path of one data set, without cross-validation.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skfw import HFWRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = HFWRegressorCV(radii=8).fit(X, y)
    >>> round(model.score(X, y), 1)
    0.5
    """

    _estimator, _default_scorer = HFWRegressor, staticmethod(_negative_loss)
    _default_score_name = "minus mean loss"

    def __init__(
        self,
        constraint="l1",
        radii=10,
        *,
        loss="squared_error",
        epsilon=1.35,
        support_size=2,
        cv=None,
        scoring=None,
        n_jobs=None,
        momentum="adaptive",
        step_size="line_search",
        corrective=True,
        restart=False,
        tol=1e-4,
        max_iter=1000,
        max_time=None,
        fit_intercept=True,
        lipschitz=None,
        verbose=0,
    ):
        self.constraint = constraint
        self.radii = radii
        self.loss = loss
        self.epsilon = epsilon
        self.support_size = support_size
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.momentum = momentum
        self.step_size = step_size
        self.corrective = corrective
        self.restart = restart
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.fit_intercept = fit_intercept
        self.lipschitz = lipschitz
        self.verbose = verbose
