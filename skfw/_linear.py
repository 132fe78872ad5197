"""What linear estimators share: how they are fitted, and how they predict."""

from __future__ import annotations

from time import perf_counter
from typing import ClassVar

import numpy as np
from scipy import sparse
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from ._certified import CertifiedFitMixin, conclude, set_fitted, validated, with_callbacks
from ._params import LINEAR_CONSTRAINTS, check_flag, check_radius, check_sample_weight, make_constraint
from .engine import thread_pool

# The default radius in units of `radius_scale` is a multiple of a power of the number of samples: the more
# there are, the larger coefficients they can tell from noise. On 30 data sets of 40 to 70,000 samples, dense
# and sparse, of 2 to 20 classes, in one unit and in many, the accuracy of the Euclidean ball was then that of
# scikit-learn's default less 0.004 at worst, where several splits could be averaged. No constant did as well.
_DEFAULT_FACTOR, _DEFAULT_POWER = 2.5, 0.125
# A feature matters if its gradient, divided by its size, is this fraction of the largest such number.
_MATTERS = 0.3
_ROUNDING, _SMALLEST = 64.0 * np.finfo(np.float64).eps, 1e-150
#: Options of `validate_data` for a design.
DESIGN = {"accept_sparse": ["csr", "csc"], "dtype": [np.float64, np.float32]}


class LinearPredictionMixin:
    """Predictions of a model with `coef_` and `intercept_`."""

    def _linear_predictions(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, **DESIGN, reset=False)
        # In single precision BLAS may compute with memory that it does not use, and NumPy warns of that.
        with np.errstate(invalid="ignore"):
            products = safe_sparse_dot(X, self.coef_.T, dense_output=True)
        return products.reshape(-1, *np.shape(self.intercept_)) + self.intercept_

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
            self.coef_ = self.coef_.toarray().reshape(*np.shape(self.intercept_), -1)
        return self

    def __sklearn_tags__(self):
        """Declare sparse input."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class LinearFitMixin(CertifiedFitMixin):
    """Fits coefficients in a set. A subclass says what the problem is, and how its solution is read."""

    #: Options of `validate_data` for the targets.
    _target_options: ClassVar[dict] = {}

    @with_callbacks
    @thread_pool()
    def fit(self, X, y, sample_weight=None):
        """Fit the model.

        Parameters
        ----------
        X : array, CSR or CSC of shape (n_samples, n_features)
        y : array of shape (n_samples,), for a regressor also (n_samples, n_targets)
            Targets: class labels for a classifier.
        sample_weight : array of shape (n_samples,), optional
            A weight of two counts a sample twice, a weight of zero leaves it out.

        Returns
        -------
        self
        """
        began = perf_counter()
        self._check_params()
        X, y, seen = validated(self, X, y, **DESIGN, **self._target_options)
        problem, coding = self._prepare(X, y, sample_weight)
        with self._callbacks(X, y, sample_weight, seen) as report:
            n_samples = total_weight(y, sample_weight)
            certificate = self._fit_problem(problem, coding, n_samples, seen, report=report, began=began)
        conclude(type(self).__name__, certificate)
        return self

    def _fit_problem(self, problem, coding, n_samples, seen, **options):
        """Solve a problem, and set all attributes of the fit, those `seen` in the data too."""
        radius = self._fitted_radius(problem, coding, n_samples)
        problem = problem.within(self._constraint(radius / coding.radius_unit))
        certificate = self._solve_coded(problem, coding, self._start(problem, coding), **options)
        set_fitted(self, seen | {"radius_": radius} | certificate.attributes)
        return certificate

    @property
    def _remedy(self):
        has_radius = isinstance(self.constraint, str) or hasattr(self.constraint, "radius")
        return f"scale the features, or {'lower the radius' if has_radius else 'take a smaller set'}"

    def _prepare(self, X, y, sample_weight):
        """Return the problem of validated data, and the coding between its models and fitted attributes.

        The problem's set has radius one, unless it is an object of its own.
        """
        raise NotImplementedError

    def _solve_coded(self, problem, coding, start=None, **options):
        """Run the solver on a problem in the units of a coding."""
        units = {"loss_unit": coding.loss_unit, "radius_unit": coding.radius_unit}
        return self._solve(problem, coding.decode, start, **units, **options)

    def _weights(self, y, sample_weight):
        """Return the weights of the samples in the loss; they sum to one."""
        weights = check_sample_weight(sample_weight, len(y))
        return weights / weights.sum()

    def _constraint(self, radius):
        return make_constraint(self.constraint, radius, LINEAR_CONSTRAINTS, support_size=self.support_size)

    def _fitted_radius(self, problem, coding, n_samples):
        """Return the radius of a fit: that of an object, the given one, or the default for the data."""
        if not isinstance(self.constraint, str):
            return getattr(self.constraint, "radius", np.nan)
        if self.radius == "scale":
            return _DEFAULT_FACTOR * n_samples**_DEFAULT_POWER * radius_scale(problem) * coding.radius_unit
        return float(self.radius)

    def _check_params(self):
        check_radius(self.radius)
        self._constraint(1.0)
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


def total_weight(y, sample_weight):
    """Return how many samples there are, counted with their weights; from 1 to 1e15, whatever these are."""
    weights = 1.0 if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    with np.errstate(over="ignore"):
        return float(np.broadcast_to(weights, len(y)).sum().clip(1.0, 1e15))


def radius_scale(problem):
    """Return the radius at which the loss, if it went on to fall as it does at the zero model, would be zero.

    The set of the problem has radius one. Were all features in the same unit, it would go on in the direction
    of the atom that the oracle finds for the gradient. So the oracle is given the gradient of features that
    were divided by their sizes, in terms of the coefficients of the features as they are. The size is the
    largest value, but at least that of some feature that matters: a small unit alone does not count.
    """
    null = problem.null
    gradient, sizes = problem.data.adjoint(null.evaluation.residual), problem.data.adjoint_size()
    scaled = gradient / np.where(sizes > 0.0, sizes, 1.0)
    relevance = np.abs(scaled)
    relevance[relevance <= _ROUNDING] = 0.0  # of a feature that is constant, or zero
    matters = relevance > _MATTERS * relevance.max()
    if not matters.any():
        return 1.0 / max(sizes.max(), _SMALLEST)
    sizes = np.maximum(sizes, sizes[matters].min())
    direction = scaled * (sizes.min() / sizes)
    # A ball is the same on both sides; a simplex may have a side on which the loss neither falls nor rises.
    atoms = [problem.constraint.lmo(side).atom for side in (direction, -direction)]
    return null.value / max(*(abs(atom.inner(gradient)) for atom in atoms), _SMALLEST)


def dense_coefficients(model):
    """Return the coefficients of a fitted model as an array, in float64 and with a row for each feature."""
    coef = model.coef_.toarray() if sparse.issparse(model.coef_) else model.coef_
    return np.ascontiguousarray(np.atleast_2d(coef).T, dtype=np.float64)
