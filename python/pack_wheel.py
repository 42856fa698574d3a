"""Packs the wheel of attest_attention: Python files, what `cmake --install` laid out, and the
libraries that it needs beyond those of any Linux. Nothing is compiled or fetched.

    cmake --install build/release --strip --prefix PREFIX
    python3 python/pack_wheel.py PREFIX FOLDER

prints the wheel's path, and the glibc that it needs, which its name says too: pip refuses it
elsewhere. Also a backend for `pip wheel`, with ATTEST_PREFIX naming what was installed.
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
# Of others: what is carried as a library, and what is compiled in, with the Debian packages that
# have its notice.
THIRD_PARTY = [
    ("libfmt", "fmt", "MIT", "libfmt[0-9]*"),
    ("libhwy", "Highway", "Apache-2.0 or BSD-3-Clause", "libhwy[0-9]*"),
    ("libcrypto", "OpenSSL", "Apache-2.0", "libssl[0-9]*"),
    ("libz", "zlib", "Zlib", "zlib1g"),
    ("", "JSON for Modern C++", "MIT", "nlohmann-json3-dev"),
    ("", "CLI11", "BSD-3-Clause", "libcli11-dev"),
    ("", "Chart.js", "MIT", "libjs-chart.js"),
    ("", "Boost", "BSL-1.0", "libboost[0-9]*-dev"),
]


def is_elf(data):
    return data[:4] == b"\x7fELF"


def libraries(files):
    """What programs and libraries need besides, by the name under which it is looked for."""
    told = subprocess.run(["ldd", *files], capture_output=True, text=True).stdout
    found = {}
    for name, path in sorted(set(re.findall(r"^\s*(\S+) => (\S+)", told, re.M))):
        if path == "not":
            raise SystemExit(f"{name} is needed, and not found")
        if not EVERYWHERE.match(name):
            found[name] = pathlib.Path(path)
    return found


def installed(prefix):
    """What the package carries of what was installed, by its path there; of links their files."""
    carried = [*prefix.glob("bin/*"), *prefix.glob("lib/libattest.so.0"),
               *prefix.glob("lib/attest/*.so"), *prefix.glob("share/**/*")]
    return {str(path.relative_to(prefix)): path for path in sorted(carried) if path.is_file()}


def needed_version(contents, symbol):
    """The highest version of these symbols, such as GLIBC_2.34, that one of them asks for."""
    pattern = re.compile(rb"\0" + symbol + rb"_([0-9.]+)(?=\0)")
    return max(tuple(map(int, version.split(b"."))) for data in contents if is_elf(data)
               for version in pattern.findall(data))


def notices(names):
    """Whose work is in the wheel beside ours, under which licence, with its notice."""
    for name in names:
        if not any(begin and name.startswith(begin) for begin, *_ in THIRD_PARTY):
            raise SystemExit(f"{name} is carried: say in THIRD_PARTY under which licence")
    parts = []
    for begin, title, licence, package in THIRD_PARTY:
        files = [name for name in names if begin and name.startswith(begin)]
        if begin and not files:
            continue
        found = sorted(pathlib.Path("/usr/share/doc").glob(f"{package}/copyright"))
        text = found[0].read_text(errors="replace") if found else ""
        where = f"carried as lib/{files[0]}" if files else "compiled in"
        parts.append(f"{title}, {licence}: {where}\n\n{text}".rstrip())
    return f"\n\n{'-' * 78}\n\n".join(parts) + "\n"


def metadata(project, glibc, glibcxx):
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}",
             f"Summary: {project['description']}", "License-File: LICENSE",
             "License-File: THIRD_PARTY", f"Requires-Python: {project['requires-python']}"]
    lines += [f"Requires-Dist: {each}" for each in project["dependencies"]]
    for extra, each in project["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}"]
        lines += [f"Requires-Dist: {one}; extra == \"{extra}\"" for one in each]
    dotted = [".".join(map(str, version)) for version in (glibc, glibcxx)]
    lines += ["", f"Needs glibc {dotted[0]} and GLIBCXX_{dotted[1]} of libstdc++, or later.",
              "THIRD_PARTY has the licences of what is carried beside."]
    return "\n".join(lines) + "\n"


def content(prefix):
    """All files of the wheel by their path in it, its info folder, tag and the glibc it needs."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    ours = {path: file.read_bytes() for path, file in installed(prefix).items()}
    if not ours:
        raise SystemExit(f"{prefix}: nothing is installed there")
    beside = libraries([prefix / path for path, data in ours.items() if is_elf(data)])
    ours |= {f"lib/{name}": path.read_bytes() for name, path in beside.items()}
    glibc = needed_version(ours.values(), b"GLIBC")
    tag = f"py3-none-manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}"
    files = {f"{PACKAGE}/{path.name}": path.read_bytes()
             for path in sorted((HERE / PACKAGE).iterdir()) if path.suffix in (".py", ".typed", ".md")}
    files |= {f"{PACKAGE}/{path}": data for path, data in ours.items()}
    info = f"{PACKAGE}-{project['version']}.dist-info"
    commands = "".join(f"{name} = {place}\n" for name, place in project["scripts"].items())
    for name, text in {
            "METADATA": metadata(project, glibc, needed_version(ours.values(), b"GLIBCXX")),
            "WHEEL": f"Wheel-Version: 1.0\nGenerator: {pathlib.Path(__file__).name}\n"
                     f"Root-Is-Purelib: false\nTag: {tag}\n",
            "entry_points.txt": f"[console_scripts]\n{commands}",
            "THIRD_PARTY": notices(beside),
            "LICENSE": (HERE.parent / "LICENSE").read_text()}.items():
        files[f"{info}/{name}"] = text.encode()
    return files, info, tag, glibc


def pack(prefix, folder):
    """The path of the wheel, and the glibc that it needs."""
    files, info, tag, glibc = content(pathlib.Path(prefix))
    rows = [f"{path},sha256={digest(data)},{len(data)}" for path, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    wheel = pathlib.Path(folder) / f"{info.removesuffix('.dist-info')}-{tag}.whl"
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, STAMP)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if is_elf(data) else 0o100644) << 16
            archive.writestr(entry, data)
    return wheel, glibc


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """As PEP 517 has it."""
    if "ATTEST_PREFIX" not in os.environ:
        raise SystemExit("ATTEST_PREFIX must name what cmake --install made")
    return pack(os.environ["ATTEST_PREFIX"], wheel_directory)[0].name


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    made, needs = pack(*sys.argv[1:])
    print(f"{made}\nneeds glibc {needs[0]}.{needs[1]}, Python 3.9 and NumPy")
