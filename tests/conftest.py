"""One thread for BLAS, the same random examples in each run, compiled code on demand, and the real data."""

import bz2
import os
from pathlib import Path

import hypothesis
import pytest
from sklearn.datasets import load_svmlight_file
from threadpoolctl import threadpool_limits

# `pytest --hypothesis-profile=search` looks for new examples that fail; CI repeats the old ones.
hypothesis.settings.register_profile("repeated", derandomize=True, deadline=None)
hypothesis.settings.register_profile("search", deadline=None)
hypothesis.settings.load_profile("repeated")


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread():
    """A call in threads takes as long as its slowest one: beside other work tests took 50 times longer."""
    with threadpool_limits(1, user_api="blas"):
        yield


def pytest_addoption(parser):
    parser.addoption(
        "--compiled", action="store_true", help="use numba in matrix completion, however few the entries"
    )


@pytest.fixture(autouse=True)
def compiled_if_asked_for(request, monkeypatch):
    if request.config.getoption("--compiled"):
        for name in ("_MANY_ENTRIES", "_MANY_ENTRIES_ONCE"):
            monkeypatch.setattr(f"skfw.engine.data._kernels.{name}", 0)


def data_folder():
    """Return SKFW_DATA, or a folder `data` in a neighbour of the checkout that holds the files; or None."""
    if folder := os.environ.get("SKFW_DATA"):
        return Path(folder)
    neighbours = Path(__file__).resolve().parents[2].glob("*/data/mushrooms.bz2")
    return next((file.parent for file in neighbours), None)


@pytest.fixture(scope="session")
def real_data():
    folder = data_folder()
    if folder is None or not folder.is_dir():
        pytest.skip("the LIBSVM and MovieLens files are not here; see SKFW_DATA in the README")
    return folder


@pytest.fixture(scope="session")
def mushrooms(real_data):
    with bz2.open(real_data / "mushrooms.bz2") as file:
        return load_svmlight_file(file)
