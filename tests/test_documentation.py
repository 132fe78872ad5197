"""The Python blocks of the README and of each page run, in order, as one session a page."""

import re
from pathlib import Path
from textwrap import dedent

import pytest

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
    fitted, boxed = session["fitted"], session["boxed"][-1]
    assert abs(fitted.coef_).sum() <= 5 * (1 + 1e-12)
    assert boxed.coef_.min() >= 0.0
    assert boxed.coef_.max() <= 0.5
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
        assert session["model"].coef_.min() >= 0
        assert session["model"].coef_.max() <= 0.5
        check_added_loss(session)
        backtracked = session["result"]
        assert backtracked.lower_bound <= session["optimum"] + 1e-9 <= backtracked.objective + 2e-9


def check_added_loss(session):
    """The page's loss is the derivative it says, and its certified optimum is not beaten."""
    import numpy as np
    from scipy.optimize import check_grad

    loss, design, ball = session["loss"], session["design"], session["ball"]
    rng = np.random.default_rng(0)
    for at in rng.normal(scale=3.0, size=(5, 200)):
        evaluation = loss.evaluate(at)
        assert check_grad(lambda z: loss.evaluate(z).value, lambda z: loss.evaluate(z).residual, at) < 1e-6
        assert evaluation.offset + evaluation.residual @ at == pytest.approx(evaluation.value)
        other = rng.normal(scale=3.0, size=200)
        assert evaluation.offset + evaluation.residual @ other <= loss.evaluate(other).value
        assert loss.curvature_along(evaluation, other) <= loss.curvature_bound(other)
    solved = session["frank_wolfe"](
        loss, design, ball, corrector=session["best_corrector"](loss, design, ball), tolerance=1e-9
    )
    assert solved.status == "converged"
    session["optimum"] = solved.objective


def test_links_of_the_readme_lead_somewhere():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)", text)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
