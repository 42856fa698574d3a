// A case that cites a report reaches what the report needs to show. reported_triggers.json has, for
// each report that a "because" names, its trigger in words and as lists of conditions; all of a
// list hold at once, in one batch element of one case of the standard tier that cites the report.
//
// A condition is a comparison of numbers, "sk % 128 = 64", "sq > sk", "d in 32 64 128"; a word,
// such as a feature's, or "no" and a word. Unknown names are errors. The numbers and words are
// below.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cases/generate.h"
#include "spec/description.h"
#include "spec/json_reader.h"

namespace attest {
namespace {

// ---- What a batch element of a case is --------------------------------------------------------

// Keys and rows of an element, as one head sees them.
struct Seen {
  Index empty_rows = 0;    // rows that see no key
  Index empty_front = 0;   // of these, those before the first row that sees one
  Index hidden_front = 0;  // keys before the first that a row sees; of all rows, the most
  Index hidden_back = 0;   // keys after the last, likewise
};

Seen seen_by(const Case& c, Index batch, Index head) {
  const Problem& p = c.problem;
  const DenseMask& allowed = c.extras.bias_allows;
  const auto sees = [&](Index i, Index j) {
    const Position at = {.batch = batch, .head = head, .query = i, .key = j};
    return visible(p, at) && (allowed.allowed.empty() || allowed.at(at));
  };
  const Lengths lengths = p.lengths(batch);
  Seen seen;
  for (Index i = 0; i < lengths.query; ++i) {
    Index first = 0, last = lengths.key - 1;
    while (first < lengths.key && !sees(i, first)) ++first;
    if (first == lengths.key) {
      ++seen.empty_rows;
      continue;
    }
    while (!sees(i, last)) --last;
    if (seen.empty_rows == i) seen.empty_front = i;
    seen.hidden_front = std::max(seen.hidden_front, first);
    seen.hidden_back = std::max(seen.hidden_back, lengths.key - 1 - last);
  }
  return seen;
}

// All parts of a mask, itself among them.
void add_parts(const Mask& mask, std::vector<const Mask*>& parts) {
  parts.push_back(&mask);
  for (const Mask& part : mask.parts) add_parts(part, parts);
}

class Element {
 public:
  Element(const Case& c, Index batch) : case_(c), p_(c.problem), batch_(batch) {
    for (const std::string& feature : features_of(p_)) features_.insert(feature);
    add_parts(p_.mask, parts_);
  }

  bool holds(const std::string& condition) const {
    std::istringstream stream(condition);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    if (words.size() == 2 && words[0] == "no") return !has(words[1]);
    if (words.size() == 1) return has(words[0]);
    std::size_t n = 0;
    const auto side = [&] {
      double value = number(words.at(n++));
      if (n < words.size() && words[n] == "%") {
        const double divisor = number(words.at(n + 1));
        n += 2;
        value = divisor == 0 ? value : std::fmod(value, divisor);
      }
      return value;
    };
    if (words[1] == "in") {
      return std::any_of(words.begin() + 2, words.end(), [&](const std::string& word) {
        return words[0] == "data" ? data_is(word) : number(words[0]) == number(word);
      });
    }
    const double left = side();
    const std::string op = words.at(n++);
    const double right = side();
    if (n != words.size()) throw InputError("", "no condition: " + condition);
    if (op == "=") return left == right;
    if (op == "!=") return left != right;
    if (op == "<") return left < right;
    if (op == "<=") return left <= right;
    if (op == ">") return left > right;
    if (op == ">=") return left >= right;
    throw InputError("", "no condition: " + condition);
  }

 private:
  double number(const std::string& name) const {
    const Lengths lengths =
        batch_ < p_.batch ? p_.lengths(batch_) : Lengths{.query = p_.query_len, .key = p_.key_len};
    static const std::map<std::string, Index Seen::*> kSeen = {
        {"empty_rows", &Seen::empty_rows},
        {"empty_front", &Seen::empty_front},
        {"hidden_front", &Seen::hidden_front},
        {"hidden_back", &Seen::hidden_back}};
    if (const auto found = kSeen.find(name); found != kSeen.end()) {
      if (p_.query_heads == 0 || batch_ >= p_.batch) return 0;
      return static_cast<double>(seen_by(case_, batch_, 0).*found->second);
    }
    const auto axis = [](const Shape* shape, int n) {
      return shape ? (*shape)[std::size_t(n)] : 0;
    };
    const Shape* const bias = p_.bias_shape ? &*p_.bias_shape : nullptr;
    const Shape* const mask = table();
    const Mask* const band = part(Mask::Kind::band);
    const Mask* const blocks = part(Mask::Kind::block_sparse);
    const std::map<std::string, Index> integers = {
        {"b", p_.batch},
        {"hq", p_.query_heads},
        {"hk", p_.key_heads},
        {"group", p_.key_heads > 0 ? p_.group_size() : 0},
        {"sq", lengths.query},  // of the element; the longest are sq_max and sk_max
        {"sk", lengths.key},
        {"shift", lengths.key - lengths.query},
        {"sq_max", p_.query_len},
        {"sk_max", p_.key_len},
        {"pairs", p_.batch * p_.query_heads * p_.query_len * p_.key_len},  // elements of a table
        {"rows", p_.batch * p_.query_heads * p_.query_len},
        {"d", p_.head_dim},
        {"dv", p_.value_dim},
        {"page", p_.paging.page_size},
        {"left", band ? band->left : 0},
        {"right", band ? band->right : 0},
        {"block_k", blocks ? blocks->block_key : 1},
        {"bias_b", axis(bias, 0)},
        {"bias_h", axis(bias, 1)},
        {"bias_q", axis(bias, 2)},
        {"bias_k", axis(bias, 3)},
        {"mask_b", axis(mask, 0)},  // of a dense mask
        {"mask_h", axis(mask, 1)},
        {"mask_q", axis(mask, 2)},
        {"mask_k", axis(mask, 3)}};
    if (const auto found = integers.find(name); found != integers.end()) {
      return static_cast<double>(found->second);
    }
    if (name == "scale") return p_.scale;
    if (name == "cap") return p_.softcap;
    if (name == "dropped") return p_.dropout.probability;
    try {
      return std::stod(name);
    } catch (const std::exception&) {
      throw InputError("", fmt::format("no number \"{}\"", name));
    }
  }

  bool has(const std::string& word) const {
    const std::vector<std::string> known = known_features();
    if (std::find(known.begin(), known.end(), word) != known.end()) return features_.contains(word);
    if (dtype_named(word)) return p_.dtype == *dtype_named(word);
    if (word == "full") return p_.mask.kind == Mask::Kind::full;
    if (word == "top-left" || word == "bottom-right") {
      const Mask* const band = part(Mask::Kind::band);
      return band && (band->anchor == Anchor::top_left) == (word == "top-left");
    }
    // LSE below -88.7, so that exp(0 - LSE) overflows f32.
    if (word == "low") return (data_is("low") || data_is("deep")) && p_.scale != 0;
    if (word == "minus-inf") return !case_.extras.bias_allows.allowed.empty();
    const double usual = 1 / std::sqrt(static_cast<double>(p_.head_dim));
    if (word == "own-scale") return std::abs(p_.scale / usual - 1) > 0.01;
    if (word == "negative-segments") return negative_segments();
    if (word == "spare-entries") {
      return std::any_of(p_.paging.table.begin(), p_.paging.table.end(), [&](const auto& row) {
        return row.empty() || row.back() < 0 || Index(row.size()) < p_.paging.entries();
      });
    }
    if (word == "inexact-slopes") {
      return p_.slopes_shape && std::any_of(case_.extras.slopes.begin(), case_.extras.slopes.end(),
                                            [](double x) { return round_to(DType::bf16, x) != x; });
    }
    const std::size_t colon = word.find(':');
    const std::string kind = word.substr(0, colon);
    const std::string rest = colon == word.npos ? "" : word.substr(colon + 1);
    if (kind == "hidden") return hidden(rest);
    if (kind == "check") return check(rest);
    if (kind == "unlike") return unlike(rest);
    if (kind == "layout") {
      const std::size_t equals = rest.find('=');
      return layout(rest.substr(0, equals)) == Layout::parse(rest.substr(equals + 1));
    }
    throw InputError("", fmt::format("no word \"{}\"", word));
  }

  bool data_is(const std::string& name) const {
    const auto& classes = input_classes();
    if (std::none_of(classes.begin(), classes.end(),
                     [&](const InputClass& known) { return known.name == name; })) {
      throw InputError("", fmt::format("no input class \"{}\"", name));
    }
    return case_.data == name;
  }

  const Mask* part(Mask::Kind kind) const {
    const auto found = std::find_if(parts_.begin(), parts_.end(),
                                    [&](const Mask* mask) { return mask->kind == kind; });
    return found == parts_.end() ? nullptr : *found;
  }
  const Shape* table() const {
    const Mask* const dense = part(Mask::Kind::dense);
    return dense ? &dense->table->shape : nullptr;
  }
  bool negative_segments() const {
    const Mask* const mask = part(Mask::Kind::segments);
    const auto any = [](const SegmentNumbers& numbers) {
      return std::any_of(numbers.number.begin(), numbers.number.end(), [](int n) { return n < 0; });
    };
    return mask && any(mask->segments->query) && any(mask->segments->key);
  }

  bool hidden(const std::string& what) const {
    static const std::map<std::string, Hidden> kWords = {
        {"huge", Hidden::huge}, {"nan", Hidden::nan}, {"nan_masked", Hidden::nan_masked}};
    return case_.hidden == kWords.at(what);
  }
  bool check(const std::string& what) const {
    static const std::map<std::string, Check> kWords = {
        {"threads", Check::threads}, {"neighbours", Check::neighbours}, {"memory", Check::memory}};
    return case_.check == kWords.at(what);
  }
  Layout layout(const std::string& tensor) const {
    const Layouts& l = p_.layouts;
    const std::map<std::string, Layout> all = {{"q", l.q}, {"k", l.k},     {"v", l.v},
                                               {"o", l.o}, {"d_o", l.d_o}, {"dv", l.dv}};
    return all.at(tensor);
  }
  bool unlike(const std::string& pair) const {  // "k+v"
    const std::size_t plus = pair.find('+');
    return layout(pair.substr(0, plus)) != layout(pair.substr(plus + 1));
  }

  const Case& case_;
  const Problem& p_;
  const Index batch_;
  std::set<std::string> features_;
  std::vector<const Mask*> parts_;
};

bool reaches(const Case& c, const std::vector<std::string>& conditions) {
  for (Index b = 0; b < std::max<Index>(c.problem.batch, 1); ++b) {
    const Element element(c, b);
    if (std::all_of(conditions.begin(), conditions.end(),
                    [&](const std::string& condition) { return element.holds(condition); })) {
      return true;
    }
  }
  return false;
}

// ---- What is cited ----------------------------------------------------------------------------

// "owner/repository#12", "owner/repository@0c7697c9"; "#13" after a comma is of the same
// repository.
std::set<std::string> cited(const std::string& because) {
  static const std::regex kReport(R"(([\w.-]+/[\w.-]+)([#@][0-9a-f]+)((, #[0-9]+)*))");
  static const std::regex kFurther("#[0-9]+");
  std::set<std::string> reports;
  for (std::sregex_iterator found(because.begin(), because.end(), kReport), end; found != end;
       ++found) {
    const std::string repository = (*found)[1], further = (*found)[3];
    reports.insert(repository + (*found)[2].str());
    for (std::sregex_iterator more(further.begin(), further.end(), kFurther); more != end; ++more) {
      reports.insert(repository + more->str());
    }
  }
  return reports;
}

struct Report {
  std::string name;
  std::vector<std::vector<std::string>> lists;  // of conditions
};

const std::vector<Report>& reports() {
  static const std::vector<Report> kReports = [] {
    std::ifstream file(ATTEST_TRIGGERS);
    std::vector<Report> all;
    const nlohmann::json table = nlohmann::json::parse(file);
    for (const auto& row : table.at("reports")) {
      const std::string read = row.at("read");
      // Whoever could not have the thread, nor a note on it, says so, and has no conditions.
      EXPECT_TRUE(read == "thread" || read == "note" || read == "neither") << row;
      EXPECT_FALSE(row.at("trigger").get<std::string>().empty()) << row;
      EXPECT_EQ(row.at("cases").empty(), read == "neither") << row;
      all.push_back({row.at("report"), row.at("cases")});
    }
    return all;
  }();
  return kReports;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = load_cases(ATTEST_CASES_DIR);
  return kCases;
}

TEST(ReportedTriggersTest, EveryReportThatACaseCitesHasItsTriggerInTheTable) {
  std::map<std::string, std::string> wanted;  // the report, and a case that cites it
  for (const Case& c : cases()) {
    for (const std::string& report : cited(c.because)) wanted.emplace(report, c.id);
  }
  std::set<std::string> known;
  for (const Report& report : reports()) {
    EXPECT_TRUE(known.insert(report.name).second) << report.name << " stands twice";
    EXPECT_TRUE(wanted.contains(report.name)) << "no case cites " << report.name;
  }
  for (const auto& [report, id] : wanted) {
    EXPECT_TRUE(known.contains(report)) << id << " cites " << report << ", which has no trigger";
  }
}

TEST(ReportedTriggersTest, ACaseOfTheStandardTierThatCitesAReportReachesItsTrigger) {
  std::map<std::string, std::vector<const Case*>> citing;
  for (const Case& c : cases()) {
    if (c.tier == Tier::full) continue;
    for (const std::string& report : cited(c.because)) citing[report].push_back(&c);
  }
  for (const Report& report : reports()) {
    for (const std::vector<std::string>& list : report.lists) {
      const auto& candidates = citing[report.name];
      const auto found = std::find_if(candidates.begin(), candidates.end(),
                                      [&](const Case* c) { return reaches(*c, list); });
      EXPECT_NE(found, candidates.end())
          << fmt::format("{}: none of {} cases that cite it has {}", report.name, candidates.size(),
                         fmt::join(list, ", "));
      if (found != candidates.end()) {
        fmt::print("{}: {}: {}\n", report.name, fmt::join(list, ", "), (*found)->id);
      }
    }
  }
}

}  // namespace
}  // namespace attest
