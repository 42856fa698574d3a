"""Looks at a site that is built: check.py FOLDER [PERMANENT]

Every link within it leads to a page and an anchor that are there; one that leads elsewhere has the
form of an address, for nothing is asked of a network. PERMANENT has a line for each address of a
clause that was ever there: all of them still are, and none of today's is missing from it. Exits
with 1 after it has named what is wrong.
"""
import html.parser
import pathlib
import posixpath
import re
import sys
import urllib.parse

import standard


class Page(html.parser.HTMLParser):
    """What a page links to, and what in it can be linked to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.links += [found[name] for name in ("href", "src") if found.get(name)]
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}


class Site:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.pages = {path.relative_to(folder).as_posix(): Page(path.read_text())
                      for path in self.folder.rglob("*.html")}

    def fault(self, page, link):
        """What is wrong with a link of a page; None if nothing is."""
        parts = urllib.parse.urlsplit(link)
        if parts.scheme or parts.netloc:
            sound = re.fullmatch(r"https?://[\w.-]+\.\w+(/\S*)?", link)
            return None if sound else "is no address"
        if parts.path.startswith("/") and page != "404.html":  # which is shown in any folder
            return "begins at the root, wherever the site lies"
        path = urllib.parse.unquote(parts.path)
        at = posixpath.normpath(posixpath.join(posixpath.dirname(page), path.lstrip("/")))
        at = page if not path else at
        if (self.folder / at).is_dir():
            at = posixpath.normpath(posixpath.join(at, "index.html"))
        if at.startswith("..") or not (self.folder / at).is_file():
            return "leads nowhere"
        if at in self.pages and urllib.parse.unquote(parts.fragment) not in self.pages[at].anchors:
            return "leads to an anchor that isn't there"
        return None

    def faults(self):
        for page, found in sorted(self.pages.items()):
            for link in dict.fromkeys(found.links):
                fault = self.fault(page, link)
                if fault:
                    yield f"{page}: {link} {fault}"


def permanence(site, permanent, today):
    """What of the list is gone, and what isn't in it yet."""
    for address in permanent:
        fault = site.fault("index.html", address)
        if fault:
            yield f"{address} is permanent, and {fault}"
    for address in today:
        if address not in permanent:
            yield f"{address} is not in the list of permanent addresses: append it"


def main():
    site = Site(sys.argv[1])
    wrong = list(site.faults())
    if len(sys.argv) > 2:
        list_ = pathlib.Path(sys.argv[2])
        spec = (list_.resolve().parent.parent / "spec/SPEC.md").read_text()
        wrong += permanence(site, list_.read_text().splitlines(),
                            standard.addresses(standard.clauses(spec)))
    if wrong:
        raise SystemExit("\n".join(wrong))
    print(f"{len(site.pages)} pages, {sum(len(page.links) for page in site.pages.values())} links, "
          f"{sum(len(page.anchors) - 1 for page in site.pages.values())} anchors")


if __name__ == "__main__":
    main()
