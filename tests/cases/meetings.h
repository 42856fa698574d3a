// Which values of a covering array's axes meet in its rows: every combination of so many of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "cases/cover.h"

namespace attest {

class Meetings {
 public:
  Meetings(const Cover& cover, std::size_t strength) : cover_(cover), strength_(strength) {
    std::vector<std::size_t> chosen;
    choose(0, chosen);
  }

  // Notes those of a row; how many of them are new.
  std::size_t add(const CoverPlaces& places) { return count(places, true); }
  std::size_t count_new(const CoverPlaces& places) const {
    return const_cast<Meetings*>(this)->count(places, false);
  }

  // Each that no row has: the axes, and the value on each.
  void for_each_missing(
      const std::function<void(const std::vector<std::size_t>& axes,
                               const std::vector<std::size_t>& values)>& visit) const {
    for (const Group& group : groups_) {
      for (std::size_t code = 0; code < group.met.size(); ++code) {
        if (group.met[code]) continue;
        std::vector<std::size_t> values(strength_);
        std::size_t rest = code;
        for (std::size_t n = strength_; n-- > 0;) {
          const std::size_t size = cover_.axis(group.axes[n]).values.size();
          values[n] = rest % size;
          rest /= size;
        }
        visit(group.axes, values);
      }
    }
  }
  std::size_t size() const { return all_; }
  std::size_t met() const { return met_; }

 private:
  struct Group {
    std::vector<std::size_t> axes;
    std::vector<char> met;
  };

  void choose(std::size_t first, std::vector<std::size_t>& chosen) {
    if (chosen.size() == strength_) {
      std::size_t size = 1;
      for (const std::size_t axis : chosen) size *= cover_.axis(axis).values.size();
      groups_.push_back({chosen, std::vector<char>(size, 0)});
      all_ += size;
      return;
    }
    for (std::size_t axis = first; axis < cover_.axis_count(); ++axis) {
      chosen.push_back(axis);
      choose(axis + 1, chosen);
      chosen.pop_back();
    }
  }

  std::size_t count(const CoverPlaces& places, bool note) {
    std::size_t fresh = 0;
    for (Group& group : groups_) {
      std::size_t code = 0;
      for (const std::size_t axis : group.axes) {
        code = code * cover_.axis(axis).values.size() + places[axis];
      }
      fresh += !group.met[code];
      if (note) group.met[code] = 1;
    }
    if (note) met_ += fresh;
    return fresh;
  }

  const Cover& cover_;
  const std::size_t strength_;
  std::vector<Group> groups_;
  std::size_t all_ = 0, met_ = 0;
};

}  // namespace attest
