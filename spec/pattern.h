// Patterns of case ids (SPEC.md, chapter "Cases").
#pragma once

#include <string>

namespace attest {

// Whether `id` matches a pattern: * within a path element, ** across elements; a pattern without
// wildcards also matches everything below it.
bool matches(const std::string& id, const std::string& pattern);

}  // namespace attest
