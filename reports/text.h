// Text for people. Whatever a testee says of itself or prints may hold anything: broken UTF-8,
// terminal escapes, overrides of the writing direction. Every string of a record passes through
// here before it is shown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/verdict.h"

namespace attest {

// `text` as valid UTF-8 without control characters, except newline and tab: controls become their
// visible pictures (ESC is U+241B), broken bytes and overrides of the writing direction U+FFFD.
std::string clean(std::string_view text);

// `clean`, and on one line.
std::string one_line(std::string_view text);

// `text` without its middle if it is long: so many bytes of its beginning are kept, and of its end.
// The whole of it stands in results.jsonl, or where else is said; nowhere, if nothing is.
std::string excerpt(std::string_view text, std::size_t kept = 4096,
                    std::string_view where = "results.jsonl");

// The last lines of a text, so many of them at most.
std::string_view last_lines(std::string_view text, std::size_t most);

// What a testee printed, for a terminal: so many of its first and of its last lines, and of a long
// one its ends.
std::string quoted_lines(std::string_view printed, std::size_t first, std::size_t last,
                         std::string_view where);

// Code points of a clean text: its width on a terminal.
std::size_t width(std::string_view text);
std::string pad_left(std::string_view text, std::size_t columns);
std::string pad_right(std::string_view text, std::size_t columns);

std::string number_text(double value);      // 9 digits: enough to tell any two f32 apart
std::string ratio_text(double value);       // 3 digits
std::string duration_text(double seconds);  // "1.25 s", "3 min 5 s"
std::string count_text(Index count, std::string_view noun);  // "1 case", "2 cases"
std::string list_text(const std::vector<std::string>& items, std::string_view if_empty);

std::string outcome_text(const Verdict& verdict);  // "FAIL(bound)", "PASS"

// "O[0,1,5,3] = 0.959, exact -0.158, bound 1e-05, ratio 1.12e+05"
std::string evidence_text(TensorName tensor, const TensorEvidence& evidence);
std::string element_text(TensorName tensor, const TensorEvidence& evidence);  // "O[0,1,5,3]"

}  // namespace attest
