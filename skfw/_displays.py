"""Pictures of a fitted model, in scikit-learn's convention. They need matplotlib."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from ._entries import entries_to_matrix, matrix_to_entries
from ._ids import keep_ids
from ._logistic_cv import hfw_logistic_path

# What a run is drawn against, and what is drawn of it, with the labels of the axes.
_ACROSS = {"iterations": "iteration", "seconds": "seconds"}
_QUANTITIES = {"objective": "objective", "gap": "certified gap"}


def _axes(ax, n_axes=1):
    """Return the figure and an array of the axes to draw in, new ones if none are given."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("A display needs matplotlib: pip install matplotlib") from error
    if ax is None:
        # Compressed, so that a colour bar is as tall as images with a fixed aspect.
        _, ax = plt.subplots(1, n_axes, figsize=(max(6.4, 3.2 * n_axes), 4.2), layout="compressed")
    axes = np.ravel(ax)
    if len(axes) != n_axes:
        raise ValueError(f"ax must be {n_axes} axes; got {len(axes)}.")
    return axes[0].figure, axes


def _count_across(axes):
    """Put the ticks of the horizontal axis at whole numbers, if it chooses them itself on a linear scale."""
    from matplotlib.ticker import MaxNLocator

    locator = axes.xaxis.get_major_locator()
    if isinstance(locator, MaxNLocator):
        locator.set_params(integer=True)


def _plain_numbers_across(axes):
    """Label a logarithmic horizontal axis with numbers like 0.5 and 20; matplotlib writes powers of ten."""
    from matplotlib.ticker import LogFormatter

    class PlainNumbers(LogFormatter):
        def __call__(self, x, pos=None):
            return f"{x:g}" if super().__call__(x, pos) else ""  # there is not room for all

    axes.xaxis.set_major_formatter(PlainNumbers())
    axes.xaxis.set_minor_formatter(PlainNumbers())


def _check_choice(name, value, choices):
    if not (isinstance(value, str) and value in choices):
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}; got {name}={value!r}.")


def _check_shown(name, value, labels, shown):
    """Raise a ValueError if the label of an axis shows that another choice was drawn along it."""
    if shown in labels.values() and shown != labels[value]:
        raise ValueError(f"ax shows {shown!r} already; got {name}={value!r}, which needs other axes.")


def _inside(estimator, *attributes):
    """Return the first that has one of the attributes, and the pipelines that its data go through before.

    It is the estimator, or one inside: of a search the best, of a pipeline the last.
    """
    for model, before in _with_inner(estimator):
        if any(hasattr(model, name) for name in attributes):
            return model, before
    check_is_fitted(estimator)
    raise ValueError(
        f"{type(estimator).__name__} has no {' or '.join(attributes)} to draw. A search needs refit=True."
    )


def _with_inner(estimator, before=()):
    yield estimator, before
    if hasattr(estimator, "best_estimator_"):
        yield from _with_inner(estimator.best_estimator_, before)
    elif hasattr(estimator, "steps"):
        for number, (_, step) in reversed(list(enumerate(estimator.steps))):
            yield from _with_inner(step, (*before, estimator[:number]) if number else before)


class ConvergenceDisplay:
    """The objective of a run, with the certified gap as a band below it, or the gap alone.

    Make one with `from_estimator`; draw it again with `plot`. Runs drawn in the same axes can be compared.
    Their gaps tell more than their objectives, which soon differ by less than the width of a line.

    Parameters
    ----------
    trace : dict of str to ndarray
        The `trace_` of a fitted model.
    name : str, optional
        What the legend calls the model.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The objective, or the gap.
    bound_ : matplotlib Line2D or None
        The lower bound; None beside a gap.
    band_ : matplotlib collection or None
        Between the best objective so far and the lower bound: the optimum lies in it. None beside a gap.
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from skfw import ConvergenceDisplay, HFWLogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = HFWLogisticRegression("l1", radius=5).fit(scale(X), y)
    >>> display = ConvergenceDisplay.from_estimator(model)

    Two runs compared:

    >>> other = HFWLogisticRegression("l2", radius=5).fit(scale(X), y)
    >>> display = ConvergenceDisplay.from_estimator(model, y="gap", name="l1")
    >>> display = ConvergenceDisplay.from_estimator(other, y="gap", name="l2", ax=display.ax_)
    """

    def __init__(self, *, trace, name=None):
        self.trace = trace
        self.name = name

    @classmethod
    def from_estimator(cls, estimator, *, y="objective", against="iterations", name=None, ax=None, **kwargs):
        """Draw the run of a fitted model.

        Parameters
        ----------
        estimator : HFWLogisticRegression, HFWMatrixCompletion, HFWImputer or other model with `trace_`
            Fitted. Of a search the best model is taken, of a pipeline the last that has a run to draw.
        y : {"objective", "gap"}, default="objective"
            What to draw: the objective and the band below it, or the certified gap on a logarithmic axis.
        against : {"iterations", "seconds"}, default="iterations"
            The horizontal axis.
        name : str, optional
            What the legend calls the model; by default its class.
        ax : matplotlib Axes, optional
            Where to draw. Pass the same axes for several models to compare them.
        **kwargs
            Passed on to matplotlib's ``plot`` for the objective or the gap.

        Returns
        -------
        ConvergenceDisplay
        """
        model, _ = _inside(estimator, "trace_", "completion_")
        trace = getattr(model, "completion_", model).trace_
        display = cls(trace=trace, name=name or type(model).__name__)
        return display.plot(ax, y=y, against=against, **kwargs)

    def plot(self, ax=None, *, y="objective", against="iterations", name=None, **kwargs):
        """Draw the run.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        y : {"objective", "gap"}, default="objective"
        against : {"iterations", "seconds"}, default="iterations"
        name : str, optional
        **kwargs
            Passed on to matplotlib's ``plot`` for the objective or the gap.

        Returns
        -------
        self
        """
        _check_choice("y", y, _QUANTITIES)
        _check_choice("against", against, _ACROSS)
        self.figure_, (self.ax_,) = _axes(ax)
        _check_shown("y", y, _QUANTITIES, self.ax_.get_ylabel())
        _check_shown("against", against, _ACROSS, self.ax_.get_xlabel())
        self.ax_.set(xlabel=_ACROSS[against], ylabel=_QUANTITIES[y])
        if against == "seconds":
            across = self.trace["seconds"]
        else:
            across = np.arange(len(self.trace[y]))
            _count_across(self.ax_)
        options = {"label": name or self.name, **kwargs}
        if y == "gap":
            self._plot_gap(across, options)
        else:
            self._plot_objective(across, options)
        if self.ax_.get_legend_handles_labels()[0]:  # matplotlib warns of a legend of nothing
            title = "line: objective; band: where the optimum is" if y == "objective" else None
            self.ax_.legend(title=title)
        return self

    def _plot_objective(self, across, options):
        objective, bound = self.trace["objective"], self.trace["lower_bound"]
        (self.line_,) = self.ax_.plot(across, objective, **options)
        color = self.line_.get_color()
        (self.bound_,) = self.ax_.plot(across, bound, color=color, linestyle="--", linewidth=1)
        best = np.minimum.accumulate(objective)
        self.band_ = self.ax_.fill_between(across, bound, best, color=color, alpha=0.2, linewidth=0)

    def _plot_gap(self, across, options):
        gap = self.trace["gap"]
        drawn = (gap > 0.0) & (gap < np.inf)  # the others have no place on a logarithmic axis
        if options["label"] is not None and not drawn.any():
            options["label"] += f": gap {gap[-1]:g}"
        # The end is marked, so that it is seen where another run goes on, and a single iterate at all.
        end = {"marker": ".", "markevery": slice(-1, None)}
        (self.line_,) = self.ax_.plot(across[drawn], gap[drawn], **{**end, **options})
        self.bound_ = self.band_ = None
        self.ax_.set(yscale="log")


class RadiusPathDisplay:
    """Coefficients or scores along the radius.

    Make one with `from_estimator`, for scores, or `from_data`, for coefficients; draw it again with `plot`.

    Parameters
    ----------
    radii : ndarray of shape (n_radii,)
        In ascending order.
    values : ndarray of shape (n_curves, n_radii)
        Scores, a row for each fold, or coefficients, a row for each.
    kind : {"scores", "coefficients"}
    radius : float, optional
        A radius to mark: the one chosen.
    names : sequence of str, optional
        Names of the coefficients.
    score_name : str, default="score"
        What the axis calls the scores.

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
        The mean score, or the coefficients that are not zero everywhere.
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from skfw import RadiusPathDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> display = RadiusPathDisplay.from_data(scale(X), y, radii=10)
    """

    def __init__(self, *, radii, values, kind, radius=None, names=None, score_name="score"):
        self.radii = radii
        self.values = values
        self.kind = kind
        self.radius = radius
        self.names = names
        self.score_name = score_name

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, **kwargs):
        """Draw the scores of a cross-validation over the radius.

        Parameters
        ----------
        estimator : HFW...CV, or GridSearchCV over a radius alone
            Fitted. Of a pipeline the last one is taken, of several scores the one that decided. The axis is
            named after `scoring`; a callable without a name is called "score".
        ax : matplotlib Axes, optional
        **kwargs
            Passed on to matplotlib's ``plot``.

        Returns
        -------
        RadiusPathDisplay
        """
        model, _ = _inside(estimator, "radii_", "cv_results_")
        if hasattr(model, "cv_results_"):
            radii, scores, radius, score_name = _searched(model)
        else:
            radii, scores, radius = model.radii_, model.scores_, model.radius_
            score_name = _score_name(model.scoring, model._default_score_name)
        display = cls(radii=radii, values=scores, kind="scores", radius=radius, score_name=score_name)
        return display.plot(ax, **kwargs)

    @classmethod
    def from_data(cls, X, y, radii=20, *, path=hfw_logistic_path, ax=None, params=None, **kwargs):
        """Fit a path, and draw its coefficients.

        Parameters
        ----------
        X, y, radii
            As in `path`. The coefficients of all classes, or targets, are drawn.
        path : callable, default=hfw_logistic_path
            What fits the path: `hfw_logistic_path` or `hfw_regression_path`.
        ax : matplotlib Axes, optional
        params : dict, optional
            Other parameters of `path`.
        **kwargs
            Passed on to matplotlib's ``plot``.

        Returns
        -------
        RadiusPathDisplay
        """
        names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
        radii, coefs, _, _ = path(X, y, radii, **(params or {}))
        values = coefs.reshape(len(radii), -1).T
        if len(values) > coefs.shape[-1]:  # several have the same name
            names = None
        return cls(radii=radii, values=values, kind="coefficients", names=names).plot(ax, **kwargs)

    def plot(self, ax=None, **kwargs):
        """Draw the path.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        **kwargs
            Passed on to matplotlib's ``plot``.

        Returns
        -------
        self
        """
        _check_choice("kind", self.kind, ("scores", "coefficients"))
        self.figure_, (self.ax_,) = _axes(ax)
        if self.kind == "scores":
            mean, spread = self.values.mean(axis=0), self.values.std(axis=0)
            self.lines_ = self.ax_.plot(self.radii, mean, **{"marker": ".", **kwargs})
            color = self.lines_[0].get_color()
            self.ax_.fill_between(
                self.radii, mean - spread, mean + spread, color=color, alpha=0.2, linewidth=0
            )
        else:
            used = np.flatnonzero(np.any(self.values != 0.0, axis=1))
            self.lines_ = self.ax_.plot(self.radii, self.values[used].T, **kwargs)
            if self.names is not None and 0 < len(used) <= 12:  # matplotlib warns of a legend of nothing
                for line, index in zip(self.lines_, used, strict=True):
                    line.set_label(self.names[index])
                self.ax_.legend(fontsize="small")
        if self.radius is not None:
            self.ax_.axvline(self.radius, color="0.5", linestyle=":", label=f"radius {self.radius:.3g}")
            self.ax_.legend()
        ylabel = self.score_name if self.kind == "scores" else "coefficients"
        self.ax_.set(xscale="log", xlabel="radius", ylabel=ylabel)
        _plain_numbers_across(self.ax_)
        return self


def _score_name(scoring, default="score"):
    if isinstance(scoring, str):
        return scoring
    return default if scoring is None else getattr(scoring, "__name__", "score")


def _searched(search):
    """Return the radii of a grid search, the scores of its folds, the best radius and the score's name."""
    results = search.cv_results_
    names = [name for name in results if name.startswith("param_")]
    if len(names) != 1 or not names[0].endswith("radius"):
        searched = ", ".join(name.removeprefix("param_") for name in names)
        raise ValueError(f"The search must be over a radius alone; it is over {searched}.")
    score = search.refit if search.multimetric_ else "score"
    if not isinstance(score, str):
        raise ValueError("The search has several scores; refit= must name the one to draw.")
    radii = np.asarray(results[names[0]], dtype=np.float64)
    order = np.argsort(radii)
    folds = [f"split{number}_test_{score}" for number in range(search.n_splits_)]
    scores = np.array([results[name][order] for name in folds])
    score_name = _score_name(score if search.multimetric_ else search.scoring)
    return radii[order], scores, next(iter(search.best_params_.values())), score_name


class CompletionDisplay:
    """A completed matrix: its singular values, or the matrix itself beside what was observed.

    Make one with `from_estimator`; draw it again with `plot`.

    Parameters
    ----------
    singular_values : ndarray
        Of the low-rank part; of an imputer, in the units of its standardised columns.
    matrices : dict of str to ndarray
        What to show side by side, by title; NaN is left blank.

    Attributes
    ----------
    images_ : list of matplotlib AxesImage
        The matrices, if they were drawn.
    ax_ : matplotlib Axes, or array with one for each matrix
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from skfw import CompletionDisplay, HFWMatrixCompletion
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 20))
    >>> entries = np.argwhere(rng.uniform(size=truth.shape) < 0.5)
    >>> values = truth[tuple(entries.T)]
    >>> model = HFWMatrixCompletion(radius=2, random_state=0).fit(entries, values)
    >>> display = CompletionDisplay.from_estimator(model, entries, values, truth=truth)
    """

    def __init__(self, *, singular_values, matrices):
        self.singular_values = singular_values
        self.matrices = matrices

    @classmethod
    def from_estimator(cls, estimator, X=None, y=None, *, truth=None, kind="matrices", ax=None, **kwargs):
        """Draw a fitted completion.

        Parameters
        ----------
        estimator : HFWMatrixCompletion, HFWMatrixCompletionCV or HFWImputer
            Fitted. Of a search the best model is taken, of a pipeline the last step of these kinds; X goes
            through the steps before it.
        X, y
            What was observed: the entries, as in `HFWMatrixCompletion.fit`, or the matrix with holes that an
            imputer completes, without y. Singular values need none.
        truth : array of shape (n_rows, n_columns), optional
            The whole matrix, where it is known; its rows and columns in the order of `row_ids_` and
            `column_ids_`, or of an imputer's X.
        kind : {"matrices", "singular_values"}, default="matrices"
        ax : matplotlib Axes, or array of as many as there are matrices, optional
        **kwargs
            Passed on to matplotlib's ``imshow`` or ``plot``. ``aspect="equal"`` gives an image square pixels,
            ``norm="symlog"`` tells values apart that are of very different sizes.

        Returns
        -------
        CompletionDisplay
        """
        model, before = _inside(estimator, "singular_values_", "completion_")
        if X is not None:
            for pipeline in before:
                X = pipeline.transform(X)
        if hasattr(model, "completion_"):
            matrices = {} if X is None else _imputed(model, X)
            model = model.completion_
        elif (X is None) != (y is None):
            raise ValueError("The observed entries are X and y together; got one of them.")
        else:
            matrices = {} if X is None else _completed(model, X, y)
        if truth is not None:
            matrices["true"] = np.asarray(truth)
        shapes = [matrix.shape for matrix in matrices.values()]
        if len(set(shapes)) > 1:
            raise ValueError(f"truth must have shape {shapes[0]}; got shape {shapes[-1]}.")
        display = cls(singular_values=model.singular_values_, matrices=matrices)
        return display.plot(ax, kind=kind, **kwargs)

    def plot(self, ax=None, *, kind="matrices", **kwargs):
        """Draw the matrices or the singular values.

        Parameters
        ----------
        ax : matplotlib Axes, or array of as many as there are matrices, optional
        kind : {"matrices", "singular_values"}, default="matrices"
        **kwargs
            Passed on to matplotlib's ``imshow`` or ``plot``.

        Returns
        -------
        self
        """
        _check_choice("kind", kind, ("matrices", "singular_values"))
        if kind == "singular_values":
            self.figure_, (self.ax_,) = _axes(ax)
            numbers = np.arange(1, len(self.singular_values) + 1)
            self.ax_.plot(numbers, self.singular_values, **{"marker": ".", **kwargs})
            self.ax_.set(xlabel="number", ylabel="singular value", ylim=(0.0, None))
            _count_across(self.ax_)
            return self
        if not self.matrices:
            raise ValueError("To draw the matrices, pass the observed entries X and y, or an imputer's X.")
        self.figure_, self.ax_ = _axes(ax, len(self.matrices))
        options = {"interpolation": "nearest", "aspect": "auto", **_shared_norm(self.matrices, **kwargs)}
        self.images_ = []
        for axes, (title, matrix) in zip(self.ax_, self.matrices.items(), strict=True):
            self.images_.append(axes.imshow(matrix, **options))
            axes.set(title=title, xticks=[], yticks=[], xlabel="column", ylabel="row")
        self.figure_.colorbar(self.images_[0], ax=list(self.ax_))
        return self


def _shared_norm(matrices, norm=None, vmin=None, vmax=None, **others):
    """Return options of ``imshow`` with one norm for all matrices, so that one colour bar speaks for all."""
    from matplotlib.cm import ScalarMappable

    colours = ScalarMappable(norm)
    colours.set_clim(vmin, vmax)
    colours.set_array(np.concatenate([matrix[np.isfinite(matrix)] for matrix in matrices.values()]))
    colours.autoscale_None()
    return {"norm": colours.norm, **others}


def _completed(model, X, y):
    """Return the matrix of the entries that were observed, and the one completed from them."""
    X = np.asarray(keep_ids(X))
    rows = model._row_encoder.transform(X[:, :1])
    columns = model._column_encoder.transform(X[:, 1:])
    seen = (rows >= 0) & (columns >= 0)
    if not seen.any():
        raise ValueError("None of the entries' ids was seen in fit.")
    observed = np.column_stack([rows, columns])[seen]
    shape = len(model.row_ids_), len(model.column_ids_)
    completed = model.row_factors_ @ model.column_factors_.T + model.mean_
    completed += model.row_biases_[:, np.newaxis] + model.column_biases_
    return {
        "observed": entries_to_matrix(observed, np.asarray(y)[seen], shape),
        "completed": model._clipped(completed),
    }


def _imputed(imputer, X):
    """Return the matrix with holes, and what the imputer makes of it."""
    completed = np.asarray(imputer.transform(X))
    X = check_array(X, accept_sparse=True, ensure_all_finite="allow-nan")
    return {"observed": entries_to_matrix(*matrix_to_entries(X), X.shape), "completed": completed}
