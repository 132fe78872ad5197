"""Logistic regression along the radius: the path of one data set, and cross-validation over it."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import validate_data

from ._logistic import HFWLogisticRegression, LinearPredictorMixin
from ._params import check_integer, check_number, check_sample_weight
from .engine import Constraint

# An automatic grid reaches so far below and above the radius where a linear loss would have fallen to zero.
_BELOW, _ABOVE = 0.1, 30.0


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
    >>> radii, coefs, intercepts, gaps = hfw_logistic_path(scale(X), y, radii=[1, 5, 10])
    >>> abs(coefs).sum(axis=(1, 2)).round(6)
    array([ 1.,  5., 10.])
    >>> (coefs != 0).sum(axis=(1, 2)).tolist()
    [2, 8, 12]
    """
    if "radius" in params:
        raise TypeError("hfw_logistic_path takes radii, not radius.")
    template = HFWLogisticRegression(**params)
    template._constraint()
    template._check_params()
    X, y = validate_data(template, X, y, accept_sparse=["csr", "csc"], dtype=[np.float64, np.float32])
    radii = radius_grid(template, radii, X, y, sample_weight)
    models = list(fit_path(template, radii, X, y, sample_weight))
    return (
        radii,
        np.stack([model.coef_ for model in models]),
        np.stack([model.intercept_ for model in models]),
        np.array([model.gap_ for model in models]),
    )


def fit_path(template, radii, X, y, sample_weight):
    """Yield a fitted model for each radius; the data is prepared once.

    A fit starts where the path would be if it went on straight, as it nearly does, through the last two
    solutions (it begins at zero), or at the last one if that is better.
    """
    loss, design, classes = template._problem(X, y, sample_weight)
    path, value = [(0.0, design.zeros())], np.inf
    for radius in radii:
        model = clone(template).set_params(**_at(template, radius))
        constraint, start = model._constraint(), None
        if len(path) > 1:
            (older_radius, older), (old_radius, old) = path
            ahead = (radius - old_radius) / (old_radius - older_radius) * (old - older)
            start = constraint.scale_into(old + ahead)
            if start is None or loss.evaluate(design.apply(start)).value > value:
                start = constraint.scale_into(old)
        result = model._solve(loss, design, constraint, start, corrective=model.corrective)
        path, value = [path[-1], (radius, result.x)], result.objective
        vars(model).update(model._model(classes, X.dtype, result.x, result.intercept))
        model.n_features_in_ = X.shape[1]
        yield model


def radius_grid(template, radii, X, y, sample_weight):
    """Return the radii in ascending order; a number of them stands for a grid made from the data.

    At the zero model the loss f and its gradient g are known, and in a ball of radius R no linear loss can
    fall by more than R times the dual norm of g. The grid goes from a tenth of the radius at which that is
    all of f to thirty times it, in equal ratios.
    """
    if not isinstance(radii, Integral):
        if isinstance(radii, str) or np.ndim(radii) != 1 or not len(radii):
            raise ValueError(f"radii must be a number of radii or a sequence of them; got radii={radii!r}.")
        for radius in radii:
            check_number("radii", radius, above=0.0)
        return np.unique(np.asarray(radii, dtype=np.float64))
    check_integer("radii", radii, at_least=1)
    loss, design, _ = template._problem(X, y, sample_weight)
    null = loss.evaluate(design.apply(design.zeros()))
    unit = clone(template).set_params(**_at(template, 1.0))._constraint()
    unit.check(design.zeros().shape)
    fall = abs(unit.lmo(design.adjoint(null.residual)).value)
    scale = null.value / fall if fall > 0.0 else 1.0
    return np.geomspace(_BELOW * scale, _ABOVE * scale, radii)


def _at(template, radius):
    """Return the parameters that set the radius, of the model or of its constraint object."""
    if isinstance(template.constraint, Constraint):
        return {"constraint": clone(template.constraint, safe=False).set_params(radius=float(radius))}
    return {"radius": float(radius)}


class HFWLogisticRegressionCV(LinearPredictorMixin, ClassifierMixin, BaseEstimator):
    """Logistic regression in a norm ball whose radius is chosen by cross-validation.

    In each fold the radii are gone through in ascending order, each fit starting from the ones before. The
    model is then fitted to all data at the radius with the best mean score.

    Parameters
    ----------
    constraint : {"l1", "l2", "linf", "n_support", "simplex", "nuclear"} or Constraint, default="l1"
        The set of the coefficients, as in `HFWLogisticRegression`. The radius of an object is set to each of
        the radii in turn.
    radii : int or array of floats, default=10
        The radii, or how many. A number stands for a grid in equal ratios, from a tenth to thirty times the
        radius at which the loss, if it fell as fast as it does at the zero model, would be zero.
    support_size : int, default=2
        For "n_support": how many nonzeros an atom has.
    cv : int, cross-validation generator or iterable, optional
        By default five stratified folds.
    scoring : str or callable, optional
        What to maximise. By default the mean log-likelihood of the held-out samples: the same number as
        "neg_log_loss", at a fraction of its cost.
    n_jobs : int, optional
        How many folds are worked on at the same time.
    momentum, step_size, corrective, restart, tol, max_iter, fit_intercept, lipschitz, class_weight, verbose
        As in `HFWLogisticRegression`.

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
    >>> model[-1].scores_.shape
    (5, 5)
    >>> round(model.score(X, y), 2)
    0.99
    """

    def __init__(
        self,
        constraint="l1",
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
        self.fit_intercept = fit_intercept
        self.lipschitz = lipschitz
        self.class_weight = class_weight
        self.verbose = verbose

    def fit(self, X, y, sample_weight=None):
        """Choose the radius and fit the model.

        Parameters
        ----------
        X : array, CSR or CSC of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Class labels.
        sample_weight : array of shape (n_samples,), optional
            Weights in the fits and in the scores.

        Returns
        -------
        self
        """
        own = self.get_params(deep=False)
        params = {name: own[name] for name in HFWLogisticRegression().get_params() if name in own}
        template = HFWLogisticRegression(**params)
        template._constraint()
        template._check_params()
        X, y = validate_data(self, X, y, accept_sparse=["csr", "csc"], dtype=[np.float64, np.float32])
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, len(y))
        self.radii_ = radius_grid(template, self.radii, X, y, sample_weight)
        scorer = _mean_log_likelihood
        if self.scoring is not None:
            scorer = check_scoring(template, scoring=self.scoring)
        # What has no weight is no part of the model, and cannot be scored.
        has_weight = template._weights(y, sample_weight) > 0.0
        folds = [
            (train, test[has_weight[test]])
            for train, test in check_cv(self.cv, y, classifier=True).split(X, y)
        ]
        if not all(len(test) for _, test in folds):
            raise ValueError("A fold's test part has no sample with a positive weight; use other folds.")
        self.scores_ = np.array(
            Parallel(n_jobs=self.n_jobs)(
                delayed(_path_scores)(template, self.radii_, X, y, sample_weight, train, test, scorer)
                for train, test in folds
            )
        )
        self.radius_ = float(self.radii_[np.argmax(self.scores_.mean(axis=0))])
        fitted = clone(template).set_params(**_at(template, self.radius_)).fit(X, y, sample_weight)
        for name, value in vars(fitted).items():
            if name.endswith("_"):
                setattr(self, name, value)
        return self


def _path_scores(template, radii, X, y, sample_weight, train, test, scorer):
    """Return the scores on one fold's test part, for each radius."""
    weights = {} if sample_weight is None else {"sample_weight": sample_weight[test]}
    train_weight = None if sample_weight is None else sample_weight[train]
    X_test, y_test = X[test], y[test]
    return [
        scorer(model, X_test, y_test, **weights)
        for model in fit_path(template, radii, X[train], y[train], train_weight)
    ]


def _mean_log_likelihood(model, X, y, sample_weight=None):
    classes = np.searchsorted(model.classes_, y).clip(max=len(model.classes_) - 1)
    if np.any(model.classes_[classes] != y):
        raise ValueError("A fold's test part has a class that its training part has not; use other folds.")
    probability = model.predict_proba(X)
    likelihood = probability[np.arange(len(y)), classes]
    smallest = np.finfo(probability.dtype).eps  # as in scikit-learn: a certain error costs a finite amount
    return np.average(np.log(np.clip(likelihood, smallest, 1.0 - smallest)), weights=sample_weight)
