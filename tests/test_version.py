from importlib.metadata import version

import skfw


def test_the_version_is_that_of_the_installed_package():
    assert skfw.__version__ == version("skfw")
