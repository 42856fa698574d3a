"""The pages of a tensor: what a kernel writes to them is seen, wherever and however little."""
import mmap
import os
import unittest
from unittest import mock

from attest_attention import _pages

PAGE = mmap.PAGESIZE
LARGE = 3 << 30  # more pages than are looked at at a time


def resident():
    with open("/proc/self/statm", encoding="ascii") as told:
        return int(told.read().split()[1]) * PAGE


class PagesTest(unittest.TestCase):
    def setUp(self):
        self.file = os.memfd_create("inputs")
        self.addCleanup(os.close, self.file)
        os.ftruncate(self.file, PAGE + LARGE)
        os.pwrite(self.file, b"attention", PAGE)

    def pages(self, size=4 * PAGE, shared=False):
        pages = _pages.Pages(self.file, PAGE, size, shared)
        self.addCleanup(pages.close)
        return pages

    def test_what_is_read_is_no_change(self):
        pages = self.pages()
        self.assertEqual(pages.buffer[:9], b"attention")
        self.assertIsNone(pages.changed())

    def test_the_first_byte_that_changed_is_told(self):
        for pagemap in (_pages._pagemap, None):
            with self.subTest(pagemap=pagemap), mock.patch.object(_pages, "_pagemap", pagemap):
                pages = self.pages()
                pages.buffer[3 * PAGE + 1] = b"x"
                pages.buffer[2 * PAGE - 1] = b"x"
                self.assertEqual(pages.changed(), 2 * PAGE - 1)
                self.assertEqual(os.pread(self.file, 1, 3 * PAGE - 1), b"\0")

    def test_what_was_put_back_is_no_change(self):
        pages = self.pages()
        pages.buffer[4] = b"x"
        pages.buffer[4] = b"n"
        self.assertIsNone(pages.changed())

    @unittest.skipUnless(_pages._pagemap, "this system does not tell which pages were written")
    def test_gaps_of_any_size_are_looked_at_without_memory(self):
        pages = self.pages(LARGE)
        before = resident()
        self.assertIsNone(pages.changed())
        pages.buffer[LARGE - PAGE - 1] = b"x"
        self.assertEqual(pages.changed(), LARGE - PAGE - 1)
        self.assertLess(resident() - before, 32 << 20)

    def test_an_output_is_written_where_it_belongs(self):
        self.pages(shared=True).buffer[2] = b"x"
        self.assertEqual(os.pread(self.file, 9, PAGE), b"atxention")

    def test_each_call_sees_what_the_file_holds(self):
        pages = self.pages()
        pages.buffer[0] = b"x"
        pages.close()
        self.assertEqual(self.pages().buffer[0], b"a")


if __name__ == "__main__":
    unittest.main()
