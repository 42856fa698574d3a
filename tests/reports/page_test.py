"""The page of a record as its reader has it, in Chromium: page_test.py WRITE_SAMPLES

What is on it, what its links, filters and keys do, what a phone, the dark and a screen reader make
of it, and that the browser complains of nothing. Without Chromium and its driver all is skipped,
without axe-core its rules are. Times are told, and nothing is held to them.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import browser

AXE = """
const done = arguments[arguments.length - 1];
axe.run().then((result) => done(result.violations.map((each) =>
  `${each.id}: ${each.nodes.length}, as ${each.nodes[0].html.slice(0, 200)}`)),
  (error) => done([String(error)]));
"""


def axe_file():
    if named := os.environ.get("ATTEST_AXE"):
        return pathlib.Path(named)
    package = importlib.util.find_spec("axe_core_python")
    return pathlib.Path(package.origin).parent / "axe.min.js" if package else None


class PageTest(unittest.TestCase):
    samples = None  # where they lie

    def setUp(self):
        self.browser = browser.Browser()
        self.addCleanup(self.browser.close)

    def show(self, sample, address="", on=None):
        at = on or self.browser
        at.open(self.samples / sample / "index.html", address)
        return at

    def draw(self, place, on=None):
        """Brings pictures into sight, which are drawn then."""
        at = on or self.browser
        at.run("document.getElementById(arguments[0]).scrollIntoView()", place)
        at.until(f"return document.getElementById('{place}').dataset.drawn")

    def text(self, selector):
        return self.browser.run("return document.querySelector(arguments[0]).textContent", selector)

    def texts(self, selector):
        return self.browser.run(
            "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)",
            selector)

    def count(self, selector):
        return self.browser.run("return document.querySelectorAll(arguments[0]).length", selector)

    def address(self):
        return self.browser.run("return location.hash")

    def status(self):
        return self.text("[role=status]")

    def click(self, selector):
        self.browser.run("document.querySelector(arguments[0]).click()", selector)

    def choose(self, selector, value):
        self.browser.run("""const box = document.querySelector(arguments[0]);
            box.value = arguments[1]; box.dispatchEvent(new Event("change"));""", selector, value)

    def type(self, text):
        self.browser.run("""const box = document.getElementById("search");
            box.value = arguments[0]; box.dispatchEvent(new Event("input"));""", text)

    def rows(self):
        """What the rows say that exist: outcome, case, testee, ..."""
        return self.browser.run("""const rows = [...document.querySelectorAll("tr[data-row]")];
            return rows.map((row) => [...row.cells].map((cell) => cell.textContent))""")

    def test_every_sample_opens_and_the_browser_complains_of_nothing(self):
        for sample in sorted(self.samples.glob("*/")):
            with self.subTest(sample.name):
                self.show(sample.name)
                for place in ("distributions", "growths", "differences", "workers"):
                    self.draw(place)
                self.assertEqual(self.browser.console(), [])

    def test_conclusion_and_counts_stand_on_top(self):
        self.show("realistic")
        self.assertEqual(self.text(".conclusion"),
                         "Not conformant: fa2 does not pass 5 of 165 cases.")
        self.assertIn("314 PASS", self.texts(".tile"))
        self.assertEqual(self.count(".failure"), 5)
        self.assertIn("MASK-3", self.text(".group h3"))

    def test_links_of_the_page_lead_somewhere(self):
        self.show("realistic")
        dead = self.browser.run("""return [...document.querySelectorAll("a")]
            .map((link) => link.getAttribute("href")).filter((target) => !target.startsWith("#") ||
              !document.getElementById(target.slice(1).split("?")[0]))""")
        self.assertEqual(dead, [])

    def test_a_cell_of_the_matrix_leads_to_its_cases(self):
        self.show("realistic")
        self.click("#clauses td.bad a")
        self.browser.until("return document.querySelector('[role=status]').textContent"
                           ".startsWith('30 of')")
        self.assertEqual(self.address(), "#cases?clause=MASK-3&testee=fa2")
        self.assertEqual({row[2] for row in self.rows()}, {"fa2"})

    def test_filters_stand_in_the_address_and_come_from_it(self):
        self.show("realistic", "#cases?testee=fa2&outcome=failures")
        self.assertEqual(self.status(), "5 of 330 verdicts")
        self.assertEqual(sorted(row[0] for row in self.rows()),
                         ["CRASH", "FAIL", "FAIL", "FAIL", "TIMEOUT"])
        self.choose("#filter-outcome", "CRASH")
        self.assertEqual(self.address(), "#cases?testee=fa2&outcome=CRASH")
        self.assertEqual(self.status(), "1 of 330 verdicts")
        self.type("no such words")
        self.assertEqual(self.status(), "0 of 330 verdicts")
        self.click("form[role=search] button")
        self.assertEqual((self.address(), self.status()), ("#cases", "330 of 330 verdicts"))

    def test_search_finds_cases_testees_and_messages(self):
        self.show("realistic")
        for words, count in (("window/left sq=63,", 6), ("mask/window naive", 15),
                             ("NEWEST keys hidden", 2)):
            self.type(words)
            self.assertEqual(self.status(), f"{count} of 330 verdicts", words)

    def test_rows_are_sorted_by_what_is_pressed(self):
        self.show("realistic")
        self.click("th[data-key=ratio] button")
        self.assertEqual(self.address(), "#cases?sort=-ratio")
        self.assertEqual(self.text("th[aria-sort=descending]"), "Largest ratio")
        first = [row[4] for row in self.rows()[:3]]
        self.assertEqual(first[0], "O inf")
        self.assertTrue(first[1].startswith("O 22"), first)
        self.click("th[data-key=ratio] button")
        self.assertEqual(self.address(), "#cases?sort=ratio")

    def test_a_case_opens_with_its_evidence_and_can_be_linked(self):
        self.show("realistic", "#cases?outcome=FAIL")
        self.click("tr[data-row] button")
        self.assertTrue(self.browser.run("return document.querySelector('dialog').open"))
        told = self.text("dialog")
        for part in ("anchored at the wrong corner", "MASK-3", "actual", "attest repro"):
            self.assertIn(part, told)
        address = self.address()
        self.browser.press("Escape")
        self.browser.until("return !document.querySelector('dialog').open")
        self.browser.until("return !location.hash.includes('case=')")
        self.assertEqual(self.address(), "#cases?outcome=FAIL")
        self.show("conformant")  # another page, so that the next is loaded anew
        self.show("realistic", address)
        self.assertEqual(self.text("dialog"), told)

    def test_keys_go_from_row_to_row(self):
        self.show("realistic")
        self.browser.press("/")
        self.assertEqual(self.browser.run("return document.activeElement.id"), "search")
        self.browser.run("document.querySelector('.virtual').focus()")
        self.browser.press("Down", "Down", "Down")
        focused = "return Number(document.activeElement.closest('tr').dataset.row)"
        self.assertEqual(self.browser.run(focused), 2)
        self.browser.press("End")
        self.assertEqual(self.browser.run(focused), 329)
        self.browser.press("Enter")
        self.assertTrue(self.browser.run("return document.querySelector('dialog').open"))

    def test_nothing_that_a_testee_says_becomes_markup(self):
        self.show("hostile", "#cases?outcome=FAIL")
        self.click("tr[data-row] button")
        self.assertEqual(self.count("script"), self.count("script:not([src])"))
        self.assertEqual(self.count("main script, dialog script, [onload]"), 0)
        self.assertIn("<script>alert('x')</script>", self.text("dialog"))
        self.assertIn("<script>alert('x')</script>", self.text("#failures"))
        # What the policy says holds: a script that slipped in would not run.
        self.browser.run("""const script = document.createElement("script");
            script.textContent = "window.ran = true"; document.body.append(script);""")
        self.assertIsNone(self.browser.run("return window.ran"))

    def test_large_page_is_small_and_draws_few_rows(self):
        self.show("large")
        page = self.samples / "large/index.html"
        nodes = self.browser.run("return document.getElementsByTagName('*').length")
        ready = self.browser.run("return document.documentElement.dataset.ready")
        print(f"170,000 verdicts: {page.stat().st_size} bytes, {nodes} elements, {ready} ms")
        self.assertEqual(self.status(), "170,000 of 170,000 verdicts")
        self.assertLess(page.stat().st_size, 3e6)
        self.assertLess(nodes, 15000)
        self.assertLess(self.count("tr[data-row]"), 60)
        self.browser.run("document.querySelector('.virtual').scrollTop = 1e9")
        self.browser.until("return document.querySelector('tr[data-row=\"169999\"]')")
        self.assertLess(self.count("tr[data-row]"), 60)
        self.type("kernel_19 sq=8499,")
        self.assertEqual([row[2] for row in self.rows()], ["kernel_19/avx2"])

    def test_headers_stay_where_they_are_seen(self):
        self.show("large")
        self.browser.run("""document.querySelector("#clauses").scrollIntoView();
            const frame = document.querySelector(".matrix"); frame.scrollTop = 150;""")
        top, head = self.browser.run("""const frame = document.querySelector(".matrix");
            return [frame, frame.querySelector("th")]
                .map((each) => each.getBoundingClientRect().top)""")
        self.assertAlmostEqual(top, head, delta=1)
        self.assertEqual(self.browser.run(
            "return document.querySelector('nav').getBoundingClientRect().top"), 0)

    def test_pictures_of_a_failure_are_drawn(self):
        self.show("large", "#failure-2")
        self.browser.until("return document.querySelector('#failure-2').open")
        self.browser.until("return document.querySelector('#failure-2 canvas')")
        self.assertEqual(self.browser.run(
            "return document.querySelector('#failure-2 canvas').getAttribute('aria-label')"),
            "Mask, batch 0, head 0. seen: 1024")
        seen = self.browser.run("""return [...document.querySelector("#failure-2 canvas")
            .getContext("2d").getImageData(9, 9, 1, 1).data].slice(0, 3)""")
        self.assertEqual(seen, [0x0b, 0x62, 0xc4], "the colour of what is seen")

    def test_charts_have_tables_of_their_numbers(self):
        self.show("realistic")
        self.browser.run("document.getElementById('distributions').scrollIntoView()")
        self.browser.until("return document.querySelector('#distributions details')")
        self.click("#distributions summary")
        self.browser.until("return document.querySelector('#distributions details td')")
        self.assertIn("O f32", self.texts("#distributions details th code"))
        drawn = self.count("#distributions canvas")
        self.choose("#distribution-testee", "1")
        self.assertEqual(self.count("#distributions canvas"), drawn)

    def test_catches_are_drawn(self):
        self.browser.open(self.samples / "catches.html")
        self.assertEqual(self.browser.console(), [])
        self.assertIn("rule </b> 1 of 2", self.browser.run(
            "return document.querySelector('.catches canvas').getAttribute('aria-label')"))
        self.assertEqual(self.texts(".catches-rows span"), ["rule </b>", "ours"])
        pixel = """const pen = document.querySelector(".catches canvas").getContext("2d");
            return [...pen.getImageData(arguments[0], arguments[1], 1, 1).data].slice(0, 3)"""
        shade = lambda x, y: self.browser.run(pixel, x, y)
        self.assertEqual(shade(5, 5), shade(5, 23), "both catch the first")
        self.assertNotEqual(shade(5, 5), shade(500, 5), "one misses the second")

    def test_phone_scrolls_only_down(self):
        with browser.Browser(width=390, height=844, phone=True) as phone:
            for sample in ("realistic", "hostile", "large"):
                self.show(sample, on=phone)
                width, seen = phone.run("""const root = document.documentElement;
                    return [root.scrollWidth, root.clientWidth]""")
                self.assertLessEqual(width, seen, sample)

    def test_without_script_counts_and_failures_are_there(self):
        self.browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
        self.browser.ask("POST", "/url",
                         {"url": (self.samples / "realistic/index.html").resolve().as_uri()})
        tree = self.browser.devtools("DOM.getDocument", depth=-1)
        words = str(tree)
        for part in ("Not conformant: fa2", "heap-buffer-overflow", "330 verdicts are listed here"):
            self.assertIn(part, words)

    def test_screen_readers_find_no_fault(self):
        if not axe_file():
            self.skipTest("no axe-core: pip install axe-core-python, or -DATTEST_AXE=")
        rules = axe_file().read_text()
        for dark in (False, True):
            with browser.Browser(dark=dark) as each:
                for sample in ("realistic", "conformant", "hostile", "empty", "large"):
                    self.show(sample, on=each)
                    each.run("""document.querySelectorAll("details")
                        .forEach((details) => { details.open = true; })""")
                    for place in ("distributions", "growths", "differences", "workers"):
                        self.draw(place, on=each)
                    each.run(rules)
                    self.assertEqual(each.wait_for(AXE), [], f"{sample}, dark: {dark}")
                each.open(self.samples / "catches.html")
                each.run(rules)
                self.assertEqual(each.wait_for(AXE), [], f"catches, dark: {dark}")
                self.show("realistic", "#cases?outcome=FAIL", on=each)
                each.run("document.querySelector('tr[data-row] button').click()")
                each.run(rules)
                self.assertEqual(each.wait_for(AXE), [], f"a case, dark: {dark}")


if __name__ == "__main__":
    if not browser.found():
        print("skipped: no Chromium with its driver (apt-get install chromium chromium-driver)")
        sys.exit(77)
    writer = sys.argv.pop(1)
    with tempfile.TemporaryDirectory() as folder:
        PageTest.samples = pathlib.Path(folder)
        for more in ([], ["large"]):
            subprocess.run([writer, folder, *more], check=True)
        unittest.main()
