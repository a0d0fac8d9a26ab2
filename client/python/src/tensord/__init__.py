"""Arrays on the devices of tensord daemons."""
from . import _core
from ._core import *  # noqa: F403
from ._core import __version__  # noqa: F401
from ._safetensors import load_file, save_file  # noqa: F401
from ._serve import Daemon, serve  # noqa: F401
