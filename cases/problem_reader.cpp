#include "cases/problem_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <sstream>

#include "cases/mask_reader.h"
#include "cases/philox.h"
#include "cases/side_inputs.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/spelling.h"

namespace attest {
namespace {

constexpr std::array<std::string_view, 22> kFields = {
    "batch",     "query_heads", "key_heads", "query_len", "key_len",  "head_dim",
    "value_dim", "scale",       "softcap",   "mask",      "key_lens", "query_lens",
    "bias",      "alibi",       "sink",      "dropout",   "packed",   "paging",
    "stored",    "backward",    "d_lse",     "layouts"};

bool is_field(std::string_view name) {
  return std::find(kFields.begin(), kFields.end(), name) != kFields.end();
}

// More of anything could not be judged; and sums and products of sizes stay within their type.
constexpr Index kMostOfASize = Index(1) << 32;
constexpr Index kMostPages = Index(1) << 20;

void read_sizes(ObjectReader& reader, Problem& problem) {
  const auto read_size = [&](const char* field, Index fallback) {
    const auto size = reader.get_or<Index>(field, fallback);
    if (size < 0 || size > kMostOfASize) {
      throw InputError(reader.pointer(field),
                       fmt::format("\"{}\" is {}", field, size < 0 ? "negative" : "beyond 2^32"));
    }
    return size;
  };
  for (const auto& [field, size] : {std::pair{"batch", &problem.batch},
                                    {"query_heads", &problem.query_heads},
                                    {"key_heads", &problem.key_heads},
                                    {"query_len", &problem.query_len},
                                    {"key_len", &problem.key_len},
                                    {"head_dim", &problem.head_dim}}) {
    *size = read_size(field, *size);
  }
  problem.value_dim = read_size("value_dim", problem.head_dim);
}

double read_scale(ObjectReader& reader, Index head_dim) {
  const nlohmann::json* value = reader.find("scale");
  if (value && *value != "1/sqrt(d)") {
    if (value->is_number()) return value->get<double>();
    throw InputError("/scale", "\"scale\" takes a number or \"1/sqrt(d)\"");
  }
  return head_dim > 0 ? 1.0 / std::sqrt(static_cast<double>(head_dim)) : 1.0;
}

// Lengths as a list, which may be said as one that is repeated: {"repeat": [1, 5], "times": 40}.
nlohmann::json spelled_out(const nlohmann::json& lengths, const std::string& pointer) {
  if (!lengths.is_object()) return lengths;
  ObjectReader reader(lengths, pointer);
  const auto part = read_integers(reader.at("repeat"), reader.pointer("repeat"));
  const auto times = reader.get<Index>("times");
  reader.finish();
  constexpr Index kMost = 1 << 20;
  if (times < 1 || std::ssize(part) * times > kMost) {
    throw InputError(reader.pointer("times"), "a list of lengths has 1 to 2^20 of them");
  }
  std::vector<Index> all;
  for (Index n = 0; n < times; ++n) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<Index> read_lengths(ObjectReader& reader, const std::string& key) {
  const nlohmann::json* value = reader.find(key);
  if (!value) return {};
  const std::string pointer = reader.pointer(key);
  const auto lengths = read_integers(spelled_out(*value, pointer), pointer);
  if (lengths.empty()) throw InputError(reader.pointer(key), fmt::format("\"{}\" is empty", key));
  if (*std::max_element(lengths.begin(), lengths.end()) > kMostOfASize) {
    throw InputError(reader.pointer(key), fmt::format("\"{}\" has a length beyond 2^32", key));
  }
  return lengths;
}

// A name, one of `known`.
std::string read_kind(ObjectReader& reader, const char* key, const std::vector<std::string>& known,
                      const std::string& fallback) {
  const auto kind = reader.get_or<std::string>(key, fallback);
  if (std::find(known.begin(), known.end(), kind) == known.end()) {
    throw InputError(reader.pointer(key),
                     fmt::format("unknown {} \"{}\"; {}", key, kind, did_you_mean(kind, known)));
  }
  return kind;
}

void read_bias(ObjectReader& fields, Problem& problem, Extras& extras, std::string_view seed) {
  const nlohmann::json* value = fields.find("bias");
  if (!value) return;
  ObjectReader reader(*value, fields.pointer("bias"));
  problem.bias_shape = read_axes(reader, "bhqk", problem.keep_shape());
  extras.bias = read_kind(reader, "kind", bias_kinds(), extras.bias);
  if (const nlohmann::json* allows = reader.find("allows")) {
    extras.bias_allows = read_table(*allows, reader.pointer("allows"), *problem.bias_shape,
                                    fmt::format("{}#bias", seed));
  }
  reader.finish();
}

void read_alibi(ObjectReader& fields, Problem& problem, Extras& extras) {
  const nlohmann::json* value = fields.find("alibi");
  if (!value) return;
  ObjectReader reader(*value, fields.pointer("alibi"));
  const auto axes = reader.get_or<std::string>("axes", "h");
  if (axes != "h" && axes != "bh") {
    throw InputError(reader.pointer("axes"), "the axes of slopes are h or bh");
  }
  problem.slopes_shape = {axes == "bh" ? problem.batch : 1, problem.query_heads, 1, 1};
  const nlohmann::json& slopes = reader.at("slopes");
  reader.finish();
  if (slopes == "standard") return;
  const auto wrong = [&] {
    return InputError(reader.pointer("slopes"),
                      fmt::format("\"slopes\" takes \"standard\" or a list of {} numbers",
                                  element_count(*problem.slopes_shape)));
  };
  if (!slopes.is_array()) throw wrong();
  for (const nlohmann::json& slope : slopes) {
    if (!slope.is_number()) throw wrong();
    if (!std::isfinite(round_to(DType::f32, slope.get<double>()))) {
      throw InputError(reader.pointer("slopes"),
                       fmt::format("\"slopes\": {} is beyond f32", json_text(slope)));
    }
    extras.slopes.push_back(slope.get<double>());
  }
  if (static_cast<Index>(extras.slopes.size()) != element_count(*problem.slopes_shape)) {
    throw wrong();
  }
}

void read_sink(ObjectReader& fields, Problem& problem, Extras& extras) {
  const nlohmann::json* value = fields.find("sink");
  if (!value || *value == false) return;
  problem.sink = true;
  if (*value != true) extras.sink = read_kind(fields, "sink", sink_kinds(), extras.sink);
}

Dropout read_dropout(ObjectReader& fields) {
  Dropout dropout;
  const nlohmann::json* value = fields.find("dropout");
  if (!value) return dropout;
  ObjectReader reader(*value, fields.pointer("dropout"));
  const std::string mode = read_kind(reader, "mode", {"given", "generated"}, "given");
  dropout.mode = mode == "given" ? Dropout::Mode::given : Dropout::Mode::generated;
  dropout.probability = reader.get<double>("probability");
  dropout.seed = reader.get_or<std::uint64_t>("seed", 1);
  dropout.offset = reader.get_or<std::uint64_t>("offset", 0);
  reader.finish();
  return dropout;
}

// The pages of all batch elements, numbered in the order in which their keys come; "shared" lets
// every further element begin with pages of the first one. Then each number is exchanged for
// another, so that unused pages lie between the others.
Paging read_paging(ObjectReader& fields, const Problem& problem, std::string_view seed) {
  Paging paging;
  const nlohmann::json* value = fields.find("paging");
  if (!value) return paging;
  ObjectReader reader(*value, fields.pointer("paging"));
  paging.page_size = reader.get<Index>("page_size");
  const std::string order =
      read_kind(reader, "order", {"in_order", "reversed", "shuffled", "shared"}, "shuffled");
  const auto unused = reader.get_or<Index>("unused", 0);
  const auto spare = reader.get_or<Index>("spare_entries", 0);
  reader.finish();
  for (const auto& [key, number] : {std::pair{"page_size", paging.page_size - 1},
                                    {"unused", unused},
                                    {"spare_entries", spare}}) {
    if (number < 0) throw InputError(reader.pointer(key), fmt::format("\"{}\" is too small", key));
    if (number > kMostPages) {
      throw InputError(reader.pointer(key), fmt::format("\"{}\" is beyond 2^20", key));
    }
  }
  if (problem.key_lens.empty()) {
    throw InputError(fields.pointer("paging"), "paged keys need \"key_lens\"");
  }
  if (problem.key_len / paging.page_size > kMostPages) {
    throw InputError(fields.pointer("paging"), "there are more than 2^20 pages");
  }
  for (const Index keys : problem.key_lens) {
    const Index used = (std::max<Index>(keys, 0) + paging.page_size - 1) / paging.page_size;
    std::vector<Index> row;
    if (order == "shared" && !paging.table.empty()) {
      const auto& first = paging.table.front();
      const auto common = std::min(used / 2 + 1, static_cast<Index>(first.size()));
      for (Index n = 0; n < std::min(used, common); ++n) {
        row.push_back(first[static_cast<std::size_t>(n)]);
      }
    }
    while (static_cast<Index>(row.size()) < used) row.push_back(paging.pages++);
    paging.table.push_back(std::move(row));
  }
  paging.pages += unused;
  std::vector<Index> exchanged;
  for (Index n = 0; n < paging.pages; ++n) {
    exchanged.push_back(order == "reversed" ? paging.pages - 1 - n : n);
  }
  if (order == "shuffled" || order == "shared") {
    const auto key = philox_key(fmt::format("{}#pages", seed));
    for (std::size_t n = exchanged.size(); n > 1; --n) {
      const std::uint64_t random = philox({static_cast<std::uint32_t>(n), 0, 0, 0}, key)[0];
      std::swap(exchanged[n - 1], exchanged[(random * n) >> 32]);
    }
  }
  for (auto& row : paging.table) {
    for (Index& page : row) page = exchanged[static_cast<std::size_t>(page)];
    row.insert(row.end(), static_cast<std::size_t>(spare), -1);
  }
  return paging;
}

// "qkv e4m3", "kv e4m3.e5m2 bh", "qk e5m2 least": the tensors, their formats, one for all or one
// each, the axes along which scales differ, and whether these leave subnormal numbers alone.
StoredInputs read_stored(ObjectReader& fields, Extras& extras) {
  StoredInputs stored;
  if (!fields.find("stored")) return stored;
  const auto text = fields.get<std::string>("stored");
  const auto wrong = [&](const std::string& what) {
    return InputError(fields.pointer("stored"),
                      fmt::format("\"stored\" is such as \"kv e4m3.e5m2 bh\", tensors of qkv, "
                                  "formats and axes of bhs, or c: \"{}\" {}",
                                  text, what));
  };
  std::istringstream words(text);
  std::string tensors, formats, axes, more;
  words >> tensors >> formats >> axes >> more;
  if (formats.empty() || !words.eof()) throw wrong("has not two to four words");
  if (axes == "least") std::swap(axes, more);
  if (!more.empty() && more != "least") throw wrong("has other words");
  extras.least_numbers = !more.empty();
  if (axes != "c" && axes.find_first_not_of("bhs") != axes.npos) throw wrong("has other axes");
  const auto has = [&](char axis) { return axes.find(axis) != axes.npos; };
  std::istringstream each_format(formats);
  std::string format;
  for (std::size_t n = 0; n < tensors.size(); ++n) {
    if (std::string next; std::getline(each_format, next, '.')) format = next;
    const auto dtype = element_type_named(format);
    if (!dtype || format_of(*dtype).bytes != 1) throw wrong("has other formats");
    if (extras.least_numbers && *dtype == DType::int8)
      throw wrong("has int8, all of whose numbers are alike");
    const auto tensor = std::string_view("qkv").find(tensors[n]);
    if (tensor == std::string_view::npos) throw wrong("has other tensors");
    auto& of = *std::array{&stored.q, &stored.k, &stored.v}[tensor];
    if (of) throw wrong("has a tensor twice");
    of = axes == "c" ? Stored::in_blocks(*dtype)
                     : Stored{.dtype = *dtype,
                              .by_batch = has('b'),
                              .by_head = has('h'),
                              .by_position = has('s')};
  }
  if (std::getline(each_format, format)) throw wrong("has more formats than tensors");
  return stored;
}

Layout read_layout(const nlohmann::json& value, const std::string& pointer) {
  if (!value.is_string()) throw InputError(pointer, "a layout is a text such as \"bshd gap=3\"");
  try {
    return Layout::parse(value.get<std::string>());
  } catch (const InputError& error) {
    throw InputError(pointer, error.what());
  }
}

Layouts read_layouts(ObjectReader& reader, const Problem& problem) {
  Layouts layouts;
  const nlohmann::json* value = reader.find("layouts");
  if (!value) return layouts;
  std::vector<TensorName> tensors;
  for (const TensorName tensor : kLaidOut) {
    const bool of_backward = tensor == TensorName::d_o || is_gradient(tensor);
    if (of_backward && !problem.backward) continue;
    if (tensor == TensorName::bias && !problem.bias_shape) continue;
    tensors.push_back(tensor);
  }
  if (value->is_string()) {
    for (const TensorName tensor : tensors) layouts[tensor] = read_layout(*value, "/layouts");
    return layouts;
  }
  ObjectReader each(*value, "/layouts");
  for (const TensorName tensor : tensors) {
    const std::string key = wire_name(tensor);
    if (const nlohmann::json* text = each.find(key)) {
      layouts[tensor] = read_layout(*text, each.pointer(key));
    }
  }
  each.finish();
  return layouts;
}

// Exchanges {name} for its value in all texts of `value`, and notes the names used. A text that is
// nothing but {name} becomes the value itself, so that a number stays a number.
void fill_in(nlohmann::json& value, const std::map<std::string, nlohmann::json>& names,
             std::set<std::string>& used) {
  if (value.is_structured()) {
    for (nlohmann::json& item : value) fill_in(item, names, used);
  } else if (value.is_string()) {
    auto text = value.get<std::string>();
    for (const auto& [name, replacement] : names) {
      const std::string braced = "{" + name + "}";
      if (text == braced) {
        used.insert(name);
        value = replacement;
        return;
      }
      const std::string plain =
          replacement.is_string() ? replacement.get<std::string>() : json_text(replacement);
      for (auto place = text.find(braced); place != text.npos;
           place = text.find(braced, place + plain.size())) {
        text.replace(place, braced.size(), plain);
        used.insert(name);
      }
    }
    value = text;
  }
}

}  // namespace

void ProblemReader::add(const nlohmann::json& object, const std::string& pointer) {
  ObjectReader check(object, pointer);  // that it is an object
  for (const auto& [field, value] : object.items()) {
    fields_[field] = value;
    pointers_[field] = pointer + "/" + field;
  }
}

void ProblemReader::add(const AxisValue& setting) {
  if (is_field(setting.axis)) {
    fields_[setting.axis] = *setting.value;
  } else {
    names_[setting.axis] = *setting.value;
  }
  pointers_[setting.axis] = setting.pointer;
}

nlohmann::json ProblemReader::whole() const {
  nlohmann::json fields = fields_;
  std::set<std::string> used;
  for (auto& [field, value] : fields.items()) fill_in(value, names_, used);
  for (const char* field : {"key_lens", "query_lens"}) {
    if (fields.contains(field)) fields[field] = spelled_out(fields[field], pointer_of(field));
  }
  // Defaults that give way to lengths.
  const bool packed = fields.value("packed", false);
  const auto gives_way = [&](const char* field) {
    if (pointer_of(field).starts_with("/defaults/")) fields.erase(field);
  };
  if (packed) gives_way("query_len");
  if (packed || fields.contains("paging")) gives_way("key_len");
  return fields;
}

Problem ProblemReader::read(std::string_view seed, Extras& extras) const {
  nlohmann::json fields = fields_;
  std::set<std::string> used;
  for (auto& [field, value] : fields.items()) fill_in(value, names_, used);
  for (const auto& [name, value] : names_) {
    if (used.contains(name)) continue;
    std::vector<std::string> known(kFields.begin(), kFields.end());
    throw InputError(
        pointers_.at(name),
        fmt::format("unknown axis \"{}\": no field of a problem (similar: {}), nor does "
                    "a field use {{{}}}",
                    name, fmt::join(nearest_names(name, known), ", "), name));
  }
  try {
    ObjectReader reader(fields, "");
    Problem problem;
    problem.key_lens = read_lengths(reader, "key_lens");
    problem.query_lens = read_lengths(reader, "query_lens");
    problem.packed = reader.get_or("packed", false);
    const auto longest = [](const std::vector<Index>& lens, Index fallback) {
      return lens.empty() ? fallback : *std::max_element(lens.begin(), lens.end());
    };
    const auto derive = [&](const char* field, const std::vector<Index>& lens, Index& length) {
      length = longest(lens, length);
      if (pointer_of(field).starts_with("/defaults/")) fields.erase(field);
    };
    if (problem.packed) derive("query_len", problem.query_lens, problem.query_len);
    if (problem.packed || fields.contains("paging")) {
      derive("key_len", problem.key_lens, problem.key_len);
    }
    read_sizes(reader, problem);
    problem.scale = read_scale(reader, problem.head_dim);
    problem.softcap = reader.get_or<double>("softcap", 0);
    read_bias(reader, problem, extras, seed);
    read_alibi(reader, problem, extras);
    read_sink(reader, problem, extras);
    problem.dropout = read_dropout(reader);
    problem.paging = read_paging(reader, problem, seed);
    problem.stored = read_stored(reader, extras);
    problem.backward = reader.get_or("backward", false);
    problem.d_lse = reader.get_or("d_lse", false);
    problem.layouts = read_layouts(reader, problem);
    if (const nlohmann::json* mask = reader.find("mask")) {
      problem.mask = read_mask(*mask, "/mask", problem, seed);
    }
    reader.finish();
    return problem;
  } catch (const InputError& error) {
    // The fields were gathered from several places: say from where this one came.
    const std::string& pointer = error.pointer();
    const auto end = pointer.find('/', 1);
    const std::string field = pointer.empty() ? "" : pointer.substr(1, end - 1);
    throw InputError(pointer_of(field) + (end == pointer.npos ? "" : pointer.substr(end)),
                     error.what());
  }
}

std::string ProblemReader::pointer_of(const std::string& field) const {
  const auto place = pointers_.find(field);
  return place == pointers_.end() ? "" : place->second;
}

std::string ProblemReader::culprit_of(std::string_view clause) const {
  // The fields that `clause` speaks of, the likeliest first; other clauses speak of the mask.
  static const std::map<std::string_view, std::vector<const char*>> kFieldsOf = {
      {"SHAPE-1", {"query_len", "key_len", "batch", "head_dim", "value_dim", "query_heads"}},
      {"HEAD-1", {"key_heads", "query_heads"}},
      {"LAYOUT-1", {"layouts"}},
      {"LAYOUT-5", {"packed"}},
      {"SCORE-1", {"scale"}},
      {"SCORE-2", {"softcap"}},
      {"SCORE-3", {"bias"}},
      {"SCORE-4", {"alibi"}},
      {"MASK-5", {"key_lens"}},
      {"MASK-6", {"query_lens"}},
      {"MASK-14", {"bias"}},
      {"DROP-1", {"dropout"}},
      {"GRAD-5", {"d_lse"}},
      {"PAGE-1", {"paging"}},
      {"FORMAT-5", {"stored"}},
      {"FORMAT-6", {"stored"}},
      {"FORMAT-7", {"stored"}},
      {"FORMAT-8", {"stored"}},
  };
  const auto place = kFieldsOf.find(clause);
  const std::vector<const char*> mask = {"mask"};
  for (const char* field : place == kFieldsOf.end() ? mask : place->second) {
    if (const std::string pointer = pointer_of(field); !pointer.empty()) return pointer;
  }
  return "";
}

}  // namespace attest
