"""Print the lower bounds in pyproject.toml, of the package and of some extras, as exact requirements."""

import sys
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
lists = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in sys.argv[1:])]
print(*(requirement.replace(">=", "==") for requirements in lists for requirement in requirements))
