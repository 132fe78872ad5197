"""The Python blocks of the README and of each page run, in order, as one session a page."""

import re
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    page for page in sorted((ROOT / "doc").glob("*.rst")) if ".. code-block:: python" in page.read_text()
]


def run(page, blocks):
    namespace = {"__name__": page.stem}
    for block in blocks:
        exec(compile(block, str(page), "exec"), namespace)
    return namespace


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    yield
    plt.close("all")


def test_readme(capsys):
    page = ROOT / "README.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 4
    session = run(page, blocks)
    fitted, boxed = session["fitted"], session["boxed"]
    assert abs(fitted.coef_).sum() <= 5 * (1 + 1e-12)
    assert boxed.coef_.min() >= 0.0
    assert boxed.coef_.max() == 400.0
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page, capsys, tmp_path):
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^\.\. code-block:: python\n\n((?:   .*\n|\n)+)", text, flags=re.MULTILINE)
    assert len(blocks) == text.count(".. code-block:: python")
    session = run(page, map(dedent, blocks))
    assert capsys.readouterr().out
    if page.stem == "index":
        assert (tmp_path / "convergence.png").stat().st_size > 10_000
    if page.stem == "extending":
        check_extensions(session)


def check_extensions(session):
    """What the page adds keeps its promises, and nothing beats its certificates."""
    assert session["model"].coef_.min() >= 0
    assert session["model"].coef_.max() <= 0.5
    check_loss(session["loss"])
    for fit_intercept, result in session["results"].items():
        assert result.status == "converged"
        optimum = smallest_loss(session["features"], session["targets"], 3.0, fit_intercept)
        assert result.lower_bound <= optimum <= result.objective + 1e-6
    for result in (session["chosen"], session["backtracked"]):  # of the loss with an intercept
        assert result.lower_bound <= optimum <= result.objective + 1e-6
        assert result.gap < 0.01 * session["problem"].null.value
    assert session["found"].status == session["completed"].status == "converged"
    completed, unseen = session["left"] @ session["right"].T, np.s_[:, 37:]
    assert np.corrcoef(completed[unseen].ravel(), session["truth"][unseen].ravel())[0, 1] > 0.9
    check_data(session["blur"])


def check_loss(loss):
    """The loss has the derivatives it says, and its tangent planes lie below it."""
    rng = np.random.default_rng(0)
    for at in rng.normal(scale=3.0, size=(5, len(loss.weights))):
        evaluation = loss.evaluate(at)
        assert check_grad(lambda z: loss.evaluate(z).value, lambda z: loss.evaluate(z).residual, at) < 1e-6
        assert evaluation.offset + evaluation.residual @ at == pytest.approx(evaluation.value)
        other = rng.normal(scale=3.0, size=len(at))
        assert evaluation.offset + evaluation.residual @ other <= loss.evaluate(other).value
        ahead = loss.evaluate(at + 1e-6 * other).residual - evaluation.residual
        assert loss.curvature_along(evaluation, other) == pytest.approx(1e6 * ahead @ other, rel=1e-4)
        assert loss.curvature_along(evaluation, other) <= loss.curvature_bound(other)


def smallest_loss(X, targets, radius, fit_intercept):
    """Return SciPy's minimum of the mean pseudo-Huber loss in the l1 ball."""
    n_features = X.shape[1]
    signed = np.hstack([X, -X, np.full((len(X), 1), float(fit_intercept))])

    def value_and_gradient(x):
        error = signed @ x - targets
        root = np.sqrt(1.0 + error**2)
        return np.mean(root - 1.0), signed.T @ (error / root) / len(X)

    found = minimize(
        value_and_gradient,
        np.zeros(2 * n_features + 1),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, None)] * (2 * n_features) + [(None, None)],
        constraints={"type": "ineq", "fun": lambda x: radius - x[:-1].sum()},
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    assert found.success
    return found.fun


def check_data(data):
    """The adjoint is one, and the bounds hold."""
    rng = np.random.default_rng(0)
    matrix = np.stack([data.apply(column) for column in np.eye(len(data.zeros()))], axis=1)
    residual = rng.normal(size=len(matrix))
    np.testing.assert_allclose(data.adjoint(residual), matrix.T @ residual, atol=1e-12)
    np.testing.assert_array_equal(data.apply_sparse(np.array([3]), np.array([2.0])), 2.0 * matrix[:, 3])
    assert np.all(np.abs(matrix).max(axis=0) <= data.adjoint_size())
    weights = rng.uniform(size=len(matrix))
    assert np.linalg.eigvalsh(matrix.T * weights @ matrix).max() <= data.squared_norm(weights)


def test_links_of_the_readme_lead_somewhere():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)", text)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
