"""script/site: that the site of the tree is built and sound, that it has the standard's words, and
that a fault which is planted in a copy of the tree is found. Exits with 77 where MkDocs is missing
and cannot be had."""
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "site"))
import standard  # noqa: E402

# What the site is made of.
PARTS = ["README.md", "cases", "impl", "python", "reports", "script", "site", "spec"]


def build(root, out):
    done = subprocess.run([root / "script/site", out], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=200)
    return done.returncode, done.stdout


class Words(html.parser.HTMLParser):
    """Those of the main part of a page."""

    def __init__(self, path):
        super().__init__()
        self.told, self.depth = [], 0
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        if tag == "div" and (self.depth or ("role", "main") in attrs):
            self.depth += 1

    def handle_endtag(self, tag):
        self.depth -= tag == "div" and self.depth > 0

    def handle_data(self, data):
        if self.depth:
            self.told += re.findall(r"\w+", data)


def words(text):
    """Those of Markdown, as they are shown."""
    text = re.sub(r"\]\([^)\s]*\)|<!--.*?-->|^\d+\. ", " ", text, flags=re.M)
    return re.findall(r"\w+", text)


class SiteTest(unittest.TestCase):
    out = status = said = None  # of the tree as it is

    def test_site_is_sound(self):
        self.assertEqual(self.status, 0, self.said)
        pages, links, anchors = map(int, re.findall(r"(\d+) (?:pages|links|anchors)", self.said))
        self.assertGreater(pages, 115)
        self.assertGreater(links, 5000)
        self.assertGreater(anchors, 1500)
        print(self.said.strip())

    def test_pages_have_all_words_of_their_files(self):
        for path, page in {"spec/SPEC.md": "standard", "spec/CLAUSES.md": "clauses",
                           "spec/NUMERICS.md": "numerics", "spec/MEASURED.md": "measured"}.items():
            told = Words(self.out / page / "index.html").told
            self.assertEqual(told, words((ROOT / path).read_text()), path)

    def test_clauses_have_their_words_on_pages_of_their_own(self):
        for label, clause in standard.clauses((ROOT / "spec/SPEC.md").read_text()).items():
            told = " ".join(Words(self.out / "clauses" / label / "index.html").told)
            self.assertIn(" ".join(words(clause.text)), told, label)
            self.assertTrue(told.startswith(" ".join(words(f"{label} {clause.title}"))), told[:99])

    def test_tables_are_those_that_commands_write(self):
        told = (self.out / "tolerances/index.html").read_text()
        for row in re.findall(r"^\| (\S[^|]*?) \| (\d+ of \d+[^|]*?) \|",
                              (ROOT / "reports/CRITERIA.md").read_text(), re.M):
            self.assertRegex(told, rf"<td>{re.escape(row[0])}</td>\s*<td[^>]*>{re.escape(row[1])}<")
        self.assertNotIn("<!-- from", told)

    def test_bugs_are_not_named_before_their_owners_have_been_told(self):
        self.assertFalse(list(self.out.rglob("findings.json")))
        self.assertFalse((self.out / "tree/impl/adapters").exists())

    def test_nothing_comes_from_elsewhere(self):
        for path in self.out.rglob("*.html"):
            self.assertNotRegex(path.read_text(), r'(?:src|<link[^>]* href)="https?:', path)


class FaultTest(unittest.TestCase):
    """Each in a copy of the tree."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "tree"
        self.root.mkdir()
        for part in PARTS:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, self.root / part,
                                ignore=shutil.ignore_patterns("__pycache__", "out"))
            else:
                shutil.copy(ROOT / part, self.root)
        (self.root / "build").mkdir()
        os.symlink(ROOT / "build/site-env", self.root / "build/site-env")

    def change(self, path, before, after):
        file = self.root / path
        self.assertIn(before, file.read_text())
        file.write_text(file.read_text().replace(before, after))

    def faults(self):
        return build(self.root, self.root.parent / "out")

    def test_links_to_nothing_are_found(self):
        self.change("site/pages/index.md", "(quickstart/cuda.md)", "(quickstart/hip.md)")
        self.change("site/pages/tolerances.md", "limits.md)", "limits.md#no-such-chapter)")
        self.change("reports/published/index.html", "<body>", '<body><a href="gone.json">x</a>')
        status, said = self.faults()
        self.assertEqual(status, 1)
        self.assertIn("index.html: quickstart/hip.md leads nowhere", said)
        self.assertIn("results/limits/#no-such-chapter leads to an anchor that isn't there", said)
        self.assertIn("results/kernels.html: gone.json leads nowhere", said)

    def test_clause_that_is_taken_out_is_missed(self):
        spec = (self.root / "spec/SPEC.md").read_text()
        clause = standard.clauses(spec)["MASK-2"]
        self.change("spec/SPEC.md", f"### {clause.heading}\n\n{clause.text}\n\n", "")
        status, said = self.faults()
        self.assertEqual(status, 1)
        self.assertIn("clauses/MASK-2/ is permanent, and leads nowhere", said)
        self.assertIn("standard/#mask-2--causal-top-left-required is permanent, and leads", said)

    def test_sentence_that_is_taken_out_is_missed(self):
        self.change("spec/SPEC.md", "\n3. Any offset of either sign", "\nAny offset of either sign")
        status, said = self.faults()
        self.assertEqual(status, 1)
        self.assertIn("clauses/MASK-3/#MASK-3.3 is permanent, and leads to an anchor", said)

    def test_heading_that_is_reworded_keeps_its_anchor_once_the_new_one_is_listed(self):
        self.change("spec/SPEC.md", "### MASK-2 — causal, top left", "### MASK-2 — causal")
        self.change("spec/CLAUSES.md", "mask-2--causal-top-left-", "mask-2--causal-")
        status, said = self.faults()
        self.assertEqual(status, 1)
        new = "standard/#mask-2--causal-required"
        self.assertEqual(said, f"{new} is not in the list of permanent addresses: append it\n")
        with open(self.root / "site/permanent.txt", "a") as file:
            file.write(f"{new}\n")
        self.assertEqual(self.faults()[0], 0)

    def test_anchor_that_is_stale_is_found(self):
        self.change("spec/CLAUSES.md", "[SPEC.md](SPEC.md)", "[SPEC.md](SPEC.md#mask-2--old)")
        status, said = self.faults()
        self.assertEqual(status, 1)
        self.assertIn("../standard/#mask-2--old leads to an anchor that isn't there", said)


def main():
    with tempfile.TemporaryDirectory() as folder:
        SiteTest.out = pathlib.Path(folder)
        SiteTest.status, SiteTest.said = build(ROOT, folder)
        if SiteTest.status == 77:
            print(SiteTest.said)
            return 77
        program = unittest.main(argv=sys.argv[:1], exit=False)
        return int(not program.result.wasSuccessful())


if __name__ == "__main__":
    sys.exit(main())
