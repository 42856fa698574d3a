// What in the documents is a table of something that the tree has: pages, and parts of pages
// between <!-- name --> and <!-- /name -->. pages_main.cpp compares and writes them: those of
// documents_pages (pages.cpp), and of vendor_figures (tests/impl/vendor/figures.cpp).
#pragma once

#include <map>
#include <string>

namespace attest::documents {

// Whole files as they should be, by their path from the root of the tree. Throws
// std::runtime_error where a page or the place of a part in it is missing.
std::map<std::string, std::string> written_pages();

}  // namespace attest::documents
