#include "spec/feature.h"

#include <algorithm>

namespace attest {
namespace {

// ---- When each is needed -----------------------------------------------------------------------

template <Mask::Kind kKind>
bool is(const Mask& mask) {
  return mask.kind == kKind;
}

bool is_packed(const Problem& p) { return p.packed; }
bool is_paged(const Problem& p) { return p.paging.page_size > 0; }
bool has_key_lens(const Problem& p) { return !p.key_lens.empty() && !p.packed && !is_paged(p); }
bool has_query_lens(const Problem& p) { return !p.query_lens.empty() && !p.packed; }
bool has_lengths(const Problem& p) { return has_key_lens(p) || has_query_lens(p); }
bool is_backward(const Problem& p) { return p.backward; }
template <DType kDType>
bool is_of(const Problem& p) {
  return p.dtype == kDType;
}
bool has_any_scale(const Problem& p) { return !(p.scale > 0); }
bool has_softcap(const Problem& p) { return p.softcap != 0; }
bool has_dbias(const Problem& p) { return has_bias(p) && p.backward; }
bool has_sink(const Problem& p) { return p.sink; }
bool has_dlse(const Problem& p) { return p.d_lse; }
template <Dropout::Mode kMode>
bool drops(const Problem& p) {
  return p.dropout.mode == kMode;
}
bool is_stored_qkv(const Problem& p) { return p.stored.q && p.stored.k && p.stored.v; }
bool is_stored_qk(const Problem& p) { return p.stored.q && p.stored.k && !p.stored.v; }
bool is_stored_kv(const Problem& p) { return !p.stored.q && p.stored.k && p.stored.v; }
template <class Test>
bool some_stored(const Problem& p, const Test& test) {
  const auto& [q, k, v] = p.stored;
  return (q && test(*q)) || (k && test(*k)) || (v && test(*v));
}
template <DType kDType>
bool is_stored_in(const Problem& p) {
  return some_stored(p, [](const Stored& each) { return each.dtype == kDType; });
}
template <bool kFp8, bool kByChannels>
bool is_stored_as(const Problem& p) {
  return some_stored(p, [](const Stored& each) {
    return (each.dtype != DType::int8) == kFp8 && each.by_channels == kByChannels;
  });
}
constexpr auto is_stored_in_fp8 = is_stored_as<true, false>, is_mxfp8 = is_stored_as<true, true>;
constexpr auto is_stored_in_int8 = is_stored_as<false, false>, is_bfp8 = is_stored_as<false, true>;
constexpr std::array<Feature::Demand, 4> kOfStored = {
    {{"FORMAT-5", "stored", is_stored_in_fp8},
     {"FORMAT-6", "stored-bfp8", is_bfp8},
     {"FORMAT-7", "stored-int8", is_stored_in_int8},
     {"FORMAT-8", "stored-mxfp8", is_mxfp8}}};
constexpr std::array<Feature::Demand, 4> kOfFp8 = {
    {{"FORMAT-5", "stored", is_stored_in_fp8}, {"FORMAT-8", "stored-mxfp8", is_mxfp8}}};
constexpr std::array<Feature::Demand, 4> kOfScales = {
    {{"FORMAT-5", "stored", is_stored_in_fp8}, {"FORMAT-7", "stored-int8", is_stored_in_int8}}};
bool has_scales_of_heads(const Problem& p) {
  return some_stored(
      p, [](const Stored& each) { return !each.by_channels && (each.by_batch || each.by_head); });
}
bool has_scales_of_positions(const Problem& p) {
  return some_stored(p, [](const Stored& each) { return !each.by_channels && each.by_position; });
}
bool has_groups(const Problem& p) { return p.key_heads != p.query_heads; }
bool has_value_dim(const Problem& p) { return p.value_dim != p.head_dim; }
bool is_long(const Problem& p) { return std::max(p.query_len, p.key_len) > kLong; }
bool has_zero_sizes(const Problem& p) {
  const Index sizes[] = {p.batch,   p.query_heads, p.key_heads, p.query_len,
                         p.key_len, p.head_dim,    p.value_dim};
  return std::count(std::begin(sizes), std::end(sizes), 0) > 0;
}

bool is_not_dense(const Layout& layout) { return layout != Layout{}; }
bool transposes(const Layout& layout) { return layout.transposes(); }
bool expands(const Layout& layout) { return layout.expands(); }
bool is_sbhd(const Layout& layout) { return layout.order() == "sbhd"; }
bool is_unusual(const Layout& layout) {
  const std::string order = layout.order();
  return order != "bhsd" && order != "bshd" && order != "sbhd";
}
template <bool (*kTest)(const Layout&)>
bool some(const Problem& p) {
  return std::any_of(kLaidOut.begin(), kLaidOut.end(),
                     [&](TensorName tensor) { return kTest(p.layouts[tensor]); });
}

// The problem does not tell: what lies in its tensors does.
bool by_its_numbers(const Problem&) { return false; }

// ---- The table ---------------------------------------------------------------------------------

using Demands = std::array<Feature::Demand, 4>;
constexpr Feature of_mask(std::string_view name, std::string_view needed_when,
                          bool (*needed)(const Mask&), Demands demanded) {
  return {.name = name, .needed_when = needed_when, .in_mask = needed, .demanded = demanded};
}
constexpr Feature of_problem(std::string_view name, std::string_view needed_when,
                             bool (*needed)(const Problem&), Demands demanded) {
  return {.name = name, .needed_when = needed_when, .in_problem = needed, .demanded = demanded};
}
constexpr Feature of_layouts(std::string_view name, std::string_view needed_when,
                             bool (*needed)(const Layout&), Demands demanded) {
  return {.name = name, .needed_when = needed_when, .in_layout = needed, .demanded = demanded};
}
constexpr Feature of_format(std::string_view name, bool (*needed)(const Problem&),
                            Demands demanded) {
  return {.name = name,
          .needed_when = "its tensors are of that format",
          .key = kOfFormats,
          .in_problem = needed,
          .demanded = demanded};
}
// What a testee returns, or how it may be called, not what a problem needs.
constexpr Feature of_testee(std::string_view name, std::string_view what, Demands demanded) {
  return {.name = name, .needed_when = what, .demanded = demanded};
}

constexpr Feature taken_out_by(void (*take_out)(Problem&), Feature feature) {
  feature.take_out = take_out;
  return feature;
}
constexpr Feature of_sizes(Feature feature) {
  feature.of_sizes = true;
  return feature;
}

using Kind = Mask::Kind;
using Drop = Dropout::Mode;

// In the order in which cases cite the clauses, and reports name what a problem asks for.
constexpr Feature kFeatures[] = {
    of_mask("causal",
            "the mask has a band with left unbounded and right 0, with any anchor and offset",
            is_causal, {{{"MASK-2", kForwardCore}, {"MASK-3", kForwardCore}}}),
    of_mask("window", "the mask has another band", is_window, {{{"MASK-4", "masks"}}}),
    of_mask("dense-mask", "the mask has a dense table", is<Kind::dense>, {{{"MASK-7", "masks"}}}),
    of_mask("prefix", "the mask has a prefix", is<Kind::prefix>, {{{"MASK-10", "sparse-masks"}}}),
    of_mask("segments", "the mask has segments", is<Kind::segments>,
            {{{"MASK-11", "sparse-masks"}}}),
    of_mask("block-sparse", "the mask has a table of blocks", is<Kind::block_sparse>,
            {{{"MASK-12", "sparse-masks"}}}),
    of_mask("dilated", "the mask has a dilation", is<Kind::dilated>,
            {{{"MASK-13", "sparse-masks"}}}),
    of_mask("mask-and", "the mask is or holds an intersection", is<Kind::all_of>,
            {{{"MASK-8", "masks"}}}),
    of_mask("mask-or", "the mask is or holds a union", is<Kind::any_of>,
            {{{"MASK-9", "sparse-masks"}}}),
    taken_out_by(
        [](Problem& p) { p.packed = false; },
        of_problem("packed", "batch elements are packed", is_packed, {{{"LAYOUT-5", "packed"}}})),
    taken_out_by([](Problem& p) { p.paging = {}; },
                 of_problem("paged", "K and V lie in pages", is_paged,
                            {{{"PAGE-1", "paged"}, {"PAGE-2", "paged", by_its_numbers}}})),
    taken_out_by(
        [](Problem& p) { p.query_lens = p.key_lens = {}; },
        of_problem("lengths",
                   "key or query lengths are given, other than those of packing and of pages",
                   has_lengths,
                   {{{"MASK-5", "varlen", has_key_lens}, {"MASK-6", "varlen", has_query_lens}}})),
    of_problem(
        "backward", "dQ, dK, dV are wanted", is_backward,
        {{{"GRAD-1", "training-core"}, {"GRAD-2", "training-core"}, {"GRAD-3", "training-core"}}}),
    of_format("f64", is_of<DType::f64>, {{{"FORMAT-1", "double"}}}),
    of_format("f32", is_of<DType::f32>, {{{"FORMAT-2", kForwardCore}}}),
    of_format("f16", is_of<DType::f16>, {{{"FORMAT-3", kForwardCore}}}),
    of_format("bf16", is_of<DType::bf16>, {{{"FORMAT-4", kForwardCore}}}),
    of_problem("stored-qkv", "Q, K and V are stored in fewer bits, with scales", is_stored_qkv,
               kOfStored),
    of_problem("stored-qk", "Q and K are, V is not", is_stored_qk, kOfStored),
    of_problem("stored-kv", "K and V are, Q is not", is_stored_kv, kOfStored),
    of_problem("e4m3", "any of them is stored in e4m3", is_stored_in<DType::e4m3>, kOfFp8),
    of_problem("e5m2", "any of them is stored in e5m2", is_stored_in<DType::e5m2>, kOfFp8),
    of_problem("int8", "any of them is stored in int8", is_stored_in_int8,
               {{{"FORMAT-7", "stored-int8"}}}),
    of_problem("mxfp8", "of what is stored so in e4m3 or e5m2, each 32 channels have a scale",
               is_mxfp8, {{{"FORMAT-8", "stored-mxfp8"}}}),
    of_problem("bfp8", "any of them is stored in bfp8: int8, and each 16 channels have a scale",
               is_bfp8, {{{"FORMAT-6", "stored-bfp8"}}}),
    of_problem("scales-of-heads",
               "a scale belongs to one batch element or head, not to the whole tensor",
               has_scales_of_heads, kOfScales),
    of_problem("scales-of-positions", "a scale belongs to one position", has_scales_of_positions,
               kOfScales),
    of_problem("any-scale", "the scale is 0 or negative", has_any_scale, {{{"SCORE-5", "scores"}}}),
    taken_out_by([](Problem& p) { p.softcap = 0; },
                 of_problem("softcap", "there is a softcap", has_softcap,
                            {{{"SCORE-2", "scores"}, {"GRAD-6", "training-full", is_backward}}})),
    of_problem("bias", "there is a bias", has_bias,
               {{{"SCORE-3", "scores"}, {"MASK-14", "scores", by_its_numbers}}}),
    of_problem("dbias", "the gradient of a bias is wanted: bias and `backward`", has_dbias,
               {{{"GRAD-4", "training-full"}}}),
    of_problem("alibi", "there are slopes", has_alibi, {{{"SCORE-4", "scores"}}}),
    taken_out_by([](Problem& p) { p.sink = false; },
                 of_problem("sink", "there are sinks", has_sink,
                            {{{"SINK-1", "scores"}, {"SINK-2", "training-full", is_backward}}})),
    taken_out_by([](Problem& p) { p.d_lse = false; },
                 of_problem("dlse", "a gradient with respect to LSE is given", has_dlse,
                            {{{"GRAD-5", "training-full"}}})),
    taken_out_by([](Problem& p) { p.dropout = {}; },
                 of_problem("dropout", "a keep-mask is given", drops<Drop::given>,
                            {{{"DROP-1", "dropout"}, {"DROP-2", "training-full", is_backward}}})),
    taken_out_by([](Problem& p) { p.dropout = {}; },
                 of_problem("dropout-generated", "the testee is to draw a keep-mask",
                            drops<Drop::generated>, {{{"DROP-3", "dropout-generated"}}})),
    of_sizes(of_problem("gqa", "Hkv ≠ Hq", has_groups,
                        {{{"HEAD-1", kForwardCore},
                          {"HEAD-2", "training-core", by_its_numbers},
                          {"LAW-9", kForwardCore, by_its_numbers}}})),
    of_sizes(of_problem("value-dim", "Dv ≠ D", has_value_dim, {{{"SHAPE-1", kForwardCore}}})),
    of_problem("long",
               "Sq or Sk is more than 16384: a kernel that keeps all scores of a head may leave it "
               "undeclared",
               is_long, {}),
    of_sizes(
        of_problem("zero-sizes", "any size is 0", has_zero_sizes, {{{"SHAPE-2", kForwardCore}}})),
    of_layouts("strides", "any tensor is not dense BHSD", is_not_dense,
               {{{"LAYOUT-1", kForwardCore},
                 {"LAYOUT-2", kForwardCore, by_its_numbers},
                 {"LAYOUT-4", "layouts", some<is_sbhd>},
                 {"LAYOUT-3", "layouts", some<is_unusual>}}}),
    of_layouts("transposed", "any tensor's channels do not lie side by side", transposes,
               {{{"LAYOUT-3", "layouts"}}}),
    of_layouts("expanded", "any input has an axis of stride 0", expands,
               {{{"LAYOUT-3", "layouts"}}}),
    of_testee("lse", "none needs it: it declares that LSE is returned",
              {{{"LSE-1", kForwardCore}, {"LSE-2", kForwardCore}, {"EMPTY-2", kForwardCore}}}),
    of_testee("stream", "none needs it: it may be called in a stream other than the default one",
              {{{"DEV-1", "device"}}}),
    of_testee("two-streams", "none needs it: it may be called in two streams at once",
              {{{"DEV-2", "device"}}}),
    of_testee("graph", "none needs it: its calls may be captured as a graph and replayed",
              {{{"DEV-3", "device"}}}),
    of_testee("new-shapes",
              "none needs it: shapes and strides may change between the calls of a process",
              {{{"DEV-4", "device"}}}),
};

// ---- What follows from it ----------------------------------------------------------------------

template <class Visit>
void for_each_part(const Mask& mask, const Visit& visit) {
  visit(mask);
  for (const Mask& part : mask.parts) for_each_part(part, visit);
}

// Of whatever rows test it, those that `part` of a problem meets.
template <class Part>
void add_needed(bool (*Feature::*test)(const Part&), const Part& part,
                std::vector<const Feature*>& needed) {
  for (const Feature& feature : kFeatures) {
    if (feature.*test && (feature.*test)(part)) needed.push_back(&feature);
  }
}

}  // namespace

std::span<const Feature::Demand> Feature::demands() const {
  const auto end = std::find_if(demanded.begin(), demanded.end(),
                                [](const Demand& each) { return each.clause.empty(); });
  return {demanded.begin(), end};
}

std::span<const Feature> features() { return kFeatures; }

const Feature* find_feature(std::string_view name) {
  const auto found = std::find_if(std::begin(kFeatures), std::end(kFeatures),
                                  [&](const Feature& each) { return each.name == name; });
  return found == std::end(kFeatures) ? nullptr : found;
}

bool is_limit_if_absent(const Feature& feature) { return feature.in_layout || feature.of_sizes; }

bool is_of_testee(const Feature& feature) {
  return !feature.in_problem && !feature.in_mask && !feature.in_layout;
}

std::vector<const Feature*> features_with(std::string_view clause) {
  std::vector<const Feature*> found;
  for (const Feature& feature : kFeatures) {
    for (const auto& demand : feature.demands()) {
      if (demand.clause == clause) found.push_back(&feature);
    }
  }
  return found;
}

std::vector<const Feature*> needed_by(const Problem& problem) {
  std::vector<const Feature*> needed;
  for_each_part(problem.mask,
                [&](const Mask& part) { add_needed(&Feature::in_mask, part, needed); });
  add_needed(&Feature::in_problem, problem, needed);
  for (const TensorName tensor : kLaidOut) {
    add_needed(&Feature::in_layout, problem.layouts[tensor], needed);
  }
  return needed;
}

std::vector<std::string_view> clauses_needed_by(const Problem& problem) {
  std::vector<std::string_view> clauses;
  for (const Feature* feature : needed_by(problem)) {
    for (const auto& [clause, profile, only_if] : feature->demands()) {
      if (profile != kForwardCore && (!only_if || only_if(problem))) clauses.push_back(clause);
    }
  }
  return clauses;
}

std::vector<std::string> known_features() {
  std::vector<std::string> names;
  for (const Feature& feature : kFeatures) {
    if (feature.key == kOfFeatures) names.emplace_back(feature.name);
  }
  return names;
}

std::vector<std::string> features_of(const Problem& problem) {
  std::vector<std::string> names;
  for (const Feature* feature : needed_by(problem)) {
    if (feature->key == kOfFeatures) names.emplace_back(feature->name);
  }
  const auto pass = std::find(names.begin(), names.end(), "backward");
  if (pass != names.end()) std::rotate(names.begin(), pass, pass + 1);
  return names;
}

}  // namespace attest
