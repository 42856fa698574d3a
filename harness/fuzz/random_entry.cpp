#include "harness/fuzz/random_entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "cases/generate.h"
#include "harness/fuzz/shrink.h"

namespace attest {
namespace {

using nlohmann::json;

Index longest(const json& lens) {
  Index most = 0;
  for (const json& len : lens) most = std::max(most, len.get<Index>());
  return most;
}

// Classes whose numbers are at an end of what arithmetic bears: where faults of overflow, of
// stand-ins for -inf and of lost digits show.
const std::vector<std::string>& extreme_classes() {
  static const std::vector<std::string> kExtreme = [] {
    std::vector<std::string> names;
    for (const InputClass& each : input_classes()) {
      for (const char* extreme : {"std50", "heavy_tail", "equal_huge", "one_hot", "huge", "deep",
                                  "low", "high", "unbalanced", "tiny", "subnormal", "cancelling"}) {
        if (each.name == extreme) names.push_back(each.name);
      }
    }
    return names;
  }();
  return kExtreme;
}

// Makes one entry, from the sizes to what is asked beside.
class Maker {
 public:
  Maker(const Scope& scope, Dice& dice)
      : testee_(scope.testee), dtypes_(scope.dtypes), finite_(scope.finite), dice_(dice) {}

  json fresh() {
    sizes();
    return with_all_else();
  }

  json large() {
    sizes_beyond();
    return with_all_else();
  }

  json altered(const json& entry, const json& other) {
    problem_ = entry.at("problem");
    read_sizes(problem_);
    const json& donor = other.at("problem");
    if (chance(20)) read_sizes(donor);
    for (Index changes = within(0, 2); changes > 0; --changes) {
      if (chance(50)) {
        change_size();
      } else {
        change_feature(donor);
      }
    }
    backward_ = problem_.value("backward", false);
    if (const auto layouts = problem_.find("layouts"); layouts != problem_.end()) {
      expanded_ = layouts->dump().find("expand") != std::string::npos;
    }
    finish_lens();
    finish_sizes();
    repair(problem_);
    const DType dtype = one_of(dtypes_);
    const bool same = chance(50) && (!backward_ || entry.at("data").at(0) != "equal_huge");
    entry_["data"] = same ? entry.at("data") : json::array({data()});
    if (entry.contains("hidden")) {
      keep_hidden(entry.at("hidden").get<std::string>());
    } else if (chance(12)) {
      hide();
    }
    if (chance(6)) check(testee_.arithmetic.at(dtype));
    return finished(dtype);
  }

 private:
  bool has(const char* feature) const { return testee_.has(feature); }
  Index within(Index least, Index most) const { return dice_.within(least, most); }
  bool chance(int percent) const { return dice_.chance(percent); }
  template <class T>
  T one_of(const std::vector<T>& choices) const {
    return dice_.one_of(choices);
  }

  json with_all_else() {
    if (!chance(15)) features();
    finish_sizes();
    const DType dtype = one_of(dtypes_);
    entry_["data"] = json::array({data()});
    if (chance(12)) hide();
    if (chance(6)) check(testee_.arithmetic.at(dtype));
    return finished(dtype);
  }

  json finished(DType dtype) {
    entry_["problem"] = problem_;
    entry_["dtypes"] = json::array({std::string(name(dtype))});
    if (!entry_.contains("clauses")) entry_["clauses"] = json::array({"SOFTMAX-1"});
    return entry_;
  }

  // ---- Sizes ----------------------------------------------------------------------------------

  // Mostly a handful, often about the edge of a tile.
  Index length() const {
    const Index kind = within(0, 99);
    if (kind < 45) return within(1, 8);
    if (kind < 60) return within(9, 24);
    if (kind < 80) return one_of<Index>({15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65});
    return tail(128);
  }

  // A few tiles, and what may be left of one: nothing, a key, half of it, all but a key.
  Index tail(Index most) const {
    const Index tile = one_of<Index>({16, 32, 64, 64, 128});
    const Index whole = tile * within(1, std::max<Index>(most / tile, 1));
    return whole + one_of<Index>({-1, 0, 1, tile / 2});
  }

  Index channels() const {
    if (chance(60)) return within(1, 9);
    return one_of<Index>({15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 80, 96, 128});
  }
  Index wide_channels() const { return one_of<Index>({96, 112, 128, 128, 160, 192, 256}); }

  void sizes() {
    const Index kind = within(0, 99);
    if (kind < 70) {
      few();
    } else if (kind < 77) {
      wide_heads();
    } else if (kind < 82) {
      many_heads();
    } else if (kind < 88) {
      tiles_of_a_batch();
    } else if (kind < 94) {
      odd_groups();
    } else {
      cache();
    }
    if (has("zero-sizes") && chance(4)) {
      Index* size = one_of<Index*>({&batch_, &query_len_, &key_len_, &query_heads_, &head_dim_});
      if (size != &head_dim_ || has("value-dim")) *size = 0;
      if (query_heads_ == 0 && !has("gqa")) key_heads_ = 0;
    }
  }

  // A handful of everything.
  void few() {
    most_ = kMostWork / 2;
    query_len_ = length();
    key_len_ = length();
    head_dim_ = channels();
    value_dim_ = has("value-dim") && chance(40) ? channels() : head_dim_;
    fit();
    const Index most = room();
    key_heads_ = within(1, std::min<Index>(most, 3));
    query_heads_ = key_heads_;
    if (has("gqa") && chance(40)) {
      query_heads_ *= within(1, std::clamp<Index>(most / key_heads_, 1, 5));
    }
    batch_ = within(1, std::clamp<Index>(most / query_heads_, 1, 3));
  }

  // As many channels as kernels have instances of their own for.
  void wide_heads() {
    head_dim_ = wide_channels();
    value_dim_ = head_dim_;
    if (has("value-dim") && chance(30)) value_dim_ = chance(50) ? wide_channels() : channels();
    key_len_ = chance(60) ? tail(128) : length();
    query_len_ = std::min(chance(60) ? within(1, 17) : length(),
                          std::max<Index>(most_ / (key_len_ * (head_dim_ + value_dim_)), 1));
    some_heads();
  }

  // As many heads as a model has.
  void many_heads() {
    query_heads_ = one_of<Index>({32, 40, 64, 64, 96});
    key_heads_ = has("gqa") ? query_heads_ / one_of<Index>({1, 4, 8, query_heads_}) : query_heads_;
    query_len_ = within(1, 3);
    key_len_ = chance(50) ? within(1, 8) : tail(64);
    head_dim_ = value_dim_ = within(1, 8);
    fit();
  }

  // Several tiles, of several batch elements.
  void tiles_of_a_batch() {
    batch_ = within(4, 6);
    key_len_ = tail(192);
    query_len_ = chance(50) ? within(1, 8) : tail(64);
    if (chance(30)) std::swap(query_len_, key_len_);
    head_dim_ = value_dim_ = chance(50) ? within(1, 8) : channels();
    fit();
    some_heads();
  }

  // Groups that divide no tile.
  void odd_groups() {
    key_heads_ = within(1, 2);
    query_heads_ = key_heads_ * (has("gqa") ? one_of<Index>({3, 5, 6, 7, 12}) : 1);
    query_len_ = chance(70) ? within(1, 8) : tail(32);
    key_len_ = chance(50) ? 64 * within(1, 3) + one_of<Index>({-1, 1}) : tail(192);
    head_dim_ = value_dim_ = channels();
    fit();
  }

  // A few queries and many keys, as when a model generates.
  void cache() {
    query_len_ = within(1, 8);
    key_len_ = chance(50) ? within(300, 1100) : tail(1024);
    head_dim_ = value_dim_ = chance(70) ? within(1, 8) : channels();
    fit();
    some_heads();
  }

  // Up to four sizes beyond those at which kernels change hands, as the work allows.
  void sizes_beyond() {
    struct Size {
      Index Maker::*size;
      std::vector<Index> beyond;
    };
    const Index key_len = tail(chance(50) ? 1024 : 5120);
    std::vector<Size> left = {{&Maker::key_len_, {key_len, key_len, tail(512)}},
                              {&Maker::query_len_, {tail(128), tail(640)}},
                              {&Maker::head_dim_, {64, 72, 96, 128, 136, 192, 256}},
                              {&Maker::query_heads_, {3, 5, 16, 64, 65, 66, 70}},
                              {&Maker::batch_, {4, 5, 6, 9}}};
    most_ = kMostWorkOfLarge / 2;
    for (Index* few : {&query_len_, &key_len_, &head_dim_}) *few = within(1, 8);
    while (left.size() > 1) {
      const auto at = left.begin() + within(0, static_cast<Index>(left.size()) - 1);
      Index& size = this->*at->size;
      const Index before = std::exchange(size, one_of(at->beyond));
      value_dim_ = head_dim_;
      key_heads_ = query_heads_;
      if (work() > most_) size = before;
      left.erase(at);
    }
    value_dim_ = head_dim_;
    const bool grouped = has("gqa") && chance(60);
    key_heads_ = grouped ? one_of(divisors_of(query_heads_)) : query_heads_;
  }

  static std::vector<Index> divisors_of(Index number) {
    std::vector<Index> divisors;
    for (Index d = 1; d <= number; ++d) {
      if (number % d == 0) divisors.push_back(d);
    }
    return divisors;
  }

  Index work() const {
    return work_of({.batch = batch_,
                    .query_heads = query_heads_,
                    .key_heads = key_heads_,
                    .query_len = query_len_,
                    .key_len = key_len_,
                    .head_dim = head_dim_,
                    .value_dim = value_dim_});
  }
  // How many times the work may be done.
  Index room() const { return std::max<Index>(most_ / std::max<Index>(work(), 1), 1); }

  // The work of a problem stays small, however its sizes come together.
  void fit() {
    const Index all = work();
    if (all <= most_) return;
    const Index channels = head_dim_ + value_dim_;
    head_dim_ = std::clamp<Index>(most_ * channels / all / 2, 1, head_dim_);
    value_dim_ = has("value-dim") ? std::max<Index>(std::min(value_dim_, head_dim_), 1) : head_dim_;
  }

  // Heads and batch elements, as far as the work allows.
  void some_heads() {
    const Index heads = within(1, std::min<Index>(room(), 4));
    query_heads_ = heads;
    key_heads_ = has("gqa") && chance(40) ? 1 : heads;
    if (batch_ == 1) batch_ = within(1, std::min<Index>(room(), 3));
  }

  void finish_sizes() {
    for (const char* size : kSizes) problem_.erase(size);
    const auto put = [&](const char* field, Index size) {
      if (size != 1) problem_[field] = size;
    };
    const bool packed = problem_.contains("packed"), paged = problem_.contains("paging");
    put("batch", batch_);
    put("query_heads", query_heads_);
    put("key_heads", key_heads_);
    if (!packed) put("query_len", query_len_);
    if (!packed && !paged) put("key_len", key_len_);
    put("head_dim", head_dim_);
    if (value_dim_ != head_dim_) problem_["value_dim"] = value_dim_;
  }

  // ---- Changes --------------------------------------------------------------------------------

  static constexpr const char* kSizes[] = {"batch",   "query_heads", "key_heads", "query_len",
                                           "key_len", "head_dim",    "value_dim"};

  void read_sizes(const json& problem) {
    batch_ = problem.value<Index>("batch", 1);
    query_heads_ = problem.value<Index>("query_heads", 1);
    key_heads_ = problem.value<Index>("key_heads", 1);
    const auto length = [&](const char* size, const char* lens) {
      return problem.contains(size)   ? problem.at(size).get<Index>()
             : problem.contains(lens) ? longest(problem.at(lens))
                                      : 1;
    };
    query_len_ = length("query_len", "query_lens");
    key_len_ = length("key_len", "key_lens");
    head_dim_ = problem.value<Index>("head_dim", 1);
    value_dim_ = problem.value<Index>("value_dim", head_dim_);
  }

  void change_size() {
    const auto near = [&](Index size) {
      switch (within(0, 3)) {
        case 0:
          return std::max<Index>(size + one_of<Index>({-1, 1}), 1);
        case 1:
          return std::max<Index>(size / 2, 1);
        case 2:
          return 2 * size + within(0, 1);
        default:
          return chance(50) ? length() : tail(192);
      }
    };
    switch (within(0, 5)) {
      case 0:
        query_len_ = near(query_len_);
        return;
      case 1:
      case 2:
        key_len_ = near(key_len_);
        return;
      case 3: {
        const bool same = value_dim_ == head_dim_;
        head_dim_ = chance(70) ? channels() : wide_channels();
        if (same) value_dim_ = head_dim_;
        return;
      }
      case 4:
        batch_ = within(1, 5);
        return;
      default:
        key_heads_ = within(1, 4);
        query_heads_ = key_heads_ * (has("gqa") ? within(1, 7) : 1);
        return;
    }
  }

  // A feature less, another one, or that of another entry.
  void change_feature(const json& donor) {
    struct Feature {
      std::vector<const char*> fields;
      bool declared;
      void (Maker::*make)();
    };
    const Feature feature =
        one_of<Feature>({{{"mask"}, true, &Maker::mask},
                         {{"mask"}, true, &Maker::mask},
                         {{"query_lens", "key_lens", "packed", "paging"}, true, &Maker::lengths},
                         {{"backward", "d_lse"}, has("backward"), &Maker::gradients},
                         {{"scale"}, true, &Maker::scale},
                         {{"softcap"}, has("softcap"), &Maker::softcap},
                         {{"bias"}, has("bias"), &Maker::bias},
                         {{"alibi"}, has("alibi"), &Maker::alibi},
                         {{"sink"}, has("sink"), &Maker::sink},
                         {{"dropout"}, has("dropout") || has("dropout-generated"), &Maker::dropout},
                         {{"layouts"}, has("strides"), &Maker::layouts}});
    bool present = false;
    for (const char* field : feature.fields) present |= problem_.erase(field) > 0;
    if (present && chance(40)) return;
    if (chance(40)) {
      for (const char* field : feature.fields) {
        if (donor.contains(field)) problem_[field] = donor.at(field);
      }
    } else if (feature.declared) {
      (this->*feature.make)();
    }
  }

  // The lengths of a problem whose sizes are others now.
  void finish_lens() {
    const auto finish = [&](const char* name, Index& whole, bool is_longest) {
      const auto lens = problem_.find(name);
      if (lens == problem_.end()) return;
      if (lens->size() != static_cast<std::size_t>(batch_)) *lens = any_lens(whole);
      for (json& len : *lens) len = std::min(len.get<Index>(), whole);
      if (is_longest) whole = longest(*lens);
    };
    const bool packed = problem_.contains("packed"), paged = problem_.contains("paging");
    finish("query_lens", query_len_, packed);
    finish("key_lens", key_len_, packed || paged);
  }

  // ---- Features -------------------------------------------------------------------------------

  void features() {
    if (batch_ > 0) lengths_if(12, 25);
    if (chance(70)) mask();
    backward_ = has("backward") && !problem_.contains("paging") && chance(50);
    if (backward_) gradients();
    if (chance(20)) scale();
    if (has("softcap") && chance(25)) softcap();
    if (has("bias") && (!backward_ || has("dbias")) && chance(25)) bias();
    if (has("alibi") && chance(15)) alibi();
    if (has("sink") && chance(20)) sink();
    if ((has("dropout") || has("dropout-generated")) && chance(22)) dropout();
    if (has("strides") && chance(30)) layouts();
  }

  void mask() {
    json mask = has("mask-and") && chance(12) ? diagonal_and_keys() : any_mask(0);
    if (!mask.is_null()) problem_["mask"] = std::move(mask);
  }
  void gradients() {
    problem_["backward"] = true;
    if (has("dlse") && chance(30)) problem_["d_lse"] = true;
  }
  void scale() { problem_["scale"] = one_of<double>({1, 0.5, -0.5, 0.125, 0, 3, 0.01}); }
  void softcap() { problem_["softcap"] = one_of<double>({0.5, 1, 5, 15, 30, 50}); }
  void sink() { problem_["sink"] = one_of(sink_kinds()); }

  // A length for each batch element: whole, empty, at the edge of a tile, or any.
  json any_lens(Index whole) const {
    json lens = json::array();
    for (Index b = 0; b < batch_; ++b) {
      const Index kind = within(0, 9);
      lens.push_back(kind < 4    ? whole
                     : kind < 6  ? 0
                     : kind == 6 ? std::min(tail(std::max<Index>(whole, 16)), whole)
                                 : within(0, whole));
    }
    return lens;
  }

  void lengths() { lengths_if(40, 80); }

  // Packed or paged, or else padded, that often.
  void lengths_if(int together, int padded) {
    const bool packed = has("packed") && chance(together), paged = has("paged") && chance(together);
    if (packed || (has("lengths") && chance(padded * 2 / 3))) {
      problem_["query_lens"] = any_lens(query_len_);
    }
    if (packed || paged || (has("lengths") && chance(padded))) {
      problem_["key_lens"] = any_lens(key_len_);
    }
    if (packed) {
      problem_["packed"] = true;
      query_len_ = longest(problem_["query_lens"]);
    }
    if (packed || paged) key_len_ = longest(problem_["key_lens"]);
    if (!paged) return;
    problem_["paging"] = {
        {"page_size", one_of<Index>({1, 2, 3, 4, 8, 15, 16, 17, 32})},
        {"order", one_of<std::string>({"in_order", "reversed", "shuffled", "shared"})}};
    if (chance(40)) problem_["paging"]["unused"] = within(1, 3);
    if (chance(40)) problem_["paging"]["spare_entries"] = within(1, 2);
  }

  // ---- Masks ----------------------------------------------------------------------------------

  // Null if the testee knows none of that kind.
  json any_mask(int depth) {
    const Index kind = within(0, depth < 2 ? 10 : 7);
    switch (kind) {
      case 0:
      case 1:
        return has("causal") ? json("causal" + placed()) : json();
      case 2:
      case 3:
        return has("window") ? window() : json();
      case 4:
        return has("dense-mask") ? json{{"dense", table("bhqk", key_len_)}} : json();
      case 5:
        return block_or_prefix();
      case 6:
        return has("segments") ? segments() : json();
      case 7:
        return has("dilated") ? json(fmt::format("dilated {}{}", within(1, 5), placed())) : json();
      default:
        return several(depth);
    }
  }

  // The anchor and the offset.
  std::string placed() const {
    std::string text = chance(50) ? " bottom_right" : "";
    if (chance(30)) {
      const Index far = chance(70) ? 4 : std::max(query_len_, key_len_);
      text += fmt::format(" offset={}", within(-far, far));
    }
    return text;
  }

  // Of few keys, mostly; or with an edge where all queries and keys end, or beyond.
  json window() const {
    const auto reach = [&] {
      if (chance(12)) return std::max(query_len_, key_len_) + one_of<Index>({-1, 0, 1, 64});
      return one_of<Index>({0, 1, 2, 3, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64, 128, -1});
    };
    const Index left = reach();
    Index right = chance(60) ? 0 : reach();
    if (left < 0 && right == 0) right = 1;  // else it is causal
    const auto text = [](const char* sign, Index width) {
      return width < 0 ? std::string("*") : fmt::format("{}{}", width == 0 ? "" : sign, width);
    };
    return fmt::format("window {}..{}{}", text("-", left), text("", right), placed());
  }

  json block_or_prefix() {
    if (has("prefix") && chance(50)) {
      if (batch_ > 1 && chance(50)) return {{"prefix", any_lens(key_len_)}};
      return fmt::format("prefix {}", within(0, key_len_));
    }
    if (!has("block-sparse")) return {};
    const std::vector<Index> sizes = {1, 2, 3, 5, 8, 16, 17, 32, 64};
    const Index block_key = one_of(sizes);
    json blocks = table("bh", (key_len_ + block_key - 1) / block_key);
    blocks["block"] = {one_of(sizes), block_key};
    return {{"block_sparse", blocks}};
  }

  json segments() const {
    return {{"segments",
             {{"pattern",
               one_of<std::string>({"documents", "falling", "padded", "interleaved", "resumed"})},
              {"length", within(1, std::max<Index>(std::max(query_len_, key_len_), 1))},
              {"axes", chance(50) ? "b" : ""}}}};
  }

  json several(int depth) {
    const bool all = chance(60);
    if (!has(all ? "mask-and" : "mask-or")) return {};
    json parts = json::array();
    for (Index n = within(2, 3); n > 0; --n) {
      if (json part = any_mask(depth + 1); !part.is_null()) parts.push_back(std::move(part));
    }
    if (parts.empty()) return {};
    return {{all ? "all_of" : "any_of", parts}};
  }

  // As systems put them together: a diagonal beside what tells keys apart for all queries alike.
  json diagonal_and_keys() const {
    const json diagonal = has("window") && chance(40) ? window()
                          : has("causal")             ? json("causal" + placed())
                                                      : json();
    json keys;
    if (has("dense-mask") && chance(60)) {
      keys = table("bh", key_len_);
      keys["axes"] = keys["axes"].get<std::string>() + "k";
      keys = {{"dense", keys}};
    } else if (has("segments") && chance(50)) {
      keys = segments();
    } else if (has("prefix")) {
      keys = fmt::format("prefix {}", within(0, key_len_));
    }
    if (diagonal.is_null() || keys.is_null()) return diagonal;
    return {{"all_of", {diagonal, keys}}};
  }

  std::string some_of(std::string_view axes) const {
    std::string chosen;
    for (const char axis : axes) {
      if (chance(60)) chosen += axis;
    }
    return chosen;
  }

  // A table of booleans with so many columns.
  json table(std::string_view axes, Index columns) const {
    json result = {{"axes", some_of(axes)}};
    if (chance(60)) {
      result["pattern"] = "random";
      result["percent"] = one_of<Index>({3, 20, 50, 80, 97});
    } else if (chance(50)) {
      result["pattern"] = one_of<std::string>(
          {"checkerboard", "one_key", "all_but_one_key", "odd_rows_empty", "nothing"});
    } else {
      result["pattern"] = one_of<std::string>(
          {"hide_first_tile", "hide_middle_tile", "hide_last_tile", "keep_first_tile",
           "keep_middle_tile", "keep_last_tile", "first_rows_empty", "last_rows_empty"});
      result["tile"] = chance(50) ? within(1, std::max<Index>(columns, 1)) : one_of<Index>({8, 16});
    }
    return result;
  }

  // ---- Scores and dropout ---------------------------------------------------------------------

  void bias() {
    problem_["bias"] = {{"kind", one_of(bias_kinds())}, {"axes", some_of("bhqk")}};
    if (chance(30)) {
      json allows = table("", key_len_);
      allows.erase("axes");
      problem_["bias"]["allows"] = allows;
    }
  }

  void alibi() {
    json slopes = "standard";
    const bool of_batch = chance(30);
    if (chance(30)) {
      slopes = json::array();
      for (Index n = query_heads_ * (of_batch ? batch_ : 1); n > 0; --n) {
        slopes.push_back(one_of<double>({0, 0.25, -0.5, 1, 8}));
      }
    }
    problem_["alibi"] = {{"slopes", slopes}, {"axes", of_batch ? "bh" : "h"}};
  }

  void dropout() {
    const bool given = has("dropout") && (!has("dropout-generated") || chance(60));
    problem_["dropout"] = {{"mode", given ? "given" : "generated"},
                           {"probability", one_of<double>({0, 0.1, 0.25, 0.5, 0.9})},
                           {"seed", within(0, 1 << 20)}};
    if (chance(30)) problem_["dropout"]["offset"] = within(1, 1 << 20);
  }

  // ---- Layouts --------------------------------------------------------------------------------

  void layouts() {
    json all = json::object();
    // In the order of the draws, on which the problems of a seed depend.
    for (const TensorName tensor :
         {TensorName::q, TensorName::k, TensorName::v, TensorName::o, TensorName::bias,
          TensorName::d_o, TensorName::dq, TensorName::dk, TensorName::dv}) {
      if ((tensor == TensorName::bias && !problem_.contains("bias")) || !chance(50)) continue;
      if ((tensor == TensorName::d_o || is_gradient(tensor)) && !backward_) continue;
      all[wire_name(tensor)] = layout(!is_among(tensor, kReturnedTensors));
    }
    if (!all.empty()) problem_["layouts"] = all;
  }

  std::string layout(bool input) {
    std::vector<std::string> orders = {"bhsd", "bshd", "sbhd", "hbsd", "shbd"};
    if (has("transposed")) orders.insert(orders.end(), {"bhds", "sdbh"});
    std::string text = one_of(orders);
    if (chance(50)) text += fmt::format(" gap={}", one_of<Index>({1, 3, 8, 17}));
    if (input && has("expanded") && chance(15)) {
      text += " expand=" + one_of<std::string>({"b", "h", "s", "bh"});
      expanded_ = true;
    }
    if (chance(20)) text += " wild";
    return text;
  }

  // ---- Inputs, and what is asked beside -------------------------------------------------------

  std::string data() const {
    if (chance(35)) return "normal";
    const std::string any = chance(40) ? one_of(extreme_classes()) : one_of(input_classes()).name;
    // No bound says anything of gradients of numbers that are huge and alike.
    return backward_ && any == "equal_huge" ? "all_equal" : any;
  }

  // Whether some batch element is shorter than the longest may be.
  bool some_shorter(const char* lens, Index whole) const {
    const auto list = problem_.find(lens);
    return list != problem_.end() &&
           std::any_of(list->begin(), list->end(), [&](const json& len) { return len < whole; });
  }

  // The clause that is tried; a recommended one stands alone.
  void put_hidden(const std::string& way) {
    const bool paged = problem_.contains("paging"), backward = problem_.value("backward", false);
    entry_["hidden"] = way;
    entry_["clauses"] = json::array({way == "huge"         ? "HIDE-1"
                                     : way == "nan"        ? paged ? "PAGE-2" : "HIDE-2"
                                     : way == "nan_rows"   ? "HIDE-2"
                                     : way == "nan_masked" ? "HIDE-3"
                                     : way == "nan_query"  ? backward ? "FINITE-3" : "FINITE-1"
                                                           : "FINITE-2"});
  }

  void keep_hidden(const std::string& way) {
    if (way != "plain" && (way == "huge" || !finite_)) put_hidden(way);
  }

  void hide() {
    if (expanded_) return;
    const bool packed = problem_.contains("packed"), paged = problem_.contains("paging");
    std::vector<std::string> ways = {"huge"};
    if (!finite_) {
      ways.push_back("nan_masked");
      // Heads or batch elements that are left as they are, or nothing is specified.
      if (key_heads_ > 1 || batch_ > 1) {
        ways.insert(ways.end(), {"nan_query", "nan_key", "nan_value"});
        if (backward_) ways.push_back("nan_gradient");
      }
      if (paged || (!packed && some_shorter("key_lens", key_len_))) ways.push_back("nan");
      if (!packed && some_shorter("query_lens", query_len_)) ways.push_back("nan_rows");
    }
    put_hidden(one_of(ways));
  }

  void check(const Arithmetic& arithmetic) {
    std::vector<std::string> checks = {"threads"};
    const bool drawn = problem_.contains("dropout") && problem_["dropout"]["mode"] == "generated";
    if (arithmetic.batch_invariant && !drawn) checks.push_back("neighbours");
    if (testee_.schedule) checks.push_back("schedule");
    entry_["check"] = one_of(checks);
  }

  const Description& testee_;
  const std::vector<DType>& dtypes_;
  const bool finite_;
  Dice& dice_;
  Index most_ = kMostWork;  // of the work
  Index batch_ = 1, query_heads_ = 1, key_heads_ = 1;
  Index query_len_ = 1, key_len_ = 1, head_dim_ = 1, value_dim_ = 1;
  bool backward_ = false, expanded_ = false;
  json problem_ = json::object(), entry_ = json::object();
};

}  // namespace

json random_entry(const Scope& scope, Dice& dice) { return Maker(scope, dice).fresh(); }

json large_entry(const Scope& scope, Dice& dice) { return Maker(scope, dice).large(); }

json altered_entry(const Scope& scope, const json& entry, const json& other, Dice& dice) {
  return Maker(scope, dice).altered(entry, other);
}

Index work_of(const Problem& p) {
  const Index rows = p.query_heads * p.query_len + p.key_heads * p.key_len;
  return p.batch * (p.head_dim + p.value_dim) *
         (p.query_heads * p.query_len * p.key_len + 4 * rows);
}

}  // namespace attest
