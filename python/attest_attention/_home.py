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

in_worker = False  # whether this process judges nothing, but is judged


def _holder(kernel: Kernel) -> Optional[ModuleType]:
    """The module that has it among its names."""
    for module in list(sys.modules.values()):
        if any(value is kernel for value in list(getattr(module, "__dict__", {}).values())):
            return module
    return None


def testee_of(kernel: Kernel) -> str:
    """Its --testee. Raises ValueError where no other process can find it."""
    module = _holder(kernel)
    if module is None:
        raise ValueError(f"{kernel.name}: a worker finds kernels among the names of a module; "
                         "this is none of them")
    file = getattr(module, "__file__", None)
    if not file or not os.path.isfile(file):
        raise ValueError(f"{kernel.name}: it was typed in, and a worker imports files: put it into "
                         f"one, in a notebook by %%writefile {kernel.name}.py at the top of its "
                         f"cell, and say attest.run('{kernel.name}.py')")
    return f"{os.path.abspath(file)}:{kernel.name}"


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
