"""Where a kernel can be found by another process: a worker imports its file."""
from __future__ import annotations

import importlib
import importlib.util
import os
import pathlib
import sys
from types import ModuleType
from typing import Optional

from attest_attention._kernel import Kernel

# A kernel without a file, with what it refers to.
PICKLED = """import pathlib
import cloudpickle
kernel = cloudpickle.loads(pathlib.Path(__file__).with_suffix(".pickle").read_bytes())
"""

in_worker = False  # whether this process judges nothing, but is judged


def _holder(kernel: Kernel) -> Optional[ModuleType]:
    """The module that has it among its names."""
    for module in list(sys.modules.values()):
        if any(value is kernel for value in list(getattr(module, "__dict__", {}).values())):
            return module
    return None


def testee_of(kernel: Kernel, folder: pathlib.Path) -> str:
    """Its --testee; one that was typed in, as in a notebook, is written into the folder. Raises
    ValueError where no other process can have it."""
    file = getattr(_holder(kernel), "__file__", None)
    if file and os.path.isfile(file):
        return f"{os.path.abspath(file)}:{kernel.name}"
    if importlib.util.find_spec("cloudpickle") is None:
        raise ValueError(f"{kernel.name}: a worker imports kernels from files, and this one is in "
                         "none: pip install cloudpickle, or put it into one, in a notebook by "
                         f"%%writefile {kernel.name}.py at the top of its cell, and say "
                         f"attest.run('{kernel.name}.py')")
    cloudpickle = importlib.import_module("cloudpickle")
    (folder / "kernel.pickle").write_bytes(cloudpickle.dumps(kernel))
    (folder / "kernel.py").write_text(PICKLED)
    return f"{folder / 'kernel.py'}:{kernel.name}"


def load(path: str) -> ModuleType:
    """The module of a file, by the name that it has where it is part of a package."""
    file = pathlib.Path(path)
    folder, names = file.parent, [file.stem]
    while (folder / "__init__.py").exists():
        names.insert(0, folder.name)
        folder = folder.parent
    sys.path[0] = str(folder)  # as `python FILE` has it
    if len(names) > 1:
        return importlib.import_module(".".join(names))
    name = file.stem if file.stem not in sys.modules else f"{file.stem}_kernels"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
