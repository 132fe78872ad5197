"""Logistic and linear regression in a norm ball, on Dask collections."""

from __future__ import annotations

from time import perf_counter

import dask.array
import numpy as np
from distributed import get_client
from scipy.special import xlogy
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from .._certified import conclude, with_callbacks
from .._linear import total_weight
from .._logistic import ClassCoding, HFWLogisticRegression
from .._regression import HFWRegressor, TargetCoding
from ..engine import (
    Extent,
    LogisticLoss,
    Made,
    MultinomialLoss,
    Problem,
    SeveralTargets,
    ShardedDesign,
    ShardedLoss,
    design_matrix,
    thread_pool,
)
from ._rows import read_rows


class DaskFitMixin:
    """Fits, predicts, scores collections; parameters and attributes are those of the plain estimator."""

    @with_callbacks
    @thread_pool()
    def fit(self, X, y, sample_weight=None):
        """Fit the model.

        Parameters
        ----------
        X : dask array or data frame, array or CSR matrix, of shape (n_samples, n_features)
            The blocks of a dask array may be arrays or CSR matrices, of any and of unknown lengths.
        y : dask array or series, or array, of shape (n_samples,), for a regressor also (n_samples, n_targets)
        sample_weight : dask array or series, or array, of shape (n_samples,), optional
            A weight of two counts a sample twice, a weight of zero leaves it out.

        Returns
        -------
        self
        """
        began = perf_counter()
        self._check_params()
        client = self._used_client()
        try:
            problem, coding, seen, n_samples = self._read(client, X, y, sample_weight)
            with self._callbacks(X, y, sample_weight, seen) as report:
                certificate = self._fit_problem(problem, coding, n_samples, seen, report=report, began=began)
        except Exception as error:
            if client is None or client.status == "running":
                raise
            raise RuntimeError(
                f"The client of {type(self).__name__} is closed, or has lost its scheduler; the estimator is "
                f"as it was before."
            ) from error
        conclude(type(self).__name__, certificate)
        return self

    def _read(self, client, X, y, sample_weight):
        """Return the problem, its coding, what was seen of the features, and the weight of all samples.

        The rows themselves are let go of: the problem has its own blocks.
        """
        rows = read_rows(type(self).__name__, client, X, y, sample_weight, self._look_at())
        weights = [look.weights[2] * look.weights[1] for look in rows.looks]
        return *self._prepare_rows(rows), total_weight(weights, weights)

    def _used_client(self):
        """Return the client: the given one, the default one, or None for the local scheduler."""
        if self.client is not None:
            return self.client
        try:
            return get_client()
        except ValueError:
            return None

    def _sharded(self, rows, records, pattern, n_outputs):
        """Return the problem of blocks of features and losses, in a set of radius one."""
        runner, extents = rows.runner, [each.extent for each in rows.features]
        n_kept = runner.parts(records.part("n_kept"))
        filled = [k for k, number in enumerate(n_kept) if number]
        records, X = records.of_blocks(filled), rows.X.of_blocks(filled)
        # Not held: designs of data that is held, or read, take nothing to make.
        designs = Made(_design, X, n_outputs)
        if n_kept == [each.n_rows for each in extents]:
            extents = [extents[k] for k in filled]
        else:
            kept = Made(_rows_kept, X, records.part("kept"))
            designs = Made(_design, runner.map(_same, kept) if rows.is_held else kept, n_outputs)
            extents = runner.parts(runner.map(Extent.of, designs))
        design = ShardedDesign(runner, designs, extents, n_outputs)
        loss = ShardedLoss(runner, records.part("loss"), pattern, n_outputs, self.fit_intercept)
        return Problem(loss, design, self._constraint(1.0))

    def to_local(self):
        """Return the plain estimator with the same parameters, and the fitted attributes if there are any.

        Returns
        -------
        HFWLogisticRegression or HFWRegressor
        """
        params = self.get_params(deep=False)
        del params["client"]
        local = self._plain(**params)
        vars(local).update(
            {name: value for name, value in vars(self).items() if name not in self.get_params(False)}
        )
        return local

    def __getstate__(self):
        """Leave the client behind: it is a connection."""
        return super().__getstate__() | {"client": None}

    def __sklearn_clone__(self):
        """Return an unfitted estimator with the same parameters, and the same client."""
        return type(self)(**self.get_params(deep=False))

    def _lazily(self, X, method):
        """Return predictions of a collection as a dask array, or of an array as an array."""
        check_is_fitted(self)
        local = self.to_local()
        if not dask.is_dask_collection(X):
            return getattr(local, method)(X)
        self._check_columns(X)
        if not isinstance(X, dask.array.Array):
            X = X.to_dask_array()
        vars(local).pop("feature_names_in_", None)
        X = X.rechunk({1: -1})
        example = getattr(local, method)(np.zeros((1, self.n_features_in_)))
        if example.ndim == 1:
            return X.map_blocks(_predicted, local, method, dtype=example.dtype, drop_axis=1, meta=example[:0])
        chunks = (X.chunks[0], (example.shape[1],))
        return X.map_blocks(_predicted, local, method, dtype=example.dtype, chunks=chunks, meta=example[:0])

    def _check_columns(self, X):
        """Raise a ValueError if a frame has other columns than the one of the fit."""
        names, known = getattr(X, "columns", None), getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and list(names) != list(known):
            raise ValueError(
                f"X must have the columns of the fit, {list(known)[:5]} and so on; got {list(names)[:5]}."
            )

    def predict(self, X):
        """Return the predictions: a dask array of a collection, computed later; an array of an array.

        Parameters
        ----------
        X : as in `fit`
        """
        return self._lazily(X, "predict")

    def score(self, X, y, sample_weight=None):
        """Return the score of the plain estimator, computed where the blocks are.

        Parameters
        ----------
        X, y, sample_weight : as in `fit`

        Returns
        -------
        float
        """
        check_is_fitted(self)
        self._check_columns(X)
        local = self.to_local()
        vars(local).pop("feature_names_in_", None)
        rows = read_rows(type(self).__name__, self._used_client(), X, y, sample_weight, _nothing)
        return self._score_of(rows.runner, local, rows)


class DaskHFWLogisticRegression(DaskFitMixin, HFWLogisticRegression):
    """Logistic regression in a norm ball, on Dask collections.

    The same model and the same certificate as `HFWLogisticRegression`, from data in blocks of rows: on the
    workers of a cluster, or one after another in this process. An iteration is a few passes over the blocks;
    what crosses are the model and directions, one number a feature, and sums.

    Parameters
    ----------
    constraint, radius, support_size, momentum, step_size, corrective, restart, tol, max_iter, max_time, \
fit_intercept, lipschitz, class_weight, warm_start, verbose
        As in `HFWLogisticRegression`.
    client : distributed.Client, optional
        By default the current one; without any, all is computed in this process.

    See Also
    --------
    skfw.HFWLogisticRegression : The same for data in memory, with the description of all attributes.

    Examples
    --------
    >>> import dask.array
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from skfw.dask import DaskHFWLogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> rows, labels = dask.array.from_array(scale(X), chunks=(100, 30)), dask.array.from_array(y, chunks=100)
    >>> model = DaskHFWLogisticRegression("l1", radius=5).fit(rows, labels)
    >>> round(model.score(rows, labels), 2), model.converged_
    (0.97, True)
    >>> model.predict(rows)[:3].compute()
    array([0, 0, 0])
    """

    _plain = HFWLogisticRegression

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
        client=None,
    ):
        super().__init__(
            constraint,
            radius,
            support_size=support_size,
            momentum=momentum,
            step_size=step_size,
            corrective=corrective,
            restart=restart,
            tol=tol,
            max_iter=max_iter,
            max_time=max_time,
            fit_intercept=fit_intercept,
            lipschitz=lipschitz,
            class_weight=class_weight,
            warm_start=warm_start,
            verbose=verbose,
        )
        self.client = client

    def decision_function(self, X):
        """Return the log-odds of the second class, or one score for each of several classes.

        Parameters
        ----------
        X : as in `fit`
        """
        return self._lazily(X, "decision_function")

    def predict_proba(self, X):
        """Return the probability of each class.

        Parameters
        ----------
        X : as in `fit`
        """
        return self._lazily(X, "predict_proba")

    def predict_log_proba(self, X):
        """Return the logarithm of the probability of each class.

        Parameters
        ----------
        X : as in `fit`
        """
        return self._lazily(X, "predict_log_proba")

    def _look_at(self):
        return _class_totals

    def _prepare_rows(self, rows):
        totals = {}
        for look in rows.looks:
            for label, total in zip(*look.targets, strict=True):
                totals[label] = totals.get(label, 0.0) + total / rows.largest_weight
        every = np.array(list(totals))
        order = np.argsort(every)
        every, weights = every[order], np.array(list(totals.values()))[order]
        check_classification_targets(every)
        factors = np.broadcast_to(self._class_weights(every, weights), every.shape)
        kept = weights * factors > 0.0
        classes, weights, factors = every[kept], weights[kept], factors[kept]
        if len(classes) < 2:
            found = f"; the data contains only one class, {classes[0]}" if len(classes) else ""
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes with a positive weight{found}."
            )
        scale = 1.0 / float((weights * factors).sum())
        n_outputs = None if len(classes) == 2 else len(classes)
        records = rows.runner.map(
            _classified, rows.y, rows.weights, classes, scale * factors, rows.largest_weight
        )
        pattern = _class_loss(np.zeros(1, dtype=int), np.ones(1), len(classes))
        problem = self._sharded(rows, records, pattern, n_outputs)
        return problem, ClassCoding(classes, rows.dtype), rows.seen

    def _score_of(self, runner, local, rows):
        right, total = runner.sums(_n_right, rows.X, rows.y, rows.weights, local)
        return float(right / total)


class DaskHFWRegressor(DaskFitMixin, HFWRegressor):
    """Linear regression in a norm ball, on Dask collections.

    The same model and the same certificate as `HFWRegressor`, from data in blocks of rows: on the workers of
    a cluster, or one after another in this process. What crosses are the model and directions, one number a
    feature, and sums.

    Parameters
    ----------
    constraint, radius, loss, epsilon, support_size, momentum, step_size, corrective, restart, tol, \
max_iter, max_time, fit_intercept, lipschitz, warm_start, verbose
        As in `HFWRegressor`.
    client : distributed.Client, optional
        By default the current one; without any, all is computed in this process.

    See Also
    --------
    skfw.HFWRegressor : The same for data in memory, with the description of all attributes.

    Examples
    --------
    >>> import dask.array
    >>> from sklearn.datasets import load_diabetes
    >>> from skfw.dask import DaskHFWRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> rows, targets = dask.array.from_array(X, chunks=(100, 10)), dask.array.from_array(y, chunks=100)
    >>> model = DaskHFWRegressor("l1", radius=1000).fit(rows, targets)
    >>> bool(abs(model.coef_).sum() <= 1000 + 1e-6), model.converged_
    (True, True)
    """

    _plain = HFWRegressor

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
        client=None,
    ):
        super().__init__(
            constraint,
            radius,
            loss=loss,
            epsilon=epsilon,
            support_size=support_size,
            momentum=momentum,
            step_size=step_size,
            corrective=corrective,
            restart=restart,
            tol=tol,
            max_iter=max_iter,
            max_time=max_time,
            fit_intercept=fit_intercept,
            lipschitz=lipschitz,
            warm_start=warm_start,
            verbose=verbose,
        )
        self.client = client

    def _look_at(self):
        return _target_range

    def _prepare_rows(self, rows):
        found = [look for look in rows.looks if look.targets is not None]
        lows, highs, means = zip(*(look.targets for look in found), strict=True)
        low, high = np.min(lows, axis=0), np.max(highs, axis=0)
        if self.loss == "poisson" and low.ndim:
            raise ValueError("y must have one dimension for loss='poisson'; got several targets.")
        self._check_targets(np.stack([low, high]))
        unit = self._target_unit(np.stack([low, high]))
        totals = np.array([look.weights[2] * (look.weights[1] / rows.largest_weight) for look in found])
        origin = np.zeros(low.shape)
        if self.loss != "poisson" and self.fit_intercept:
            # The losses of blocks know nothing of the mean of all targets, which may be large.
            shares = totals / totals.sum()
            mean = sum(share * mean for share, mean in zip(shares.tolist(), means, strict=True))
            origin = np.clip(mean, low, high)
        n_outputs = len(low) if low.size > 1 else None
        make = _TargetLoss(HFWRegressor(loss=self.loss, epsilon=self.epsilon), origin, unit)
        records = rows.runner.map(
            _regressed, rows.y, rows.weights, make, rows.largest_weight, 1.0 / totals.sum()
        )
        pattern = make(np.zeros((1, *low.shape)), np.ones(1), self.fit_intercept)
        problem = self._sharded(rows, records, pattern, n_outputs)
        coding = TargetCoding(low.ndim == 1, rows.dtype, origin, unit, self.loss == "poisson")
        return problem, coding, rows.seen

    def _score_of(self, runner, local, rows):
        totals = runner.sums(_target_sums, rows.X, rows.y, rows.weights, local)
        mean = totals[1] / totals[0]
        lost, null = runner.sums(_lost, rows.X, rows.y, rows.weights, local, mean)
        scores = np.where(
            null > 0.0, 1.0 - lost / np.where(null > 0.0, null, 1.0), np.where(lost > 0.0, 0.0, 1.0)
        )
        return float(np.mean(scores))


# What is done with a block.


class _TargetLoss:
    """Makes the loss of a block from its targets, which are counted from an origin, in a unit."""

    def __init__(self, regressor, origin, unit):
        self._regressor, self._origin, self._unit = regressor, origin, unit

    def __call__(self, y, weights, fit_intercept=False):
        targets = y.astype(np.float64) - self._origin
        losses = self._regressor._losses(targets, weights, self._unit, fit_intercept)
        return losses[0] if len(losses) == 1 else SeveralTargets(tuple(losses))


def _nothing(y, weights):
    return None


def _class_totals(y, weights):
    """Return the labels of a block and their weights."""
    if y.ndim != 1:
        raise ValueError(f"y must have one dimension; got a block of shape {y.shape}.")
    classes, labels = np.unique(y, return_inverse=True)
    return classes.tolist(), np.bincount(labels, weights).tolist()


def _target_range(y, weights):
    """Return the smallest and largest target, and the mean, of rows that have a weight; None without any."""
    if y.dtype.kind not in "biuf":
        raise ValueError(f"y must have numbers; got a block of {y.dtype}.")
    if y.ndim not in (1, 2):
        raise ValueError(f"y must have one dimension or two; got a block of shape {y.shape}.")
    y, weights = y[weights > 0.0].astype(np.float64), weights[weights > 0.0]
    if not len(y):
        return None
    size = float(np.abs(y).max()) or 1.0
    return y.min(axis=0), y.max(axis=0), size * np.average(y / size, axis=0, weights=weights / weights.max())


def _class_loss(labels, weights, n_classes):
    if n_classes > 2:
        return MultinomialLoss(labels, n_classes, weights)
    return LogisticLoss(np.where(labels == 1, 1.0, -1.0), weights)


def _classified(y, weights, classes, factors, largest):
    """Return the loss of a block of a classifier, of the rows that have a weight."""
    labels = np.searchsorted(classes, y)
    labels[labels == len(classes)] = 0
    weights = np.where(classes[labels] == y, (weights / largest) * factors[labels], 0.0)
    kept = weights > 0.0
    return _record(_class_loss(labels[kept], weights[kept], len(classes)), kept)


def _regressed(y, weights, make, largest, scale):
    """Return the loss of a block of a regressor, of the rows that have a weight."""
    weights = (weights / largest) * scale
    kept = weights > 0.0
    return _record(make(y[kept], weights[kept]), kept)


def _record(loss, kept):
    return {"loss": loss, "n_kept": int(kept.sum()), "kept": kept}


def _rows_kept(X, kept):
    return X if kept.all() else X[kept]


def _design(X, n_outputs):
    return design_matrix(X, n_outputs, by_rows=True)


def _same(part):
    return part


def _predicted(X, model, method):
    if not X.shape[0]:  # which scikit-learn refuses
        return getattr(model, method)(np.zeros((1, X.shape[1]), dtype=X.dtype))[:0]
    return getattr(model, method)(X)


def _n_right(X, y, weights, model):
    return float(weights @ (model.predict(X) == y)), float(weights.sum())


def _target_sums(X, y, weights, model):
    return float(weights.sum()), weights @ y.astype(np.float64)


def _lost(X, y, weights, model, mean):
    """Return what the predictions lose, and what the mean loses: squared errors, or Poisson's deviance."""
    y = y.astype(np.float64)
    if model.loss != "poisson":
        return weights @ (y - model.predict(X)) ** 2, weights @ (y - mean) ** 2
    return tuple(weights @ _deviance(y, of) for of in (model.predict(X), np.full(y.shape, mean)))


def _deviance(y, predictions):
    return xlogy(y, y / predictions) - y + predictions
