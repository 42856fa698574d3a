#include "harness/fuzz/fuzz.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "harness/fuzz/draws.h"
#include "harness/fuzz/shrink.h"
#include "harness/run/clock.h"
#include "harness/run/examine.h"
#include "harness/run/jobs.h"
#include "reports/text.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;

// What a search is for: failures of the testee, and our own.
bool is_find(Outcome outcome) { return is_fault(outcome) || outcome == Outcome::harness_error; }

// ---- Causes -------------------------------------------------------------------------------------

// The words of a mask, or of whatever else a field holds, without their numbers.
void add_words(const json& value, const std::string& field, std::set<std::string>& words) {
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) {
      words.insert(field + "/" + key);
      add_words(item, field, words);
    }
  } else if (value.is_array()) {
    for (const json& item : value) add_words(item, field, words);
  } else if (value.is_string()) {
    std::string word;
    for (const char c : value.get<std::string>() + " ") {
      const bool letter = (c >= 'a' && c <= 'z') || c == '_';
      if (letter) {
        word += c;
      } else if (!word.empty()) {
        words.insert(field + "/" + std::exchange(word, ""));
      }
    }
  }
}

// What a find needs, in words: outcome and reason, features, and which sizes are not 1.
std::set<std::string> form_of(const Find& find) {
  std::set<std::string> words = {std::string(name(find.verdict.outcome)),
                                 "reason/" + find.verdict.reason};
  for (const char* setting : {"hidden", "check", "laws"}) {
    if (find.entry.contains(setting)) add_words(find.entry.at(setting), setting, words);
  }
  for (const auto& [setting, usual] : {std::pair{"data", "normal"}, {"dtypes", "f32"}}) {
    const auto value = find.entry.at(setting).at(0).get<std::string>();
    if (value != usual) words.insert(setting + ("/" + value));
  }
  for (const auto& [field, value] : find.entry.at("problem").items()) {
    words.insert(field);
    add_words(value, field, words);
  }
  return words;
}

// The causes that are known, by the forms of what was found.
class Causes {
 public:
  // Whether a find is to be made small: nothing known explains it, or what does has not often
  // turned out to be all that there is.
  bool worth_shrinking(const Find& find) const {
    const auto form = form_of(find);
    return std::none_of(known_.begin(), known_.end(), [&](const Known& known) {
      return known.again >= kOftenEnough &&
             std::includes(form.begin(), form.end(), known.form.begin(), known.form.end());
    });
  }

  // Whether a find, made small, is of a new cause.
  bool add(const Find& small) {
    auto form = form_of(small);
    for (Known& known : known_) {
      if (known.form != form) continue;
      ++known.again;
      return false;
    }
    known_.push_back({.form = std::move(form)});
    return true;
  }

 private:
  static constexpr int kOftenEnough = 3;
  struct Known {
    std::set<std::string> form;
    int again = 0;  // finds that became this one
  };
  std::vector<Known> known_;
};

// ---- The search ---------------------------------------------------------------------------------

// What has been tried, by number. Problems are tried in any order, and what they came to is looked
// at in the order of their numbers.
class Tries {
 public:
  explicit Tries(const FuzzOptions& options)
      : only_one_(options.finds == 1), next_(options.first), looked_at_(options.first) {
    constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
    const bool limited = options.count > 0 && options.count < kMost - options.first;
    end_ = limited ? options.first + options.count : kMost;
  }

  // The next number to try; none if all that matter are taken.
  std::optional<std::uint64_t> next() {
    const std::lock_guard lock(mutex_);
    return next_ < end_ ? std::optional(next_++) : std::nullopt;
  }

  void put(std::uint64_t number, const json& entry, const Verdict& verdict) {
    const std::lock_guard lock(mutex_);
    Tried& tried = waiting_[number];
    tried.outcome = verdict.outcome;
    if (verdict.outcome == Outcome::inconclusive) {
      tried.why = entry.at("data").at(0).get<std::string>() + ": " + verdict.message;
    }
    if (!is_find(verdict.outcome)) return;
    tried.find = {entry, verdict};
    if (only_one_) end_ = std::min(end_, number + 1);
  }

  // Counts what follows those that were looked at, up to the next find; none if that is not tried
  // yet, or the search ends before.
  std::optional<Find> look(SearchRecord& record) {
    const std::lock_guard lock(mutex_);
    while (looked_at_ < end_ && !waiting_.empty() && waiting_.begin()->first == looked_at_) {
      const Tried tried = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
      record.next = ++looked_at_;
      ++record.tried[std::string(name(tried.outcome))];
      if (!tried.why.empty()) ++record.inconclusive[tried.why];
      if (tried.find) return tried.find;
    }
    return std::nullopt;
  }

  // What was looked at last was the last.
  void end() {
    const std::lock_guard lock(mutex_);
    end_ = looked_at_;
  }

 private:
  struct Tried {
    Outcome outcome = Outcome::pass;
    std::string why = {};
    std::optional<Find> find = {};
  };

  const bool only_one_;
  std::mutex mutex_;
  std::uint64_t next_, end_, looked_at_;
  std::map<std::uint64_t, Tried> waiting_;
};

// A name for an entry: the testee's, and the number's.
std::string entry_name(const Testee& testee, const std::string& of_problem) {
  std::string text;
  for (const char c : testee.name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    text += letter ? c : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : '_';
  }
  return text + "_" + of_problem;
}

// One search: jobs that try problems, and one of them at a time that looks at what came of it.
class Search {
 public:
  Search(const Testee& testee, const std::vector<CaseWithEntry>& suite, const FuzzOptions& options,
         const MakeExecutor& make_executor, const std::function<void(const VerdictRecord&)>& seen,
         const std::function<bool()>& interrupted)
      : testee_(testee),
        options_(options),
        make_executor_(make_executor),
        seen_(seen),
        interrupted_(interrupted),
        dtypes_(options.dtypes.empty() ? testee.description.dtypes : options.dtypes),
        draws_({testee.description, dtypes_, options.finite}, suite, options.seed),
        tries_(options) {
    result_.record = {
        .testee = testee.name, .seed = options.seed, .first = options.first, .next = options.first};
  }

  FuzzResult run() {
    in_parallel(options_.run.jobs, [this] {
      try {
        try_problems();
      } catch (...) {
        const std::lock_guard lock(mutex_);
        ours_ = std::current_exception();
      }
    });
    if (ours_) std::rethrow_exception(ours_);
    look();
    return std::move(result_);
  }

 private:
  void try_problems() {
    const auto executor = make_executor_(testee_);
    while (!ends()) {
      const auto number = tries_.next();
      if (!number) return;
      Drawn drawn = draws_.draw(*number);
      Verdict verdict = verdict_on(drawn.prepared, testee_, *executor, options_.run);
      if (verdict.outcome == Outcome::inconclusive && drawn.entry.contains("laws")) {
        drawn = without_laws(drawn);
        verdict = verdict_on(drawn.prepared, testee_, *executor, options_.run);
      }
      if (verdict.outcome == Outcome::not_run) return;  // interrupted
      tries_.put(*number, drawn.entry, verdict);
      {
        const std::lock_guard lock(mutex_);
        seen_({.case_id = fmt::format("{}: {}", *number, to_string(drawn.prepared.problem())),
               .testee = testee_.name,
               .dtype = std::string(name(drawn.prepared.problem().dtype)),
               .verdict = std::move(verdict)});
      }
      if (const std::unique_lock alone(looking_, std::try_to_lock); alone) look();
    }
  }

  // Finds are made small within the search's time, too.
  bool ends() const {
    return interrupted_() || (options_.seconds > 0 && seconds_since(start_) >= options_.seconds);
  }

  void look() {
    while (auto find = tries_.look(result_.record)) {
      json& name = find->entry["name"];
      name = entry_name(testee_, name);
      if (!causes_.worth_shrinking(*find)) continue;
      Find small = shrunk(*find, "attest fuzz", testee_, options_.run, make_executor_,
                          [this] { return ends(); });
      if (!causes_.add(small)) continue;
      result_.found.push_back(std::move(small));
      if (result_.found.size() == options_.finds) tries_.end();
    }
  }

  const Testee& testee_;
  const FuzzOptions& options_;
  const MakeExecutor& make_executor_;
  const std::function<void(const VerdictRecord&)>& seen_;
  const std::function<bool()>& interrupted_;
  const std::vector<DType> dtypes_;
  const Draws draws_;
  const Clock::time_point start_ = Clock::now();
  Tries tries_;
  std::mutex mutex_;  // of `seen_` and `ours_`
  std::exception_ptr ours_;
  std::mutex looking_;  // of `causes_` and `result_`
  Causes causes_;
  FuzzResult result_;
};

}  // namespace

FuzzResult fuzz(const Testee& testee, const std::vector<CaseWithEntry>& suite,
                const FuzzOptions& options, const MakeExecutor& make_executor,
                const std::function<void(const VerdictRecord&)>& seen,
                const std::function<bool()>& interrupted) {
  return Search(testee, suite, options, make_executor, seen, interrupted).run();
}

Find shrunk(const Find& find, const std::string& by, const Testee& testee,
            const RunOptions& options, const MakeExecutor& make_executor,
            const std::function<bool()>& interrupted,
            const std::function<bool(const Find&)>& wanted) {
  // Enough for a few dozen steps, each among a few dozen; and no more time than a person waits.
  constexpr int kMostTries = 3000;
  constexpr double kMostSeconds = 120;
  const auto start = Clock::now();
  const auto executor = make_executor(testee);
  const auto ends = [&] { return interrupted() || seconds_since(start) > kMostSeconds; };
  std::optional<Find> smallest;
  const auto fails = [&](const json& candidate) {
    if (ends()) return false;
    try {
      PreparedCase prepared(read_entry(candidate, kFuzzStem), 1);
      Verdict verdict = verdict_on(prepared, testee, *executor, options);
      if (verdict.outcome != find.verdict.outcome || verdict.reason != find.verdict.reason) {
        return false;
      }
      Find found = {candidate, std::move(verdict)};
      if (!wanted(found)) return false;
      smallest = std::move(found);
      return true;
    } catch (const InputError&) {
      return false;  // no case
    }
  };
  if (fails(find.entry)) shrink(find.entry, kMostTries, fails);
  // As whoever repeats it will: with a testee that did nothing before.
  if (smallest) executor->renew();
  const bool repeats = smallest && fails(smallest->entry);
  const bool in_time = !ends();
  Find result = smallest && (repeats || !in_time) ? *smallest : find;
  const char* how = repeats    ? ""
                    : in_time  ? " once, and not again when tried alone"
                    : smallest ? ", and not as small as it gets, for the time was up"
                               : ", and not tried again, for the time was up";
  result.entry["because"] =
      fmt::format("Found by {}{}: {}", by, how, one_line(excerpt(result.verdict.message)));
  return result;
}

VerdictRecord record_of(const Find& find, const Testee& testee, RunOptions options,
                        const std::filesystem::path& file) {
  const Case test_case = read_entry(find.entry, file.stem().string());
  VerdictRecord record{.case_id = test_case.id,
                       .testee = testee.name,
                       .dtype = std::string(name(test_case.problem.dtype)),
                       .because = test_case.because,
                       .problem = to_string(test_case.problem),
                       .verdict = find.verdict};
  options.from = file.string();
  record.verdict.repro = repro_line(test_case, testee, options);
  return record;
}

}  // namespace attest
