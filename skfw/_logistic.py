"""Logistic regression in a norm ball."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy import sparse
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ._certified import CertifiedFitMixin, with_callbacks
from ._params import LOGISTIC_CONSTRAINTS, check_flag, check_sample_weight, make_constraint
from .engine import DesignMatrix, LogisticLoss, MultinomialLoss


class LinearPredictorMixin:
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
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse=["csr", "csc"], dtype=[np.float64, np.float32], reset=False)
        scores = safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_
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

    def sparsify(self):
        """Store `coef_` as a sparse matrix, which makes sparse models smaller and predict faster.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        self.coef_ = sparse.csr_matrix(self.coef_)
        return self

    def densify(self):
        """Store `coef_` as an array again.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        if sparse.issparse(self.coef_):
            self.coef_ = self.coef_.toarray()
        return self

    def __sklearn_tags__(self):
        """Declare sparse input."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class HFWLogisticRegression(LinearPredictorMixin, CertifiedFitMixin, ClassifierMixin, BaseEstimator):
    r"""Logistic regression with coefficients in a norm ball, and a certificate of optimality.

    Minimises the weighted mean log-loss over all models whose coefficients lie in a convex set, by
    Frank-Wolfe with heavy-ball momentum [1]_. The fitted `gap_` is a proven bound on the distance between
    the model's loss and the smallest one possible in the set.

    Parameters
    ----------
    constraint : {"l1", "l2", "linf", "n_support", "simplex", "nuclear"} or Constraint, default="l1"
        The set of the coefficients.

        - "l1": sum of absolute values at most `radius`; sparse.
        - "l2": Euclidean norm at most `radius`; many small coefficients.
        - "linf": every coefficient at most `radius` in size.
        - "n_support": between l1 and l2; sparse, but keeps correlated features together.
        - "simplex": non-negative, with sum `radius`.
        - "nuclear": multiclass only; the classes share a few directions.

        With three or more classes the entrywise sets constrain all coefficients together. An object of the
        engine, such as `skfw.engine.GroupBall` or one of your own, is used as it is, with its own radius.
    radius : float, default=10.0
        Size of the set. It limits how far the log-odds can move: in the l1 ball, a sample whose features
        are at most one in size can change them by at most `radius`. Standardise the features, or scale
        them to a common range, then search a grid such as ``[0.3, 1, 3, 10, 30, 100]``; larger radii fit
        the training data more closely and need more iterations. A model whose coefficients do not reach
        the boundary (their norm is below `radius`) is not constrained at all. Ignored if `constraint` is
        an object.
    support_size : int, default=2
        For "n_support": how many nonzeros an atom has; 1 gives the l1 ball.
    momentum : {"adaptive", "weighted", "uniform", "none"} or float in (0, 1), default="adaptive"
        Weight of the newest gradient in the average :eq:`average` that gives the direction: the one
        that proves the smallest gap, 2/(k+2), 1/(k+1), 1 (plain Frank-Wolfe), or a constant.
    step_size : {"line_search", "directional", "smooth", "parameter_free"}, default="line_search"
        Exact minimisation along the segment, a quadratic bound with the curvature along the segment or
        with a global Lipschitz constant, or the step that the momentum's weight prescribes.
    corrective : bool, default=True
        Whether to re-optimise over what has been discovered so far: Newton steps over the nonzero
        coefficients ("l1", "simplex"), in the ball ("l2"), or in the weights of the atoms (all other sets).
        It takes a handful of iterations where the steps alone take thousands. The start then comes from a fit
        to a sample of the rows if there are many. False gives the algorithms of the paper.
    restart : bool, default=False
        Whether to forget past gradients when the newest alone proves a smaller gap. Tightens the
        guarantee; costs a second product with the data in each iteration and seldom saves any.
    tol : float, default=1e-4
        Stop when `gap_` is at most `tol` times the loss of the model with zero coefficients.
    max_iter : int, default=1000
        Largest number of iterations. Without correctors many more may be needed.
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
        of the penalised coefficients.
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
        constraint="l1",
        radius=10.0,
        *,
        support_size=2,
        momentum="adaptive",
        step_size="line_search",
        corrective=True,
        restart=False,
        tol=1e-4,
        max_iter=1000,
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
        self.fit_intercept = fit_intercept
        self.lipschitz = lipschitz
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.verbose = verbose

    @with_callbacks
    def fit(self, X, y, sample_weight=None):
        """Fit the model.

        Parameters
        ----------
        X : array, CSR or CSC of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Class labels.
        sample_weight : array of shape (n_samples,), optional
            A weight of two counts a sample twice, a weight of zero leaves it out.

        Returns
        -------
        self
        """
        constraint = self._constraint()
        self._check_params()
        X, y = validate_data(self, X, y, accept_sparse=["csr", "csc"], dtype=[np.float64, np.float32])
        loss, design, classes = self._problem(X, y, sample_weight)
        start = self._start(constraint, design, classes)
        model = partial(self._model, classes, X.dtype)
        with self._callbacks(X, y, sample_weight, model) as report:
            result = self._solve(loss, design, constraint, start, corrective=self.corrective, report=report)
            vars(self).update(model(result.x, result.intercept))
        return self

    def _constraint(self):
        return make_constraint(
            self.constraint, self.radius, LOGISTIC_CONSTRAINTS, support_size=self.support_size
        )

    def _check_params(self):
        self._check_solver_params()
        check_flag("fit_intercept", self.fit_intercept)
        check_flag("corrective", self.corrective)

    def _problem(self, X, y, sample_weight):
        """Return the loss, the design matrix and the classes of validated data."""
        check_classification_targets(y)
        weights = self._weights(y, sample_weight)
        if not weights.all():
            X, y, weights = X[weights > 0.0], y[weights > 0.0], weights[weights > 0.0]
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes with a positive weight; the data "
                f"contains only one class, {classes[0]}."
            )
        if len(classes) == 2:
            loss = LogisticLoss(np.where(labels == 1, 1.0, -1.0), weights, self.fit_intercept)
            return loss, DesignMatrix(X), classes
        loss = MultinomialLoss(labels, len(classes), weights, self.fit_intercept)
        return loss, DesignMatrix(X, n_outputs=len(classes)), classes

    def _weights(self, y, sample_weight):
        """Return the weights of the samples with those of their classes; they sum to one."""
        weights = check_sample_weight(sample_weight, len(y))
        weights = check_sample_weight(weights * self._class_weights(y, weights), len(y), "class_weight")
        return weights / weights.sum()

    def _model(self, classes, dtype, x, intercept):
        """Return the fitted attributes of an iterate."""
        intercept = np.atleast_1d(intercept)
        if len(classes) > 2:  # the softmax ignores a common shift
            intercept = intercept - intercept.mean()
        coef = np.atleast_2d(x.T).astype(dtype)
        return {"classes_": classes, "coef_": coef, "intercept_": intercept.astype(dtype)}

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

    def _start(self, constraint, design, classes):
        """Return the last fit's coefficients as a point of the set, or None for a cold start."""
        if not (self.warm_start and hasattr(self, "coef_") and np.array_equal(self.classes_, classes)):
            return None
        coef = self.coef_.toarray() if sparse.issparse(self.coef_) else self.coef_
        previous = np.ascontiguousarray(coef.T, dtype=np.float64)
        if len(classes) == 2:
            previous = previous[:, 0]
        return constraint.scale_into(previous) if previous.shape == design.zeros().shape else None
