#include "harness/fuzz/random_entry.h"

#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "cases/generate.h"

namespace attest {
namespace {

using nlohmann::json;

// Both ends included. RapidCheck begins with small ranges; here each gets all of its range.
Index within(Index least, Index most) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<Index>(least, most + 1));
}

bool chance(int percent) { return within(0, 99) < percent; }

template <class T>
T one_of(const std::vector<T>& choices) {
  return choices[static_cast<std::size_t>(within(0, static_cast<Index>(choices.size()) - 1))];
}

// Makes one entry, from the sizes to what is asked beside.
class Maker {
 public:
  Maker(const Description& testee, const std::vector<DType>& dtypes)
      : testee_(testee), dtypes_(dtypes) {}

  json entry() {
    const DType dtype = one_of(dtypes_);
    sizes();
    if (!chance(15)) features();
    finish_sizes();
    entry_["problem"] = problem_;
    entry_["dtypes"] = json::array({std::string(name(dtype))});
    entry_["data"] = json::array({data()});
    entry_["clauses"] = json::array({"SOFTMAX-1"});
    if (chance(12)) hide();
    if (chance(6)) check(testee_.arithmetic.at(dtype));
    return entry_;
  }

 private:
  bool has(const char* feature) const { return testee_.has(feature); }

  // ---- Sizes ----------------------------------------------------------------------------------

  // Mostly a handful, often about the edge of a tile.
  static Index length() {
    const Index kind = within(0, 99);
    if (kind < 45) return within(1, 8);
    if (kind < 60) return within(9, 24);
    if (kind < 95) return one_of<Index>({15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65});
    return one_of<Index>({79, 80, 95, 96, 97, 111, 127, 128, 129});
  }

  static Index channels() {
    if (chance(60)) return within(1, 9);
    return one_of<Index>({15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 80, 96, 128});
  }

  void sizes() {
    query_len_ = length();
    key_len_ = length();
    head_dim_ = channels();
    value_dim_ = has("value-dim") && chance(40) ? channels() : head_dim_;
    // The work of a problem stays small, however its sizes come together.
    constexpr Index kMostWork = 400'000;
    const Index pairs = query_len_ * key_len_;
    if (pairs * (head_dim_ + value_dim_) > kMostWork) {
      head_dim_ = std::max<Index>(std::min(head_dim_, kMostWork / (2 * pairs)), 1);
      value_dim_ =
          has("value-dim") ? std::max<Index>(std::min(value_dim_, head_dim_), 1) : head_dim_;
    }
    const Index most = std::max<Index>(kMostWork / (pairs * (head_dim_ + value_dim_)), 1);
    key_heads_ = within(1, std::min<Index>(most, 3));
    query_heads_ = key_heads_;
    if (has("gqa") && chance(40)) {
      query_heads_ *= within(1, std::clamp<Index>(most / key_heads_, 1, 5));
    }
    batch_ = within(1, std::clamp<Index>(most / query_heads_, 1, 3));
    if (has("zero-sizes") && chance(4)) {
      Index* size = one_of<Index*>({&batch_, &query_len_, &key_len_, &query_heads_, &head_dim_});
      if (size != &head_dim_ || has("value-dim")) *size = 0;
      if (query_heads_ == 0 && !has("gqa")) key_heads_ = 0;
    }
  }

  void finish_sizes() {
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

  // ---- Features -------------------------------------------------------------------------------

  void features() {
    lengths();
    if (chance(70)) {
      if (json mask = any_mask(0); !mask.is_null()) problem_["mask"] = std::move(mask);
    }
    backward_ = has("backward") && !problem_.contains("paging") && chance(50);
    if (backward_) problem_["backward"] = true;
    if (backward_ && has("dlse") && chance(30)) problem_["d_lse"] = true;
    if (chance(20)) problem_["scale"] = one_of<double>({1, 0.5, -0.5, 0.125, 0, 3, 0.01});
    if (has("softcap") && chance(20)) {
      problem_["softcap"] = one_of<double>({0.5, 1, 5, 15, 30, 50});
    }
    if (has("bias") && (!backward_ || has("dbias")) && chance(25)) bias();
    if (has("alibi") && chance(15)) alibi();
    if (has("sink") && chance(20)) problem_["sink"] = one_of(sink_kinds());
    dropout();
    if (has("strides") && chance(30)) layouts();
  }

  // A length for each batch element: whole, empty, or any.
  json any_lens(Index whole) const {
    json lens = json::array();
    for (Index b = 0; b < batch_; ++b) {
      const Index kind = within(0, 9);
      lens.push_back(kind < 4 ? whole : kind < 6 ? 0 : within(0, whole));
    }
    return lens;
  }

  void lengths() {
    if (batch_ == 0) return;
    const bool packed = has("packed") && chance(12), paged = has("paged") && chance(12);
    const auto longest = [](const json& lens) {
      return *std::max_element(lens.begin(), lens.end());
    };
    if (packed || (has("lengths") && chance(15))) problem_["query_lens"] = any_lens(query_len_);
    if (packed || paged || (has("lengths") && chance(25)))
      problem_["key_lens"] = any_lens(key_len_);
    if (packed) {
      problem_["packed"] = true;
      query_len_ = longest(problem_["query_lens"]).get<Index>();
    }
    if (packed || paged) key_len_ = longest(problem_["key_lens"]).get<Index>();
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
      const Index far = chance(80) ? 4 : std::max(query_len_, key_len_);
      text += fmt::format(" offset={}", within(-far, far));
    }
    return text;
  }

  // Of few keys, mostly.
  json window() const {
    const auto reach = [] {
      return one_of<Index>({0, 1, 2, 3, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64, -1});
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

  static std::string some_of(std::string_view axes) {
    std::string chosen;
    for (const char axis : axes) {
      if (chance(60)) chosen += axis;
    }
    return chosen;
  }

  // A table of booleans with so many columns.
  static json table(std::string_view axes, Index columns) {
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
    const bool given = has("dropout") && chance(15);
    const bool generated = !given && has("dropout-generated") && chance(10);
    if (!given && !generated) return;
    problem_["dropout"] = {{"mode", given ? "given" : "generated"},
                           {"probability", one_of<double>({0, 0.1, 0.25, 0.5, 0.9})},
                           {"seed", within(0, 1 << 20)}};
    if (chance(30)) problem_["dropout"]["offset"] = within(1, 1 << 20);
  }

  // ---- Layouts --------------------------------------------------------------------------------

  void layouts() {
    json all = json::object();
    for (const char* tensor : {"q", "k", "v", "o", "bias", "d_o", "dq", "dk", "dv"}) {
      const std::string_view t = tensor;
      if ((t == "bias" && !problem_.contains("bias")) || !chance(50)) continue;
      if (t.starts_with('d') && !backward_) continue;
      const bool output = t == "o" || (t.starts_with('d') && t != "d_o");
      all[tensor] = layout(!output);
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
    if (chance(45)) return "normal";
    return one_of(input_classes()).name;
  }

  // Whether some batch element is shorter than the longest may be.
  bool some_shorter(const char* lens, Index whole) const {
    const auto list = problem_.find(lens);
    return list != problem_.end() &&
           std::any_of(list->begin(), list->end(), [&](const json& len) { return len < whole; });
  }

  void hide() {
    if (expanded_) return;
    const bool packed = problem_.contains("packed"), paged = problem_.contains("paging");
    struct Way {
      const char* name;
      const char* clause;
    };
    // A recommended clause stands alone.
    std::vector<Way> ways = {{"huge", "HIDE-1"},
                             {"nan_masked", "HIDE-3"},
                             {"nan_query", backward_ ? "FINITE-3" : "FINITE-1"},
                             {"nan_key", "FINITE-2"},
                             {"nan_value", "FINITE-2"}};
    if (backward_) ways.push_back({"nan_gradient", "FINITE-2"});
    if (paged || (!packed && some_shorter("key_lens", key_len_))) {
      ways.push_back({"nan", paged ? "PAGE-2" : "HIDE-2"});
    }
    if (!packed && some_shorter("query_lens", query_len_)) ways.push_back({"nan_rows", "HIDE-2"});
    const Way way = one_of(ways);
    entry_["hidden"] = way.name;
    entry_["clauses"] = json::array({way.clause});
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
  Index batch_ = 1, query_heads_ = 1, key_heads_ = 1;
  Index query_len_ = 1, key_len_ = 1, head_dim_ = 1, value_dim_ = 1;
  bool backward_ = false, expanded_ = false;
  json problem_ = json::object(), entry_ = json::object();
};

}  // namespace

json random_entry(const Description& testee, const std::vector<DType>& dtypes, std::uint64_t seed,
                  std::uint64_t number) {
  static std::mutex one_at_a_time;  // RapidCheck keeps the state of exec in globals
  const std::lock_guard lock(one_at_a_time);
  const auto gen = rc::gen::exec([&] { return Maker(testee, dtypes).entry(); });
  json entry = gen(rc::Random(rc::Random::Key{seed, number, 0, 0})).value();
  entry["name"] = fmt::format("seed{}_number{}", seed, number);
  entry["bits"] = fmt::format("fuzz/seed={}/number={}", seed, number);
  entry["because"] = "A random problem.";
  return entry;
}

}  // namespace attest
