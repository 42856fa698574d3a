"""The pages that are made from the standard: one for each clause, and the whole of SPEC.md, whose
text they all have. What is linked where, for every page of the site.

Nothing here needs MkDocs: pages are texts in Markdown by their paths in the site.
"""
import dataclasses
import json
import posixpath
import re

# Files of the tree that are pages of the site; what else they link to is copied beside (`files`).
PAGES = {
    "spec/SPEC.md": "standard.md",
    "spec/CLAUSES.md": "clauses/index.md",
    "spec/NUMERICS.md": "numerics.md",
    "spec/MEASURED.md": "measured.md",
    "reports/CRITERIA.md": "tolerances.md",
    "impl/vendor/README.md": "vendors.md",
    "python/attest_attention/AGENTS.md": "agents.md",
    "reports/published/README.md": "results/index.md",
    "reports/published/limits.md": "results/limits.md",
    "reports/published/index.html": "results/kernels.html",
}
OWN = "site/pages/"  # those written by hand

HEADING = re.compile(r"^### ([A-Z]+-\d+) — (.*) \(([a-z, ]+)\)$", re.M)
# Code and tags, which are left as they are; links; what would be read as a link or as emphasis,
# and is none; labels.
WORD = re.compile(r"""(?P<code>(?:^|(?<=\n))(?:\ {4}|```).*|`[^`]*`|<[a/!][^>]*>)
                    | \[(?P<text>[^\]]*)\]\((?P<target>[^)\s]*)\)
                    | (?P<none>\]\((?=[^)]*\ )|_)
                    | \b(?P<label>[A-Z]+-\d+)(?P<sentence>\.\d+)?\b""", re.X)


@dataclasses.dataclass
class Clause:
    label: str
    title: str
    level: str
    chapter: str
    text: str  # what stands below its heading

    @property
    def heading(self):
        return f"{self.label} — {self.title} ({self.level})"

    @property
    def page(self):
        return f"clauses/{self.label}.md"

    def sentences(self):
        """The numbers of its statement, if that is a list."""
        return re.findall(r"^(\d+)\. ", self.statement(), re.M)

    def statement(self):
        return self.text[:self.text.index("**Why.**")]


def slug(heading, _separator="-"):
    """The anchor of a heading, as it is elsewhere too where Markdown is shown."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def clauses(spec):
    """Those of SPEC.md, by label, in its order."""
    found = {}
    for chapter in re.split(r"^## ", spec, flags=re.M)[1:]:
        name, heads = chapter.split("\n", 1)[0], list(HEADING.finditer(chapter))
        for head, after in zip(heads, [*heads[1:], None]):
            text = chapter[head.end():after.start() if after else len(chapter)].strip()
            found[head[1]] = Clause(*head.groups(), name, text)
    return found


def standing(table):
    """{"MASK-2": ["required", "`forward-core`", "`causal`", "1154", "22"]} of CLAUSES.md."""
    rows = re.findall(r"^\| \[([A-Z]+-\d+)\]\(.*\|$", table, re.M)
    lines = re.findall(r"^\| \[[A-Z]+-\d+\]\(.*\|$", table, re.M)
    return {label: [cell.strip() for cell in line.split("|")[-6:-1]]
            for label, line in zip(rows, lines)}


def entries(root):
    """(label, "mask/causal/square", why it is there) of what files of cases say."""
    for path in sorted((root / "cases").rglob("*.json")):
        found = json.loads(path.read_text())
        for entry in found.get("cases", []):
            name = path.relative_to(root / "cases").with_suffix("") / entry["name"]
            for label in entry["clauses"]:
                yield label, name.as_posix(), entry["because"]


class Links:
    """Where links lead on the site, and labels of clauses; `files` gathers what is to be copied."""

    def __init__(self, root, labels):
        self.root, self.labels, self.files = root, set(labels), {}

    def page_of(self, path):
        """The site's path of a file of the tree; None of what is no file, or no page of it."""
        if path in PAGES:
            return PAGES[path]
        if path.startswith(OWN):
            return path[len(OWN):]
        if path.endswith(".md") or not (self.root / path).is_file():
            return None
        self.files[path] = f"tree/{path}"
        return self.files[path]

    def on_site(self, text, source, page):
        """`text` of the file `source`, as it stands on `page`: links lead within the site, and
        labels to the pages of their clauses. Links to folders of the tree are left out, and to
        adapters, which name bugs before their owners have been told."""
        def to(target):
            return posixpath.relpath(target, posixpath.dirname(page) or ".")

        def clause(label, sentence=""):
            return f"{to(f'clauses/{label}.md')}{sentence and f'#{label}{sentence}'}"

        def replace(word):
            label, target = word["label"], word["target"]
            if word["none"]:
                return f"{word[0][:-1]}\\{word[0][-1]}"
            if label in self.labels and page != f"clauses/{label}.md":
                return f"[{word[0]}]({clause(label, word['sentence'] or '')})"
            if target is None or ":" in target or target.startswith("#"):
                return word[0]
            if word["text"] in self.labels:
                return f"[{word['text']}]({clause(word['text'])})"
            path, hash_, anchor = target.partition("#")
            path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
            if (self.root / path).is_dir() or path.startswith("impl/adapters/"):
                return word["text"]
            return f"[{word['text']}]({to(self.page_of(path) or path)}{hash_}{anchor})"

        return WORD.sub(replace, text)


def with_sentences(clause):
    """Its text, in which each sentence of the statement has an anchor, as MASK-3.1."""
    statement = re.sub(r"^(\d+)\. ", rf'\1. <a id="{clause.label}.\1"></a>', clause.statement(),
                       flags=re.M)
    return statement + clause.text[len(clause.statement()):]


def clause_page(clause, all_clauses, row, cases, links):
    labels = list(all_clauses)
    at = labels.index(clause.label)
    around = [f"before it {label}" for label in labels[max(at - 1, 0):at]]
    around += [f"after it {label}" for label in labels[at + 1:at + 2]]
    mention = re.compile(rf"\b{clause.label}\b")
    citing = [each.label for each in all_clauses.values()
              if each is not clause and mention.search(each.text)]
    named = f" It is named in {', '.join(citing)}." if citing else ""
    level, profile, feature, count, mutants = row
    sentence = f", its sentences `{clause.label}.1` and so on" if clause.sentences() else ""
    behind = f", a sentence's with `#{clause.label}.1` behind it" if clause.sentences() else ""
    told = "".join(f"- `{name}`: {plain(because)}\n" for name, because in cases)
    text = f"""# {clause.label} — {clause.title}

| level | profile | feature | cases | mutants |
|---|---|---|--:|--:|
| {level} | {profile} | {feature} | {count} | {mutants} |

In the chapter [{clause.chapter}](../../../spec/SPEC.md#{slug(clause.chapter)}) of the standard it
stands [among the others](../../../spec/SPEC.md#{slug(clause.heading)}): {", ".join(around)}.{named}

{with_sentences(clause)}

## Cases

`attest explain {clause.label} --all` names the cases that cite it, {count} in the full tier. These
entries of `cases/` say that they are of it, and why they are there:

{told}
## To cite it

The clause is `{clause.label}`{sentence}. The address of this page stays{behind}.
"""
    if not cases:
        text = re.sub(r"\n## Cases\n.*?(?=\n## To cite)", "", text, flags=re.S)
    return links.on_site(text, f"{OWN}{clause.page}", clause.page)


def plain(text):
    """A text that is no Markdown, but for code in it."""
    return re.sub(r"([*<\[\]])", r"\\\1", text)


def standard_page(spec, all_clauses, permanent, links):
    """SPEC.md, with the anchors that its headings had once."""
    for clause in all_clauses.values():
        now = slug(clause.heading)
        olds = re.findall(rf"^standard/#({clause.label.lower()}--.*)$", permanent, re.M)
        marks = "".join(f'<a id="{old}"></a>' for old in olds if old != now)
        spec = spec.replace(f"### {clause.heading}\n", f"### {marks}{clause.heading}\n")
    return links.on_site(spec, "spec/SPEC.md", "standard.md")


def addresses(all_clauses):
    """Those of clauses as they are today, to be found in permanent.txt."""
    for clause in all_clauses.values():
        yield f"clauses/{clause.label}/"
        yield from (f"clauses/{clause.label}/#{clause.label}.{number}"
                    for number in clause.sentences())
        yield f"standard/#{slug(clause.heading)}"


def results(folder):
    """A row for each kernel whose record is published."""
    told = ("\n## At a glance\n\n| kernel | version | device | tier | PASS | WARN | FAIL |\n"
            "|---|---|---|---|--:|--:|--:|\n")
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        for kernel in found["kernels"]:
            counts = [str(kernel["outcomes"].get(name, 0))
                      for name in ("PASS", "WARN", "FAIL")]
            told += (f"| `{kernel['kernel']}` | {found['system']} {found['version']} | "
                     f"{found['device']} | {kernel['tier']} | {' | '.join(counts)} |\n")
    return told


def pages(root):
    """({"clauses/MASK-2.md": its text}, the links), of all but those written by hand."""
    def text(path):
        return (root / path).read_text()

    spec, table = text("spec/SPEC.md"), standing(text("spec/CLAUSES.md"))
    found = clauses(spec)
    links, made = Links(root, found), {}
    cases = {}
    for label, name, because in entries(root):
        cases.setdefault(label, []).append((name, because))
    for label, clause in found.items():
        row = table.get(label, [clause.level, "", "", "0", "0"])
        made[clause.page] = clause_page(clause, found, row, cases.get(label, []), links)
    made["standard.md"] = standard_page(spec, found, text("site/permanent.txt"), links)
    for path, page in PAGES.items():
        if page not in made and page.endswith(".md") and not (root / OWN / page).is_file():
            made[page] = links.on_site(text(path), path, page)
    made["results/index.md"] += results(root / "reports/published")
    return made, links


def assembled(text, source, links, root):
    """A page written by hand, with what it takes from other files: a line <!-- from PATH --> is
    all of one but its title, <!-- from PATH: NAME --> what stands there between <!-- NAME --> and
    <!-- /NAME -->."""
    page, parts, at = source[len(OWN):], [], 0
    for mark in re.finditer(r"^<!-- from (\S+?)(?:: (\w+))? -->$", text, re.M):
        taken = (root / mark[1]).read_text()
        if mark[2]:
            begin, end = f"<!-- {mark[2]} -->\n", f"<!-- /{mark[2]} -->"
            taken = taken[taken.index(begin) + len(begin):taken.index(end)]
        else:
            taken = taken[taken.index("\n") + 1:]
        parts += [links.on_site(text[at:mark.start()], source, page),
                  links.on_site(taken, mark[1], page)]
        at = mark.end()
    return "".join([*parts, links.on_site(text[at:], source, page)])
