// Chooses the rows of a covering array, and writes them into its file behind those that are there:
//
//   build/release/tests/cover_rows cases/cover/dispatch.json --rows 5000 --work 5e9
//
// One row after the other, the best of some random ones: new meetings of three values, and new
// instances of the dispatch tables that are not held out, for what it costs. Then whatever
// combinations of `strength` are missing. The same rows on every machine.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "harness/fuzz/dice.h"
#include "harness/instances/dispatch_table.h"
#include "tests/cases/cover_file.h"
#include "tests/cases/meetings.h"

namespace attest {
namespace {

struct Wish {
  std::size_t rows = 0;
  double work = 0;
};

class Chooser {
 public:
  Chooser(CoverFile& file, std::vector<instances::DispatchTable> tables)
      : file_(file), cover_(file.cover()), tables_(std::move(tables)), met_(tables_.size()) {
    std::erase_if(tables_, [](const auto& table) { return table.held_out; });
    for (const std::string& row : cover_.rows) {
      const auto made = file_.case_of(row);
      if (made && is_worth_a_case(*made)) take({cover_.places_of(row), row, *made});
    }
  }

  void choose(const Wish& wish) {
    while (rows_.size() < wish.rows && work_ < wish.work) {
      std::vector<std::pair<double, Candidate>> candidates;
      for (int n = 0; n < kCandidates; ++n) {
        auto candidate = draw({}, {});
        if (!candidate || seen_.contains(candidate->row)) continue;
        candidates.emplace_back(worth_of(*candidate), *std::move(candidate));
      }
      std::stable_sort(candidates.begin(), candidates.end(),
                       [](const auto& a, const auto& b) { return a.first > b.first; });
      const auto best = std::find_if(candidates.begin(), candidates.end(), [](const auto& each) {
        return is_worth_a_case(each.second.made);
      });
      if (best != candidates.end()) take(best->second);
      if (rows_.size() % 500 == 0) report();
    }
    close();
    report();
  }

  const std::vector<std::string>& rows() const { return rows_; }

 private:
  static constexpr int kCandidates = 500, kTries = 100;

  struct Candidate {
    CoverPlaces places;
    std::string row;
    Case made;
  };

  void report() const {
    fmt::print(
        "{} rows, {:.3g} multiply-adds, {} of {} meetings of three, {} of {} of {}, {} instances\n",
        rows_.size(), work_, threes_.met(), threes_.size(), strong_.met(), strong_.size(),
        cover_.strength, instances_);
  }

  // A row with these values on these axes: the first value of an axis is its commonest.
  std::optional<Candidate> draw(const std::vector<std::size_t>& axes,
                                const std::vector<std::size_t>& values) {
    CoverPlaces places(cover_.axis_count());
    for (std::size_t n = 0; n < places.size(); ++n) {
      const auto last = static_cast<Index>(cover_.axis(n).values.size()) - 1;
      const bool is_plain = n < cover_.features.size() && dice_.chance(40);
      places[n] = is_plain ? 0 : static_cast<std::size_t>(dice_.within(0, last));
    }
    return candidate_of(std::move(places), axes, values);
  }
  // The same with the first value on every other axis.
  std::optional<Candidate> bare(const std::vector<std::size_t>& axes,
                                const std::vector<std::size_t>& values) {
    return candidate_of(CoverPlaces(cover_.axis_count(), 0), axes, values);
  }

  std::optional<Candidate> candidate_of(CoverPlaces places, const std::vector<std::size_t>& axes,
                                        const std::vector<std::size_t>& values) {
    for (std::size_t n = 0; n < axes.size(); ++n) places[axes[n]] = values[n];
    std::string row = cover_.row_of(places);
    auto made = file_.case_of(row);
    if (!made || work_of_case(made->problem) > kMostWorkOfRow) return std::nullopt;
    return Candidate{std::move(places), std::move(row), *std::move(made)};
  }

  double worth_of(const Candidate& candidate) const {
    double worth = static_cast<double>(threes_.count_new(candidate.places)) / 30;
    for (std::size_t n = 0; n < tables_.size(); ++n) {
      const std::string key = key_of(tables_[n], candidate.made.problem);
      worth += !key.empty() && !met_[n].contains(key);
    }
    return worth / std::pow(work_of_case(candidate.made.problem) + 3e5, 0.9);
  }

  // Its class of each point; empty where the table has no kernel for it.
  static std::string key_of(const instances::DispatchTable& table, const Problem& problem) {
    std::string key;
    if (table.backward && !problem.backward) return key;
    for (const DispatchPoint& point : table.points) {
      const auto of = point.class_of(problem);
      if (!of) return "";
      key += static_cast<char>('a' + *of);
    }
    return key;
  }

  void take(const Candidate& candidate) {
    threes_.add(candidate.places);
    strong_.add(candidate.places);
    for (std::size_t n = 0; n < tables_.size(); ++n) {
      const std::string key = key_of(tables_[n], candidate.made.problem);
      if (!key.empty()) instances_ += met_[n].insert(key).second;
    }
    work_ += work_of_case(candidate.made.problem);
    rows_.push_back(candidate.row);
    seen_.insert(candidate.row);
  }

  void close() {
    std::vector<std::pair<std::vector<std::size_t>, std::vector<std::size_t>>> missing;
    strong_.for_each_missing(
        [&](const auto& axes, const auto& values) { missing.emplace_back(axes, values); });
    for (const auto& [axes, values] : missing) {
      std::vector<Candidate> candidates;
      for (int n = 0; n <= kTries; ++n) {
        auto candidate = n < kTries ? draw(axes, values) : bare(axes, values);
        if (candidate && strong_.count_new(candidate->places) > 0) {
          candidates.push_back(*std::move(candidate));
        }
      }
      std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
        return work_of_case(a.made.problem) < work_of_case(b.made.problem);
      });
      const auto cheapest =
          std::find_if(candidates.begin(), candidates.end(),
                       [](const Candidate& each) { return is_worth_a_case(each.made); });
      if (cheapest != candidates.end()) take(*cheapest);
    }
  }

  CoverFile& file_;
  const Cover& cover_;
  std::vector<instances::DispatchTable> tables_;
  Meetings threes_{cover_, 3}, strong_{cover_, cover_.strength};
  std::vector<std::set<std::string>> met_;
  std::set<std::string> seen_;
  std::vector<std::string> rows_;
  std::size_t instances_ = 0;
  double work_ = 0;
  Dice dice_{"cover_rows"};
};

// The file with these rows in place of its own, several in a line.
std::string with_rows(const std::string& text, const std::vector<std::string>& rows) {
  const std::size_t begin = text.find('[', text.find("\"rows\":")) + 1, end = text.find(']', begin);
  std::string list;
  std::size_t column = 0;
  for (const std::string& row : rows) {
    const std::string item = fmt::format("\"{}\"{}", row, &row == &rows.back() ? "" : ",");
    const bool wraps = column == 0 || column + item.size() + 1 > 98;
    list += (wraps ? "\n         " : " ") + item;
    column = (wraps ? 9 : column + 1) + item.size();
  }
  return text.substr(0, begin) + list + text.substr(end);
}

}  // namespace
}  // namespace attest

int main(int count, char** words) {
  using namespace attest;
  const std::string path = count > 1 ? words[1] : "";
  Wish wish;
  for (int n = 2; n + 1 < count; n += 2) {
    const std::string option = words[n];
    if (option == "--rows") wish.rows = std::strtoull(words[n + 1], nullptr, 10);
    if (option == "--work") wish.work = std::strtod(words[n + 1], nullptr);
  }
  if (path.empty() || wish.rows == 0 || wish.work <= 0) {
    fmt::print(stderr, "usage: cover_rows FILE --rows N --work MULTIPLY_ADDS\n");
    return 2;
  }
  CoverFile file(path);
  Chooser chooser(file, instances::load_dispatches(ATTEST_DISPATCH));
  chooser.choose(wish);
  std::ofstream(path) << with_rows(file.text(), chooser.rows());
  return 0;
}
