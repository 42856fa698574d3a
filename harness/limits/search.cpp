#include "harness/limits/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "harness/judge/prepared.h"
#include "harness/limits/faulty.h"
#include "harness/run/examine.h"
#include "harness/run/jobs.h"
#include "spec/contains.h"
#include "spec/json_reader.h"

namespace attest::limits {
namespace {

constexpr double kMostWork = 1e9;                    // of a problem: products of a pass
constexpr Index kFirstStep = -12, kLastStep = 2300;  // of half octaves: sizes from 64 to 2^-1150
constexpr std::size_t kNone = ~std::size_t(0);

double size_of(Index step) { return std::exp2(-0.5 * static_cast<double>(step)); }

double work_of(const Problem& p) {
  return double(p.batch) * double(p.query_heads) * double(p.query_len) * double(p.key_len) *
         double(p.head_dim + p.value_dim) * (p.backward ? 2.5 : 1);
}

Declaration declared(const std::string& name, const std::string& about,
                     const nlohmann::json& arithmetic) {
  nlohmann::json description = {{"name", name},
                                {"version", "1"},
                                {"vendor", "Attest"},
                                {"profiles", nlohmann::json::array()},
                                {"dtypes", nlohmann::json::array()},
                                {"features", known_features()},
                                {"arithmetic", arithmetic}};
  std::erase_if(
      description["features"].get_ref<nlohmann::json::array_t&>(), [](const auto& feature) {
        return feature == "dropout-generated" || dtype_named(feature.template get<std::string>());
      });
  for (const DType dtype : kDTypes) {
    if (arithmetic.contains(std::string(attest::name(dtype)))) {
      description["dtypes"].push_back(attest::name(dtype));
    }
  }
  return {name, about, parse_description(description)};
}

// Nothing narrower than it may be, and no order of sums but one.
nlohmann::json tightest(int splits) {
  nlohmann::json all;
  for (const DType dtype : kDTypes) {
    const char* const wide = dtype == DType::f64 ? "f64" : "f32";
    all[std::string(name(dtype))] = {{"products", {{"default", {{"truncates", false}}}}},
                                     {"softmax", wide},
                                     {"exp_ulp", 0.5},
                                     {"tanh_ulp", 0.5},
                                     {"p", wide},
                                     {"p_normalised", "last"},
                                     {"ds", wide},
                                     {"kv_splits", splits},
                                     {"rescales_output", false},
                                     {"subnormal_inputs", "kept"},
                                     {"subnormal_outputs", "kept"},
                                     {"output_rounding", "nearest"}};
  }
  return all;
}

// What is known of one limit while the cases are tried. Of faults by length a step is a length.
struct Best {
  Index step;
  std::size_t holder = kNone;  // the number of the case
  std::string case_id = {}, message = {};
  std::set<Index> missed = {};  // lengths
};

// One case, the kernel on it, and what sees what.
class Trying {
 public:
  Trying(const Case& test_case, const std::vector<Declaration>& declarations)
      : prepared_(test_case, 1),
        shared_(prepared_.problem(), prepared_.inputs()),
        kernel_(shared_),
        declarations_(declarations) {}

  // The message of the verdict, if it fails.
  std::optional<std::string> seen(const Fault& fault, std::size_t declaration) {
    if (!fault_ || fault_->site != fault.site || fault_->size != fault.size) kernel_.set(fault);
    fault_ = fault;
    const Verdict v = examine(prepared_, declarations_[declaration].testee, "", kernel_, 1).verdict;
    if (v.outcome == Outcome::harness_error) throw std::runtime_error(v.message);
    if (v.outcome != Outcome::fail) return std::nullopt;
    return v.message;
  }

 private:
  PreparedCase prepared_;
  Shared shared_;
  FaultyKernel kernel_;
  const std::vector<Declaration>& declarations_;
  std::optional<Fault> fault_ = {};
};

class Search {
 public:
  Search(const std::vector<Kind>& of, const std::vector<Declaration>& declarations,
         const Limits* beside)
      : kinds_(of), declarations_(declarations) {
    for (const Kind& kind : kinds_) {
      if (kind.site == Site::none) continue;
      for (const DType dtype : kDTypes) {
        for (std::size_t d = 0; d < declarations_.size(); ++d) {
          if (!contains(declarations_[d].testee.dtypes, dtype)) continue;
          const Arithmetic arithmetic = declarations_[d].testee.arithmetic_in(dtype);
          limits_.push_back({.kind = &kind,
                             .dtype = dtype,
                             .declaration = d,
                             .admitted = kind.admitted(arithmetic)});
          best_.push_back({.step = kind.measure == Measure::length ? 1 : kFirstStep - 1});
        }
      }
    }
    if (!beside) return;
    for (std::size_t n = 0; n < limits_.size(); ++n) {
      const auto& seen = beside->limits[n].seen;
      if (!seen) continue;
      Best& best = best_[n];
      best.step = step_of(*limits_[n].kind, seen->size);
      best.holder = 0;  // before all others
      best.case_id = seen->case_id;
      best.message = seen->message;
    }
  }

  void try_case(std::size_t number, Case test_case) {
    const Problem& p = test_case.problem;
    const std::string id = test_case.id;
    if (p.dropout.mode == Dropout::Mode::generated) {
      const std::lock_guard lock(mutex_);
      ++undrawn_;
      return;
    }
    if (work_of(p) > kMostWork) {
      const std::lock_guard lock(mutex_);
      left_out_.push_back(id);
      return;
    }
    test_case.check = Check::none;  // of how it is called
    const DType dtype = p.dtype;
    const Index length = longest_keys(p);
    std::vector<bool> concerned;
    for (const Limit& limit : limits_) {
      concerned.push_back(limit.dtype == dtype && limit.kind->concerns(p));
    }
    Trying trying(test_case, declarations_);
    for (std::size_t d = 0; d < declarations_.size(); ++d) {
      if (!contains(declarations_[d].testee.dtypes, dtype)) continue;
      if (const auto message = trying.seen({}, d)) {
        const std::lock_guard lock(mutex_);
        false_alarms_.push_back(
            fmt::format("{} under \"{}\": {}", id, declarations_[d].name, *message));
        return;
      }
    }
    for (std::size_t n = 0; n < limits_.size(); ++n) {
      if (!concerned[n]) continue;
      if (limits_[n].kind->measure == Measure::length) {
        try_length(n, number, id, length, trying);
      } else {
        try_sizes(n, number, id, trying);
      }
    }
    const std::lock_guard lock(mutex_);
    ++cases_;
  }

  Limits result() {
    Limits result;
    result.limits = limits_;
    for (std::size_t n = 0; n < limits_.size(); ++n) {
      Limit& limit = result.limits[n];
      const Best& best = best_[n];
      const bool by_length = limit.kind->measure == Measure::length;
      if (best.holder != kNone) {
        const double size = by_length ? 1 / static_cast<double>(best.step) : size_of(best.step);
        limit.seen = Sight{size, best.case_id, best.message};
      }
      if (!by_length) {
        limit.missed = size_of(best.step + 1);
      } else if (const auto longer = best.missed.upper_bound(best.step);
                 longer != best.missed.end()) {
        limit.missed = 1 / static_cast<double>(*longer);
      }
    }
    result.cases = cases_;
    result.undrawn = undrawn_;
    std::sort(left_out_.begin(), left_out_.end());
    std::sort(false_alarms_.begin(), false_alarms_.end());
    result.left_out = left_out_;
    result.false_alarms = false_alarms_;
    return result;
  }

 private:
  static Index step_of(const Kind& kind, double size) {
    return static_cast<Index>(
        std::lround(kind.measure == Measure::length ? 1 / size : -2 * std::log2(size)));
  }

  // The best so far, and whether this case would be named for no more than that.
  std::pair<Index, bool> known(std::size_t n, std::size_t number) {
    const std::lock_guard lock(mutex_);
    return {best_[n].step, number < best_[n].holder && best_[n].holder != kNone};
  }

  void note(std::size_t n, std::size_t number, const std::string& id, Index step,
            const std::string& message) {
    const std::lock_guard lock(mutex_);
    Best& best = best_[n];
    if (step < best.step || (step == best.step && number >= best.holder)) return;
    best.step = step;
    best.holder = number;
    best.case_id = id;
    best.message = message;
  }

  void try_length(std::size_t n, std::size_t number, const std::string& id, Index length,
                  Trying& trying) {
    const auto [best, is_first] = known(n, number);
    if (length < best || (length == best && !is_first)) return;
    const Fault fault = {limits_[n].kind->site, 1 / static_cast<double>(length)};
    if (const auto message = trying.seen(fault, limits_[n].declaration)) {
      note(n, number, id, length, *message);
    } else {
      const std::lock_guard lock(mutex_);
      best_[n].missed.insert(length);
    }
  }

  void try_sizes(std::size_t n, std::size_t number, const std::string& id, Trying& trying) {
    const auto [best, is_first] = known(n, number);
    std::string message;
    const auto sees = [&](Index step) {
      const Fault fault = {limits_[n].kind->site, size_of(step)};
      const auto told = trying.seen(fault, limits_[n].declaration);
      if (told) message = *told;
      return told.has_value();
    };
    Index seen = is_first ? best : best + 1;
    if (!sees(seen)) return;
    Index missed = seen + 1;  // further and further, and then between
    for (Index stride = 1; missed < kLastStep && sees(missed); stride *= 2) {
      seen = missed;
      missed += stride;
    }
    while (missed - seen > 1) {
      const Index middle = (seen + missed) / 2;
      (sees(middle) ? seen : missed) = middle;
    }
    note(n, number, id, seen, message);
  }

  const std::vector<Kind>& kinds_;
  const std::vector<Declaration>& declarations_;
  std::vector<Limit> limits_ = {};
  std::vector<Best> best_ = {};  // of each of these
  std::size_t cases_ = 0, undrawn_ = 0;
  std::vector<std::string> left_out_ = {}, false_alarms_ = {};
  std::mutex mutex_ = {};
};

}  // namespace

std::vector<Declaration> declarations() {
  return {
      declared("tightest", "nothing narrower than it may be, one pass over the keys", tightest(1)),
      declared("8 splits", "the same, in up to eight parts of the keys", tightest(8)),
      declared("GPU", "gpu-tf32 for f32, gpu-16bit for f16 and bf16",
               {{"f32", "gpu-tf32"}, {"f16", "gpu-16bit"}, {"bf16", "gpu-16bit"}}),
      declared("nothing", "the default column of NUMERICS.md, section 9",
               {{"f64", nlohmann::json::object()},
                {"f32", nlohmann::json::object()},
                {"f16", nlohmann::json::object()},
                {"bf16", nlohmann::json::object()}})};
}

Limits search(std::size_t cases, const std::function<Case(std::size_t)>& make,
              const std::vector<Kind>& of, const std::vector<Declaration>& declarations, int jobs,
              const Limits* beside, const std::function<void()>& tried,
              const std::function<bool()>& interrupted) {
  Search search(of, declarations, beside);
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failed;
  in_parallel(jobs, [&] {
    try {
      for (std::size_t n = next++; n < cases && !interrupted(); n = next++) {
        search.try_case(beside ? n + 1 : n, make(n));
        const std::lock_guard lock(mutex);
        tried();
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failed = std::current_exception();
      next = cases;
    }
  });
  if (failed) std::rethrow_exception(failed);
  return search.result();
}

}  // namespace attest::limits
