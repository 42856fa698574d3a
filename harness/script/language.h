// The languages of scripts.
#pragma once

#include <array>
#include <string_view>

namespace attest {

// torch and jax call the public functions of these; numpy and cpp a kernel that the reader puts in;
// an issue is Markdown around the script in the testee's own language.
enum class ScriptLanguage { torch, jax, numpy, cpp, issue };
inline constexpr std::array<std::string_view, 5> kScriptLanguages = {"torch", "jax", "numpy", "cpp",
                                                                     "issue"};

}  // namespace attest
