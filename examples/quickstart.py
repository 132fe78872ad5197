"""Two models in norm balls, each with a certificate. Runs offline in well under a minute.

    python examples/quickstart.py

Saves a picture, quickstart.png, if matplotlib is installed.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skfw import HFWLogisticRegression, HFWMatrixCompletion


def classify():
    """Fit a sparse classifier, its radius chosen by cross-validation."""
    data = load_breast_cancer()
    X_train, X_test, y_train, y_test = train_test_split(data.data, data.target, random_state=0)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), HFWLogisticRegression("l1")),
        {"hfwlogisticregression__radius": [0.3, 1.0, 3.0, 10.0]},
    ).fit(X_train, y_train)
    model = search.best_estimator_[-1]
    print("Sparse logistic regression on the breast cancer data")
    print(f"  radius chosen       {search.best_params_['hfwlogisticregression__radius']:g}")
    print(f"  test accuracy       {search.score(X_test, y_test):.3f}")
    print(f"  features used       {np.count_nonzero(model.coef_)} of {model.n_features_in_}")
    print(f"  log-loss            {model.objective_:.4f}")
    print(f"  no model of this radius is lower by more than {model.gap_:.1e}, certified")
    return model


def complete():
    """Complete images of digits from half of their pixels."""
    images = load_digits().data
    rng = np.random.default_rng(0)
    seen = rng.uniform(size=images.shape) < 0.5
    entries, hidden = np.argwhere(seen), np.argwhere(~seen)
    model = HFWMatrixCompletion(radius=3, biases="columns", clip=(0, 16), random_state=0)
    model.fit(entries, images[seen])
    completed = images.copy()
    completed[~seen] = model.predict(hidden)
    means = images.copy()
    means[~seen] = (model.mean_ + model.column_biases_)[hidden[:, 1]]
    print("Matrix completion: 1797 images of digits from half of their 64 pixels")
    print(f"  error, hidden pixels {rmse(completed[~seen], images[~seen]):.2f} on a scale of 0 to 16")
    print(f"  the pixels' means    {rmse(means[~seen], images[~seen]):.2f}")
    print(f"  rank                 {model.rank_}")
    relative = model.gap_ / model.trace_["objective"][0]
    print(f"  certified gap        {model.gap_:.3f}, {relative:.1%} of the objective at the start")
    return images, seen, completed


def rmse(a, b):
    """Root mean squared difference."""
    return np.sqrt(np.mean((a - b) ** 2))


def framed(pixels):
    """Put an empty frame around an image of eight by eight pixels."""
    return np.pad(pixels.reshape(8, 8), 1, constant_values=np.nan)


def draw(model, images, seen, completed, n_images=8):
    """Draw the run with its certificate, and some completed images."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("matplotlib is not installed: no picture. pip install matplotlib")
        return
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained", width_ratios=(2, 3))
    trace = model.trace_
    steps = np.arange(len(trace["objective"]))
    left.fill_between(steps, trace["lower_bound"], trace["objective"], alpha=0.25, label="certified gap")
    left.plot(steps, trace["objective"], label="objective")
    left.plot(steps, trace["lower_bound"], label="lower bound of the optimum")
    left.set(xlabel="iteration", ylabel="log-loss", ylim=(0, 0.7))
    left.set_title("Sparse logistic regression: the optimum is in the band", fontsize="medium")
    left.legend(loc="upper right", fontsize="small")
    rows = [np.where(seen, images, np.nan), completed, images]
    mosaic = np.vstack([np.hstack([framed(row[i]) for i in range(n_images)]) for row in rows])
    right.imshow(mosaic, cmap="viridis", vmin=0, vmax=16)
    right.set_yticks([4.5, 14.5, 24.5], ["half the pixels", "completed", "true"])
    right.set_xticks([])
    right.tick_params(length=0)
    right.spines[:].set_visible(False)
    right.set_title("Matrix completion", fontsize="medium")
    figure.savefig("quickstart.png", dpi=110)
    print("Picture saved as quickstart.png")


if __name__ == "__main__":
    draw(classify(), *complete())
