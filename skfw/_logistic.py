"""Logistic regression in a norm ball."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from ._linear import LinearFitMixin, LinearPredictionMixin, dense_coefficients
from ._params import check_sample_weight
from .engine import LogisticLoss, MultinomialLoss, Problem, design_matrix


class ClassifierPredictionMixin(LinearPredictionMixin):
    """Predictions of a classifier with `coef_`, `intercept_` and `classes_`."""

    def decision_function(self, X):
        """Return the log-odds of the second class, or one score for each of several classes.

        Parameters
        ----------
        X : array, CSR or CSC of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        scores = self._linear_predictions(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X):
        """Return the most probable class of each sample.

        Parameters
        ----------
        X : array, CSR or CSC of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    def predict_proba(self, X):
        """Return the probability of each class.

        Parameters
        ----------
        X : array, CSR or CSC of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return softmax(scores, axis=1)

    def predict_log_proba(self, X):
        """Return the logarithm of the probability of each class, also where that underflows.

        Parameters
        ----------
        X : array, CSR or CSC of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([log_expit(-scores), log_expit(scores)])
        return log_softmax(scores, axis=1)


class HFWLogisticRegression(ClassifierPredictionMixin, LinearFitMixin, ClassifierMixin, BaseEstimator):
    r"""Logistic regression with coefficients in a norm ball, and a certificate of optimality.

    Minimises the weighted mean log-loss over all models whose coefficients lie in a convex set, by
    Frank-Wolfe with heavy-ball momentum [1]_. The fitted `gap_` is a proven bound on the distance between
    the model's loss and the smallest one possible in the set.

    Parameters
    ----------
    constraint : {"l1", "l2", "linf", "n_support", "simplex", "nuclear"} or Constraint, default="l2"
        The set of the coefficients.

        - "l1": sum of absolute values at most `radius`; sparse.
        - "l2": Euclidean norm at most `radius`; many small coefficients.
        - "linf": every coefficient at most `radius` in size.
        - "n_support": between l1 and l2; sparse, but keeps correlated features together.
        - "simplex": non-negative, with sum `radius`.
        - "nuclear": multiclass only; the classes share a few directions.

        With three or more classes the entrywise sets constrain all coefficients together. An object of the
        engine is used as it is: `skfw.engine.Box` and `skfw.engine.Polytope` for bounds and linear
        constraints, `skfw.engine.GroupBall`, or one of your own.
    radius : float or "scale", default="scale"
        Size of the set. It limits how far the log-odds can move: in the l1 ball, a sample whose features
        are at most one in size can change them by at most `radius`. Larger radii fit the training data more
        closely and need more iterations. "scale" takes a radius that fits the data, from the loss of the zero
        model and its derivatives; see the user guide. It is a good start, and `HFWLogisticRegressionCV` finds
        a better one. The radius binds if a larger one would lower the loss: `multiplier_` says by how much,
        and is zero, up to the accuracy of the fit, where the best coefficients lie inside the set. Ignored if
        `constraint` is an object.
    support_size : int, default=2
        For "n_support": how many nonzeros an atom has; 1 gives the l1 ball.
    momentum : {"adaptive", "weighted", "uniform", "none"} or float in (0, 1), default="adaptive"
        Weight of the newest gradient in the average :eq:`average` that gives the direction: the one
        that proves the smallest gap, 2/(k+2), 1/(k+1), 1 (Frank-Wolfe without momentum), or a constant.
    step_size : {"line_search", "directional", "smooth", "parameter_free"}, default="line_search"
        Exact minimisation along the segment, a quadratic bound with the curvature along the segment or
        with a global Lipschitz constant, or the step that the momentum's weight prescribes.
    corrective : bool, default=True
        Whether to re-optimise over what has been discovered so far: Newton steps over the nonzero
        coefficients ("l1", "simplex", "n_support"), over those between their bounds ("linf"), in the ball
        ("l2"), on factors of the coefficients ("nuclear"), or in the weights of the atoms (sets of your own).
        It takes a handful of iterations where the steps alone take thousands. The start then comes from a fit
        to a sample of the rows if there are many. The algorithms of the paper have no corrector: False, with
        a "weighted" or "uniform" momentum and a "parameter_free", "smooth" or "directional" step.
    restart : bool, default=False
        Whether to forget past gradients when the newest alone proves a smaller gap. It needs a momentum with
        fixed weights: "weighted", "uniform" or a number. Tightens the guarantee; costs a second product with
        the data in each iteration and seldom saves any.
    tol : float, default=1e-4
        Stop when `gap_` is at most `tol` times the loss of the model with zero coefficients.
    max_iter : int, default=1000
        Largest number of iterations. Without correctors many more may be needed.
    max_time : float, optional
        No iteration begins later than this many seconds after `fit` began: the model is the best one found
        until then, and its certificate is as valid as any.
    fit_intercept : bool, default=True
        Whether to add an intercept, which is not constrained.
    lipschitz : float, optional
        Lipschitz constant of the gradient, for ``step_size="smooth"`` and ``restart=True``. By default the
        spectral constant is computed.
    class_weight : dict or "balanced", optional
        Weights of the classes, as everywhere in scikit-learn. A class of weight zero is left out.
    warm_start : bool, default=False
        Whether to start from the last fit's coefficients, shrunk into the set if need be.
    verbose : int, default=0
        Whether to print the progress.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        The best coefficients found; they lie in the set, up to rounding to float32 for float32 data.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    radius_ : float
        The radius: the given one, that of a constraint object (NaN if it has none), or what "scale" gave.
    objective_ : float
        The weighted mean log-loss of the model.
    lower_bound_ : float
        A proven lower bound of the smallest log-loss in the set, by equation :eq:`bound` of the user guide.
    gap_ : float
        ``objective_ - lower_bound_``, as in :eq:`gap`.
    multiplier_ : float
        The Lagrange multiplier of the constraint: how fast the smallest log-loss falls as the radius grows,
        zero if the constraint does not bind. It converts the radius to a penalty: for weights that sum to
        ``n``, scikit-learn's `LogisticRegression` has the same solution at ``C = 1 / (n * multiplier_)`` for
        "l1", and at ``C = radius / (n * multiplier_)`` for "l2". The other way round, the radius is the norm
        of the penalised coefficients. Negative for a simplex where the smallest log-loss rises with the
        radius; NaN for a set of your own without a method `multiplier`.
    converged_ : bool
        Whether `gap_` met `tol`.
    n_iter_ : int
        Number of iterations.
    n_restarts_ : int
    trace_ : dict of str to ndarray
        The run as a table: "objective", "lower_bound", "gap", "step" (zero where a corrector moved the
        iterate), "weight", "atoms" (nonzero coefficients), "seconds", with a row for each iterate from the
        start on.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)

    See Also
    --------
    HFWLogisticRegressionCV : Chooses the radius by cross-validation.
    sklearn.linear_model.LogisticRegression : A penalty instead of a constraint.

    References
    ----------
    .. [1] B. Li, A. Sadeghi and G. B. Giannakis, "Heavy ball momentum for conditional gradient",
       NeurIPS 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skfw import HFWLogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), HFWLogisticRegression("l1", radius=5)).fit(X, y)
    >>> round(model.score(X, y), 2)
    0.97
    >>> fitted = model[-1]
    >>> bool(abs(fitted.coef_).sum() <= 5 + 1e-9), fitted.converged_
    (True, True)
    >>> bool(fitted.objective_ - fitted.gap_ <= fitted.lower_bound_ + 1e-12)
    True
    """

    def __init__(
        self,
        constraint="l2",
        radius="scale",
        *,
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
        class_weight=None,
        warm_start=False,
        verbose=0,
    ):
        self.constraint = constraint
        self.radius = radius
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
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.verbose = verbose

    def _prepare(self, X, y, sample_weight):
        """Return the problem of validated data, and the coding between its models and fitted attributes."""
        check_classification_targets(y)
        weights = self._weights(y, sample_weight)
        if not weights.all():
            X, y, weights = X[weights > 0.0], y[weights > 0.0], weights[weights > 0.0]
        classes = np.unique(y)
        labels = np.searchsorted(classes, y)  # faster than what `unique` would return as the inverse
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes with a positive weight; the data "
                f"contains only one class, {classes[0]}."
            )
        if len(classes) == 2:
            loss = LogisticLoss(np.where(labels == 1, 1.0, -1.0), weights, self.fit_intercept)
            design = design_matrix(X)
        else:
            loss = MultinomialLoss(labels, len(classes), weights, self.fit_intercept)
            design = design_matrix(X, n_outputs=len(classes))
        return Problem(loss, design, self._constraint(1.0)), ClassCoding(classes, X.dtype)

    def _weights(self, y, sample_weight):
        """Return the weights of the samples with those of their classes; they sum to one."""
        weights = check_sample_weight(sample_weight, len(y))
        weights = check_sample_weight(weights * self._class_weights(y, weights), len(y), "class_weight")
        return weights / weights.sum()

    def _class_weights(self, y, weights):
        """Return the class weight of each sample; "balanced" counts the samples with their weights."""
        if self.class_weight is None:
            return 1.0
        classes, labels = np.unique(y, return_inverse=True)
        if not isinstance(self.class_weight, str):
            return compute_class_weight(self.class_weight, classes=classes, y=y)[labels]
        if self.class_weight != "balanced":
            raise ValueError(
                f"class_weight must be None, 'balanced' or a dict; got class_weight={self.class_weight!r}."
            )
        totals = np.bincount(labels, weights)
        return np.divide(1.0, totals, out=np.zeros(len(classes)), where=totals > 0.0)[labels]


@dataclass(frozen=True)
class ClassCoding:
    """Between the models of the engine and the fitted attributes of a classifier."""

    classes: np.ndarray
    dtype: np.dtype
    loss_unit: ClassVar[float] = 1.0
    radius_unit: ClassVar[float] = 1.0

    def decode(self, x, intercept):
        """Return the fitted attributes of a model."""
        intercept = np.atleast_1d(intercept)
        if len(self.classes) > 2:  # the softmax ignores a common shift
            intercept = intercept - intercept.mean()
        coef = np.atleast_2d(x.T).astype(self.dtype)
        return {"classes_": self.classes, "coef_": coef, "intercept_": intercept.astype(self.dtype)}

    def encode(self, estimator):
        """Return the model of a fitted classifier; None if it has other classes."""
        if not np.array_equal(estimator.classes_, self.classes):
            return None
        coef = dense_coefficients(estimator)
        return coef[:, 0] if len(self.classes) == 2 else coef
