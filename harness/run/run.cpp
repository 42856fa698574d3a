#include "harness/run/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <thread>

#include "cases/fit.h"
#include "harness/judge/pictures.h"
#include "harness/process/stage.h"
#include "harness/run/audit.h"
#include "harness/run/clock.h"
#include "harness/run/conclude.h"
#include "harness/run/examine.h"
#include "harness/run/jobs.h"
#include "harness/run/portion.h"
#include "harness/run/seal.h"
#include "spec/contains.h"
#include "spec/json_text.h"

namespace attest {
namespace {

// Where the cases are from, as options say it; empty for those of the suite.
std::string origin(const RunOptions& options) {
  std::string text;
  if (!options.from.empty()) text += fmt::format(" --from {}", quoted(options.from));
  for (const std::string& named : options.shapes)
    text += fmt::format(" --shapes {}", quoted(named));
  return text;
}

// Takes verdicts in any order and passes them on in the order of the cases.
class InOrder {
 public:
  InOrder(std::size_t count, Record& record, std::ostream& out,
          const std::function<void(const VerdictRecord&)>& seen)
      : waiting_(count), record_(record), out_(out), seen_(seen) {}

  // Those that there were before.
  void put_first(std::vector<VerdictRecord> verdicts) {
    for (VerdictRecord& v : verdicts) write(written(std::move(v)));
    out_.flush();
  }

  void put(std::size_t place, std::vector<VerdictRecord> verdicts) {
    const InStage stage(RunStage::write);
    std::vector<Written> lines;  // made by whoever comes, while others write
    for (VerdictRecord& v : verdicts) lines.push_back(written(std::move(v)));
    const std::lock_guard lock(mutex_);
    for (const Written& each : lines) seen_(each.verdict);
    waiting_[place] = std::move(lines);
    for (; next_ < waiting_.size() && !waiting_[next_].empty(); ++next_) {
      for (Written& each : waiting_[next_]) write(std::move(each));
      waiting_[next_] = {};
      out_.flush();
    }
  }

  const Seal& seal() const { return seal_; }

 private:
  struct Written {
    VerdictRecord verdict;
    std::string line;
    SealedVerdict sealed;
  };
  static Written written(VerdictRecord verdict) {
    const nlohmann::json json = to_json(verdict);
    std::string line = json_text(json);
    SealedVerdict seal = sealed(line, json);
    return {std::move(verdict), std::move(line), std::move(seal)};
  }
  void write(Written each) {
    out_ << each.line << '\n';
    seal_.add(std::move(each.sealed));
    record_.verdicts.push_back(std::move(each.verdict));
  }

  std::mutex mutex_;
  std::vector<std::vector<Written>> waiting_;
  std::size_t next_ = 0;
  Record& record_;
  Seal seal_;
  std::ostream& out_;
  const std::function<void(const VerdictRecord&)>& seen_;
};

// What testees declare beyond the caps, of the formats that are tried: one verdict for each.
std::vector<VerdictRecord> beyond_caps(const std::vector<Case>& cases,
                                       const std::vector<Testee>& testees,
                                       const RunOptions& options) {
  std::vector<VerdictRecord> found;
  for (const Testee& testee : testees) {
    for (const auto& [dtype, words] : testee.description.beyond_caps) {
      const auto first =
          std::find_if(cases.begin(), cases.end(),
                       [&, dtype = dtype](const Case& c) { return c.problem.dtype == dtype; });
      if (first == cases.end()) continue;
      VerdictRecord record{.case_id = fmt::format("declaration/beyond_caps/dtype={}", name(dtype)),
                           .testee = testee.name,
                           .dtype = std::string(name(dtype)),
                           .because =
                               "Nobody declares his way to a pass: what lies beyond the "
                               "caps has no bound.",
                           .verdict = {}};
      record.verdict.outcome = Outcome::fail;
      record.verdict.reason = "beyond_caps";
      record.verdict.message =
          fmt::format("declares what lies beyond the caps of {}: {}", name(dtype), words);
      record.verdict.clauses = {"NUM-2"};
      record.verdict.blamed = "NUM-2";
      record.verdict.repro =
          fmt::format("attest run --testee {} --cases {}", quoted(testee.spec), quoted(first->id));
      record.verdict.repro += origin(options);
      found.push_back(std::move(record));
    }
  }
  return found;
}

// Who is not tried any more, and why.
class Ends {
 public:
  Ends(const RunOptions& options, std::size_t testees) : options_(options), timeouts_(testees) {}

  bool gave_up(std::size_t testee) const {
    return options_.give_up_after > 0 && timeouts_[testee] >= options_.give_up_after;
  }

  // What a case becomes that is not tried with that testee; nothing if it is.
  std::optional<Verdict> untried(std::size_t testee, const Case& test_case) const {
    const auto verdict = [&](const char* reason, const std::string& why) {
      return Verdict{.outcome = Outcome::not_run,
                     .reason = reason,
                     .message = "not tried: " + why,
                     .clauses = test_case.clauses};
    };
    if (gave_up(testee)) {
      return verdict("gave_up",
                     fmt::format("{} cases had no reply in time", options_.give_up_after));
    }
    if (failed_) return verdict("fail_fast", "a verdict before it does not conform");
    if (time_is_up(options_)) {
      return verdict("max_time", fmt::format("the run has {} s", options_.max_seconds));
    }
    return std::nullopt;
  }

  // Notes a verdict; false if it is a time-out too many: of a testee that was given up while the
  // case was tried.
  bool note(std::size_t testee, const Verdict& verdict) {
    if (options_.fail_fast && is_fault(verdict.outcome)) failed_ = true;
    if (verdict.outcome != Outcome::timeout) return true;
    const int before = timeouts_[testee]++;
    return options_.give_up_after <= 0 || before < options_.give_up_after;
  }

 private:
  const RunOptions& options_;
  std::vector<std::atomic<int>> timeouts_;  // that are believed, of each testee
  std::atomic<bool> failed_ = false;
};

// What a case becomes that takes more memory than there is; nothing if it doesn't.
std::optional<Verdict> beyond_budget(const MemoryBudget& budget, const Case& test_case) {
  const std::string why = budget.refuses(test_case.problem);
  if (why.empty()) return std::nullopt;
  return Verdict{.outcome = Outcome::not_run,
                 .reason = "no_memory",
                 .message = "not tried: " + why,
                 .clauses = test_case.clauses};
}

// What a testee is asked in place of a case; null if the case itself.
const Asking::Instead* instead_of(const Case& test_case, const Testee& testee,
                                  const RunOptions& options) {
  return options.asking ? options.asking->instead(testee.name, test_case.id) : nullptr;
}

// What a testee is asked of a case: the case, or what it is fitted to, and other forms besides.
std::vector<const Case*> forms_of(const Case& test_case, const Testee& testee,
                                  const RunOptions& options) {
  const Asking::Instead* const instead = instead_of(test_case, testee, options);
  std::vector<const Case*> forms = {instead && instead->fitted ? instead->fitted.get()
                                                               : &test_case};
  if (!options.asking) return forms;
  const auto besides = options.asking->besides(testee.name, test_case.id);
  forms.insert(forms.end(), besides.begin(), besides.end());
  return forms;
}

// What judging a portion takes: what results are compared with is kept until the last of its
// testees is judged, of each case that is fitted to some of them too. Of forms besides, one at a
// time is there.
double bytes_for_all(const Portion& portion, const std::vector<Testee>& testees,
                     const MemoryBudget& budget, const RunOptions& options) {
  struct Tried {
    const Problem* problem = nullptr;
    std::vector<Arithmetic> arithmetics = {};
  };
  std::map<std::string_view, Tried> all;  // by id
  double of_form = 0;                     // the largest
  for (std::size_t t = portion.first; t < portion.end; ++t) {
    const Testee& testee = testees[t];
    const Asking::Instead* const instead = instead_of(*portion.test_case, testee, options);
    if (instead && !instead->fitted) continue;
    const auto forms = forms_of(*portion.test_case, testee, options);
    for (const Case* const tried : forms) {
      if (!budget.refuses(tried->problem).empty()) continue;
      if (tried != forms.front()) {
        of_form = std::max(of_form, bytes_to_judge(tried->problem, 1));
        continue;
      }
      Tried& each = all[tried->id];
      each.problem = &tried->problem;
      const Arithmetic arithmetic = testee.description.arithmetic_in(tried->problem.dtype);
      if (!contains(each.arithmetics, arithmetic)) each.arithmetics.push_back(arithmetic);
    }
  }
  double bytes = of_form;
  for (const auto& [id, each] : all) {
    bytes += bytes_to_judge(*each.problem, each.arithmetics.size());
  }
  return bytes;
}

// Of a case that a testee is not tried on.
VerdictRecord left_out(const Case& test_case, const Testee& testee, Verdict untried,
                       const RunOptions& options) {
  untried.repro = repro_line(test_case, testee, options);
  return {.case_id = test_case.id,
          .testee = testee.name,
          .dtype = std::string(name(test_case.problem.dtype)),
          .because = test_case.because,
          .verdict = std::move(untried)};
}

// By id: some testees have a case fitted.
using Preparations = std::map<std::string, Preparation>;

const Preparation& prepared_once(Preparations& known, const Case& test_case, Floor& floor) {
  const auto place = known.find(test_case.id);
  if (place != known.end()) return place->second;
  return known.emplace(test_case.id, floor.among_others([&] { return prepare(test_case); }))
      .first->second;
}

// How testees fare on portions.
class Portions {
 public:
  Portions(const std::vector<Testee>& testees, const RunOptions& options,
           const std::function<bool()>& interrupted)
      : testees_(testees),
        interrupted_(interrupted),
        ends_(options, testees.size()),
        budget_(options.memory) {}

  // One for each testee and form, in a run that is interrupted fewer; nothing where one lacked
  // memory, and is to be tried again later.
  std::optional<std::vector<VerdictRecord>> verdicts_on(const Portion& portion,
                                                        ExecutorPool& executors,
                                                        const RunOptions& options) {
    const InStage stage(RunStage::rest);
    const MemoryBudget::Share share(budget_, bytes_for_all(portion, testees_, budget_, options));
    Preparations preparations;
    std::vector<VerdictRecord> verdicts;
    for (std::size_t t = portion.first; t < portion.end; ++t) {
      const Testee& testee = testees_[t];
      const Asking::Instead* const instead = instead_of(*portion.test_case, testee, options);
      const auto forms = forms_of(*portion.test_case, testee, options);
      for (const Case* const form : forms) {
        if (interrupted_()) return verdicts;
        Preparations of_form;
        Preparations& known = form == forms.front() ? preparations : of_form;
        if (instead && !instead->fitted) {
          verdicts.push_back(left_out(*form, testee, instead->verdict, options));
        } else if (!try_on(t, *form, known, executors, options, verdicts)) {
          return std::nullopt;
        }
      }
    }
    return verdicts;
  }

 private:
  // False where it lacked memory, and is to be tried again later.
  bool try_on(std::size_t t, const Case& test_case, Preparations& preparations,
              ExecutorPool& executors, const RunOptions& options,
              std::vector<VerdictRecord>& verdicts) {
    const Testee& testee = testees_[t];
    const auto leave_out = [&](Verdict untried) {
      verdicts.push_back(left_out(test_case, testee, std::move(untried), options));
    };
    auto untried = ends_.untried(t, test_case);
    if (!untried) untried = beyond_budget(budget_, test_case);
    if (untried) {
      leave_out(std::move(*untried));
      return true;
    }
    const Preparation& preparation = prepared_once(preparations, test_case, *options.floor);
    const auto executor = executors.take(testee.name, testee);
    VerdictRecord verdict = examine_safely(preparation, test_case, testee, *executor, options,
                                           [&] { return ends_.gave_up(t); });
    if (verdict.verdict.outcome == Outcome::not_run && verdict.verdict.reason.empty()) {
      // It was broken off. In a run that is interrupted it is left out, as all that never began.
      untried = ends_.untried(t, test_case);
      if (untried && !interrupted_()) leave_out(*untried);
    } else if (verdict.verdict.reason == "no_memory" && options.without_memory_later) {
      return false;
    } else if (ends_.note(t, verdict.verdict)) {
      verdicts.push_back(std::move(verdict));
    } else {
      leave_out(*ends_.untried(t, test_case));
    }
    return true;
  }

  const std::vector<Testee>& testees_;
  const std::function<bool()>& interrupted_;
  Ends ends_;
  MemoryBudget budget_;
};

}  // namespace

std::string quoted(const std::string& text) {
  if (text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "_-+=/.,:@%") == std::string::npos) {
    return text;
  }
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string options_text(const RunOptions& options) {
  std::string text;
  const Limits& limits = options.limits;
  const Limits usual;
  if (options.threads != 1) text += fmt::format(" --threads {}", options.threads);
  if (limits.start_seconds != usual.start_seconds) {
    text += fmt::format(" --start-limit {}", limits.start_seconds);
  }
  if (limits.call_seconds != usual.call_seconds) {
    text += fmt::format(" --call-limit {}", limits.call_seconds);
  }
  if (limits.memory_bytes != usual.memory_bytes) {
    text += fmt::format(" --memory-limit {}", limits.memory_bytes >> 20);
  }
  return text + options.surroundings;
}

std::string repro_line(const Case& test_case, const Testee& testee, const RunOptions& options) {
  if (!options.vectors.empty()) {
    return fmt::format("attest judge {} --cases {}", quoted(options.vectors),
                       quoted(std::string(base_id(test_case.id))));
  }
  return fmt::format("attest repro {} --testee {}", quoted(test_case.id), quoted(testee.spec)) +
         options_text(options) + origin(options);
}

bool time_is_up(const RunOptions& options) {
  return options.max_seconds > 0 && seconds_since(options.begun) >= options.max_seconds;
}

Preparation prepare(const Case& test_case) {
  try {
    // What is long enough for an excerpt takes long enough for all processors.
    const int threads =
        test_case.excerpt > 0 ? static_cast<int>(std::thread::hardware_concurrency()) : 1;
    return {.prepared = std::make_unique<PreparedCase>(test_case, threads)};
  } catch (const std::bad_alloc&) {
    return {.prepared = nullptr, .error = "cannot prepare the case: there is no memory for it"};
  } catch (const std::exception& problem) {
    return {.prepared = nullptr,
            .error = fmt::format("cannot prepare the case: {}", problem.what())};
  }
}

Examination examination_of(PreparedCase& prepared, const Testee& testee, Executor& executor,
                           const RunOptions& options) {
  if (!options.outputs) {
    return examine(prepared, testee.description, testee.kernel, executor, options.threads);
  }
  return examine_outputs(prepared, testee.description, options.outputs(prepared, testee));
}

Verdict verdict_on(PreparedCase& prepared, const Testee& testee, Executor& executor,
                   const RunOptions& options, const std::function<bool()>& gave_up) {
  const auto start = Clock::now();
  const auto look = [&]() -> Verdict {
    try {
      return examination_of(prepared, testee, executor, options).verdict;
    } catch (const std::exception& error) {
      executor.renew();  // what it was at must not answer the next case
      return {.outcome = Outcome::harness_error,
              .message = error.what(),
              .clauses = prepared.test_case().clauses};
    }
  };
  Verdict verdict = options.floor->among_others(look);
  const bool late =
      verdict.outcome == Outcome::timeout && !verdict.time.empty() && verdict.time.back().busy;
  const bool in_doubt = late || (verdict.reason == "no_memory" && !options.without_memory_later);
  if (in_doubt && options.tries_again) {
    verdict = options.floor->alone([&] {
      if (gave_up && gave_up()) {
        verdict.outcome = Outcome::not_run;
        verdict.reason = "gave_up";
        if (late) verdict.message += ", while the machine was busy; not tried again";
        return verdict;
      }
      executor.renew();
      Verdict second = look();
      second.time.insert(second.time.begin(), verdict.time.begin(), verdict.time.end());
      return second;
    });
  }
  verdict.wall_s = seconds_since(start);
  return verdict;
}

VerdictRecord examine_safely(const Preparation& preparation, const Case& test_case,
                             const Testee& testee, Executor& executor, const RunOptions& options,
                             const std::function<bool()>& gave_up) {
  VerdictRecord record{.case_id = test_case.id,
                       .testee = testee.name,
                       .dtype = std::string(name(test_case.problem.dtype)),
                       .because = test_case.because,
                       .verdict = {.outcome = Outcome::harness_error,
                                   .message = preparation.error,
                                   .clauses = test_case.clauses}};
  if (preparation.prepared) {
    record.verdict = verdict_on(*preparation.prepared, testee, executor, options, gave_up);
  }
  if (is_fault(record.verdict.outcome) || record.verdict.outcome == Outcome::warn) {
    record.problem = to_string(test_case.problem);
    add_mask_picture(test_case.problem, record.verdict);
  }
  record.verdict.repro = repro_line(test_case, testee, options);
  return record;
}

Record run(const std::vector<Case>& cases, const std::vector<Testee>& testees, const Header& header,
           const RunOptions& options, const MakeExecutor& make_executor, std::ostream& out,
           const std::function<void(const VerdictRecord&)>& seen,
           const std::function<bool()>& interrupted) {
  const auto start = Clock::now();
  Record record{.header = header, .verdicts = {}, .footer = {}};
  out << to_line(header) << '\n';
  const std::vector<Portion> portions = portions_of(cases, testees.size(), options.jobs);
  InOrder in_order(portions.size(), record, out, seen);
  in_order.put_first(beyond_caps(cases, testees, options));
  std::vector<std::size_t> left = longest_first(portions);  // places
  // Of a run that may end early, the first are the first.
  if (options.fail_fast || options.max_seconds > 0) std::sort(left.begin(), left.end());
  Portions tries(testees, options, interrupted);
  // What there was no memory for, and the others have had, is tried again with fewer at work, and
  // alone in the end: each would stop them all.
  for (int jobs = options.jobs; !left.empty() && !interrupted(); jobs /= 8) {
    RunOptions beside_others = options;
    beside_others.without_memory_later = options.tries_again && jobs > 0;
    std::atomic<std::size_t> next = 0;
    std::vector<std::size_t> put_off;
    std::mutex putting_off;
    ExecutorPool executors(make_executor, options.workers);
    in_parallel(std::max(jobs, 1), [&] {
      for (std::size_t n = next++; n < left.size() && !interrupted(); n = next++) {
        auto verdicts = tries.verdicts_on(portions[left[n]], executors, beside_others);
        if (verdicts) {
          in_order.put(left[n], std::move(*verdicts));
        } else {
          const std::lock_guard lock(putting_off);
          put_off.push_back(left[n]);
        }
      }
    });
    left = std::move(put_off);
    std::sort(left.begin(), left.end());
  }
  if (interrupted()) return record;
  record.footer = conclude(header, record.verdicts);
  if (options.changes) note_changes(*record.footer, options.changes());
  note_defects(record);
  record.footer->wall_s = seconds_since(start);
  if (options.profiles_stages) record.footer->stages = stage_seconds();
  seal(record, in_order.seal());
  out << to_line(*record.footer) << '\n';
  out.flush();
  return record;
}

}  // namespace attest
