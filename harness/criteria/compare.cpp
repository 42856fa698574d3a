#include "harness/criteria/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "harness/criteria/eager.h"
#include "harness/criteria/rules.h"
#include "harness/judge/exemptions.h"
#include "harness/judge/judge.h"
#include "harness/run/examine.h"
#include "harness/run/jobs.h"
#include "spec/contains.h"
#include "spec/description.h"

namespace attest::criteria {
namespace {

// By judge, in the order of judges().
using Flags = std::vector<bool>;

std::size_t bounds_judge() { return rules().size(); }
std::size_t attest_judge() { return rules().size() + 1; }

// Whether the rule compares that tensor at all.
bool compares(const Rule& rule, TensorName tensor, DType dtype) {
  const std::vector<double> none;
  return rule.judge(
             {.tensor = tensor, .dtype = dtype, .actual = none, .exact = none, .eager = none}) !=
         Ruling::not_compared;
}

bool share_any(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](const std::string& item) { return contains(b, item); });
}

// The judges that look at a case.
Flags lookers(const CaseSet& set, const Case& test_case) {
  Flags flags;
  const std::vector<std::string> features = features_of(test_case.problem);
  for (const Judge& judge : judges()) {
    const bool own =
        (judge.data.empty() || judge.data == test_case.data) && !share_any(features, judge.lacks);
    flags.push_back((own || !set.own_inputs) && contains(judge.dtypes, test_case.problem.dtype));
  }
  return flags;
}

bool any(const Flags& flags) { return std::find(flags.begin(), flags.end(), true) != flags.end(); }

// A case, with what all testees share of it.
class SharedCase {
 public:
  explicit SharedCase(const Case& test_case) : prepared(test_case, 1) {}

  const EagerOutputs& eager() {
    if (!eager_) eager_ = run_eagerly(prepared.problem(), prepared.inputs());
    return *eager_;
  }

  PreparedCase prepared;

 private:
  std::optional<EagerOutputs> eager_;
};

// Rows of a tensor beyond the lengths of their batch element.
bool is_padding(const Problem& p, const Returned& tensor, std::size_t element) {
  const bool of_keys = is_of_keys(tensor.name);
  if (p.packed || !(of_keys || is_of_queries(tensor.name))) return false;
  const auto at = coordinates(tensor.shape, static_cast<Index>(element));
  const Lengths lengths = p.lengths(at[kBatch]);
  return at[kPosition] >= (of_keys ? lengths.key : lengths.query);
}

// Whether a call ended so that no suite can overlook it.
bool ends_all(const Verdict& v) {
  switch (v.outcome) {
    case Outcome::crash:
    case Outcome::timeout:
    case Outcome::protocol_error:
      return true;
    default:
      return v.reason == "wrong_refusal" || v.reason == "memory";
  }
}

// One testee on one case: which of the judges that are asked notice something.
class Look {
 public:
  Look(SharedCase& shared, const Testee& testee, Executor& executor, int threads,
       const Flags& asked)
      : shared_(shared),
        testee_(testee.description),
        calling_{testee.description, testee.kernel, executor, threads, captured_},
        asked_(asked),
        noticed_(asked.size()) {
    arithmetic_ = testee_.arithmetic_in(problem().dtype);
  }

  Flags noticed() {
    Verdict verdict;
    Trial trial;
    if (asked_[attest_judge()]) {
      Examination e =
          examine(shared_.prepared, testee_, calling_.kernel, calling_.executor, calling_.threads);
      verdict = std::move(e.verdict);
      trial = std::move(e.trial);
      if (verdict.outcome == Outcome::harness_error) throw std::runtime_error(verdict.message);
      noticed_[attest_judge()] = is_fault(verdict.outcome);
    } else {
      verdict = call(trial);
    }
    if (trial.returned.empty() && ends_all(verdict)) {
      notice_all(TensorName::o);
      return noticed_;
    }
    if (trial.stopped && !stops_all(*trial.stopped)) {
      // With room behind the tensors, as in suites without guards.
      calling_.executor.renew();
      trial = try_out(calling_, problem(), inputs(), Placement::start_flush);
    }
    if (trial.stopped && stops_all(*trial.stopped)) {
      notice_all(trial.returned.empty() ? TensorName::o : TensorName::dq);
    }
    if (trial.stopped) calling_.executor.renew();
    judge(trial);
    return noticed_;
  }

 private:
  const Problem& problem() const { return shared_.prepared.problem(); }
  const attest::Inputs& inputs() const { return shared_.prepared.inputs(); }

  static bool stops_all(const Finding& finding) {
    return ends_all({.outcome = finding.outcome, .reason = finding.reason});
  }

  // What comes of a call without a verdict on it.
  Verdict call(Trial& trial) {
    const auto verdict_of = [](const Finding& f) {
      return Verdict{.outcome = f.outcome, .reason = f.reason, .message = f.message};
    };
    if (const auto finding = ask(calling_, problem())) return verdict_of(*finding);
    trial = try_out(calling_, problem(), inputs(), Placement::end_flush);
    calling_.executor.settle();
    return trial.stopped ? verdict_of(*trial.stopped) : Verdict{.outcome = Outcome::pass};
  }

  // All that compare that tensor would have wanted one.
  void notice_all(TensorName tensor) {
    const auto& all = rules();
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (compares(all[r], tensor, problem().dtype)) noticed_[r] = true;
    }
    noticed_[bounds_judge()] = true;
  }

  void judge(const Trial& trial) {
    if (trial.returned.empty()) return;
    std::optional<PreparedCase> own;
    std::optional<EagerOutputs> own_eager;
    if (trial.keep) {
      own = shared_.prepared.with_keep(*trial.keep);
      own_eager = run_eagerly(own->problem(), own->inputs());
    }
    PreparedCase& prepared = own ? *own : shared_.prepared;
    const auto& eager = own_eager ? *own_eager : shared_.eager();
    const Exemptions exemptions(problem(), inputs(), testee_);
    for (const Returned& tensor : trial.returned) {
      Expected expected = expected_of(tensor.name, prepared, arithmetic_);
      for (std::size_t i = 0; i < tensor.bits.size(); ++i) {
        if (exemptions.unjudged(tensor.name, tensor.shape, i)) {
          expected.value[i] = std::numeric_limits<double>::quiet_NaN();
        }
      }
      if (asked_[bounds_judge()]) {
        const Rounding rounding = rounding_of(tensor.name, arithmetic_);
        const bool passed =
            attest::judge(tensor.bits, tensor.dtype, tensor.shape, expected, rounding).passed;
        if (!passed) noticed_[bounds_judge()] = true;
      }
      ask_rules(tensor, expected, eager[tensor.name]);
    }
  }

  void ask_rules(const Returned& tensor, const Expected& expected,
                 const std::vector<double>& eager) {
    std::vector<double> actual, exact, baseline;                    // of all that is specified
    std::vector<double> inner_actual, inner_exact, inner_baseline;  // but for padding
    for (std::size_t i = 0; i < tensor.bits.size(); ++i) {
      if (std::isnan(expected.value[i])) continue;
      actual.push_back(decode(tensor.dtype, tensor.bits[i]));
      exact.push_back(expected.value[i]);
      baseline.push_back(eager[i]);
      if (is_padding(problem(), tensor, i)) continue;
      inner_actual.push_back(actual.back());
      inner_exact.push_back(exact.back());
      inner_baseline.push_back(baseline.back());
    }
    const auto& all = rules();
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (!asked_[r] || noticed_[r]) continue;
      const bool inner = all[r].skips_padding;
      const Sample sample = {.tensor = tensor.name,
                             .dtype = problem().dtype,
                             .actual = inner ? inner_actual : actual,
                             .exact = inner ? inner_exact : exact,
                             .eager = inner ? inner_baseline : baseline,
                             .softcap = problem().softcap > 0,
                             .bias = problem().bias_shape.has_value(),
                             .head_dim = problem().head_dim};
      noticed_[r] = all[r].judge(sample) == Ruling::fails;
    }
  }

  SharedCase& shared_;
  const Description& testee_;
  std::string captured_;
  Calling calling_;
  const Flags& asked_;
  Flags noticed_;
  Arithmetic arithmetic_;
};

// What has been noticed so far of each subject in each format: by each judge, and by Attest on the
// cases that the judge looks at.
class Notices {
 public:
  struct Noticed {
    Flags by_judge = Flags(judges().size()), by_attest = by_judge;
  };

  explicit Notices(std::size_t subjects) : by_(subjects) {}

  // Which of those that look at a case have not noticed anything yet.
  Flags open(std::size_t subject, DType dtype, const Flags& lookers) {
    const std::lock_guard lock(mutex_);
    const Noticed& known = by_[subject][dtype];
    Flags asked(lookers.size());
    for (std::size_t j = 0; j < lookers.size(); ++j) {
      if (!lookers[j]) continue;
      if (!known.by_judge[j]) asked[j] = true;
      if (!known.by_attest[j]) asked[attest_judge()] = true;
    }
    return asked;
  }

  void add(std::size_t subject, DType dtype, const Flags& lookers, const Flags& noticed) {
    const std::lock_guard lock(mutex_);
    Noticed& known = by_[subject][dtype];
    for (std::size_t j = 0; j < noticed.size(); ++j) {
      if (lookers[j] && noticed[j]) known.by_judge[j] = true;
      if (lookers[j] && noticed[attest_judge()]) known.by_attest[j] = true;
    }
  }

  // Once all has been added.
  const Noticed& of(std::size_t subject, DType dtype) { return by_[subject][dtype]; }

 private:
  std::mutex mutex_;
  std::vector<std::map<DType, Noticed>> by_;
};

// `noticed`: whether the subject of that number was.
template <class Predicate>
Score score_of(const std::vector<Subject>& subjects, DType dtype, const Predicate& noticed) {
  Score score;
  for (std::size_t s = 0; s < subjects.size(); ++s) {
    const Subject& subject = subjects[s];
    if (!contains(subject.dtypes, dtype)) continue;
    auto& names = subject.wrong ? noticed(s) ? score.caught : score.missed
                  : noticed(s)  ? score.failed
                                : score.passed;
    names.insert(subject.testee.name);
  }
  return score;
}

// Calls `visit` with each case and the processes of its job, and `seen` once it is done. Whatever
// is thrown ends it, and is thrown again.
template <class Visit>
void for_each_case(const CaseSet& set, const RunOptions& options, const MakeExecutor& make_executor,
                   const Visit& visit, const std::function<void()>& seen,
                   const std::function<bool()>& interrupted) {
  std::mutex mutex;
  std::exception_ptr ours;
  std::atomic<bool> stops = false;
  std::atomic<std::size_t> next = 0;
  ExecutorPool executors(make_executor, options.workers);
  in_parallel(options.jobs, [&] {
    for (std::size_t i = next++; i < set.cases.size() && !stops && !interrupted(); i = next++) {
      try {
        visit(set.cases[i], executors);
      } catch (...) {
        const std::lock_guard lock(mutex);
        ours = std::current_exception();
        stops = true;
      }
      const std::lock_guard lock(mutex);
      seen();
    }
  });
  if (ours) std::rethrow_exception(ours);
}

Side side_of(const CaseSet& set, const std::vector<Subject>& subjects, Notices& notices) {
  Side side = {.name = set.name,
               .about = set.about,
               .cases = static_cast<Index>(set.cases.size()),
               .scores = {},
               .attest_beside = {}};
  for (std::size_t j = 0; j < judges().size(); ++j) {
    const Judge& judge = judges()[j];
    for (const DType dtype : judge.dtypes) {
      side.scores[judge.name][dtype] = score_of(
          subjects, dtype, [&](std::size_t s) { return notices.of(s, dtype).by_judge[j]; });
      if (!set.own_inputs || judge.data.empty()) continue;
      side.attest_beside[judge.name][dtype] = score_of(
          subjects, dtype, [&](std::size_t s) { return notices.of(s, dtype).by_attest[j]; });
    }
  }
  return side;
}

}  // namespace

const std::vector<Judge>& judges() {
  static const std::vector<Judge> kJudges = [] {
    std::vector<Judge> all;
    for (const Rule& rule : rules()) {
      all.push_back({.name = std::string(rule.name),
                     .source = std::string(rule.source),
                     .says = std::string(rule.says),
                     .nan = std::string(rule.nan),
                     .dtypes = rule.dtypes,
                     .data = std::string(rule.data),
                     .lacks = rule.lacks});
    }
    const std::vector<DType> dtypes = {DType::f32, DType::f16, DType::bf16};
    all.push_back({.name = "Attest, bounds alone",
                   .source = "spec/NUMERICS.md",
                   .says = "each element of each tensor within the bound derived for it",
                   .nan = "fails",
                   .dtypes = dtypes,
                   .data = "",
                   .lacks = {}});
    all.push_back({.name = "Attest",
                   .source = "spec/SPEC.md",
                   .says =
                       "the bounds, and all else that a case looks at: guards, inputs, repeated "
                       "calls, laws",
                   .nan = "fails",
                   .dtypes = dtypes,
                   .data = "",
                   .lacks = {}});
    return all;
  }();
  return kJudges;
}

Side compare(const CaseSet& set, const std::vector<Subject>& subjects, const RunOptions& options,
             const MakeExecutor& make_executor, const std::function<void()>& seen,
             const std::function<bool()>& interrupted) {
  Notices notices(subjects.size());
  const auto look = [&](std::size_t s, SharedCase& shared, ExecutorPool& executors,
                        const Flags& looking, const Flags& asked) {
    const Testee& testee = subjects[s].testee;
    const Case& c = shared.prepared.test_case();
    try {
      // The process of a plug-in serves all kernels in it.
      const auto executor =
          executors.take(fmt::format("{}", fmt::join(testee.command, " ")), testee);
      Look one(shared, testee, *executor, options.threads, asked);
      notices.add(s, c.problem.dtype, looking, one.noticed());
    } catch (const std::exception& error) {
      throw std::runtime_error(fmt::format("{} on {}: {}", testee.name, c.id, error.what()));
    }
  };

  const auto on_all = [&](const Case& c, ExecutorPool& executors) {
    std::optional<SharedCase> shared;
    const Flags looking = lookers(set, c);
    for (std::size_t s = 0; s < subjects.size() && !interrupted(); ++s) {
      const Subject& subject = subjects[s];
      if (!contains(subject.dtypes, c.problem.dtype)) continue;
      if (subject.wrong && !share_any(c.clauses, subject.clauses)) continue;
      const Flags asked = notices.open(s, c.problem.dtype, looking);
      if (!any(asked)) continue;
      if (!shared) shared.emplace(c);
      look(s, *shared, executors, looking, asked);
    }
  };
  for_each_case(set, options, make_executor, on_all, seen, interrupted);
  return side_of(set, subjects, notices);
}

}  // namespace attest::criteria
