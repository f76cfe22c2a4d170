"""The scenarios that come with the package, and loading one by its name or file."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from forewarn.support.suggest import instead_of
from forewarn.testing.scenarios.file.read import ScenarioError, load, parse
from forewarn.testing.scenarios.file.shapes import MAX_SIZE
from forewarn.testing.scenarios.model import Scenario

_SHIPPED = resources.files("forewarn.testing.scenarios").joinpath("shipped")
SUFFIX = ".yaml"


def names() -> list[str]:
    """Return the names of the scenarios that come with forewarn."""
    files = (file.name for file in _SHIPPED.iterdir())
    return sorted(name.removesuffix(SUFFIX) for name in files if name.endswith(SUFFIX))


def text_of(name: str) -> str:
    """Return the text of a scenario that comes with forewarn."""
    return _SHIPPED.joinpath(name + SUFFIX).read_text("utf-8")


def find(source: str | Path) -> Scenario:
    """Read a scenario by its name or from a file, or make one from a recording.

    Args:
        source: The name of a scenario that comes with forewarn, a file with a scenario, or a file
            with a recording.

    Raises:
        ScenarioError: There is none, or it is not valid.
    """
    shipped = names()
    if isinstance(source, str) and source in shipped:
        return parse(text_of(source), f"{source}{SUFFIX}")
    path = Path(source)
    try:
        exists = path.exists()
    except OSError as error:  # such as a name that is too long
        raise ScenarioError(f"{path}: {error.strerror}") from error
    if path.suffix not in (SUFFIX, ".yml", ".json") and not exists:
        raise ScenarioError(
            f"there is no scenario and no file '{source}'; {instead_of(str(source), shipped)}"
        )
    if is_recording(path):
        return _from_recording(path)
    return load(path)


def is_recording(path: Path) -> bool:
    """Guess whether a file is a recording, or a text with documents in it, and not a scenario."""
    if path.suffix in (SUFFIX, ".yml") or not path.is_file():
        return False
    if path.suffix != ".json":
        return True
    try:
        with path.open("rb") as file:
            return b'"scenario"' not in file.read(MAX_SIZE)
    except OSError:
        return False  # reading it will raise the error


def _from_recording(path: Path) -> Scenario:
    from forewarn.testing.recording.reader import NotARecordingError, read
    from forewarn.testing.scenarios.from_recording import NoScenarioError, scenario_text

    try:
        recording = read([path])
        text = scenario_text(recording.lines, name=path.stem, notes=recording.notes)
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
    except NotARecordingError as error:
        raise ScenarioError(str(error)) from error
    except NoScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from error
    return parse(text, f"{path} as a scenario", path.parent)
