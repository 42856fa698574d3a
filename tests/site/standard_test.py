"""What the site makes of the standard, and how it finds what is wrong with a site."""
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "site"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check  # noqa: E402
import quickstart_test  # noqa: E402
import standard  # noqa: E402

SPEC = """# The standard

## Masks

### MASK-1 — full: all keys (required)

**Statement.** All.

**Why.** The base; `MASK-2` is none.

### MASK-2 — causal, or_so (optional, planned)

**Statement.**

1. Of MASK-1, some.
2. But see [the other](NUMERICS.md#sums) and MASK-1.3.

**Why.** a_b and [x](1 + G_z).

    MASK-1 in code

## Versions

None.
"""
FIRST, DIGEST = 381, "39949d5211dfb0d119a025dc33a5326295148b873107619678d725de6605bc0b"


class StandardTest(unittest.TestCase):
    def setUp(self):
        self.clauses = standard.clauses(SPEC)
        self.links = standard.Links(ROOT, self.clauses)

    def page(self, label, cases=()):
        return standard.clause_page(self.clauses[label], self.clauses,
                                    ["required", "`masks`", "", "7", "1"], cases, self.links)

    def test_clauses_have_what_their_headings_say(self):
        self.assertEqual(list(self.clauses), ["MASK-1", "MASK-2"])
        second = self.clauses["MASK-2"]
        self.assertEqual((second.title, second.level, second.chapter, second.sentences()),
                         ("causal, or_so", "optional, planned", "Masks", ["1", "2"]))
        self.assertNotIn("Versions", second.text)

    def test_anchors_are_those_of_headings_elsewhere(self):
        self.assertEqual(standard.slug(self.clauses["MASK-2"].heading),
                         "mask-2--causal-or_so-optional-planned")

    def test_standing_is_that_of_the_table(self):
        told = standard.standing("| [MASK-1](SPEC.md#x) | a \\| b | required | `p` |  | 12 | 3 |\n")
        self.assertEqual(told, {"MASK-1": ["required", "`p`", "", "12", "3"]})

    def test_page_has_the_text_the_neighbours_and_the_cases(self):
        page = self.page("MASK-2", [("mask/x", "It *was* broken.")])
        self.assertIn("before it [MASK-1](MASK-1.md)", page)
        self.assertNotIn("after it", page)
        self.assertIn("- `mask/x`: It \\*was\\* broken.", page)
        self.assertIn("| required | `masks` |  | 7 | 1 |", page)
        self.assertIn("It is named in [MASK-2](MASK-2.md).", self.page("MASK-1"))
        self.assertNotIn("## Cases", self.page("MASK-1"))

    def test_sentences_have_anchors(self):
        self.assertIn('2. <a id="MASK-2.2"></a>But', self.page("MASK-2"))

    def test_labels_lead_to_their_pages_but_not_in_code(self):
        page = self.page("MASK-2")
        self.assertIn("Of [MASK-1](MASK-1.md), some", page)
        self.assertIn("[MASK-1.3](MASK-1.md#MASK-1.3)", page)
        self.assertIn("    MASK-1 in code", page)
        self.assertIn("`MASK-2` is none", self.page("MASK-1"))

    def test_links_lead_within_the_site(self):
        def of(link, source="spec/SPEC.md", page="standard.md"):
            return self.links.on_site(link, source, page)

        self.assertEqual(of("[a](NUMERICS.md#sums)"), "[a](numerics.md#sums)")
        self.assertEqual(of("[a](record.schema.json)"), "[a](tree/spec/record.schema.json)")
        self.assertEqual(self.links.files, {"spec/record.schema.json":
                                            "tree/spec/record.schema.json"})
        self.assertEqual(of("[a](../cases)"), "a")
        self.assertEqual(of("[a](https://x.org/y)"), "[a](https://x.org/y)")
        self.assertEqual(of("[MASK-1](SPEC.md#x)", "spec/CLAUSES.md", "clauses/index.md"),
                         "[MASK-1](MASK-1.md)")
        self.assertEqual(of("[a](../../../spec/SPEC.md)", "site/pages/quickstart/x.md",
                            "quickstart/x.md"), "[a](../standard.md)")

    def test_what_is_neither_link_nor_emphasis_is_marked(self):
        page = self.page("MASK-2")
        self.assertIn("a\\_b", page)
        self.assertIn("[x]\\(1 + G\\_z)", page)

    def test_headings_keep_the_anchors_that_they_had(self):
        old = "standard/#mask-2--causal-required\nstandard/#mask-1--full-all-keys-required\n"
        page = standard.standard_page(SPEC, self.clauses, old, self.links)
        self.assertIn('### <a id="mask-2--causal-required"></a>[MASK-2](clauses/MASK-2.md) —', page)
        self.assertNotIn('id="mask-1', page)

    def test_addresses_are_those_of_pages_sentences_and_headings(self):
        self.assertEqual(list(standard.addresses(self.clauses)), [
            "clauses/MASK-1/", "standard/#mask-1--full-all-keys-required", "clauses/MASK-2/",
            "clauses/MASK-2/#MASK-2.1", "clauses/MASK-2/#MASK-2.2",
            "standard/#mask-2--causal-or_so-optional-planned"])

    def test_pages_take_parts_of_files(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "a.md").write_text("# A\n\nx\n<!-- b -->\ny\n<!-- /b -->\n")
            text = "1\n<!-- from a.md: b -->\n2\n<!-- from a.md -->\n"
            self.assertEqual(standard.assembled(text, "site/pages/p.md", self.links, root),
                             "1\ny\n\n2\n\nx\n<!-- b -->\ny\n<!-- /b -->\n\n")


class CheckTest(unittest.TestCase):
    def faults(self, link, page="a/index.html"):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in {"index.html": '<a id="top">', page: f'<a href="{link}">',
                               "b c.txt": ""}.items():
                (root / path).parent.mkdir(exist_ok=True)
                (root / path).write_text(text)
            return list(check.Site(root).faults())

    def test_links_that_lead_somewhere_pass(self):
        for link in ("../", "..", "../#top", "../index.html#top", "../b%20c.txt", "#",
                     "https://x.org/y#z"):
            self.assertEqual(self.faults(link), [], link)
        self.assertEqual(self.faults("/b%20c.txt", "404.html"), [])

    def test_links_that_lead_nowhere_are_named(self):
        for link, why in {"../c/": "leads nowhere", "../../": "leads nowhere",
                          "../#gone": "leads to an anchor that isn't there",
                          "#gone": "leads to an anchor that isn't there",
                          "/b%20c.txt": "begins at the root, wherever the site lies",
                          "http:/x.org": "is no address", "ftp://x.org": "is no address",
                          "https://x/y": "is no address"}.items():
            self.assertEqual(self.faults(link), [f"a/index.html: {link} {why}"])

    def test_addresses_that_are_gone_or_not_listed_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "index.html").write_text('<a id="here">')
            told = list(check.permanence(check.Site(folder), ["#here", "gone/"], ["#here", "new/"]))
        self.assertEqual(told, ["gone/ is permanent, and leads nowhere",
                                "new/ is not in the list of permanent addresses: append it"])


class QuickstartTest(unittest.TestCase):
    def test_block_without_a_mark_is_a_fault(self):
        marked = "A\n\n<!-- run -->\n\n    $ x\n    1\n\n    2\n\nB\n"
        self.assertEqual(list(quickstart_test.blocks(marked)), [("run", None, "$ x\n1\n\n2\n")])
        with self.assertRaisesRegex(SystemExit, "no mark"):
            list(quickstart_test.blocks(marked + "\n    $ y\n"))

    def test_lines_are_printed_in_their_order(self):
        printed = "one 0.30000001 of 2\ntwo\n"
        self.assertIsNone(quickstart_test.missing(["one 0.3 of ...", "...", "two"], printed))
        self.assertEqual(quickstart_test.missing(["two", "one ..."], printed), "one ...")
        self.assertEqual(quickstart_test.missing(["one ... two"], printed), "one ... two")

    def test_output_belongs_to_a_command(self):
        self.assertEqual(quickstart_test.commands("$ a\nb\n$ c\n"), [("a", ["b"]), ("c", [])])
        with self.assertRaisesRegex(SystemExit, "no command"):
            quickstart_test.commands("b\n")


class PermanentTest(unittest.TestCase):
    """permanent.txt is longer each time, and nothing else."""

    def test_first_addresses_are_there(self):
        lines = (ROOT / "site/permanent.txt").read_text().splitlines(True)
        self.assertEqual(hashlib.sha256("".join(lines[:FIRST]).encode()).hexdigest(), DIGEST)
        self.assertEqual(len(lines), len(set(lines)))

    def test_no_line_was_ever_taken_out(self):
        def git(*arguments):
            return subprocess.run(["git", "-c", "safe.directory=*", "-C", str(ROOT), *arguments],
                                  capture_output=True, text=True).stdout

        try:
            told = git("log", "--format=", "-p", "--", "site/permanent.txt")
        except FileNotFoundError:
            told = ""
        if not told:
            self.skipTest("there is no history here")
        told += git("diff", "HEAD", "--", "site/permanent.txt")
        removed = [line for line in told.splitlines()
                   if line.startswith("-") and not line.startswith("---")]
        self.assertEqual(removed, [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
