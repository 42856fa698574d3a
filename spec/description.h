// What a testee says of itself: the JSON of `describe` in attest_plugin.h, read strictly.
//
//   {"name": "fa2", "version": "1.0", "vendor": "...", "profiles": ["forward-core"],
//    "dtypes": ["f32", "bf16"], "features": ["causal", "window"], "alignment": 16,
//    "arithmetic": {"f32": {...}, "bf16": {...}}}
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "spec/arithmetic.h"
#include "spec/dialect.h"
#include "spec/dispatch.h"
#include "spec/feature.h"
#include "spec/limits.h"
#include "spec/problem.h"

namespace attest {

// What a testee that reports its blocks promises of them (SCHED-1 to SCHED-3).
struct ScheduleDeclaration {
  bool masks_partial_only = false;
  std::optional<double> imbalance = {};  // the busiest worker's pairs / their mean, at most
};

enum class Growth { constant, linear, quadratic };  // of memory, with the lengths
const char* name(Growth growth);

// Bytes as a function of the sizes: a sum of terms, none of them negative.
struct ByteCount {
  double fixed = 0;
  double per_thread = 0, per_thread_channel = 0;
  double per_thread_query = 0, per_thread_query_channel = 0;  // of the Sq Hq/Hkv of a key head
  double per_thread_key = 0, per_thread_key_channel = 0;      // of Sk keys
  double per_thread_pair = 0;                                 // of Sq Sk pairs
  double per_query = 0, per_query_channel = 0;                // of B Hq Sq queries
  double per_key = 0, per_key_channel = 0;                    // of B Hq Sk keys
  double per_pair = 0;                                        // of B Hq Sq Sk pairs

  double bytes(const Problem& problem, int threads) const;
  Growth growth() const;
};

// What memory a call takes beyond its tensors (MEM-1, MEM-2).
struct MemoryDeclaration {
  Growth growth = Growth::quadratic;
  ByteCount workspace = {};  // asked for, at most
  ByteCount own = {};        // taken beside the workspace, at most
};

struct Description {
  std::string name;
  std::string version;
  std::string vendor;
  std::vector<std::string> profiles;
  bool probed = false;  // told from results (attest probe), and not adopted: it meets no profile
  std::vector<DType> dtypes;
  std::vector<std::string> features;  // of known_features()
  KernelLimits limits = {};           // within which it takes them
  // In generated dropout, how far the rate at which elements are kept may be from 1-p (DROP-3).
  double keep_quantum = 0;
  // Rows beyond a query length are left as they were (MASK-15).
  bool leaves_padding_unwritten = false;
  bool threads = false;  // its calls compute on threads of the host, as many as they may (CALL-2)
  Dialect dialect = {};  // of LSE, of rows that see no key (EMPTY-5), of windows
  Index alignment = 16;  // of every tensor's first element, in bytes; a power of two up to 512
  std::vector<Dispatch> dispatch = {};  // where it computes otherwise: cases are fitted to meet all
  std::optional<ScheduleDeclaration> schedule = {};  // empty: reports no blocks
  std::optional<MemoryDeclaration> memory = {};      // empty: promises nothing
  std::map<DType, Arithmetic> arithmetic;
  // As declared, for the record.
  nlohmann::json declared_arithmetic = nlohmann::json::object();
  nlohmann::json declared_limits = nlohmann::json::object();
  nlohmann::json declared_dialect = nlohmann::json::object();
  // In words, what of a format's arithmetic lies beyond the caps: it has no bounds (NUM-2).
  std::map<DType, std::string> beyond_caps = {};

  bool has(std::string_view feature) const;
  // Of its rows, in that format: LSE, or what stands in its place; empty if it returns neither.
  std::vector<TensorName> statistics_in(DType dtype) const;
  bool returns_lse(DType dtype) const { return !statistics_in(dtype).empty(); }
  Arithmetic arithmetic_in(DType dtype) const;  // the loosest where it declares none
};

// Throws InputError for anything that is not understood, and for arithmetic beyond the caps.
Description parse_description(const nlohmann::json& json);

// The features and the dtype that `problem` asks for and `description` does not declare, in words;
// empty if everything is declared.
std::string undeclared(const Problem& problem, const Description& description);

// Why a testee is not asked for a problem.
struct Exclusion {
  std::string reason;  // "undeclared" or "limits"
  // The features, the limit and how it is passed, or the window that its dialect lacks.
  std::string what;
};

// What a kernel would declare that has one instance of a dispatch alone, as far as limits and
// features say that; nothing if nothing is left that it could be asked. Not all that it admits need
// be of the instance.
std::optional<Description> declared_of(const DispatchClasses& instance, const Dispatch& dispatch,
                                       const Description& whole, Numbers numbers = Numbers::all);

// Whether it excludes the problem for its length alone: nobody has to take sequences of any length,
// so that no profile demands such a case.
bool is_too_long_alone(const Problem& problem, const std::string& reason, const std::string& what);

// Empty if its declaration admits the problem, so that a refusal would break CALL-1.
std::optional<Exclusion> exclusion(const Problem& problem, const Description& description);

}  // namespace attest
