"""What MkDocs calls: gives it the pages that standard.py makes, and files of the tree."""
import pathlib

from mkdocs.structure.files import File

import standard

ROOT = pathlib.Path(__file__).resolve().parent.parent


def on_config(config):
    config.mdx_configs.setdefault("toc", {})["slugify"] = standard.slug
    return config


def on_files(files, config):
    pages, links = standard.pages(ROOT)
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    for path in [p for p in files.src_uris if p.endswith(".md") and p not in pages]:
        own = files.get_file_from_path(path)
        text = standard.assembled(own.content_string, standard.OWN + path, links, ROOT)
        files.remove(own)
        files.append(File.generated(config, path, content=text))
    page = (ROOT / "reports/published/index.html").read_text()
    page = page.replace('href="README.md"', 'href="./"')
    files.append(File.generated(config, "results/kernels.html", content=page))
    copied = {f"reports/published/{each.name}": f"results/{each.name}"
              for each in (ROOT / "reports/published").glob("*.json")}
    for path, target in {**copied, **links.files}.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / path)))
    return files
