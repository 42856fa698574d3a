"""Packs the wheel of attest_attention: Python files, libattest as it was built, and the libraries
that it needs beyond those of any Linux. Nothing is compiled or fetched.

    python3 python/pack_wheel.py build/release/lib/libattest.so.0 FOLDER

prints the wheel's path, and the glibc that it needs, which its name says too: pip refuses it
elsewhere. Also a backend for `pip wheel`, with ATTEST_LIBRARY naming the library.
"""
import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import tomllib
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = "attest_attention"
# Of every Linux that Python's own wheels are made for: glibc, and the runtime of GCC.
EVERYWHERE = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+))\.so\.\d+$")
STAMP = (2020, 1, 1, 0, 0, 0)  # the same input gives the same file


def libraries(libattest):
    """libattest and what it needs besides, by the name under which it is looked for."""
    found = {"libattest.so.0": libattest.resolve()}
    told = subprocess.run(["ldd", libattest], check=True, capture_output=True, text=True).stdout
    for name, path in re.findall(r"^\s*(\S+) => (\S+)", told, re.M):
        if path == "not":
            raise SystemExit(f"{libattest} needs {name}, which is not found")
        if not EVERYWHERE.match(name):
            found[name] = pathlib.Path(path)
    return found


def needed_version(files, symbol):
    """The highest version of these symbols, such as GLIBC_2.34, that a file asks for."""
    pattern = re.compile(rb"\0" + symbol + rb"_([0-9.]+)(?=\0)")
    versions = [tuple(map(int, version.split(b"."))) for file in files
                for version in pattern.findall(file.read_bytes())]
    return max(versions)


def metadata(project, glibc, glibcxx):
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}",
             f"Summary: {project['description']}",
             f"Requires-Python: {project['requires-python']}"]
    lines += [f"Requires-Dist: {each}" for each in project["dependencies"]]
    for extra, each in project["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}"]
        lines += [f"Requires-Dist: {one}; extra == \"{extra}\"" for one in each]
    dotted = [".".join(map(str, version)) for version in (glibc, glibcxx)]
    lines += ["", f"Needs glibc {dotted[0]} and GLIBCXX_{dotted[1]} of libstdc++, or later."]
    return "\n".join(lines) + "\n"


def content(libattest):
    """All files of the wheel by their path in it, its tag and the glibc that it needs."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    carried = libraries(libattest)
    glibc = needed_version(carried.values(), b"GLIBC")
    text = metadata(project, glibc, needed_version(carried.values(), b"GLIBCXX"))
    tag = f"py3-none-manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}"
    files = {f"{PACKAGE}/{path.name}": path.read_bytes()
             for path in sorted((HERE / PACKAGE).iterdir()) if path.suffix in (".py", ".typed")}
    files |= {f"{PACKAGE}/lib/{name}": path.read_bytes() for name, path in carried.items()}
    info = f"{PACKAGE}-{project['version']}.dist-info"
    files[f"{info}/METADATA"] = text.encode()
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: {pathlib.Path(__file__).name}\n"
                              f"Root-Is-Purelib: false\nTag: {tag}\n").encode()
    files[f"{info}/LICENSE"] = (HERE.parent / "LICENSE").read_bytes()
    return files, info, tag, glibc


def pack(libattest, folder):
    """The path of the wheel, and the glibc that it needs."""
    files, info, tag, glibc = content(pathlib.Path(libattest))
    rows = [f"{path},sha256={digest(data)},{len(data)}" for path, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    wheel = pathlib.Path(folder) / f"{info.removesuffix('.dist-info')}-{tag}.whl"
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, STAMP)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if "/lib/" in path else 0o644) << 16
            archive.writestr(entry, data)
    return wheel, glibc


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """As PEP 517 has it."""
    if "ATTEST_LIBRARY" not in os.environ:
        raise SystemExit("ATTEST_LIBRARY must name libattest.so.0, as it was built")
    return pack(os.environ["ATTEST_LIBRARY"], wheel_directory)[0].name


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    made, needs = pack(*sys.argv[1:])
    print(f"{made}\nneeds glibc {needs[0]}.{needs[1]}, Python 3.9 and NumPy")
