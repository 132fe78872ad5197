"""What linear estimators share: how they are fitted, and how they predict."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from ._certified import CertifiedFitMixin, set_fitted, validated, warn_caller, with_callbacks
from ._params import LINEAR_CONSTRAINTS, check_flag, check_sample_weight, make_constraint

#: Options of `validate_data` for a design.
DESIGN = {"accept_sparse": ["csr", "csc"], "dtype": [np.float64, np.float32]}


class LinearPredictionMixin:
    """Predictions of a model with `coef_` and `intercept_`."""

    def _linear_predictions(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, **DESIGN, reset=False)
        # In single precision BLAS may compute with memory that it does not use, and NumPy warns of that.
        with np.errstate(invalid="ignore"):
            return safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_

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


class LinearFitMixin(CertifiedFitMixin):
    """Fits coefficients in a set. A subclass says what the problem is, and how its solution is read."""

    _remedy = "scale the features, or lower the radius"

    @with_callbacks
    def fit(self, X, y, sample_weight=None):
        """Fit the model.

        Parameters
        ----------
        X : array, CSR or CSC of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Targets: class labels for a classifier.
        sample_weight : array of shape (n_samples,), optional
            A weight of two counts a sample twice, a weight of zero leaves it out.

        Returns
        -------
        self
        """
        self._check_params()
        X, y, seen = validated(self, X, y, **DESIGN)
        problem, coding = self._prepare(X, y, sample_weight)
        with self._callbacks(X, y, sample_weight, seen) as report:
            certificate = self._solve(problem, coding.decode, self._start(problem, coding), report=report)
            set_fitted(self, seen | certificate.attributes)
        warn_caller(type(self).__name__, [certificate.shortfall])
        return self

    def _prepare(self, X, y, sample_weight):
        """Return the problem of validated data, and the coding between its models and fitted attributes."""
        raise NotImplementedError

    def _weights(self, y, sample_weight):
        """Return the weights of the samples in the loss; they sum to one."""
        weights = check_sample_weight(sample_weight, len(y))
        return weights / weights.sum()

    def _constraint(self):
        return make_constraint(
            self.constraint, self.radius, LINEAR_CONSTRAINTS, support_size=self.support_size
        )

    def _check_params(self):
        self._constraint()
        self._check_solver_params()
        check_flag("fit_intercept", self.fit_intercept)
        check_flag("warm_start", self.warm_start)

    def _start(self, problem, coding):
        """Return the last fit's coefficients as a point of the set, or None for a cold start."""
        if not (self.warm_start and hasattr(self, "coef_")):
            return None
        previous = coding.encode(self)
        if previous is None or previous.shape != problem.null.x.shape:
            return None
        inside = problem.constraint.scale_into(previous)
        return None if inside is None else problem.at(inside)


def dense_coefficients(model):
    """Return the coefficients of a fitted model as an array, in float64 and with a row for each feature."""
    coef = model.coef_.toarray() if sparse.issparse(model.coef_) else model.coef_
    return np.ascontiguousarray(coef.T, dtype=np.float64)
