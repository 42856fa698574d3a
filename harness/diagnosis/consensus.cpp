// What all the cases of a group that were looked at have in common.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/diagnosis/likeness.h"

namespace attest {
namespace {

// So many different failures are asked, at most.
constexpr std::size_t kMostAsked = 3;

}  // namespace

void Consensus::add(const std::string& case_id, const Testimony& testimony) {
  std::set<std::string> left = testimony.open;
  for (const Likeness& each : testimony.explaining) left.insert(each.name);
  if (left_) std::erase_if(left, [&](const auto& name) { return !left_->contains(name); });
  left_ = std::move(left);
  if (testimony.explaining.empty()) return;
  heard_.push_back({case_id, testimony.explaining});
  problems_.insert(without_format(case_id));
}

bool Consensus::is_hopeless() const { return left_ && left_->empty(); }

bool Consensus::is_reached() const {
  return is_hopeless() || (problems_.size() >= kMostAsked && !meant().alike.empty());
}

// The mistakes that are meant, each as all cases together tell of it.
std::vector<Likeness> Consensus::shared() const {
  std::vector<Likeness> all;
  std::map<std::string, std::map<std::string, Index>> telling;  // by mistake and problem
  for (const Heard& heard : heard_) {
    for (const Likeness& each : heard.explaining) {
      if (!left_->contains(each.name)) continue;
      auto known = std::find_if(all.begin(), all.end(),
                                [&](const Likeness& other) { return other.name == each.name; });
      if (known == all.end()) {
        all.push_back(each);
      } else if (known->whole() && !each.whole()) {
        *known = each;
      }
      Index& most = telling[each.name][without_format(heard.case_id)];
      most = std::max(most, each.telling);
    }
  }
  for (Likeness& each : all) {
    each.telling = 0;
    for (const auto& [problem, count] : telling[each.name]) each.telling += count;
  }
  std::erase_if(all, [&](const Likeness& each) {
    return !each.is_sure() || (!each.whole() && telling[each.name].size() < 2);
  });
  return best(all);
}

Consensus::Meant Consensus::meant() const {
  const std::vector<Likeness> all = shared();
  Meant meant;
  for (const Heard& heard : heard_) {
    std::vector<Likeness> here;
    for (const Likeness& each : all) {
      const auto seen = std::find_if(heard.explaining.begin(), heard.explaining.end(),
                                     [&](const Likeness& it) { return it.name == each.name; });
      if (seen != heard.explaining.end()) here.push_back(*seen);
    }
    if (here.empty() || here.size() < all.size()) continue;
    // Of what is a part, a case in which it is.
    const bool tells = std::all_of(here.begin(), here.end(), [&](const Likeness& each) {
      return each.is_sure() && each.whole() == all[0].whole();
    });
    if (meant.alike.empty() || tells) meant = {heard.case_id, std::move(here)};
    if (tells) break;
  }
  return meant;
}

}  // namespace attest
