#include "harness/examine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "cases/generate.h"
#include "harness/alone.h"
#include "harness/drawn.h"
#include "harness/exemptions.h"
#include "harness/judge.h"
#include "harness/memory.h"
#include "harness/noise.h"
#include "harness/property/law.h"
#include "harness/schedule.h"
#include "harness/wire.h"
#include "spec/assert.h"
#include "spec/clause.h"

namespace attest {
namespace {

constexpr std::size_t kMessageBytes = 4096;

std::string at(const Shape& shape, std::size_t element) {
  return fmt::format("[{}]", fmt::join(coordinates(shape, static_cast<Index>(element)), ","));
}

// Elements that hold their poison in both trials, whose poisons differ.
std::optional<Finding> unwritten(const Trial& first, const Trial& second,
                                 const Exemptions& exemptions) {
  for (std::size_t t = 0; t < first.returned.size(); ++t) {
    const Returned& a = first.returned[t];
    const Returned& b = second.returned[t];
    for (std::size_t i = 0; i < a.bits.size(); ++i) {
      if (a.bits[i] != a.poison || b.bits[i] != b.poison) continue;
      if (exemptions.may_be_unwritten(a.name, a.shape, i)) continue;
      return failure("unwritten", fmt::format("{}{} was never written", a.name, at(a.shape, i)));
    }
  }
  return std::nullopt;
}

// The first element whose bits differ between two tensors, in words.
std::optional<std::string> difference(const Returned& a, const Returned& b,
                                      const Exemptions& exemptions) {
  for (std::size_t i = 0; i < a.bits.size(); ++i) {
    if (a.bits[i] == b.bits[i] || exemptions.may_be_unwritten(a.name, a.shape, i)) continue;
    return fmt::format("{}{} was {} and then {}", a.name, at(a.shape, i),
                       decode(a.dtype, a.bits[i]), decode(b.dtype, b.bits[i]));
  }
  return std::nullopt;
}

std::optional<std::string> difference(const Trial& first, const Trial& second,
                                      const Exemptions& exemptions) {
  for (std::size_t t = 0; t < first.returned.size(); ++t) {
    if (auto where = difference(first.returned[t], second.returned[t], exemptions)) return where;
  }
  return std::nullopt;
}

const Spread& spread_of(const std::string& tensor, PreparedCase& prepared,
                        const Arithmetic& arithmetic) {
  if (tensor == "O") return prepared.forward_spread(arithmetic).o;
  if (tensor == "LSE") return prepared.forward_spread(arithmetic).lse;
  const BackwardSpread& backward = prepared.backward_spread(arithmetic);
  return tensor == "dQ"      ? backward.dq
         : tensor == "dK"    ? backward.dk
         : tensor == "dV"    ? backward.dv
         : tensor == "dBias" ? backward.dbias
                             : backward.dsink;
}

// What may lie there instead of NaN: numbers like all others, and where no row sees them, huge
// ones.
std::vector<Hidden> finite_instead_of(Hidden hidden) {
  switch (hidden) {
    case Hidden::plain:
    case Hidden::huge:
      return {};
    case Hidden::nan_masked:
      return {Hidden::plain, Hidden::huge};
    case Hidden::nan:
    case Hidden::nan_rows:
    case Hidden::nan_query:
    case Hidden::nan_key:
    case Hidden::nan_value:
    case Hidden::nan_gradient:
      return {Hidden::plain};
  }
  return {};
}

// Examines one case with one testee, step by step. Each step returns what it finds; nothing if all
// is well.
class Examiner {
 public:
  Examiner(PreparedCase& prepared, const Description& testee, const std::string& kernel,
           Executor& executor, int threads)
      : prepared_(prepared),
        testee_(testee),
        calling_{testee, kernel, executor, threads, captured_},
        exemptions_(prepared.problem(), prepared.inputs(), testee),
        planes_(prepared.problem(), prepared.inputs()) {
    const auto declared = testee.arithmetic.find(problem().dtype);
    arithmetic_ = declared != testee.arithmetic.end() ? declared->second : loosest(problem().dtype);
  }

  Examination examine() {
    verdict().clauses = prepared_.test_case().clauses;
    auto finding = find();
    // A second reply to the last request must not become the next case's trouble.
    if (const Reply late = calling_.executor.settle(); !late.ok()) {
      if (!finding || finding->outcome != Outcome::fail) finding = finding_of(late, "afterwards");
      captured_ += late.captured;
    }
    Verdict& v = verdict();
    if (!finding) {
      v.outcome = Outcome::pass;
      return std::move(result_);
    }
    v.outcome = finding->outcome;
    v.reason = finding->reason;
    v.message = finding->message.substr(0, kMessageBytes);
    v.captured = captured_.substr(0, kCaptureBytes);
    if (finding->time) v.time.push_back(*finding->time);
    if (!finding->clause.empty()) {
      std::erase(v.clauses, finding->clause);
      v.clauses.insert(v.clauses.begin(), finding->clause);
    }
    return std::move(result_);
  }

 private:
  const Problem& problem() const { return prepared_.problem(); }
  Verdict& verdict() { return result_.verdict; }
  Trial try_out(Placement placement, bool trace = false) {
    Calling calling = calling_;
    calling.trace = calling.measure = trace;
    return attest::try_out(calling, problem(), prepared_.inputs(), placement);
  }

  std::optional<Finding> find() {
    if (auto finding = undeclared_promise()) return finding;
    if (auto finding = refusal(problem())) return finding;
    // Twice: with the tensors flush against a guard at their end, then at their start.
    const bool traced = prepared_.test_case().check == Check::schedule;
    result_.trial = try_out(Placement::end_flush, traced);
    const Trial& first = result_.trial;
    if (first.stopped) return first.stopped;
    const Trial second = try_out(Placement::start_flush);
    if (second.stopped) return second.stopped;
    if (auto finding = unwritten(first, second, exemptions_)) return finding;
    if (first.keep) {
      if (auto finding = keep_defect(problem(), prepared_.inputs(), testee_.keep_quantum,
                                     *first.keep, *second.keep)) {
        return finding;
      }
    }
    auto finding = judge(first, second);
    if (finding && finding->outcome == Outcome::fail) return lenient(*finding);
    if (first.keep && tells_draws(problem(), prepared_.inputs(), testee_.keep_quantum)) {
      if (auto broken = other_draws(*first.keep)) return broken;
    }
    if (auto broken = check(first)) return broken;
    if (prepared_.test_case().statistical && !beyond_caps()) {
      if (auto found = statistical(first)) return found;
    }
    if (const auto found = laws(first)) {
      const bool shrug =
          found->outcome == Outcome::unsupported || found->outcome == Outcome::inconclusive;
      if (!finding || !shrug) return found;
    }
    if (!finding && exemptions_.dialect()) {
      return Finding{.outcome = Outcome::unsupported,
                     .reason = "dialect",
                     .message =
                         "rows that see no key hold what the testee declares; all else is "
                         "right"};
    }
    if (!finding && beyond_caps()) {
      return Finding{.outcome = Outcome::unsupported,
                     .reason = "beyond_caps",
                     .message =
                         "the arithmetic declared lies beyond the caps, so that no number has a "
                         "bound; what needs none is right"};
    }
    return finding;
  }

  // Whether the testee says of this format that no bound holds: then no number is compared.
  bool beyond_caps() const { return testee_.beyond_caps.contains(prepared_.problem().dtype); }

  // What the case asks of those alone who promise it.
  std::optional<Finding> undeclared_promise() {
    // A testee that returns no LSE is judged on O alone, and proves nothing about LSE.
    if (!testee_.has("lse")) {
      for (const char* clause : {"LSE-1", "LSE-2", "EMPTY-2"}) {
        std::erase(verdict().clauses, clause);
      }
      if (verdict().clauses.empty()) {
        return Finding{.outcome = Outcome::unsupported, .message = "returns no LSE"};
      }
    }
    // A case about a promise says nothing of a testee that does not give it.
    const auto not_promised = [&](const char* promise) {
      verdict().clauses.clear();
      return Finding{.outcome = Outcome::unsupported,
                     .message = fmt::format("does not declare {}", promise)};
    };
    const auto& laws = prepared_.test_case().laws;
    if (const auto promise = property::missing_promise(laws, problem(), testee_, arithmetic_)) {
      return not_promised(promise->c_str());
    }
    const Check wanted = prepared_.test_case().check;
    if (wanted == Check::neighbours && !arithmetic_.batch_invariant) {
      return not_promised("batch_invariant");
    }
    if (!testee_.threads && abandons("CALL-2")) return not_promised("threads");
    if (wanted == Check::schedule && !testee_.schedule) return not_promised("schedule");
    if (wanted == Check::memory && !testee_.memory) return not_promised("memory");
    if (wanted == Check::schedule) {
      // Of the clauses about blocks, those that are promised; a case about the others alone says
      // nothing.
      if (!testee_.schedule->masks_partial_only && abandons("SCHED-2")) {
        return not_promised("schedule/masks_partial_only");
      }
      if (!testee_.schedule->imbalance && abandons("SCHED-3")) {
        return not_promised("schedule/imbalance");
      }
    }
    return std::nullopt;
  }

  bool cites(const char* clause) const {
    const std::vector<std::string>& clauses = result_.verdict.clauses;
    return std::find(clauses.begin(), clauses.end(), clause) != clauses.end();
  }

  // Cites that clause no longer; whether it was what the case is about.
  bool abandons(const char* clause) {
    std::vector<std::string>& clauses = verdict().clauses;
    const bool first = !clauses.empty() && clauses.front() == clause;
    std::erase(clauses, clause);
    return first;
  }

  std::optional<Finding> refusal(const Problem& p) {
    const Reply asked = ask(calling_, p);
    if (asked.ok()) return std::nullopt;
    if (asked.kind != Reply::Kind::answered || text_of(asked, "status") != "refused") {
      return finding_of(asked, "supports");
    }
    const std::string reason = text_of(asked, "message");
    if (reason.empty()) return failure("wrong_refusal", "refused without a reason");
    const std::string missing = undeclared(p, testee_);
    if (missing.empty()) {
      return failure("wrong_refusal", fmt::format("refused what it declares: {}", reason));
    }
    // Nobody has to take sequences of any length: no profile demands this case.
    if (missing == "long") verdict().clauses.clear();
    return Finding{.outcome = Outcome::unsupported, .message = reason};
  }

  std::optional<Finding> judge(const Trial& first, const Trial& second) {
    // What a testee drew is part of its problem: nobody else shares these expected values.
    std::optional<PreparedCase> own;
    if (first.keep) own = prepared_.with_keep(*first.keep);
    PreparedCase& prepared = own ? *own : prepared_;
    auto finding = judge_trial(first, prepared);
    if (!difference(first, second, exemptions_)) return finding;
    // Other bits for other addresses are no crime, but they are judged as the first were.
    const auto again = judge_trial(second, prepared);
    if (again && (!finding || finding->outcome != Outcome::fail)) finding = again;
    if (finding || !arithmetic_.deterministic) return finding;
    const Trial repeated = try_out(Placement::end_flush);
    if (repeated.stopped) return repeated.stopped;
    if (const auto where = difference(first, repeated, exemptions_)) {
      return failure("nondeterministic", fmt::format("two equal calls differ: {}", *where));
    }
    return std::nullopt;
  }

  // Judges what a trial returned, and records the evidence where it is worse than what is there.
  std::optional<Finding> judge_trial(const Trial& trial, PreparedCase& prepared) {
    std::optional<Finding> worst;
    if (beyond_caps()) return worst;
    bool left_out = false, forward_fails = false;
    for (const Returned& tensor : trial.returned) {
      const bool gradient = tensor.name[0] == 'd';
      // The bounds of gradients presume a forward pass within its own.
      if (gradient && forward_fails) break;
      const Expected& whole = expected_of(tensor.name, prepared, arithmetic_);
      const std::optional<Expected> part = without_exempt(whole, tensor);
      const TensorVerdict judged =
          attest::judge(tensor.bits, tensor.dtype, tensor.shape, part ? *part : whole,
                        tensor.name == "LSE" ? Rounding::nearest : arithmetic_.output_rounding);
      const TensorEvidence& e = judged.evidence;
      if (part && e.compared == 0) {
        left_out = true;
        continue;
      }
      const auto [entry, fresh] = verdict().tensors.emplace(tensor.name, e);
      if (!fresh && e.max_ratio > entry->second.max_ratio) entry->second = e;
      if (!judged.passed) {
        forward_fails |= !gradient;
        const bool of_row = keeps_to_its_row(tensor.name);
        const bool known = worst && worst->outcome == Outcome::fail;
        if (known && (!of_row || !worst->clause.empty())) continue;
        worst = failure(
            judged.nonfinite ? "nonfinite" : "bound",
            fmt::format("{}[{}] = {}, exact {}, bound {:.3g}: {:.3g} times the bound", tensor.name,
                        fmt::join(e.worst, ","), e.actual, e.exact, e.bound, e.max_ratio),
            of_row ? "FINITE-1" : "");
      } else if (!judged.advised && !worst) {
        worst = Finding{.outcome = Outcome::warn,
                        .reason = "bound",
                        .message = fmt::format("{}[{}] = {}, exact {}: {:.3g} times the bound, at "
                                               "scores beyond SOFTMAX-2",
                                               tensor.name, fmt::join(e.worst, ","), e.actual,
                                               e.exact, e.max_ratio),
                        .clause = "SOFTMAX-3"};
      } else if (!judged.conclusive && !worst) {
        worst = Finding{
            .outcome = Outcome::inconclusive,
            .message = e.compared == 0
                           ? fmt::format("no element of {} is specified", tensor.name)
                           : fmt::format("the bound of {} admits any value; a tighter declared "
                                         "arithmetic (such as kv_splits) may narrow it",
                                         tensor.name)};
      }
    }
    if (!worst && left_out && verdict().tensors.empty() && !exemptions_.dialect()) {
      worst =
          Finding{.outcome = Outcome::inconclusive, .message = "nothing is left to be compared"};
    }
    return worst;
  }

  // The expected values with those unspecified that this testee is not judged on, if any are.
  std::optional<Expected> without_exempt(const Expected& whole, const Returned& tensor) const {
    if (!exemptions_.any()) return std::nullopt;
    std::optional<Expected> part;
    for (std::size_t i = 0; i < tensor.bits.size(); ++i) {
      if (!exemptions_.unjudged(tensor.name, tensor.shape, i)) continue;
      if (!part) part = whole;
      part->value[i] = std::numeric_limits<double>::quiet_NaN();
    }
    return part;
  }

  // Whether NaN in some queries stays in their rows for every kernel, since no sum over queries
  // makes the tensor (FINITE-1, but FINITE-3).
  bool keeps_to_its_row(const std::string& tensor) const {
    return prepared_.test_case().hidden == Hidden::nan_query && tensor != "dK" && tensor != "dV" &&
           tensor != "dBias";
  }

  // A case about a recommended clause, whose loss leaves a testee conformant: where nothing else is
  // wrong. Where the recommendation is about what lies hidden, finite numbers in its place tell.
  Finding lenient(Finding finding) {
    const std::set<Reason> numeric = {"bound", "statistical", "nonfinite"};
    const auto& clauses = prepared_.test_case().clauses;
    if (!numeric.contains(finding.reason) || !finding.clause.empty() || clauses.empty() ||
        !is_recommended(clauses.front())) {
      return finding;
    }
    for (const Hidden hidden : finite_instead_of(prepared_.test_case().hidden)) {
      Case finite = prepared_.test_case();
      finite.bits = finite.bits.empty() ? finite.id : finite.bits;
      finite.hidden = hidden;
      std::erase_if(finite.clauses, is_recommended);
      finite.clauses.push_back("NUM-1");
      PreparedCase prepared(finite, 1);
      const Verdict other =
          Examiner(prepared, testee_, calling_.kernel, calling_.executor, calling_.threads)
              .examine()
              .verdict;
      if (!is_fault(other.outcome) && other.outcome != Outcome::not_run) continue;
      captured_ += other.captured;
      finding.message += "; with finite numbers in place of what is hidden: " + other.message;
      finding.clause = other.clauses.front();
      finding.outcome = other.outcome;
      finding.reason = other.reason;
      if (!other.time.empty()) finding.time = other.time.front();
      return finding;
    }
    finding.outcome = Outcome::warn;
    return finding;
  }

  // Random roundings of the case's own inputs, and if they exceed a limit, of others: a correct
  // testee may have bad luck once.
  std::optional<Finding> statistical(const Trial& first) {
    std::string complaint = noise_complaint(first, prepared_, true);
    for (const char* again : {"/again=1", "/again=2"}) {
      if (complaint.empty()) return std::nullopt;
      Case other = prepared_.test_case();
      other.bits = (other.bits.empty() ? other.id : other.bits) + again;
      PreparedCase prepared(other, 1);
      const Trial trial =
          attest::try_out(calling_, problem(), prepared.inputs(), Placement::end_flush);
      if (trial.stopped) return trial.stopped;
      complaint = noise_complaint(trial, prepared, false);
    }
    if (complaint.empty()) return std::nullopt;
    return failure("statistical", complaint + ", on three seeds", "NUM-3");
  }

  // What is wrong with the roundings of one trial, in words.
  std::string noise_complaint(const Trial& trial, PreparedCase& of_case, bool record) {
    std::optional<PreparedCase> own;
    if (trial.keep) own = of_case.with_keep(*trial.keep);
    PreparedCase& prepared = own ? *own : of_case;
    if (!small_enough_for_noise(prepared.forward(arithmetic_).lse)) {
      abandons("NUM-3");
      return {};
    }
    std::string complaint;
    for (const Returned& tensor : trial.returned) {
      const bool of_rows = tensor.name == "O" || tensor.name == "LSE" || tensor.name == "dQ";
      const double rows =
          of_rows ? double(tensor.shape[kBatch] * tensor.shape[kHead] * tensor.shape[kPosition])
                  : 1;
      std::vector<double> values;
      for (const std::uint64_t bits : tensor.bits) values.push_back(decode(tensor.dtype, bits));
      const Rounding rounding =
          tensor.name == "LSE" ? Rounding::nearest : arithmetic_.output_rounding;
      const Expected& whole = expected_of(tensor.name, prepared, arithmetic_);
      const std::optional<Expected> part = without_exempt(whole, tensor);
      const NoiseEvidence noise =
          noise_of(values, tensor.dtype, part ? *part : whole,
                   spread_of(tensor.name, prepared, arithmetic_), rounding, rows);
      const auto known = verdict().tensors.find(tensor.name);
      if (record && known != verdict().tensors.end()) known->second.noise = noise;
      if (complaint.empty()) {
        complaint = complaint_of(noise);
        if (!complaint.empty()) complaint = tensor.name + ": " + complaint;
      }
    }
    return complaint;
  }

  std::optional<Finding> other_draws(const Keep& keep) {
    Problem seed = problem(), high = problem(), offset = problem();
    ++seed.dropout.seed;
    high.dropout.seed += std::uint64_t(1) << 32;  // kernels keep the halves apart
    ++offset.dropout.offset;
    for (const auto& [p, what] :
         {std::pair(&seed, "seed"), std::pair(&high, "seed"), std::pair(&offset, "offset")}) {
      p->backward = p->d_lse = false;
      const Trial other = attest::try_out(calling_, *p, prepared_.inputs(), Placement::end_flush);
      if (other.stopped) return other.stopped;
      if (same_bits(problem(), prepared_.inputs(), *other.keep, keep)) {
        return failure(fmt::format("property:{}", what),
                       fmt::format("another {} drew the same keep-mask", what), "DROP-3");
      }
    }
    return std::nullopt;
  }

  std::optional<Finding> check(const Trial& first) {
    switch (prepared_.test_case().check) {
      case Check::none:
        return std::nullopt;
      case Check::threads:
        return check_threads(first);
      case Check::neighbours:
        return check_neighbours(first);
      case Check::schedule:
        return check_schedule(first);
      case Check::memory:
        return check_memory();
    }
    return std::nullopt;
  }

  std::optional<Finding> laws(const Trial& first) {
    std::vector<std::string> names = prepared_.test_case().laws;
    if (beyond_caps()) names = property::in_bits(names, arithmetic_);
    if (names.empty()) return std::nullopt;
    std::optional<PreparedCase> own;
    if (first.keep) own = prepared_.with_keep(*first.keep);
    PreparedCase& prepared = own ? *own : prepared_;
    property::Bounds bounds;
    if (prepared.test_case().excerpt > 0) {
      // The reference knows a part of it, laws are about the whole.
      bounds = property::coarse_bounds(prepared.problem(), prepared.inputs(), arithmetic_);
    } else {
      bounds.forward = [&]() -> const ForwardExpected& { return prepared.forward(arithmetic_); };
      bounds.backward = [&]() -> const BackwardExpected& { return prepared.backward(arithmetic_); };
    }
    const property::Sample sample(prepared.problem(), prepared.inputs(), first, testee_,
                                  arithmetic_, bounds);
    auto found = property::try_laws(calling_, arithmetic_, sample, names, &verdict().slopes);
    if (!verdict().slopes.empty()) verdict().features = features_of(problem());
    return found;
  }

  struct ThreadsCounted {
    bool told = true;  // or calls were too short to tell
    std::optional<Finding> finding = {};
  };

  ThreadsCounted count_threads(const Problem& problem, const Inputs& inputs) {
    constexpr int kSeen = 3;        // calls with more than they may use; fewer are an accident
    constexpr double kSlack = 0.5;  // threads that a runtime has beside
    int exceeding = 0;
    for (const int threads : {1, 1, 1, 2, 3, 4, 7}) {
      // Of its own, so that threads of an earlier call that wait for work are not counted.
      calling_.executor.renew();
      Calling calling = calling_;
      calling.threads = threads;
      calling.measure = true;
      const Trial trial = attest::try_out(calling, problem, inputs, Placement::end_flush);
      if (trial.stopped) return {.finding = trial.stopped};
      if (threads == 1 && !trial.forward.running_threads) return {.told = false};
      for (const CallFacts* facts : {&trial.forward, &trial.backward}) {
        const double running = facts->running_threads.value_or(0);
        if (running <= threads + kSlack || ++exceeding < kSeen) continue;
        return {.finding = failure(
                    "threads", fmt::format("{:.1f} threads ran in a call that may use {}, in the "
                                           "mean over it",
                                           running, threads))};
      }
    }
    return {};
  }

  // Whether calls compute on more threads than they may: at the case's lengths, or as many times
  // those as it takes for calls to be long enough to tell.
  std::optional<Finding> judge_threads() {
    constexpr Index kMostTimes = 16;
    const auto unknown = [](std::string message) {
      return Finding{.outcome = Outcome::inconclusive, .message = std::move(message)};
    };
    for (Index times = 1; times <= kMostTimes; times *= 2) {
      Case longer = prepared_.test_case();
      const auto lengthened_problem = lengthened(problem(), times);
      if (!lengthened_problem) return unknown("a problem with tables cannot be lengthened");
      longer.problem = *lengthened_problem;
      if (auto finding = refusal(longer.problem)) return finding;
      const auto [told, finding] = count_threads(longer.problem, generate(longer));
      if (told) return finding;
    }
    return unknown(
        fmt::format("calls at {} times its lengths end too soon to count threads", kMostTimes));
  }

  // Right for any number of threads, and the same bits if that is declared.
  std::optional<Finding> check_threads(const Trial& first) {
    if (cites("CALL-2")) {
      if (auto finding = judge_threads()) return finding;
    }
    const int usual = calling_.threads;
    for (const int threads : {1, 2, 3, 4, 7}) {
      if (threads == usual) continue;
      Calling calling = calling_;
      calling.threads = threads;
      const Trial other =
          attest::try_out(calling, problem(), prepared_.inputs(), Placement::end_flush);
      if (other.stopped) return other.stopped;
      const auto where = difference(first, other, exemptions_);
      if (!where) continue;
      if (arithmetic_.thread_invariant) {
        return failure("nondeterministic",
                       fmt::format("{} threads and {} differ: {}", usual, threads, *where),
                       "DET-3");
      }
      std::optional<PreparedCase> own;
      if (other.keep) {
        if (auto finding = keep_defect(problem(), prepared_.inputs(), testee_.keep_quantum,
                                       *other.keep, *other.keep)) {
          return finding;
        }
        own = prepared_.with_keep(*other.keep);
      }
      auto finding = judge_trial(other, own ? *own : prepared_);
      if (!finding || finding->outcome != Outcome::fail) continue;
      finding->message = fmt::format("with {} threads: {}", threads, finding->message);
      Finding judged = lenient(std::move(*finding));
      if (judged.outcome == Outcome::fail && judged.clause.empty()) judged.clause = "DET-3";
      return judged;
    }
    return std::nullopt;
  }

  std::optional<Finding> check_neighbours(const Trial& first) {
    for (Index b = 0; b < problem().batch; ++b) {
      const Alone one = alone(problem(), prepared_.inputs(), b);
      if (const auto refused = refusal(one.problem)) {
        if (refused->outcome == Outcome::unsupported) continue;  // such as a size of 0
        return refused;
      }
      const Trial trial = attest::try_out(calling_, one.problem, one.inputs, Placement::end_flush);
      if (trial.stopped) return trial.stopped;
      const Exemptions exemptions(one.problem, one.inputs, testee_);
      for (std::size_t t = 0; t < trial.returned.size(); ++t) {
        const auto share = share_of(problem(), first.returned[t], b);
        if (!share) continue;
        if (const auto where = difference(*share, trial.returned[t], exemptions)) {
          return failure(
              "nondeterministic",
              fmt::format("batch element {} alone differs from itself in its batch: {}", b, *where),
              "DET-2");
        }
      }
    }
    return std::nullopt;
  }

  std::optional<Finding> check_schedule(const Trial& first) {
    ScheduleDeclaration declared = *testee_.schedule;
    if (!cites("SCHED-3")) {
      declared.imbalance.reset();  // a case with few blocks has no fair balance
    }
    std::set<int> counts = {1, 2, 3};
    if (auto finding = schedule_finding(declared, first, calling_.threads)) return finding;
    if (!counts.contains(calling_.threads)) note_schedule(first, {}, calling_.threads);
    for (const int threads : counts) {
      Calling calling = calling_;
      calling.threads = threads;
      calling.measure = true;
      // Few workers have few blocks in a small case, and no time to be seen at them.
      std::optional<Trial> untraced;
      if (declared.imbalance && threads > 1) {
        untraced = attest::try_out(calling, problem(), prepared_.inputs(), Placement::end_flush);
        if (untraced->stopped) return untraced->stopped;
      }
      calling.trace = true;
      std::optional<Trial> again;
      if (threads != calling_.threads) {
        again = attest::try_out(calling, problem(), prepared_.inputs(), Placement::end_flush);
      }
      const Trial& traced = again ? *again : first;
      if (traced.stopped) return traced.stopped;
      if (auto finding = schedule_finding(declared, traced, threads)) return finding;
      if (untraced && arithmetic_.deterministic) {
        if (const auto where = difference(traced, *untraced, exemptions_)) {
          return failure("nondeterministic",
                         fmt::format("asked for its blocks, with {} threads, it gives other bits "
                                     "than unasked: {}",
                                     threads, *where));
        }
      }
      note_schedule(traced, untraced, threads);
    }
    return std::nullopt;
  }

  // Keeps the figures of a schedule that is as it must be.
  void note_schedule(const Trial& traced, const std::optional<Trial>& untraced, int threads) {
    const auto note = [&](const CallFacts& facts, const CallFacts& unasked, bool backward) {
      verdict().schedule.push_back(schedule_evidence(facts.blocks, backward, threads,
                                                     facts.thread_seconds, unasked.thread_seconds));
    };
    note(traced.forward, untraced ? untraced->forward : CallFacts(), false);
    if (problem().backward) {
      note(traced.backward, untraced ? untraced->backward : CallFacts(), true);
    }
  }

  std::optional<Finding> schedule_finding(ScheduleDeclaration declared, const Trial& trial,
                                          int threads) {
    if (threads > 3) declared.imbalance.reset();  // a worker has few blocks in any case
    if (trial.forward.blocks_left_out || trial.backward.blocks_left_out) {
      return Finding{
          .outcome = Outcome::inconclusive,
          .message = fmt::format("more blocks than the {} that a reply may hold", kMostBlocks)};
    }
    const auto defect = [&](const CallFacts& facts, bool backward) {
      return schedule_defect(planes_, declared, facts.blocks, backward, threads);
    };
    auto finding = defect(trial.forward, false);
    if (!finding && problem().backward) finding = defect(trial.backward, true);
    if (finding) {
      finding->message += fmt::format(", with {} thread{}", threads, threads == 1 ? "" : "s");
    }
    return finding;
  }

  std::optional<Finding> check_memory() {
    // Always two, so that what each worker takes is told from what the call takes, and that the
    // stacks of many threads need not be forgiven.
    constexpr int kThreads = 2;
    std::vector<MemoryTaken> forward, backward;
    for (const Index times : {1, 2, 4}) {
      Case longer = prepared_.test_case();
      const auto lengthened_problem = lengthened(problem(), times);
      if (!lengthened_problem) {
        return Finding{.outcome = Outcome::inconclusive,
                       .message = "a problem with tables cannot be lengthened"};
      }
      longer.problem = *lengthened_problem;
      // Of its own, so that no earlier call has left memory to be used again.
      calling_.executor.renew();
      if (auto finding = refusal(longer.problem)) return finding;
      Calling calling = calling_;
      calling.threads = kThreads;
      calling.measure = true;
      const Trial trial =
          attest::try_out(calling, longer.problem, generate(longer), Placement::end_flush);
      if (trial.stopped) return trial.stopped;
      if (!trial.forward.peak_bytes || (problem().backward && !trial.backward.peak_bytes)) {
        return Finding{.outcome = Outcome::inconclusive,
                       .message = "memory cannot be measured here"};
      }
      forward.push_back({longer.problem, times, trial.forward});
      backward.push_back({longer.problem, times, trial.backward});
    }
    const auto defect = [&](const char* pass, const std::vector<MemoryTaken>& taken) {
      return memory_defect(*testee_.memory, pass, taken, kThreads);
    };
    auto finding = defect("forward", forward);
    return !finding && problem().backward ? defect("backward", backward) : finding;
  }

  PreparedCase& prepared_;
  const Description& testee_;
  std::string captured_;
  Calling calling_;
  Exemptions exemptions_;
  Planes planes_;
  Arithmetic arithmetic_;
  Examination result_;
};

}  // namespace

Inputs PreparedCase::generate(const Case& test_case) { return attest::generate(test_case); }

PreparedCase PreparedCase::with_keep(Keep keep) const {
  Inputs inputs = inputs_;
  inputs.keep = std::move(keep);
  return PreparedCase(case_, std::move(inputs), threads_);
}

namespace {

// Of what is known for each arithmetic, that for this one; made if it is not there yet.
template <class Made, class Make>
const Made& known_or_made(std::vector<std::pair<Arithmetic, std::unique_ptr<Made>>>& all,
                          const Arithmetic& arithmetic, const Make& make) {
  for (const auto& [known, made] : all) {
    if (known == arithmetic) return *made;
  }
  all.emplace_back(arithmetic, std::make_unique<Made>(make()));
  return *all.back().second;
}

}  // namespace

const PassesExpected& PreparedCase::passes(const Arithmetic& arithmetic) {
  return known_or_made(passes_, arithmetic, [&] {
    return expect_passes(problem(), inputs_, arithmetic, threads_, excerpt());
  });
}

const ForwardExpected& PreparedCase::forward(const Arithmetic& arithmetic) {
  // Who looks at the forward pass of such a problem looks at the gradients next.
  if (problem().backward) return passes(arithmetic).forward;
  return known_or_made(forward_, arithmetic, [&] {
    return expect_forward(problem(), inputs_, arithmetic, threads_, excerpt());
  });
}

const BackwardExpected& PreparedCase::backward(const Arithmetic& arithmetic) {
  return passes(arithmetic).backward;
}

const ForwardSpread& PreparedCase::forward_spread(const Arithmetic& arithmetic) {
  return known_or_made(forward_spread_, arithmetic,
                       [&] { return spread_forward(problem(), inputs_, arithmetic, threads_); });
}

const BackwardSpread& PreparedCase::backward_spread(const Arithmetic& arithmetic) {
  return known_or_made(backward_spread_, arithmetic,
                       [&] { return spread_backward(problem(), inputs_, arithmetic, threads_); });
}

const Expected& expected_of(const std::string& tensor, PreparedCase& prepared,
                            const Arithmetic& arithmetic) {
  if (tensor == "O") return prepared.forward(arithmetic).o;
  if (tensor == "LSE") return prepared.forward(arithmetic).lse;
  if (tensor == "dQ") return prepared.backward(arithmetic).dq;
  if (tensor == "dK") return prepared.backward(arithmetic).dk;
  if (tensor == "dV") return prepared.backward(arithmetic).dv;
  if (tensor == "dBias") return prepared.backward(arithmetic).dbias;
  ATTEST_ASSERT(tensor == "dSink");
  return prepared.backward(arithmetic).dsink;
}

Examination examine(PreparedCase& prepared, const Description& testee, const std::string& kernel,
                    Executor& executor, int threads) {
  return Examiner(prepared, testee, kernel, executor, threads).examine();
}

}  // namespace attest
