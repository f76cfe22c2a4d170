"""forewarn: Scheduled Events for any fleet.

The public API is what this module, `forewarn.client` and `forewarn.testing` export;
every other module is private and free to move.
"""

import os.path
import sys

__version__ = "0.1.0"

__all__ = ["__version__"]

# An older Python can read this file, and hardly any other.
if sys.version_info < (3, 11):  # noqa: UP036
    _message = (
        "forewarn needs Python 3.11 or newer, and this is Python {}.{} ({}). Where the"
        " distribution's own Python is older, install the package forewarn-agent, or Python 3.11"
        " beside it."
    ).format(*sys.version_info[:2], sys.executable)
    if os.path.basename(sys.argv[0]) in ("-m", "forewarn", "forewarn.exe"):  # noqa: PTH119
        sys.exit(_message)
    raise ImportError(_message)
