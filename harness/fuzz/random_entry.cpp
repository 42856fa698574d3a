#include "harness/fuzz/random_entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "cases/generate.h"
#include "cases/repair.h"
#include "cases/side_inputs.h"
#include "harness/fuzz/random_mask.h"
#include "harness/fuzz/random_sizes.h"

namespace attest {
namespace {

using nlohmann::json;

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
class Maker : Drawing {
 public:
  Maker(const Scope& scope, Dice& dice)
      : Drawing(scope.testee, dice), dtypes_(scope.dtypes), finite_(scope.finite) {}

  json fresh() {
    sizes_ = random_sizes(testee_, dice_);
    return with_all_else();
  }

  json large() {
    sizes_ = large_sizes(testee_, dice_);
    return with_all_else();
  }

  json altered(const json& entry, const json& other) {
    problem_ = entry.at("problem");
    sizes_ = sizes_in(problem_);
    const json& donor = other.at("problem");
    if (chance(20)) sizes_ = sizes_in(donor);
    for (Index changes = within(0, 2); changes > 0; --changes) {
      if (chance(50)) {
        sizes_ = altered_sizes(sizes_, testee_, dice_);
      } else {
        change_feature(donor);
      }
    }
    backward_ = problem_.value("backward", false);
    if (const auto layouts = problem_.find("layouts"); layouts != problem_.end()) {
      expanded_ = layouts->dump().find("expand") != std::string::npos;
    }
    finish_lens();
    put_sizes(sizes_, problem_);
    repair(problem_);
    const DType dtype = one_of(dtypes_);
    const bool same = chance(50) && tells(entry.at("data").at(0), dtype);
    entry_["data"] = same ? entry.at("data") : json::array({data(dtype)});
    if (entry.contains("hidden")) {
      keep_hidden(entry.at("hidden").get<std::string>());
    } else if (chance(12)) {
      hide();
    }
    if (chance(6)) check(testee_.arithmetic.at(dtype));
    return finished(dtype);
  }

 private:
  json with_all_else() {
    if (!chance(15)) features();
    put_sizes(sizes_, problem_);
    const DType dtype = one_of(dtypes_);
    entry_["data"] = json::array({data(dtype)});
    if (chance(12)) hide();
    if (chance(6)) check(testee_.arithmetic.at(dtype));
    return finished(dtype);
  }

  json finished(DType dtype) {
    if (dtype == DType::f64) problem_.erase("stored");
    entry_["problem"] = problem_;
    entry_["dtypes"] = json::array({std::string(name(dtype))});
    if (!entry_.contains("clauses")) entry_["clauses"] = json::array({"SOFTMAX-1"});
    return entry_;
  }

  // ---- Changes --------------------------------------------------------------------------------

  // A feature less, another one, or that of another entry.
  void change_feature(const json& donor) {
    // Of whoever takes nothing that is stored so, the draws are what they were.
    if (may_be_stored() && chance(10)) {
      if (problem_.erase("stored") == 0) stored();
      return;
    }
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
      if (lens->size() != static_cast<std::size_t>(sizes_.batch))
        *lens = any_lens(whole, sizes_.batch);
      for (json& len : *lens) len = std::min(len.get<Index>(), whole);
      if (is_longest) whole = longest(*lens);
    };
    const bool packed = problem_.contains("packed"), paged = problem_.contains("paging");
    finish("query_lens", sizes_.query_len, packed);
    finish("key_lens", sizes_.key_len, packed || paged);
  }

  // ---- Features -------------------------------------------------------------------------------

  void features() {
    if (sizes_.batch > 0) lengths_if(12, 25);
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
    if (!backward_ && may_be_stored() && chance(15)) stored();
  }

  // Q, K and V in 8 bits, as the testee takes them.
  std::vector<std::string> formats_stored() const {
    std::vector<std::string> formats;
    for (const DType dtype : kStoredDTypes) {
      if (has(name(dtype))) formats.emplace_back(name(dtype));
    }
    return formats;
  }
  std::vector<std::string> formats_in_blocks() const {
    std::vector<std::string> formats;
    if (has("bfp8")) formats.emplace_back("int8");
    for (const char* const each : {"e4m3", "e5m2"}) {
      if (has("mxfp8") && has(each)) formats.emplace_back(each);
    }
    return formats;
  }
  bool may_be_stored() const {
    return !(formats_stored().empty() && formats_in_blocks().empty()) &&
           (has("stored-qkv") || has("stored-qk") || has("stored-kv"));
  }
  void stored() {
    if (problem_.value("backward", false)) return;
    std::vector<std::string> tensors;
    for (const char* const each : {"qkv", "qk", "kv"}) {
      if (has(fmt::format("stored-{}", each))) tensors.emplace_back(each);
    }
    const std::vector<std::string> plain = formats_stored(), in_blocks = formats_in_blocks();
    if (!in_blocks.empty() && (plain.empty() || chance(30))) {
      problem_["stored"] = one_of(tensors) + " " + one_of(in_blocks) + " c";
      return;
    }
    std::string text = one_of(tensors) + " " + one_of(plain);
    if (chance(40)) text += "." + one_of(plain);
    std::string axes;
    if (has("scales-of-heads") && chance(50)) axes += one_of<std::string>({"b", "h", "bh"});
    if (has("scales-of-positions") && chance(30)) axes += "s";
    if (!axes.empty()) text += " " + axes;
    problem_["stored"] = text;
  }

  void mask() {
    json mask = masks_.mask();
    if (!mask.is_null()) problem_["mask"] = std::move(mask);
  }
  void gradients() {
    problem_["backward"] = true;
    if (has("dlse") && chance(30)) problem_["d_lse"] = true;
  }
  void scale() { problem_["scale"] = one_of<double>({1, 0.5, -0.5, 0.125, 0, 3, 0.01}); }
  void softcap() { problem_["softcap"] = one_of<double>({0.5, 1, 5, 15, 30, 50}); }
  void sink() { problem_["sink"] = one_of(sink_kinds()); }

  void lengths() { lengths_if(40, 80); }

  // Packed or paged, or else padded, that often.
  void lengths_if(int together, int padded) {
    const bool packed = has("packed") && chance(together), paged = has("paged") && chance(together);
    if (packed || (has("lengths") && chance(padded * 2 / 3))) {
      problem_["query_lens"] = any_lens(sizes_.query_len, sizes_.batch);
    }
    if (packed || paged || (has("lengths") && chance(padded))) {
      problem_["key_lens"] = any_lens(sizes_.key_len, sizes_.batch);
    }
    if (packed) {
      problem_["packed"] = true;
      sizes_.query_len = longest(problem_["query_lens"]);
    }
    if (packed || paged) sizes_.key_len = longest(problem_["key_lens"]);
    if (!paged) return;
    problem_["paging"] = {
        {"page_size", one_of<Index>({1, 2, 3, 4, 8, 15, 16, 17, 32})},
        {"order", one_of<std::string>({"in_order", "reversed", "shuffled", "shared"})}};
    if (chance(40)) problem_["paging"]["unused"] = within(1, 3);
    if (chance(40)) problem_["paging"]["spare_entries"] = within(1, 2);
  }

  // ---- Scores and dropout ---------------------------------------------------------------------

  void bias() {
    problem_["bias"] = {{"kind", one_of(bias_kinds())}, {"axes", masks_.some_of("bhqk")}};
    if (chance(30)) {
      json allows = masks_.table("", sizes_.key_len);
      allows.erase("axes");
      problem_["bias"]["allows"] = allows;
    }
  }

  void alibi() {
    json slopes = "standard";
    const bool of_batch = chance(30);
    if (chance(30)) {
      slopes = json::array();
      for (Index n = sizes_.query_heads * (of_batch ? sizes_.batch : 1); n > 0; --n) {
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

  // No bound says anything of gradients of numbers that are huge and alike, nor of O where a row
  // may be covered in parts (NUMERICS.md, section 3, "Large errors of the scores").
  bool tells(const std::string& data, DType dtype) const {
    return data != "equal_huge" || (!backward_ && testee_.arithmetic.at(dtype).kv_splits == 1);
  }

  std::string data(DType dtype) const {
    if (chance(35)) return "normal";
    const std::string any = chance(40) ? one_of(extreme_classes()) : one_of(input_classes()).name;
    return tells(any, dtype) ? any : "all_equal";
  }

  // Whether some batch element is shorter than the longest may be.
  bool some_shorter(const char* lens, Index whole) const {
    const auto list = problem_.find(lens);
    return list != problem_.end() &&
           std::any_of(list->begin(), list->end(), [&](const json& len) { return len < whole; });
  }

  // "kv int8 hs": axes stand last, positions last of them.
  bool scales_of_positions() const {
    return problem_.contains("stored") && problem_["stored"].get<std::string>().ends_with('s');
  }

  // The clauses that are tried; a recommended one stands first.
  void put_hidden(const std::string& way) {
    const bool paged = problem_.contains("paging"), backward = problem_.value("backward", false);
    entry_["hidden"] = way;
    const bool of_inputs = way == "nan_query" || way == "nan_key" || way == "nan_value";
    json clauses = json::array();
    if (of_inputs && !problem_.contains("dropout")) clauses.push_back("FINITE-4");
    clauses.push_back(way == "huge"                         ? "HIDE-1"
                      : way == "nan" || way == "nan_scales" ? paged ? "PAGE-2" : "HIDE-2"
                      : way == "nan_rows"                   ? "HIDE-2"
                      : way == "nan_masked"                 ? "HIDE-3"
                      : way == "nan_query"                  ? backward ? "FINITE-3" : "FINITE-1"
                                                            : "FINITE-2");
    entry_["clauses"] = clauses;
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
      if (sizes_.key_heads > 1 || sizes_.batch > 1) {
        ways.insert(ways.end(), {"nan_query", "nan_key", "nan_value"});
        if (backward_) ways.push_back("nan_gradient");
      }
      if (paged || (!packed && some_shorter("key_lens", sizes_.key_len))) {
        ways.push_back("nan");
        if (scales_of_positions()) ways.push_back("nan_scales");
      }
      if (!packed && some_shorter("query_lens", sizes_.query_len)) ways.push_back("nan_rows");
    }
    put_hidden(one_of(ways));
  }

  void check(const Arithmetic& arithmetic) {
    std::vector<std::string> checks = {"threads"};
    const bool drawn = problem_.contains("dropout") && problem_["dropout"]["mode"] == "generated";
    if (arithmetic.batch_invariant && !drawn) checks.push_back("neighbours");
    if (testee_.schedule) checks.push_back("schedule");
    if (has("stream")) checks.push_back("stream");
    if (has("two-streams")) checks.push_back("two_streams");
    if (has("graph")) checks.push_back("graph");
    entry_["check"] = one_of(checks);
  }

  const std::vector<DType>& dtypes_;
  const bool finite_;
  Sizes sizes_ = {};
  const MaskDrawing masks_{testee_, dice_, sizes_};
  bool backward_ = false, expanded_ = false;
  json problem_ = json::object(), entry_ = json::object();
};

}  // namespace

json random_entry(const Scope& scope, Dice& dice) { return Maker(scope, dice).fresh(); }

json large_entry(const Scope& scope, Dice& dice) { return Maker(scope, dice).large(); }

json altered_entry(const Scope& scope, const json& entry, const json& other, Dice& dice) {
  return Maker(scope, dice).altered(entry, other);
}

}  // namespace attest
