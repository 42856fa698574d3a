"""A tier that takes longer than a machine is lent for: judged in parts, put together afterwards."""
import json
import re
import shlex
import subprocess

import suite

ABOUT = "part.json"
JUDGE = "impl/adapters/judge"  # as records have it


class Apart(Exception):
    """Why parts are no whole."""


def is_shard(text):
    """I/N, the I-th of N parts."""
    told = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    return bool(told) and int(told[1]) <= int(told[2])


def folder_of(kernel_folder, shard):
    return kernel_folder / shard.replace("/", "-of-")


def keep(folder, about):
    """Notes what the record in a part's folder is of: what the record itself does not say."""
    (folder / ABOUT).write_text(json.dumps(about, indent=1) + "\n")


def kernels(out):
    """The folders of kernels of which there are parts."""
    return sorted({path.parent.parent for path in out.glob(f"*/*/*-of-*/{ABOUT}")})


def put_together(kernel_folder, shard=""):
    """Merges the parts of a kernel, all or those that make a shard, into its folder; returns what
    they are of, with the seconds and the commands of all. Raises Apart."""
    folders = sorted((path.parent for path in kernel_folder.glob(f"*-of-*/{ABOUT}")),
                     key=lambda folder: int(folder.name.partition("-")[0]))
    abouts = [json.loads((folder / ABOUT).read_text()) for folder in folders]
    for name in ("system", "version", "kernel", "attest", "tier", "machine", "packages"):
        if any(each.get(name) != abouts[0].get(name) for each in abouts):
            raise Apart(f"{kernel_folder.name}: its parts differ in {name}")
    which = ["--shard", shard] if shard else []
    ended = subprocess.run([suite.program(), "merge", *map(str, folders), *which, "--out",
                            str(kernel_folder)], capture_output=True, text=True, check=False)
    if ended.returncode == 2:
        raise Apart(f"{kernel_folder.name}: {ended.stderr.strip()}")
    (kernel_folder / "run.log").write_text(ended.stdout)
    commands = [*dict.fromkeys(each["command"] for each in abouts), shlex.join([JUDGE, "--join", *which])]
    return {**abouts[0], **({"shard": shard} if shard else {}), "command": "\n".join(commands),
            "date": max(each["date"] for each in abouts),
            "seconds": sum(each["seconds"] for each in abouts)}
