"""Matrix completion in a nuclear-norm ball."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ._certified import CertifiedFitMixin, conclude, set_fitted, validated, warn_caller, with_callbacks
from ._completion_task import Task, mapped_start
from ._features import given_features
from ._fold_in import folded_in
from ._ids import IdEncoder, check_ids, doubt_ids, doubt_new_ids, keep_ids
from ._implicit import best_implicit
from ._params import (
    COMPLETION_CONSTRAINTS,
    as_sample_weight,
    check_flag,
    check_integer,
    check_name,
    check_number,
    check_radius,
    is_number,
    make_constraint,
    relative_weights,
)
from ._recommend import RecommenderMixin
from .engine import (
    BiasedSquaredLoss,
    Constraint,
    FactorDescent,
    ObservedEntries,
    Problem,
    SquaredLoss,
    best_corrector,
    products_at,
    thread_pool,
)

_ROUNDING = 64.0 * np.finfo(np.float64).eps
# Relative to the largest: where a row's weight in the norm is smaller, its factors are nothing but rounding.
_LEAST_NORM_WEIGHT = 1e-8
# The default radius in units of the norm that the whole matrix would have, and its factor for each side that
# has implicit features, which need a smaller one.
_SCALE, _IMPLICIT_SCALE = 1.6, 0.6
# Where next to nothing can be won, a gap of this fraction of `tol` is small enough, relative to all there is.
_FLOOR = 0.01
_IMPLICIT = ("auto", "none", "rows", "columns", "both")
_BIASES = ("none", "mean", "rows", "columns", "both")
# Ids are checked by their own rules, with their own messages.
_ANY_IDS = {"dtype": None, "ensure_all_finite": False}
_ENTRIES = {**_ANY_IDS, "y_numeric": True}


class CompletedMatrixMixin(RecommenderMixin):
    """What a fitted model of a matrix can do, whoever fitted it."""

    def _validated(self, X, y):
        """Return the entries of a fit, and the attributes that tell of its features."""
        X, y, seen = validated(self, keep_ids(X), y, **_ENTRIES, ensure_min_features=2)
        check_ids(X)
        return X, _numbers(y), seen

    def predict(self, X):
        """Return the values of entries; of rows and columns not seen in `fit` only the biases are known.

        Where the other side has features, what these do on average is known too.

        A warning says if none of the rows, or none of the columns, was seen in `fit` and that is odd: because
        their ids are of another type, rows and columns are swapped, or ten or more ids are all new.

        Parameters
        ----------
        X : array or data frame of shape (n_entries, `n_features_in_`)
            Ids, as in `fit`.

        Returns
        -------
        ndarray of shape (n_entries,)
        """
        check_is_fitted(self)
        X = validate_data(self, keep_ids(X), **_ANY_IDS, reset=False)
        check_ids(X)
        result, indices = self._predicted(X)
        doubt = doubt_new_ids(X, (self._row_encoder, self._column_encoder), indices)
        warn_caller(f"{type(self).__name__}.predict", [doubt], UserWarning)
        return result

    def _predicted(self, X):
        """Return the predictions, and the indices of rows and columns."""
        rows, columns = self._row_encoder.transform(X[:, :1]), self._column_encoder.transform(X[:, 1:])
        # Index -1, for what was not seen, reads the zero appended at the end.
        result = (
            self.mean_ + np.append(self.row_biases_, 0.0)[rows] + np.append(self.column_biases_, 0.0)[columns]
        )
        seen = (rows >= 0) & (columns >= 0)
        result[seen] += products_at(self.row_factors_, self.column_factors_, rows[seen], columns[seen])
        if not seen.all():
            row, column = (model.default_factors for model in self._sides)
            new_row, new_column = rows < 0, (rows >= 0) & (columns < 0)
            result[new_row] += np.append(self.column_factors_ @ row, row @ column)[columns[new_row]]
            result[new_column] += (self.row_factors_ @ column)[rows[new_column]]
        return self._clipped(result), (rows, columns)

    @thread_pool()
    def fold_in(self, X, y, sample_weight=None, *, axis="rows", features=None):
        """Add rows, or columns, or replace them, without a new fit: the others stay as they are.

        Their factors and biases are those that fit their entries best, with the factors and biases of the
        other side fixed and half the penalty that `fit` has on them, which suits rows that nothing was
        adapted to. All entries of a row are needed, those known in `fit` too: what is not
        given is forgotten. `predict` and `recommend` know them then; the certificate remains that of `fit`.

        Parameters
        ----------
        X : array or data frame of shape (n_entries, `n_features_in_`)
            Ids, as in `fit`. Those of the other side must be known.
        y : array of shape (n_entries,)
        sample_weight : array of shape (n_entries,), optional
        axis : {"rows", "columns"}, default="rows"
            What to add.
        features : as `row_features` or `column_features` in `fit`, optional
            Features of what is added. Ids known in `fit` keep those they had.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        check_name("axis", axis, ("rows", "columns"))
        X, y = validate_data(self, keep_ids(X), y, **_ENTRIES, reset=False)
        check_ids(X)
        X, y, weights = weighted_entries(X, _numbers(y), sample_weight)
        weights = weights / self._largest_weight  # the unit of those in `fit`
        vars(self).update(folded_in(self, X, y, weights, ("rows", "columns").index(axis), features))
        return self

    def _clipped(self, predictions):
        return predictions if self.clip is None else np.clip(predictions, *_interval(self.clip))

    def __sklearn_tags__(self):
        """Declare that ids may be strings."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags

    def _norm_powers(self, shares):
        """Return the weights in the norm, up to a factor, given how much is known relative to the most."""
        exponent = self.weight_exponent if self.constraint == "weighted_nuclear" else 0.0
        return np.maximum(shares**exponent, _LEAST_NORM_WEIGHT)

    def _row_penalties(self, side, counts):
        """Return what the multiplier makes of the squared weights in the norm of rows with such weights."""
        largest, unit = side.weight_units
        weights = self._norm_powers(counts / largest) / unit
        return self._penalty_unit * self.multiplier_ * weights**2


class HFWMatrixCompletion(CompletedMatrixMixin, CertifiedFitMixin, RegressorMixin, BaseEstimator):
    r"""Complete a matrix from some of its entries, with a bound on its nuclear norm and a certificate.

    An entry is a sample: its features are the ids of its row and its column, its target is its value. The
    model is the mean, a bias for each row and each column, and a matrix of low rank. Biases and matrix
    together minimise half the weighted mean squared error, with a small penalty on the biases and the matrix
    in a nuclear-norm ball, by Frank-Wolfe with heavy-ball momentum [1]_ and descent on the factors. The
    fitted `gap_` is a proven bound on the distance between its objective and the smallest one.

    Rows and columns may have features: those given to `fit`, and implicit ones that say where they have
    entries, whatever these are [3]_. The matrix is then ``A W C.T``, with the identity and the features of
    the rows side by side in ``A``, those of the columns in ``C``, and ``W`` in the ball: the same convex
    problem, with the same certificate.

    Parameters
    ----------
    radius : float or "scale", default="scale"
        Bound of the sum of singular values of the low-rank part, or of ``W``; for "weighted_nuclear", after
        its rows and columns were multiplied by their weights. With ``normalize=True`` it is relative to the
        Frobenius norm of the observed values without mean and biases: 1 allows one singular value that could
        explain them all. Larger radii fit the observed entries more closely and need more iterations. Good
        ones grow with the inverse root of the share of the entries that is known: "scale" is 1.6 times that,
        times 0.6 for each side that has implicit features. `HFWMatrixCompletionCV` searches around it.
        Ignored if `constraint` is an object.
    constraint : {"weighted_nuclear", "nuclear"} or Constraint, default="weighted_nuclear"
        The set of the low-rank part. For "weighted_nuclear" the rows and columns are multiplied, before the
        norm is taken, by their number of entries to the power of `weight_exponent`, divided by the root of
        the mean square of that [2]_. An object is used with its own radius, which is relative as
        `radius` is with ``normalize=True``, and absolute with ``normalize=False``.
    weight_exponent : float, default=0.2
        For "weighted_nuclear": 0 gives the norm without weights, 0.5 that of a matrix sampled row by row and
        column by column. A weight is at least 1e-8 times the largest.
    implicit : {"auto", "none", "rows", "columns", "both"}, default="auto"
        Which have implicit features. Those of rows say in which columns a row has entries; those of columns,
        which are often the better ones, in which rows a column has entries. "auto" takes what best predicts a
        tenth of the entries, of at most 100,000, from the others, and none where that is not clearly better;
        it is "none" if `constraint` is an object.
    max_rank : int, optional
        Largest rank of the low-rank part, or of ``W``. With fewer factors than the optimum has, the gap may
        stay above `tol`, and is as valid as any.
    biases : {"both", "rows", "columns", "mean", "none"}, default="both"
        What the model has beside the matrix of low rank. All but "none" have the mean.
    bias_penalty : float or None, default=3.0
        Biases are fitted together with the low-rank part, and shrunk as if each row and column had this many
        additional entries of zero (at least 2e-16 times the entries it has). None subtracts the means
        beforehand: the mean, then the rows' means, then the columns', which is how the paper prepares data.
    normalize : bool, default=True
        Whether `radius`, or that of a constraint object, is relative to the norm of the observed values.
    momentum : {"adaptive", "weighted", "uniform", "none"} or float in (0, 1), default="adaptive"
        Weight of the newest gradient in the average that gives the direction.
    step_size : {"line_search", "directional", "smooth", "parameter_free"}, default="line_search"
        See `HFWLogisticRegression`.
    corrective : bool, default=True
        Whether to improve the factors between the steps. Without it each step adds one to the rank.
    restart : bool, default=False
        Whether to forget past gradients when the newest alone proves a smaller gap. It needs a momentum with
        fixed weights: "weighted", "uniform" or a number.
    tol : float, default=1e-1
        Stop when `gap_` is at most `tol` times what the low-rank part has lowered the objective by (where
        that is less than a hundredth of the objective, `tol` times this hundredth). Predictions are seldom
        better for a smaller one: on MovieLens 100K, 2e-2 takes 1.5 to 2 times as long and lowers the error on
        unseen ratings by 0.0001 to 0.0004. Values with little noise want a smaller one.
    max_iter : int, default=1000
        Largest number of steps.
    max_time : float, optional
        No iteration begins later than this many seconds after `fit` began: the model is the best one found
        until then, and its certificate is as valid as any.
    lipschitz : float, optional
        Lipschitz constant of the gradient, for ``step_size="smooth"`` and ``restart=True``.
    clip : tuple of two floats, optional
        Smallest and largest prediction, ``(1, 5)`` for ratings from one to five. An end may be None or
        infinite: ``(0, None)`` for values that are not negative.
    warm_start : bool, default=False
        Whether to start from the last fit's factors, for the ids it knew.
    random_state : int, RandomState instance or None, default=None
        Seed of the start vectors of the singular-vector oracle. Pass an int for the same bits in each run.
        Not used if `constraint` is an object: that has its own, ``NuclearBall(2.0, random_state=0)``.
    verbose : int, default=0
        Whether to print the progress.

    Attributes
    ----------
    row_ids_, column_ids_ : ndarray
        The ids, in the order of the factors: those with entries, then those known by their features alone,
        then those that `fold_in` has added.
    row_factors_ : ndarray of shape (n_rows, `rank_`)
    column_factors_ : ndarray of shape (n_columns, `rank_`)
        The low-rank part is ``row_factors_ @ column_factors_.T``; the columns of each are orthogonal, with
        squared norms `singular_values_`.
    singular_values_ : ndarray of shape (`rank_`,)
        Of the low-rank part itself, whatever the weights in the constraint.
    rank_ : int
    radius_ : float
        The radius, in the unit of the parameter.
    implicit_ : {"none", "rows", "columns", "both"}
        Which have implicit features.
    mean_ : float
    row_biases_, column_biases_ : ndarray
        Zero where `biases` leaves them out.
    objective_, lower_bound_, gap_ : float
        Half the weighted mean squared error on the observed entries, with the biases' penalty; a proven lower
        bound of the smallest one in the ball, :eq:`bound`, and their difference :eq:`gap`. The bound
        accounts for the inexact singular vectors; it is wrong with a probability below 1e-12 for each call
        of the oracle.
    multiplier_ : float
        The Lagrange multiplier of the constraint: how fast the smallest objective falls as the radius grows.
        NaN for a set of your own without a method `multiplier`.
    converged_ : bool
        Whether `gap_` met `tol`.
    n_iter_, n_restarts_ : int
    trace_ : dict of str to ndarray
        The run as a table; "atoms" is the number of rank-one terms.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)

    References
    ----------
    .. [1] B. Li, A. Sadeghi and G. B. Giannakis, "Heavy ball momentum for conditional gradient",
       NeurIPS 2021.
    .. [2] N. Srebro and R. Salakhutdinov, "Collaborative filtering in a non-uniform world: learning with the
       weighted trace norm", NeurIPS 2010.
    .. [3] Y. Koren, "Factorization meets the neighborhood: a multifaceted collaborative filtering model",
       KDD 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw import HFWMatrixCompletion
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 20))
    >>> entries = np.argwhere(rng.uniform(size=truth.shape) < 0.5)
    >>> values = truth[tuple(entries.T)]
    >>> model = HFWMatrixCompletion(radius=1.8, biases="none", tol=1e-3, random_state=0)
    >>> model.fit(entries, values).converged_
    True
    >>> everywhere = np.argwhere(np.ones_like(truth))
    >>> error = model.predict(everywhere) - truth[tuple(everywhere.T)]
    >>> bool(np.abs(error).mean() < 0.1 * np.abs(truth).mean())
    True
    """

    def __init__(
        self,
        radius="scale",
        *,
        constraint="weighted_nuclear",
        weight_exponent=0.2,
        implicit="auto",
        max_rank=None,
        biases="both",
        bias_penalty=3.0,
        normalize=True,
        momentum="adaptive",
        step_size="line_search",
        corrective=True,
        restart=False,
        tol=1e-1,
        max_iter=1000,
        max_time=None,
        lipschitz=None,
        clip=None,
        warm_start=False,
        random_state=None,
        verbose=0,
    ):
        self.radius = radius
        self.constraint = constraint
        self.weight_exponent = weight_exponent
        self.implicit = implicit
        self.max_rank = max_rank
        self.biases = biases
        self.bias_penalty = bias_penalty
        self.normalize = normalize
        self.momentum = momentum
        self.step_size = step_size
        self.corrective = corrective
        self.restart = restart
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.lipschitz = lipschitz
        self.clip = clip
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks
    @thread_pool()
    def fit(self, X, y, sample_weight=None, *, row_features=None, column_features=None):
        """Fit the model.

        Parameters
        ----------
        X : array or data frame of shape (n_entries, 2) or more columns
            Ids, numbers or strings. The first names the row, the others name the column together. A warning
            says if nearly every row, or column, has a single entry, as it does where a time or a measurement
            is taken for part of a name.
        y : array of shape (n_entries,)
            The entries' values.
        sample_weight : array of shape (n_entries,), optional
            A weight of two counts an entry twice, a weight of zero leaves it out.
        row_features, column_features : data frame, or tuple of ids and a matrix, optional
            Numbers that are known of rows, or of columns: a data frame indexed by id, or the ids and an array
            or CSR matrix with a row for each of them. Their scale does not matter. Those of an array are
            centred, and an id without features has their means. Rows that have features but no entries are
            predicted from their features.

        Returns
        -------
        self
        """
        began = perf_counter()
        self._check_params()
        X, y, seen = self._validated(X, y)
        entries = weighted_entries(X, y, sample_weight)
        given = given_features(X, row_features, column_features)
        with self._callbacks(X, y, sample_weight, seen) as report:
            certificate = self._complete(*entries, given, report=report, began=began)
            set_fitted(self, seen | certificate.attributes)
        conclude(type(self).__name__, certificate)
        doubt = doubt_ids(X, self._observed, seen.get("feature_names_in_"))
        warn_caller(type(self).__name__, [doubt], UserWarning)
        return self

    def _complete(self, X, y, weights, given=(None, None), start=None, report=None, began=None):
        """Run the solver on entries of positive weight and certify what it found; nothing is set.

        `start` is a fitted model.
        """
        implicit = self.implicit
        if implicit == "auto":
            implicit = best_implicit(self, X, y, weights, given, began)
        return self._complete_task(self._task(X, y, weights, given), implicit, start, report, began)

    def _complete_task(self, task, implicit, start=None, report=None, began=None):
        """Do the same for entries in the solver's units, with these implicit features."""
        sides = task.sides(implicit)
        radius = self._radius(task, implicit)
        problem = Problem(task.loss, data := task.data(sides), self._constraint(task, data.shape, radius))
        start = start or (self if self.warm_start and hasattr(self, "rank_") else None)
        certificate = self._solve(
            problem,
            partial(task.attributes, sides, problem),
            None if start is None else self._start(start, task, problem, sides),
            loss_unit=task.value_unit * task.value_unit,
            radius_unit=task.radius_unit,
            report=report,
            began=began,
        )
        known = {"radius_": radius, "implicit_": implicit}
        return replace(certificate, attributes=certificate.attributes | known)

    def _task(self, X, y, weights, given=(None, None)):
        """Return entries in the solver's units."""
        row_encoder, column_encoder = IdEncoder(), IdEncoder()
        rows, columns = row_encoder.fit(X[:, :1]), column_encoder.fit(X[:, 1:])
        shape = len(row_encoder.ids), len(column_encoder.ids)
        order = _stable_order(rows * shape[1] + columns, shape[0] * shape[1])  # memory is read in order then
        largest_weight = float(weights.max())
        values, weights = y[order], relative_weights(weights)[order]
        entries = ObservedEntries(rows[order].astype(np.int32), columns[order].astype(np.int32), shape)
        del rows, columns, order
        id_weights, weight_units = self._id_weights(entries, weights)
        # The penalty of the biases counts in entries, whose weight is one.
        total = float(weights.sum())
        penalty = None if self.bias_penalty is None else self.bias_penalty / largest_weight / total
        weights = weights / total
        # Values are divided by `scale`, so that nothing overflows; what mean and biases leave of them, the
        # targets, by the unit that the radius refers to.
        scale = float(np.abs(values).max()) or 1.0
        loss, mean, biases = self._make_loss(entries, values / scale, weights, penalty)
        target_unit, radius_unit = self._units(entries, loss, scale)
        value_unit = scale * target_unit
        if not np.isfinite(value_unit * value_unit):
            raise ValueError(
                f"y is too large for its squares: it reaches {scale:g} in size. Divide it first."
            )
        return Task(
            encoders=(row_encoder, column_encoder),
            entries=entries,
            loss=replace(loss, targets=loss.targets / target_unit),
            given=given,
            id_weights=id_weights,
            weight_units=weight_units,
            total_weight=total,
            largest_weight=largest_weight,
            mean=scale * mean,
            biases=scale * biases,
            value_unit=value_unit,
            radius_unit=radius_unit,
        )

    def _radius(self, task, implicit):
        """Return the radius: that of an object, the given one, or the default for the data."""
        if not isinstance(self.constraint, str):
            return getattr(self.constraint, "radius", np.nan)
        if self.radius != "scale":
            return float(self.radius)
        n_implicit = {"none": 0, "rows": 1, "columns": 1, "both": 2}[implicit]
        unit = 1.0 if self.normalize else task.value_unit * (_observed_norm(task.entries, task.loss) or 1.0)
        return _SCALE * _IMPLICIT_SCALE**n_implicit / np.sqrt(task.share_known) * unit

    def _check_params(self) -> None:
        self._check_solver_params()
        if isinstance(self.constraint, str):
            check_radius(self.radius)
        make_constraint(self.constraint, 1.0, COMPLETION_CONSTRAINTS)
        check_name("implicit", self.implicit, _IMPLICIT)
        self._check_max_rank()
        check_number("weight_exponent", self.weight_exponent, at_least=0.0)
        check_name("biases", self.biases, _BIASES)
        if self.bias_penalty is not None:
            check_number("bias_penalty", self.bias_penalty, above=0.0)
        check_flag("normalize", self.normalize)
        check_flag("warm_start", self.warm_start)
        if self.clip is not None and not _is_interval(self.clip):
            raise ValueError(
                f"clip must be None or a pair in ascending order, each end a number or None; "
                f"got clip={self.clip!r}."
            )

    def _check_max_rank(self):
        if self.max_rank is None:
            return
        check_integer("max_rank", self.max_rank, at_least=1)
        if not self.corrective:
            raise ValueError("max_rank needs corrective=True: without it each step adds one to the rank.")
        if isinstance(self.constraint, Constraint) and self.constraint.geometry != "nuclear ball":
            raise ValueError(f"max_rank needs a nuclear-norm ball; got constraint={self.constraint!r}.")

    def _id_weights(self, entries, weights):
        """Return the weights of rows and columns in the norm, from how much is known, and their units."""
        id_weights, units = [], []
        for indices in (entries.row_indices, entries.column_indices):
            counts = np.bincount(indices, weights)
            largest = float(counts.max())
            powers = self._norm_powers(counts / largest)
            units.append((largest, float(np.sqrt(np.mean(powers**2)))))
            id_weights.append(powers / units[-1][1])
        return id_weights, units

    def _units(self, entries, loss, scale):
        """Return what the solver's targets are divided by after `scale`, and what its radius is."""
        if self.normalize:
            norm = _observed_norm(entries, loss)
            return norm if norm > _ROUNDING else 1.0, 1.0  # of values up to one
        if isinstance(self.constraint, str):
            return 1.0, scale
        return 1.0 / scale, 1.0  # the radius of an object is as it is, and so are the values

    def _constraint(self, task, shape, radius):
        """Return the set of the solver's models, which have this shape."""
        if not isinstance(self.constraint, str):
            return self.constraint
        radius = radius / task.radius_unit
        if not 0.0 < radius < np.inf:
            raise ValueError(
                f"radius and y must be of comparable size; got radius={self.radius} for values up to "
                f"{task.radius_unit:g}. Use normalize=True, or scale y."
            )
        return make_constraint(
            self.constraint,
            radius,
            COMPLETION_CONSTRAINTS,
            matrix_weights=task.norm_weights(shape),
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
        )

    def _corrector(self, problem):
        if self.max_rank is None:
            return best_corrector(problem)
        ball = problem.constraint
        weights = ball.weights(problem.data.shape)
        return FactorDescent(problem, ball.radius, *weights, ball.random_state, self.max_rank)

    @property
    def _remedy(self):
        return "lower the radius" if self.max_rank is None else "raise max_rank, or lower the radius"

    def _tolerances(self, null):
        return {"tolerance": _FLOOR * self.tol * null, "relative_tolerance": self.tol}

    def _gap_unit(self, null, objective):
        return null - objective, "what the low-rank part wins"

    def _make_loss(self, entries, values, weights, penalty):
        """Return the loss of the low-rank part, the mean, and biases that the loss does not know of."""
        mean = float(weights @ values) if self.biases != "none" else 0.0
        has_row_biases, has_column_biases = (
            self.biases in ("rows", "both"),
            self.biases in ("columns", "both"),
        )
        biases = np.zeros(sum(entries.shape))
        targets = values - mean
        if penalty is None:
            row_biases, column_biases = np.split(biases, entries.shape[:1])
            if has_row_biases:
                row_biases[:] = _group_means(entries.row_indices, targets, weights)
                targets = targets - row_biases[entries.row_indices]
            if has_column_biases:
                column_biases[:] = _group_means(entries.column_indices, targets, weights)
                targets = targets - column_biases[entries.column_indices]
        targets[np.abs(targets) <= _ROUNDING] = 0.0  # explained entirely: the rest is no signal
        if penalty is None or not (has_row_biases or has_column_biases):
            return SquaredLoss(targets, weights), mean, biases
        penalties = [penalty if used else np.inf for used in (has_row_biases, has_column_biases)]
        return BiasedSquaredLoss(targets, weights, entries, *penalties), mean, biases

    def _start(self, model, task, problem, sides):
        """Return the low-rank part of a fitted model, on the ids known to both, as a point of the set."""
        encoders = model._row_encoder, model._column_encoder
        if encoders[1].ids.shape[1] != task.encoders[1].ids.shape[1]:
            return None
        inside = mapped_start(model._sides, encoders, problem, task, sides, self.max_rank)
        return None if inside is None else problem.at(inside)


def weighted_entries(X, y, sample_weight):
    """Return the entries that have a weight, their values, and the weights."""
    weights = as_sample_weight(sample_weight, len(y))
    # What is nothing beside the sum of all has no weight either.
    counts = relative_weights(weights) / len(weights) > 0.0
    kept = slice(None) if counts.all() else counts
    return X[kept], y[kept], weights[kept]


def _numbers(y):
    if y.dtype.kind not in "biuf":
        raise ValueError(f"y must have numbers, the values of the entries; got an array of {y.dtype}.")
    return y.astype(np.float64, copy=False)


def _is_interval(pair):
    if np.shape(pair) != (2,):
        return False
    low, high = _interval(pair)
    return is_number(low) and is_number(high) and low <= high


def _interval(pair):
    """Return both ends of an interval; None stands for no end."""
    low, high = pair
    return -np.inf if low is None else low, np.inf if high is None else high


def _stable_order(numbers, n_numbers):
    """Return what sorts integers from zero up, where equal ones stay in their order.

    NumPy sorts integers several times as fast as it finds their order. So each has its place as a last digit.
    """
    n_places = len(numbers)
    if n_numbers * n_places >= 2**63:
        return np.argsort(numbers, kind="stable")
    digits = np.sort(numbers * n_places + np.arange(n_places))
    return digits % n_places


def _group_means(groups, values, weights):
    return np.bincount(groups, weights * values) / np.bincount(groups, weights)


def _observed_norm(entries, loss):
    """Frobenius norm of the observed targets that biases leave; a repeated entry has its weighted mean."""
    residual = loss.evaluate(np.zeros(len(loss.weights))).residual
    return float(np.linalg.norm(entries.totals(residual) / entries.totals(loss.weights)))
