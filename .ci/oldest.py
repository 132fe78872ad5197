"""Print the lower bounds in pyproject.toml, of the package and its tests, as exact requirements."""

import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
print(*(r.replace(">=", "==") for r in project["dependencies"] + project["optional-dependencies"]["test"]))
