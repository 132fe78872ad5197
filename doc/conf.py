"""How Sphinx builds this documentation: ``sphinx-build -W -n doc doc/_build``."""

from importlib.metadata import version as installed_version

project = "skfw"
author = "The skfw developers"
copyright = author
version = release = installed_version("skfw")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx-mathjax-offline",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
nitpicky = True
# Names of other projects are not looked up, so that this builds offline.
nitpick_ignore_regex = [(r"py:.*", r"sklearn\..*")]
default_role = "code"
math_number_all = False
math_eqref_format = "({number})"
numfig = True

autosummary_generate = True
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"quickstart\.py|/benchmarks/|/paper/",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "skfw"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "default",
}
html_sidebars = {"*": []}  # only the gallery and the API have pages below
html_show_sourcelink = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
