import io

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler, scale

from skfw import (
    CompletionDisplay,
    ConvergenceDisplay,
    HFWImputer,
    HFWLogisticRegression,
    HFWLogisticRegressionCV,
    HFWMatrixCompletion,
    HFWMatrixCompletionCV,
    HFWRegressorCV,
    RadiusPathDisplay,
    entries_to_matrix,
    hfw_logistic_path,
    hfw_regression_path,
)

plt = pytest.importorskip("matplotlib.pyplot")

X, y = load_breast_cancer(return_X_y=True)
X = scale(X)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def edges(band):
    """Return the places of a band, and its lower and its upper edge there."""
    vertices = np.concatenate([path.vertices for path in band.get_paths()])
    across = np.unique(vertices[:, 0])
    heights = [vertices[vertices[:, 0] == place, 1] for place in across]
    return across, [part.min() for part in heights], [part.max() for part in heights]


def completion(names=None, **params):
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(12, 2)) @ rng.normal(size=(2, 9))
    entries = np.argwhere(rng.uniform(size=truth.shape) < 0.6)
    values = truth[tuple(entries.T)]
    if names is not None:
        entries = np.array([[f"row {i:02d}", f"column {j}"] for i, j in entries])
    return HFWMatrixCompletion(random_state=0, **params).fit(entries, values), entries, values, truth


@pytest.mark.parametrize("against", ["iterations", "seconds"])
def test_convergence(against):
    model = HFWLogisticRegression("l1", radius=5).fit(X, y)
    display = ConvergenceDisplay.from_estimator(model, against=against, color="C3")
    across = np.arange(model.n_iter_ + 1) if against == "iterations" else model.trace_["seconds"]
    np.testing.assert_array_equal(
        display.line_.get_xydata(), np.column_stack([across, model.trace_["objective"]])
    )
    np.testing.assert_array_equal(display.bound_.get_ydata(), model.trace_["lower_bound"])
    assert display.line_.get_color() == display.bound_.get_color() == "C3"
    assert display.figure_ is display.ax_.figure
    assert display.ax_.get_legend().get_texts()[0].get_text() == "HFWLogisticRegression"
    assert display.ax_.get_xlabel() == {"iterations": "iteration", "seconds": "seconds"}[against]
    assert (display.ax_.get_ylabel(), display.ax_.get_yscale()) == ("objective", "linear")
    assert "band" in display.ax_.get_legend().get_title().get_text()


@pytest.mark.parametrize("against", ["iterations", "seconds"])
def test_gap(against):
    model = HFWLogisticRegression("l1", radius=5).fit(X, y)
    display = ConvergenceDisplay.from_estimator(model, y="gap", against=against, color="C3")
    across = np.arange(model.n_iter_ + 1) if against == "iterations" else model.trace_["seconds"]
    np.testing.assert_array_equal(display.line_.get_xydata(), np.column_stack([across, model.trace_["gap"]]))
    assert (display.ax_.get_ylabel(), display.ax_.get_yscale()) == ("certified gap", "log")
    assert list(display.ax_.lines) == [display.line_]
    assert (list(display.ax_.collections), display.bound_, display.band_) == ([], None, None)
    assert display.line_.get_color() == "C3"
    assert display.ax_.get_legend().get_title().get_text() == ""


@pytest.mark.parametrize("left_out", [0.0, np.inf, np.nan])
def test_gaps_without_a_logarithm_are_left_out(left_out):
    trace = {"gap": np.array([np.inf, 0.5, left_out, 0.1, 0.0]), "seconds": np.arange(5) / 8}
    display = ConvergenceDisplay(trace=trace, name="run").plot(y="gap", against="seconds")
    np.testing.assert_array_equal(display.line_.get_xydata(), [[1 / 8, 0.5], [3 / 8, 0.1]])
    display.figure_.canvas.draw()
    low, high = display.ax_.get_ylim()
    assert 0.01 < low < 0.1 < 0.5 < high < 5.0
    assert display.ax_.get_legend().get_texts()[0].get_text() == "run"


def test_a_single_gap_is_seen():
    display = ConvergenceDisplay(trace={"gap": np.array([0.5, 0.0])}).plot(y="gap")
    pictures = {}
    for visible in (True, False):
        display.line_.set_visible(visible)
        display.figure_.savefig(file := io.BytesIO(), format="rgba")
        pictures[visible] = file.getvalue()
    assert pictures[True] != pictures[False]


@pytest.mark.parametrize("gap", [0.0, np.inf])
def test_the_legend_tells_of_a_gap_that_cannot_be_drawn(gap):
    trace = {"gap": np.full(3, gap)}
    display = ConvergenceDisplay(trace=trace, name="run").plot(y="gap")
    display.figure_.canvas.draw()
    assert len(display.line_.get_xdata()) == 0
    assert display.ax_.get_legend().get_texts()[0].get_text() == f"run: gap {gap:g}"
    assert ConvergenceDisplay(trace=trace).plot(y="gap").ax_.get_legend() is None


def test_gaps_of_several_runs_in_one_picture():
    _, ax = plt.subplots()
    models = {
        constraint: HFWLogisticRegression(constraint, radius=5).fit(X, y)
        for constraint in ("l1", "l2", "linf")
    }
    lines = [
        ConvergenceDisplay.from_estimator(model, y="gap", name=name, ax=ax).line_
        for name, model in models.items()
    ]
    assert list(ax.lines) == lines
    assert len({line.get_color() for line in lines}) == 3
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == list(models)
    assert [handle.get_color() for handle in legend.get_lines()] == [line.get_color() for line in lines]
    for line, model in zip(lines, models.values(), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), model.trace_["gap"])


def test_one_picture_shows_one_quantity():
    display = ConvergenceDisplay.from_estimator(HFWLogisticRegression("l1", radius=5).fit(X, y))
    n_lines = len(display.ax_.lines)
    with pytest.raises(ValueError, match="ax shows 'objective' already; got y='gap'"):
        display.plot(display.ax_, y="gap")
    with pytest.raises(ValueError, match="ax shows 'iteration' already; got against='seconds'"):
        display.plot(display.ax_, against="seconds")
    assert len(display.ax_.lines) == n_lines
    assert display.ax_.get_yscale() == "linear"
    display.ax_.set(xlabel="step", ylabel="loss")
    assert len(display.plot(display.ax_).ax_.lines) == 2 * n_lines
    with pytest.raises(ValueError, match="ax shows 'certified gap' already; got y='objective'"):
        display.plot(display.plot(y="gap").ax_)


@pytest.mark.parametrize("unknown", ["gaps", None, y])
def test_unknown_quantities(unknown):
    model = HFWLogisticRegression("l1", radius=5).fit(X, y)
    with pytest.raises(ValueError, match="y must be 'objective' or 'gap'; got y="):
        ConvergenceDisplay.from_estimator(model, y=unknown)


@pytest.mark.parametrize("kind", ["objective", "gap", "singular values"])
def test_what_is_counted_has_whole_ticks(kind):
    if kind == "singular values":
        display = CompletionDisplay(singular_values=np.array([3.0, 2.0, 1.0]), matrices={})
        ax = display.plot(kind="singular_values").ax_
    else:
        trace = {name: np.array([3.0, 2.0, 1.0]) for name in ("objective", "lower_bound", "gap")}
        ax = ConvergenceDisplay(trace=trace).plot(y=kind).ax_
    ax.figure.canvas.draw()
    ticks = ax.get_xticks()
    assert len(ticks) > 1
    np.testing.assert_array_equal(ticks, np.round(ticks))


def test_scales_and_ticks_of_the_user_stay():
    trace = {"gap": np.array([3.0, 2.0, 1.0])}
    _, (logarithmic, fixed) = plt.subplots(1, 2)
    logarithmic.set(xscale="symlog")
    fixed.set(xticks=[0.5, 1.5])
    for ax in (logarithmic, fixed):
        ConvergenceDisplay(trace=trace).plot(ax, y="gap")
        ax.figure.canvas.draw()
    assert logarithmic.get_xscale() == "symlog"
    assert list(fixed.get_xticks()) == [0.5, 1.5]


def test_of_a_pipeline_the_last_run_is_drawn():
    missing = np.where(X[:, :6] > 1.0, np.nan, X[:, :6])
    imputer, model = HFWImputer(1.0, random_state=0), HFWLogisticRegression("l1", radius=1)
    both = make_pipeline(imputer, model).fit(missing, y)
    first = make_pipeline(imputer, "passthrough", LogisticRegression()).fit(missing, y)
    for pipeline, name, trace in (
        (both, "HFWLogisticRegression", model.trace_),
        (first, "HFWImputer", imputer.completion_.trace_),
    ):
        display = ConvergenceDisplay.from_estimator(pipeline)
        assert display.name == name
        np.testing.assert_array_equal(display.line_.get_ydata(), trace["objective"])
    with pytest.raises(NotFittedError):
        ConvergenceDisplay.from_estimator(make_pipeline(HFWImputer(), LogisticRegression()))


@pytest.mark.parametrize("against", ["iterations", "seconds"])
def test_the_band_lies_between_the_bound_and_the_best_objective(against):
    trace = {
        "objective": np.array([4.0, 2.0, 3.0, 1.5, 2.5]),
        "lower_bound": np.array([-1.0, 0.0, 0.5, 0.5, 1.0]),
        "seconds": np.array([0.0, 0.1, 0.3, 0.4, 0.8]),
    }
    display = ConvergenceDisplay(trace=trace).plot(against=against)
    across, lower, upper = edges(display.band_)
    np.testing.assert_array_equal(across, np.arange(5) if against == "iterations" else trace["seconds"])
    np.testing.assert_array_equal(lower, trace["lower_bound"])
    np.testing.assert_array_equal(upper, [4.0, 2.0, 2.0, 1.5, 1.5])
    np.testing.assert_array_equal(display.line_.get_ydata(), trace["objective"])


def test_several_runs_in_one_picture():
    _, ax = plt.subplots()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), HFWLogisticRegression()),
        {"hfwlogisticregression__radius": [1, 3]},
    ).fit(X, y)
    for name, model in {"search": search, "completion": completion()[0]}.items():
        display = ConvergenceDisplay.from_estimator(model, name=name, ax=ax)
        assert display.ax_ is ax
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["search", "completion"]
    assert display.plot().ax_ is not ax
    with pytest.raises(ValueError, match="got against='k'"):
        display.plot(against="k")
    with pytest.raises(NotFittedError):
        ConvergenceDisplay.from_estimator(HFWLogisticRegression())


def test_scores_along_the_radius():
    fitted = HFWLogisticRegressionCV("l1", radii=4, cv=3).fit(X, y)
    display = RadiusPathDisplay.from_estimator(make_pipeline(fitted))
    (line,) = display.lines_
    np.testing.assert_array_equal(line.get_xdata(), fitted.radii_)
    np.testing.assert_array_equal(line.get_ydata(), fitted.scores_.mean(axis=0))
    across, lower, upper = edges(display.ax_.collections[0])
    np.testing.assert_allclose(across, fitted.radii_)
    np.testing.assert_allclose(lower, fitted.scores_.mean(axis=0) - fitted.scores_.std(axis=0))
    np.testing.assert_allclose(upper, fitted.scores_.mean(axis=0) + fitted.scores_.std(axis=0))
    assert display.ax_.get_xscale() == "log"
    assert display.ax_.get_ylabel() == "mean log-likelihood"
    marked = [line for line in display.ax_.lines if line is not display.lines_[0]]
    assert marked[0].get_xdata()[0] == fitted.radius_


@pytest.mark.parametrize("scoring, name", [(None, "minus RMSE"), ("r2", "r2")])
def test_scores_of_a_completion(scoring, name):
    _, entries, values, truth = completion()
    model = HFWMatrixCompletionCV([0.5, 1.0, 2.0], cv=2, scoring=scoring, random_state=0).fit(entries, values)
    display = RadiusPathDisplay.from_estimator(model)
    means = np.column_stack([model.radii_, model.scores_.mean(axis=0)])
    np.testing.assert_array_equal(display.lines_[0].get_xydata(), means)
    assert (display.ax_.get_ylabel(), display.radius) == (name, model.radius_)
    # Its run and its matrix are those of the fit to all entries.
    run = ConvergenceDisplay.from_estimator(model)
    np.testing.assert_array_equal(run.line_.get_ydata(), model.trace_["objective"])
    assert run.ax_.get_legend().get_texts()[0].get_text() == "HFWMatrixCompletionCV"
    matrices = CompletionDisplay.from_estimator(model, entries, values, truth=truth).matrices
    everywhere = np.argwhere(np.ones_like(truth))
    np.testing.assert_allclose(matrices["completed"].ravel(), model.predict(everywhere))
    assert np.isfinite(matrices["observed"]).sum() == len(entries)


def test_scores_of_a_grid_search():
    model, entries, values, _ = completion()
    search = GridSearchCV(model, {"radius": [2.0, 0.5, 1.0]}, cv=3).fit(entries, values)
    display = RadiusPathDisplay.from_estimator(search)
    (line,) = display.lines_
    np.testing.assert_array_equal(line.get_xdata(), [0.5, 1.0, 2.0])
    np.testing.assert_allclose(line.get_ydata(), search.cv_results_["mean_test_score"][[1, 2, 0]])
    assert display.radius == search.best_params_["radius"]
    search = GridSearchCV(model, {"radius": [1.0], "tol": [0.1]}, cv=3).fit(entries, values)
    with pytest.raises(ValueError, match="over a radius alone"):
        RadiusPathDisplay.from_estimator(search)


def half_right(model, X, y):
    return 0.5 * model.score(X, y)


@pytest.mark.parametrize(
    "scoring, name",
    [
        ("neg_log_loss", "neg_log_loss"),
        (half_right, "half_right"),
        (make_scorer(accuracy_score), "score"),
    ],
    ids=["string", "function", "scorer"],
)
def test_scores_have_names(scoring, name):
    chosen = HFWLogisticRegressionCV("l1", radii=[1.0, 3.0], cv=2, scoring=scoring).fit(X, y)
    search = GridSearchCV(HFWLogisticRegression(), {"radius": [1, 3]}, cv=2, scoring=scoring).fit(X, y)
    for model in (chosen, search, make_pipeline(StandardScaler(), search)):
        display = RadiusPathDisplay.from_estimator(model)
        assert display.score_name == name
        assert display.plot().ax_.get_ylabel() == name


def test_scores_of_a_regression_have_a_name():
    chosen = HFWRegressorCV("l1", radii=[1.0, 3.0], cv=2).fit(X, X[:, 0])
    assert RadiusPathDisplay.from_estimator(chosen).score_name == "minus mean loss"


def test_radii_are_written_as_numbers():
    display = RadiusPathDisplay(radii=np.array([0.5, 4.0]), values=np.ones((2, 2)), kind="scores").plot()
    display.figure_.canvas.draw()
    labels = {text.get_text() for text in display.ax_.get_xticklabels(which="both")} - {""}
    assert {"0.6", "1", "2", "3", "4"} <= labels
    assert display.ax_.get_ylabel() == "score"


def test_coefficients_along_the_radius():
    display = RadiusPathDisplay.from_data(X, y, radii=[0.1, 1.0, 3.0], params={"constraint": "l1"})
    _, coefs, _, _ = hfw_logistic_path(X, y, [0.1, 1.0, 3.0], constraint="l1")
    used = coefs[:, 0, :].any(axis=0)
    assert len(display.lines_) == used.sum() < X.shape[1]
    np.testing.assert_array_equal(
        np.array([line.get_ydata() for line in display.lines_]), coefs[:, 0, :].T[used]
    )
    assert display.ax_.get_ylabel() == "coefficients"
    display.kind = "coefs"
    with pytest.raises(ValueError, match="kind must be 'scores' or 'coefficients'; got kind='coefs'"):
        display.plot()


def test_curves_are_named_after_their_features():
    frame, labels = load_breast_cancer(return_X_y=True, as_frame=True)
    frame = (frame - frame.mean()) / frame.std()
    display = RadiusPathDisplay.from_data(frame, labels, radii=[0.1, 1.0, 3.0], params={"constraint": "l1"})
    _, coefs, _, _ = hfw_logistic_path(frame, labels, [0.1, 1.0, 3.0], constraint="l1")
    curves = {name: curve for name, curve in zip(frame.columns, coefs[:, 0].T, strict=True) if curve.any()}
    assert 1 < len(curves) < frame.shape[1] // 2
    assert {line.get_label() for line in display.lines_} == set(curves)
    for line in display.lines_:
        np.testing.assert_array_equal(line.get_ydata(), curves[line.get_label()])
    legend = display.ax_.get_legend()
    for text, handle, line in zip(legend.get_texts(), legend.get_lines(), display.lines_, strict=True):
        assert (text.get_text(), handle.get_color()) == (line.get_label(), line.get_color())


def test_coefficients_of_several_classes():
    frame, labels = load_iris(return_X_y=True, as_frame=True)
    display = RadiusPathDisplay.from_data(frame, labels, radii=[0.5, 1.0, 2.0], params={"constraint": "l1"})
    _, coefs, _, _ = hfw_logistic_path(frame, labels, [0.5, 1.0, 2.0], constraint="l1")
    curves = coefs.reshape(3, 12).T
    assert display.ax_.get_legend() is None
    np.testing.assert_array_equal([line.get_ydata() for line in display.lines_], curves[curves.any(axis=1)])


@pytest.mark.parametrize("n_targets", [1, 2])
def test_coefficients_of_a_regression(n_targets):
    frame, target = load_diabetes(return_X_y=True, as_frame=True)
    targets = target if n_targets == 1 else np.column_stack([target, frame["bmi"]])
    radii = [100.0, 1000.0]
    display = RadiusPathDisplay.from_data(
        frame, targets, radii, path=hfw_regression_path, params={"constraint": "l1"}
    )
    _, coefs, _, _ = hfw_regression_path(frame, targets, radii, constraint="l1")
    curves = coefs.reshape(2, -1).T
    used = curves.any(axis=1)
    np.testing.assert_array_equal([line.get_ydata() for line in display.lines_], curves[used])
    legend = display.ax_.get_legend()
    if n_targets == 1:
        assert [text.get_text() for text in legend.get_texts()] == list(frame.columns[used])
    else:
        assert legend is None


def test_no_legend_of_no_coefficients():
    constant = pd.DataFrame({"first": np.zeros(len(y)), "second": np.zeros(len(y))})
    display = RadiusPathDisplay.from_data(constant, y, radii=[0.5, 1.0], params={"constraint": "l1"})
    assert display.lines_ == []
    assert display.ax_.get_legend() is None


def test_the_run_of_an_imputer():
    imputer = HFWImputer(1.0, random_state=0).fit(np.where(X[:, :6] > 1.0, np.nan, X[:, :6]))
    display = ConvergenceDisplay.from_estimator(make_pipeline(imputer))
    np.testing.assert_array_equal(display.line_.get_ydata(), imputer.completion_.trace_["objective"])
    assert display.ax_.get_legend().get_texts()[0].get_text() == "HFWImputer"
    with pytest.raises(NotFittedError):
        ConvergenceDisplay.from_estimator(HFWImputer())


@pytest.mark.parametrize("names", [None, "strings"])
def test_completion(names):
    model, entries, values, truth = completion(names)
    display = CompletionDisplay.from_estimator(model, entries, values, truth=truth)
    observed, completed, true = (image.get_array().filled(np.nan) for image in display.images_)
    assert [axes.get_title() for axes in display.ax_] == ["observed", "completed", "true"]
    assert np.isfinite(observed).sum() == len(values)
    np.testing.assert_array_equal(observed[np.isfinite(observed)], values)
    np.testing.assert_allclose(completed[np.isfinite(observed)], model.predict(entries))
    np.testing.assert_array_equal(true, truth)
    two = CompletionDisplay.from_estimator(model, entries, values)
    assert len(two.images_) == 2
    single = display.plot(kind="singular_values")
    np.testing.assert_array_equal(single.ax_.lines[0].get_ydata(), model.singular_values_)
    for wrong in (plt.subplots()[1], plt.subplots(1, 2)[1], []):
        with pytest.raises(ValueError, match=f"ax must be 3 axes; got {np.size(wrong)}"):
            display.plot(wrong)
    with pytest.raises(ValueError, match="got kind='rank'"):
        display.plot(kind="rank")


@pytest.mark.parametrize("own", ["no", "plain", "constrained"])
@pytest.mark.parametrize("titles", ["a", "ab", "abc"])
@pytest.mark.parametrize("shape", [(60, 4), (4, 60)], ids=["tall", "wide"])
def test_the_colour_bar_is_as_tall_as_the_panels(shape, titles, own):
    layout = None if own == "plain" else own
    ax = None if own == "no" else plt.subplots(1, len(titles), layout=layout)[1]
    matrices = {title: np.arange(240.0).reshape(shape) for title in titles}
    display = CompletionDisplay(singular_values=None, matrices=matrices).plot(ax)
    display.figure_.canvas.draw()
    bar = display.images_[0].colorbar.ax
    for axes in display.ax_:
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("column", "row")
        panel = axes.get_position()
        np.testing.assert_allclose(
            [panel.y0, panel.y1], [bar.get_position().y0, bar.get_position().y1], atol=2e-3
        )


@pytest.mark.parametrize("shape", [(12, 20), (20, 12)])
def test_the_colour_bar_is_as_tall_as_images(shape):
    matrices = {title: np.arange(240.0).reshape(shape) for title in "abc"}
    display = CompletionDisplay(singular_values=None, matrices=matrices).plot(aspect="equal")
    display.figure_.canvas.draw()
    panel, bar = display.ax_[-1].get_window_extent(), display.images_[0].colorbar.ax.get_window_extent()
    assert panel.height / panel.width == pytest.approx(shape[0] / shape[1], rel=1e-6)
    assert (bar.y0, bar.y1) == pytest.approx((panel.y0, panel.y1), abs=1.0)


def test_one_axes_in_an_array():
    _, ax = plt.subplots(1, 1, squeeze=False)
    assert ConvergenceDisplay(trace={"gap": np.ones(2)}).plot(ax, y="gap").ax_ is ax[0, 0]
    with pytest.raises(ValueError, match="ax must be 1 axes; got 2"):
        ConvergenceDisplay(trace={"gap": np.ones(2)}).plot(plt.subplots(1, 2)[1], y="gap")


def with_holes():
    """Return iris in other units, with holes, and without."""
    frame = 1000.0 * load_iris(as_frame=True).data
    return frame.mask(np.random.default_rng(0).uniform(size=frame.shape) < 0.3), frame


@pytest.mark.parametrize("kind", ["frame", "array", "list", "sparse", "frames out"])
def test_completion_of_an_imputer(kind):
    frame, truth = with_holes()
    missing = frame if kind.startswith("frame") else frame.to_numpy()
    if kind == "sparse":
        rows, columns = np.nonzero(~np.isnan(missing))
        missing = sparse.csr_matrix((missing[rows, columns], (rows, columns)), shape=missing.shape)
    missing = missing.tolist() if kind == "list" else missing
    imputer = HFWImputer(1.0, random_state=0).fit(missing)
    if kind == "frames out":
        imputer.set_output(transform="pandas")
    display = CompletionDisplay.from_estimator(imputer, missing, truth=truth)
    observed, completed, true = (image.get_array().filled(np.nan) for image in display.images_)
    np.testing.assert_array_equal(observed, frame)
    np.testing.assert_array_equal(completed, imputer.transform(missing))
    np.testing.assert_array_equal(true, truth)
    single = display.plot(kind="singular_values")
    np.testing.assert_array_equal(single.ax_.lines[0].get_ydata(), imputer.completion_.singular_values_)


def test_completion_inside_a_pipeline():
    missing, _ = with_holes()
    labels = load_iris().target
    imputer = HFWImputer(1.0, random_state=0)
    pipeline = make_pipeline(StandardScaler(), imputer, LogisticRegression()).fit(missing, labels)
    matrices = CompletionDisplay.from_estimator(pipeline, missing).matrices
    scaled = pipeline[0].transform(missing)
    np.testing.assert_array_equal(matrices["observed"], scaled)
    np.testing.assert_array_equal(matrices["completed"], imputer.transform(scaled))
    alone = make_pipeline(imputer).fit(missing)
    matrices = CompletionDisplay.from_estimator(alone, missing).matrices
    np.testing.assert_array_equal(matrices["completed"], alone.transform(missing))
    with pytest.raises(ValueError, match="an imputer's X"):
        CompletionDisplay.from_estimator(pipeline)


def test_entries_go_through_the_steps_before():
    model, entries, values, _ = completion()
    pipeline = make_pipeline(FunctionTransformer(lambda ids: ids - 1000), model).fit(entries + 1000, values)
    expected = CompletionDisplay.from_estimator(model, entries, values).matrices
    matrices = CompletionDisplay.from_estimator(pipeline, entries + 1000, values).matrices
    for title, matrix in expected.items():
        np.testing.assert_array_equal(matrices[title], matrix)


@pytest.mark.parametrize("names", [None, "strings"])
def test_entries_with_unknown_ids_are_left_out(names):
    model, entries, values, _ = completion(names)
    expected = CompletionDisplay.from_estimator(model, entries, values).matrices["observed"]
    stranger = 99 if names is None else "stranger"
    unknown = [[row, stranger] for row in model.row_ids_] + [[stranger, name] for name in model.column_ids_]
    unknown.append([stranger, stranger])
    around = np.vstack([unknown, entries, unknown])  # aligned with their values, and nowhere in their place
    large = np.full(len(unknown), 1e6)
    display = CompletionDisplay.from_estimator(model, around, np.concatenate([large, values, large]))
    observed = display.matrices["observed"]
    np.testing.assert_array_equal(observed, expected)


def test_what_was_completed_is_clipped():
    model, entries, values, truth = completion(clip=(-0.5, 0.25))
    display = CompletionDisplay.from_estimator(model, entries, values)
    completed = display.images_[1].get_array()
    everywhere = np.argwhere(np.ones_like(truth))
    np.testing.assert_allclose(completed.ravel(), model.predict(everywhere))
    assert (completed.min(), completed.max()) == (-0.5, 0.25)
    assert display.matrices["observed"][tuple(entries[np.argmax(values)])] == values.max()  # as it is


def test_searches_of_other_kinds():
    model = HFWLogisticRegression()
    options = {"scoring": ["accuracy", "neg_log_loss"], "cv": 2}
    several = GridSearchCV(model, {"radius": [1, 3]}, refit="neg_log_loss", **options).fit(X, y)
    display = RadiusPathDisplay.from_estimator(make_pipeline(several))
    np.testing.assert_allclose(
        display.lines_[0].get_ydata(), several.cv_results_["mean_test_neg_log_loss"], rtol=1e-12
    )
    assert display.score_name == "neg_log_loss"
    undecided = GridSearchCV(model, {"radius": [1, 3]}, refit=False, **options).fit(X, y)
    with pytest.raises(ValueError, match="several scores"):
        RadiusPathDisplay.from_estimator(undecided)
    unfitted = GridSearchCV(model, {"radius": [1, 3]}, refit=False, cv=2).fit(X, y)
    assert RadiusPathDisplay.from_estimator(unfitted).radius == unfitted.best_params_["radius"]
    assert RadiusPathDisplay.from_estimator(unfitted).score_name == "score"
    with pytest.raises(ValueError, match=r"no trace_ or completion_ to draw. A search needs refit=True"):
        ConvergenceDisplay.from_estimator(unfitted)
    with pytest.raises(ValueError, match="no radii_ or cv_results_ to draw"):
        RadiusPathDisplay.from_estimator(model.fit(X, y))


def test_completions_of_other_kinds():
    model, entries, values, _ = completion()
    alone = CompletionDisplay.from_estimator(model, kind="singular_values")
    with pytest.raises(ValueError, match="pass the observed entries"):
        alone.plot()
    for half in ({"X": entries}, {"y": values}):
        with pytest.raises(ValueError, match="X and y together"):
            CompletionDisplay.from_estimator(model, **half)
    with pytest.raises(ValueError, match=r"truth must have shape \(12, 9\); got shape \(9, 12\)"):
        CompletionDisplay.from_estimator(model, entries, values, truth=np.ones((9, 12)))
    with pytest.raises(ValueError, match="was seen in fit"):
        CompletionDisplay.from_estimator(model, entries + 100, values)
    listed = CompletionDisplay.from_estimator(model, entries.tolist(), values.tolist())
    np.testing.assert_array_equal(listed.matrices["observed"], entries_to_matrix(entries, values, (12, 9)))


@pytest.mark.parametrize(
    "options, limits",
    [
        ({}, (-1.0, 100.0)),
        ({"vmin": -5.0}, (-5.0, 100.0)),
        ({"vmax": 5.0}, (-1.0, 5.0)),
        ({"norm": "symlog"}, (-1.0, 100.0)),
        ({"norm": "log"}, (2.0, 100.0)),
        ({"norm": plt.Normalize(-3, 3)}, (-3.0, 3.0)),
    ],
    ids=["none", "vmin", "vmax", "symlog", "log", "norm"],
)
def test_one_colour_bar_speaks_for_all_panels(options, limits):
    matrices = {"observed": np.array([[2.0, np.nan]]), "completed": np.array([[-1.0, 100.0]])}
    display = CompletionDisplay(singular_values=None, matrices=matrices).plot(**options)
    display.figure_.canvas.draw()
    first, second = display.images_
    assert first.norm is second.norm is first.colorbar.norm
    assert (first.norm.vmin, first.norm.vmax) == limits
    if isinstance(options.get("norm"), plt.Normalize):
        assert first.norm is options["norm"]


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        ConvergenceDisplay(trace={}).plot()


@pytest.mark.parametrize("clip", [(0.0, None), (None, 0.5), (None, None)])
def test_a_completed_matrix_is_clipped_as_predictions_are(clip):
    entries = np.argwhere(np.ones((6, 5)))
    values = np.random.default_rng(0).normal(size=len(entries))
    model = HFWMatrixCompletion(clip=clip, random_state=0).fit(entries, values)
    display = CompletionDisplay.from_estimator(model, entries, values)
    np.testing.assert_allclose(display.matrices["completed"].ravel(), model.predict(entries))
