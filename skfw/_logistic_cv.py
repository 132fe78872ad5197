"""Logistic regression along the radius: its path, and its cross-validation."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from ._logistic import ClassifierPredictionMixin, HFWLogisticRegression
from ._radius_path import RadiusSearchMixin, path_arrays


def hfw_logistic_path(X, y, radii=20, *, sample_weight=None, **params):
    """Fit a logistic regression at each of several radii, each fit starting from the ones before.

    Parameters
    ----------
    X : array, CSR or CSC of shape (n_samples, n_features)
    y : array of shape (n_samples,)
        Class labels.
    radii : int or array of floats, default=20
        The radii, or how many; see `HFWLogisticRegressionCV`.
    sample_weight : array of shape (n_samples,), optional
    **params
        Parameters of `HFWLogisticRegression` other than `radius`.

    Returns
    -------
    radii : ndarray of shape (n_radii,)
        In ascending order.
    coefs : ndarray of shape (n_radii, 1 or n_classes, n_features)
    intercepts : ndarray of shape (n_radii, 1 or n_classes)
    gaps : ndarray of shape (n_radii,)
        The certified gaps of the fits.

    See Also
    --------
    HFWLogisticRegressionCV : Chooses the radius by cross-validation.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from skfw import hfw_logistic_path
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> radii, coefs, intercepts, gaps = hfw_logistic_path(scale(X), y, radii=[1, 5, 10], constraint="l1")
    >>> abs(coefs).sum(axis=(1, 2)).round(6)
    array([ 1.,  5., 10.])
    >>> (coefs != 0).sum(axis=(1, 2)).tolist()
    [2, 8, 12]
    """
    if "radius" in params:
        raise TypeError("hfw_logistic_path takes radii, not radius.")
    return path_arrays("hfw_logistic_path", HFWLogisticRegression(**params), X, y, radii, sample_weight)


def _mean_log_likelihood(model, X, y, sample_weight=None):
    classes = np.searchsorted(model.classes_, y).clip(max=len(model.classes_) - 1)
    if np.any(model.classes_[classes] != y):
        raise ValueError("A fold's test part has a class that its training part has not; use other folds.")
    probability = model.predict_proba(X)
    likelihood = probability[np.arange(len(y)), classes]
    smallest = np.finfo(probability.dtype).eps  # as in scikit-learn: a certain error costs a finite amount
    return np.average(np.log(np.clip(likelihood, smallest, 1.0 - smallest)), weights=sample_weight)


class HFWLogisticRegressionCV(ClassifierPredictionMixin, RadiusSearchMixin, ClassifierMixin, BaseEstimator):
    """Logistic regression in a norm ball whose radius is chosen by cross-validation.

    In each fold the radii are gone through in ascending order, each fit starting from the ones before. The
    model is then fitted to all data at the radius with the best mean score, starting from the mean of the
    folds' coefficients.

    Parameters
    ----------
    constraint : {"l1", "l2", "linf", "n_support", "simplex", "nuclear"} or Constraint, default="l2"
        The set of the coefficients, as in `HFWLogisticRegression`. The radius of an object is set to each of
        the radii in turn.
    radii : int or array of floats, default=10
        The radii, or how many. A number stands for a grid in equal ratios, from a tenth to ten times the
        radius at which the loss, if it went on to fall as it does at the zero model, would be zero; 1 stands
        for the middle of that grid. If the largest radius of it is the best one and scores still rise there,
        the grid goes on, to at most twice as many radii; if they rise even then, there is a warning.
    support_size : int, default=2
        For "n_support": how many nonzeros an atom has.
    cv : int, cross-validation generator or iterable, optional
        By default five stratified folds. A list of splits works too, and is the way to keep groups
        together: ``cv=list(GroupKFold().split(X, y, groups))``.
    scoring : str or callable, optional
        What to maximise, and what `score` returns. By default the mean log-likelihood of the held-out samples
        is maximised: the same number as "neg_log_loss", at a fraction of its cost. `score` is then the
        accuracy.
    n_jobs : int, optional
        How many folds are worked on at the same time.
    momentum, step_size, corrective, restart, tol, max_iter, max_time, fit_intercept, lipschitz, class_weight
        As in `HFWLogisticRegression`, for each of the fits; restarts need a momentum with fixed weights here
        too.
    verbose : int, default=0
        Whether to print the progress of each fit, with its fold and its radius.

    Attributes
    ----------
    radius_ : float
        The radius with the best mean score; the smallest of them if there are several.
    radii_ : ndarray of shape (n_radii,)
        All radii, in ascending order.
    scores_ : ndarray of shape (n_folds, n_radii)
    coef_, intercept_, classes_ : ndarray
        Of the fit to all data.
    objective_, lower_bound_, gap_, multiplier_, converged_, n_iter_, n_restarts_, trace_
        The certificate of that fit, as in `HFWLogisticRegression`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)

    See Also
    --------
    HFWLogisticRegression : The same with a given radius.
    hfw_logistic_path : The path of one data set, without cross-validation.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skfw import HFWLogisticRegressionCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), HFWLogisticRegressionCV(radii=5)).fit(X, y)
    >>> model[-1].scores_.shape  # five folds; the fifth radius was the best, so a sixth was tried
    (5, 6)
    >>> round(model.score(X, y), 2)
    0.99
    """

    _estimator, _default_scorer = HFWLogisticRegression, staticmethod(_mean_log_likelihood)
    _default_score_name = "mean log-likelihood"

    def __init__(
        self,
        constraint="l2",
        radii=10,
        *,
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
        class_weight=None,
        verbose=0,
    ):
        self.constraint = constraint
        self.radii = radii
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
        self.class_weight = class_weight
        self.verbose = verbose
