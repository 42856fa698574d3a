// Which part of a long case is compared (CONTRIBUTING.md, "excerpt").
#pragma once

#include <optional>
#include <string>

#include "cases/case.h"
#include "reference/working.h"
#include "spec/verdict.h"

namespace attest {

// Groups of queries and of keys, as many as the case asks for and its lengths have: the first and
// the last, and others drawn from its id. Nothing of a case that is compared whole.
//
// Without a number of heads they are those of all heads. With one, heads are drawn too, the first
// and the last among the first three; each has groups of its own, a third of which lie at the edges
// of tiles: the last rows of one of 64, or the first rows of the next. Key heads of a problem with
// a sink are drawn for all batch elements alike, as dSink takes the rows of all.
std::optional<Excerpt> excerpt_of(const Case& test_case);

// "O 4096 of 33554432 elements, LSE 32 of 262144": what was compared of tensors that were not
// compared whole, leaving out what is unspecified; empty if all were.
std::string shares_of(const Verdict& verdict);

}  // namespace attest
