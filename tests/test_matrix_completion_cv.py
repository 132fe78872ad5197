import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit

from skfw import HFWMatrixCompletion, HFWMatrixCompletionCV
from skfw.engine import NuclearBall


def made_data(shape=(50, 40), rank=2, share=0.4, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(shape[0], rank)) @ rng.normal(size=(rank, shape[1])) + 2.0
    entries = np.argwhere(rng.uniform(size=shape) < share)
    return entries, truth[tuple(entries.T)] + noise * rng.normal(size=len(entries)), truth


ENTRIES, VALUES, TRUTH = made_data()
EVERYWHERE = np.argwhere(np.ones_like(TRUTH))
FOLDS = KFold(3, shuffle=True, random_state=0)


def searched(radii=(0.3, 1.0), entries=ENTRIES, values=VALUES, weights=None, features=None, **params):
    options = {"implicit": "none", "cv": FOLDS, "random_state": 0, **params}
    return HFWMatrixCompletionCV(radii, **options).fit(entries, values, weights, **(features or {}))


class ByRadius:
    """A score that depends on the radius alone, and counts how often it is asked for."""

    def __init__(self, score):
        self.score, self.n_calls = score, 0

    def __call__(self, model, X, y):
        self.n_calls += 1
        return self.score(model.radius_)


@pytest.mark.parametrize(
    "params", [{}, {"implicit": "columns"}, {"constraint": "nuclear", "biases": "mean"}], ids=str
)
def test_scores_are_those_of_a_grid_search(params):
    radii = [0.3, 0.6, 1.2, 2.4]
    model = searched(radii, tol=1e-4, **params)
    search = GridSearchCV(
        HFWMatrixCompletion(tol=1e-4, random_state=0, **{"implicit": "none", **params}),
        {"radius": radii},
        cv=FOLDS,
        scoring="neg_root_mean_squared_error",
    ).fit(ENTRIES, VALUES)
    expected = [search.cv_results_[f"split{k}_test_score"] for k in range(3)]
    np.testing.assert_allclose(model.scores_, expected, atol=1e-2)
    assert model.radius_ == search.best_params_["radius"]
    np.testing.assert_array_equal(model.radii_, radii)
    best = search.best_estimator_
    assert model.lower_bound_ <= best.objective_
    assert best.lower_bound_ <= model.objective_
    np.testing.assert_allclose(model.predict(EVERYWHERE), best.predict(EVERYWHERE), atol=0.1)


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e6, 1e150])
@pytest.mark.parametrize("normalize", [False, True])
def test_automatic_grid_follows_the_scale_and_contains_the_best(scale, normalize):
    model = searched(10, values=scale * VALUES, normalize=normalize)
    unit = HFWMatrixCompletion(implicit="none", normalize=normalize, random_state=0).fit(
        ENTRIES, scale * VALUES
    )
    assert model.radii_[0] == pytest.approx(0.3 * unit.radius_)
    np.testing.assert_allclose(np.diff(np.log(model.radii_)), np.log(10.0) / 9)
    assert model.radii_[0] < model.radius_ < model.radii_[-1]
    reference = searched(10, normalize=normalize)
    np.testing.assert_allclose(model.scores_ / scale, reference.scores_, rtol=1e-6)
    np.testing.assert_allclose(model.radii_ / (1.0 if normalize else scale), reference.radii_)


def test_one_automatic_radius_is_the_default():
    model = searched(1)
    default = HFWMatrixCompletion(implicit="none", random_state=0).fit(ENTRIES, VALUES)
    np.testing.assert_allclose(model.radii_, [default.radius_])


def test_the_grid_ends_two_radii_beyond_the_best():
    unit = searched(1).radius_
    peak = ByRadius(lambda radius: -abs(np.log(radius / unit)))
    model = searched(9, scoring=peak)
    assert model.radius_ == pytest.approx(unit, rel=0.2)
    best = int(np.argmax(model.radii_ == model.radius_))
    assert len(model.radii_) == best + 3
    assert peak.n_calls == 3 * len(model.radii_)  # no radius twice


def test_the_grid_goes_on_at_both_ends():
    rises = ByRadius(lambda radius: radius)
    with pytest.warns(
        UserWarning, match="HFWMatrixCompletionCV chose the largest radius it tried, .*; scores still"
    ):
        model = searched(3, scoring=rises)
    assert len(model.radii_) == 6
    assert model.radius_ == model.radii_[-1]
    np.testing.assert_allclose(np.diff(np.log(model.radii_)), np.log(10.0) / 2)
    first = searched(5, scoring=lambda *_: 1.0).radii_
    # The best one lies just below the first.
    best = first[0] * first[0] / first[1]
    peak = ByRadius(lambda radius: -abs(np.log(radius / best)))
    model = searched(5, scoring=peak)
    assert model.radius_ == pytest.approx(best)
    np.testing.assert_allclose(np.diff(np.log(model.radii_)), np.log(10.0) / 4)
    assert model.radii_[0] < model.radius_ < model.radii_[-1]
    assert model.scores_.shape == (3, len(model.radii_))
    falls = searched(3, scoring=ByRadius(lambda radius: -radius))
    assert len(falls.radii_) == 6
    assert falls.radius_ == falls.radii_[0]


def test_equal_scores_choose_the_smallest_radius_and_extend_nothing():
    assert len(searched(10, scoring=lambda *_: 1.0).radii_) == 3
    assert searched([3.0, 1.0, 2.0], scoring=lambda *_: 0.5).radius_ == 1.0


def test_a_difference_by_rounding_is_none():
    model = searched(5, scoring=ByRadius(lambda radius: 1.0 + 1e-9 * radius / (1.0 + radius)))
    assert len(model.radii_) == 3
    assert model.radius_ == model.radii_[0]


def test_given_radii_are_all():
    model = searched([1.0, 0.5, 1.0], scoring=ByRadius(lambda radius: radius))
    np.testing.assert_array_equal(model.radii_, [0.5, 1.0])
    assert model.radius_ == 1.0


def test_the_mean_over_the_folds_chooses():
    """Each fold is known by the size of its test part."""
    scores = {1.0: [0.0, 0.0, 9.0], 2.0: [2.0, 2.0, 2.0], 4.0: [0.0, 8.9, 0.0]}
    sizes = {40: 0, 50: 1, 60: 2}
    splits = [(np.arange(size, len(VALUES)), np.arange(size)) for size in sizes]
    model = searched(list(scores), cv=splits, scoring=lambda model, X, y: scores[model.radius][sizes[len(y)]])
    np.testing.assert_array_equal(model.scores_, np.array(list(scores.values())).T)
    assert model.radius_ == 1.0


def test_jobs_change_nothing():
    alone, parallel = searched(4, n_jobs=None), searched(4, n_jobs=2)
    np.testing.assert_array_equal(alone.scores_, parallel.scores_)
    np.testing.assert_array_equal(alone.predict(EVERYWHERE), parallel.predict(EVERYWHERE))
    assert alone.gap_ == parallel.gap_


def test_folds():
    """A number of shuffled ones, a splitter, or a list of indices or masks."""
    assert searched(cv=None).scores_.shape == (5, 2)
    shuffled = searched(cv=3).scores_
    np.testing.assert_array_equal(searched(cv=3).scores_, shuffled)
    assert not np.array_equal(searched(cv=3, random_state=1).scores_, shuffled)
    assert not np.array_equal(searched(cv=KFold(3)).scores_, shuffled)
    splits = list(FOLDS.split(ENTRIES))
    masks = [tuple(np.isin(np.arange(len(VALUES)), part) for part in split) for split in splits]
    lists = [tuple(part.tolist() for part in split) for split in splits]
    expected = searched(cv=FOLDS).scores_
    for cv in (splits, masks, lists, iter(splits)):
        np.testing.assert_array_equal(searched(cv=cv).scores_, expected)
    assert searched(cv=ShuffleSplit(2, random_state=0)).scores_.shape == (2, 2)


def test_rows_may_be_held_out_as_a_whole():
    """What the training part has not seen is predicted by the biases, without a warning."""
    groups = ENTRIES[:, 0] % 3
    splits = [(np.flatnonzero(groups != k), np.flatnonzero(groups == k)) for k in range(3)]
    assert np.isfinite(searched(cv=splits).scores_).all()


@pytest.mark.parametrize("scoring", [None, "r2", "neg_mean_absolute_error"])
@pytest.mark.parametrize("weighted", [False, True])
def test_score_is_what_was_asked_for(scoring, weighted):
    weights = {"sample_weight": np.linspace(1.0, 3.0, len(VALUES))} if weighted else {}
    model = searched(scoring=scoring)
    assert model.score(ENTRIES, VALUES, **weights) == get_scorer(scoring or "r2")(
        model, ENTRIES, VALUES, **weights
    )


def test_score_takes_a_callable():
    model = searched(scoring=lambda model, X, y: float(len(y)))
    assert model.score(ENTRIES[:7], VALUES[:7]) == 7.0


@pytest.mark.parametrize("weighted", [False, True])
def test_default_score_is_minus_the_rmse(weighted):
    weights = np.linspace(0.5, 7.0, len(VALUES)) if weighted else None
    default = searched(weights=weights)
    named = searched(weights=weights, scoring="neg_root_mean_squared_error")
    np.testing.assert_allclose(default.scores_, named.scores_, rtol=1e-12)


def test_a_score_that_is_nan_chooses_no_radius():
    def scoring(model, X, y):
        return np.nan if model.radius == 2.0 else 1.0

    with pytest.raises(ValueError, match=r"score of fold 1 at radius 2 is NaN.* got scoring=<function"):
        searched([1.0, 2.0], scoring=scoring)


@pytest.mark.parametrize(
    "params, message",
    [
        *(
            ({"radii": radii}, r"radii(\[\d\])? must be")
            for radii in (0, [], [[1.0]], [1.0, -1.0], "many", True)
        ),
        ({"scoring": ["r2", "neg_mean_absolute_error"]}, r"scoring must be .* got scoring=\['r2', 'neg"),
        ({"scoring": "nonsense"}, "nonsense"),
        ({"implicit": "some"}, "implicit must be one of"),
        ({"tol": -1.0}, "got tol=-1.0"),
        ({"max_rank": 0}, "got max_rank=0"),
        ({"constraint": "l1"}, "constraint must be one of"),
    ],
)
def test_bad_parameters_are_refused_before_any_work(params, message):
    with pytest.raises(ValueError, match=message):
        HFWMatrixCompletionCV(**params).fit("nonsense", None)


def test_weights_reach_all_fits():
    """In their own unit: the penalty of the biases counts in entries."""
    weights = np.linspace(0.0, 9.0, len(VALUES)) ** 2
    model = searched([0.3, 0.6], weights=weights, tol=1e-5)
    plain = HFWMatrixCompletion(model.radius_, implicit="none", tol=1e-5, random_state=0)
    plain.fit(ENTRIES, VALUES, weights)
    assert model.lower_bound_ <= plain.objective_
    assert plain.lower_bound_ <= model.objective_
    np.testing.assert_allclose(model.row_biases_, plain.row_biases_, atol=1e-2)
    train, test = next(FOLDS.split(ENTRIES))
    fold = clone(plain).set_params(radius=0.3).fit(ENTRIES[train], VALUES[train], weights[train])
    squares = (fold.predict(ENTRIES[test]) - VALUES[test]) ** 2
    assert model.scores_[0, 0] == pytest.approx(
        -np.sqrt(np.average(squares, weights=weights[test])), rel=1e-2
    )


def test_sample_weight_is_repetition_and_zero_is_absence():
    counts = np.random.default_rng(0).integers(0, 3, len(VALUES))
    fold = np.arange(len(VALUES)) % 3

    def splits(folds):
        return [(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in range(3)]

    many, some = np.repeat(np.arange(len(VALUES)), counts), counts > 0
    weighted = searched(4, weights=counts, cv=splits(fold), tol=1e-4)
    repeated = searched(4, ENTRIES[many], VALUES[many], cv=splits(fold[many]), tol=1e-4)
    absent = searched(4, ENTRIES[some], VALUES[some], counts[some], cv=splits(fold[some]), tol=1e-4)
    np.testing.assert_allclose(weighted.radii_, repeated.radii_)
    np.testing.assert_allclose(weighted.scores_, repeated.scores_, rtol=1e-2)
    np.testing.assert_array_equal(weighted.scores_, absent.scores_)
    with pytest.raises(ValueError, match="A fold has a part without any entry of positive weight"):
        searched(weights=(fold != 0) * 1.0, cv=splits(fold))


@pytest.mark.parametrize("weight", [1e-300, 1e300])
def test_weights_near_the_end_of_the_numbers(weight):
    model = searched(weights=np.full(len(VALUES), weight), bias_penalty=None)
    np.testing.assert_allclose(model.scores_, searched(bias_penalty=None).scores_, rtol=1e-6)


def test_a_constraint_object():
    ball = NuclearBall(0.7, random_state=3)
    model = searched([0.5, 1.5], constraint=ball)
    assert ball.radius == 0.7  # the caller's object is left alone
    assert model.radius_ in (0.5, 1.5)
    named = searched([0.5, 1.5], constraint="nuclear")
    np.testing.assert_allclose(model.scores_, named.scores_, rtol=0.05)
    around = searched(3, constraint=ball, scoring=lambda *_: 1.0)
    np.testing.assert_allclose(around.radii_[1], 0.7, rtol=0.1)


def test_implicit_features_are_decided_once(monkeypatch):
    calls = []

    def best(*args):
        calls.append(args)
        return "columns"

    monkeypatch.setattr("skfw._matrix_completion_cv.best_implicit", best)
    monkeypatch.setattr("skfw._matrix_completion.best_implicit", None)
    model = searched(3, implicit="auto")
    assert len(calls) == 1
    assert model.implicit_ == "columns"
    np.testing.assert_array_equal(model.scores_, searched(3, implicit="columns").scores_)
    plain = searched(3)
    assert model.radii_[0] == pytest.approx(0.6 * plain.radii_[0])
    assert not np.array_equal(model.scores_, plain.scores_)


def test_features():
    """They explain the rows: with them all scores are better, also those of rows without any entry."""
    rng = np.random.default_rng(1)
    features = pd.DataFrame(rng.normal(size=(50, 2)), columns=["age", "height"])
    values = features.to_numpy() @ rng.normal(size=(2, 40))
    values = values[tuple(ENTRIES.T)] + 0.3 * rng.normal(size=len(ENTRIES))
    groups = ENTRIES[:, 0] % 3
    splits = [(np.flatnonzero(groups != k), np.flatnonzero(groups == k)) for k in range(3)]
    model = searched([0.5, 1.0], values=values, cv=splits, features={"row_features": features})
    plain = searched([0.5, 1.0], values=values, cv=splits)
    assert (model.scores_ > 0.8 * plain.scores_).all()
    with pytest.raises(ValueError, match="row_features has none of the rows in X"):
        searched(features={"row_features": features.set_index(features.index + 1000)})


def test_the_last_fit_starts_from_a_fold():
    model = searched([0.5, 1.0], tol=1e-3)
    cold = HFWMatrixCompletion(model.radius_, implicit="none", tol=1e-3, random_state=0).fit(ENTRIES, VALUES)
    assert model.trace_["gap"][0] < 0.5 * cold.trace_["gap"][0]


def test_each_radius_starts_from_the_one_before(monkeypatch):
    starts = []
    complete = HFWMatrixCompletion._complete_task

    def spy(self, task, implicit, start=None, *options):
        starts.append((self.radius, start and start.radius))
        return complete(self, task, implicit, start, *options)

    monkeypatch.setattr(HFWMatrixCompletion, "_complete_task", spy)
    searched([0.5, 1.0, 2.0], scoring=ByRadius(lambda radius: radius))
    expected = [(0.5, None)] * 3 + [(1.0, 0.5)] * 3 + [(2.0, 1.0)] * 3 + [(2.0, 2.0)]
    assert starts == expected


def test_progress_names_fold_and_radius(capsys):
    model = searched([0.5, 1.0], cv=2, verbose=1)
    lines = capsys.readouterr().out.splitlines()
    headings = [line for line in lines if "radius" in line]
    folds = [f"fold {fold} of 2, radius {radius:g}" for radius in (0.5, 1.0) for fold in (1, 2)]
    assert headings == [*folds, f"all entries, radius {model.radius_:g}"]
    searched([0.5], cv=2)
    assert capsys.readouterr().out == ""


def test_all_runs_that_fall_short_say_so():
    with pytest.warns(ConvergenceWarning, match="HFWMatrixCompletionCV stopped after 1 steps") as record:
        searched([0.5, 1.0], cv=2, max_iter=1, tol=1e-9)
    assert len(record) == 2 * 2 + 1
    assert {warning.filename for warning in record} == {__file__}


def test_ids_are_doubted_once():
    alone = np.column_stack([np.arange(300), np.arange(300)])
    with pytest.warns(UserWarning, match="HFWMatrixCompletionCV found one entry only") as record:
        searched(entries=alone, values=np.sin(np.arange(300.0)), cv=2)
    assert len(record) == 1


def test_no_signal_and_noise():
    constant = searched(10, values=np.full(len(VALUES), 3.0))
    assert constant.rank_ == 0
    assert len(constant.radii_) == 3
    noise = searched(4, values=np.random.default_rng(0).normal(size=len(VALUES)))
    assert noise.radius_ < 0.5 * noise.radii_[-1]


def test_clone_pickle_and_names():
    model = HFWMatrixCompletionCV([0.3, 1.0], cv=3, implicit="none", clip=(0.0, 4.0), random_state=0)
    frame = pd.DataFrame(ENTRIES, columns=["user", "film"])
    assert clone(model).get_params().keys() == model.get_params().keys()
    model.fit(frame, VALUES)
    assert list(model.feature_names_in_) == ["user", "film"]
    assert model.predict(frame).max() <= 4.0
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(frame), model.predict(frame))
    np.testing.assert_array_equal(copy.recommend([3], n=4)[0], model.recommend([3], n=4)[0])


def test_every_parameter_reaches_the_fits():
    """All that the estimator has beside its radius and its start."""
    own = HFWMatrixCompletionCV().get_params()
    shared = HFWMatrixCompletion().get_params()
    assert shared.keys() - own.keys() == {"radius", "warm_start"}
    assert own.keys() - shared.keys() == {"radii", "cv", "scoring", "n_jobs"}
    assert all(own[name] == shared[name] for name in own.keys() & shared.keys())
    changed = {
        "weight_exponent": 0.5,
        "max_rank": 3,
        "biases": "mean",
        "tol": 1e-2,
        "max_iter": 77,
        "clip": (0, 1),
    }
    template = HFWMatrixCompletionCV(**changed)._template()
    assert all(getattr(template, name) == value for name, value in changed.items())


def test_the_same_seed_gives_the_same_bits():
    entries, values, _ = made_data((150, 120), share=0.1)  # large enough for the iterative oracle
    first, second = (HFWMatrixCompletionCV(3, cv=2, random_state=5).fit(entries, values) for _ in range(2))
    np.testing.assert_array_equal(first.scores_, second.scores_)
    np.testing.assert_array_equal(first.predict(entries), second.predict(entries))
    assert first.implicit_ == second.implicit_


def test_a_fit_that_fails_leaves_the_last_model():
    model = searched()
    before = dict(vars(model))
    for bad in ({"y": VALUES * np.nan}, {"sample_weight": -np.ones(len(VALUES))}, {"row_features": 3}):
        with pytest.raises((ValueError, TypeError)):
            model.fit(**{"X": ENTRIES, "y": VALUES, **bad})
        assert all(vars(model)[name] is value for name, value in before.items())
