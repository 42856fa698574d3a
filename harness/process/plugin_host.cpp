#include "harness/process/plugin_host.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/process/device_call.h"
#include "harness/process/wire.h"
#include "harness/process/workspace.h"
#include "spec/dtype.h"
#include "spec/json_reader.h"
#include "spec/json_text.h"
#include "spec/mask_kind.h"
#include "spec/tensor_name.h"

namespace attest {
namespace {

using nlohmann::json;

constexpr std::size_t kMessageBytes = 4096;

// Whether a struct of the plug-in is large enough to have the field that ends at `end`.
#define ATTEST_HAS(struct_pointer, field)                                               \
  ((struct_pointer)->struct_size >=                                                     \
   offsetof(std::remove_cv_t<std::remove_pointer_t<decltype(struct_pointer)>>, field) + \
       sizeof((struct_pointer)->field))

attest_dtype wire_dtype(const std::string& text) {
  if (const auto dtype = element_type_named(text)) return static_cast<attest_dtype>(*dtype);
  static const std::map<std::string, attest_dtype> kNames = {
      {"u8", ATTEST_U8}, {"i32", ATTEST_I32}, {"i64", ATTEST_I64}, {"bits", ATTEST_BITS}};
  const auto place = kNames.find(text);
  if (place == kNames.end()) throw InputError("", fmt::format("no dtype is called {}", text));
  return place->second;
}

attest_tensor tensor_of(const json& requests, const std::string& name, const Locate& locate) {
  attest_tensor tensor{};
  const auto place = requests.find(name);
  if (place == requests.end()) return tensor;
  const json& j = *place;
  tensor.data = locate(name, j);
  tensor.dtype = wire_dtype(j.at("dtype").get<std::string>());
  for (std::size_t axis = 0; axis < 4; ++axis) {
    tensor.shape[axis] = j.at("shape").at(axis).get<std::int64_t>();
    tensor.stride[axis] = j.at("stride").at(axis).get<std::int64_t>();
  }
  tensor.capacity_bytes = j.at("bytes").get<std::uint64_t>();
  return tensor;
}

std::int64_t append_mask(const json& j, const json& tensors, const Locate& locate,
                         std::vector<attest_mask>& nodes);

// A tree of any width becomes a chain of pairs; one part stands for itself.
std::int64_t append_chain(attest_mask_kind kind, const json& parts, const json& tensors,
                          const Locate& locate, std::vector<attest_mask>& nodes) {
  std::int64_t root = append_mask(parts[0], tensors, locate, nodes);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    attest_mask pair{};
    pair.struct_size = sizeof(pair);
    pair.kind = kind;
    pair.first = root;
    pair.second = append_mask(parts[i], tensors, locate, nodes);
    nodes.push_back(pair);
    root = static_cast<std::int64_t>(nodes.size()) - 1;
  }
  return root;
}

// One element, which no request has.
void* table_that_allows_nothing() {
  static std::uint8_t never = 0;
  return &never;
}

// A combination of nothing: an intersection allows everything, a union nothing.
std::int64_t append_empty(Mask::Kind kind, std::vector<attest_mask>& nodes) {
  attest_mask node{};
  node.struct_size = sizeof(node);
  node.kind = kind == Mask::Kind::all_of ? ATTEST_MASK_FULL : ATTEST_MASK_DENSE;
  if (node.kind == ATTEST_MASK_DENSE) {
    node.table = {.data = table_that_allows_nothing(),
                  .dtype = ATTEST_U8,
                  .reserved = 0,
                  .shape = {1, 1, 1, 1},
                  .stride = {1, 1, 1, 1},
                  .capacity_bytes = 1};
  }
  nodes.push_back(node);
  return static_cast<std::int64_t>(nodes.size()) - 1;
}

// Appends the nodes of a mask, children before parents; the index of its root.
std::int64_t append_mask(const json& j, const json& tensors, const Locate& locate,
                         std::vector<attest_mask>& nodes) {
  const auto word = j.at("kind").get<std::string>();
  const MaskKind* const kind = mask_kind_called(word);
  if (!kind) throw InputError("", fmt::format("no mask is called {}", word));
  if (kind->combines) {
    if (j.at("parts").empty()) return append_empty(kind->kind, nodes);
    return append_chain(kind->in_abi, j.at("parts"), tensors, locate, nodes);
  }
  attest_mask node{};
  node.struct_size = sizeof(node);
  node.kind = kind->in_abi;
  if (kind->is_anchored) {
    node.anchored_bottom_right = j.at("anchor") == "bottom_right";
    node.offset = j.at("offset").get<std::int64_t>();
  }
  if (kind->kind == Mask::Kind::band) {
    const auto width = [&](const char* key) {
      return j.at(key).is_null() ? ATTEST_UNBOUNDED : j.at(key).get<std::int64_t>();
    };
    node.left = width("left");
    node.right = width("right");
  }
  for (const auto& number : kind->numbers) {
    node.*number.in_node = j.at(std::string(number.key)).get<std::int64_t>();
  }
  for (const auto& table : kind->tables) {
    const auto name = j.at(std::string(table.key)).get<std::string>();
    node.*table.in_node = tensor_of(tensors, name, locate);
  }
  nodes.push_back(node);
  return static_cast<std::int64_t>(nodes.size()) - 1;
}

attest_dropout_mode dropout_mode(const std::string& text) {
  if (text == "none") return ATTEST_DROPOUT_NONE;
  if (text == "given") return ATTEST_DROPOUT_GIVEN;
  if (text == "generated") return ATTEST_DROPOUT_GENERATED;
  throw InputError("", fmt::format("no mode of dropout is called {}", text));
}

// A problem as the plug-in sees it, with the memory that it points into.
struct NativeProblem {
  attest_problem problem{};
  std::vector<attest_mask> nodes;
};

void fill(NativeProblem& native, const json& request, const Locate& locate) {
  const json& j = request.at("problem");
  const json& tensors = request.at("tensors");
  attest_problem& p = native.problem;
  p.struct_size = sizeof(p);
  p.dtype = wire_dtype(j.at("dtype").get<std::string>());
  p.backward = j.at("backward").get<bool>();
  p.batch = j.at("batch").get<std::int64_t>();
  p.query_heads = j.at("query_heads").get<std::int64_t>();
  p.key_heads = j.at("key_heads").get<std::int64_t>();
  p.query_len = j.at("query_len").get<std::int64_t>();
  p.key_len = j.at("key_len").get<std::int64_t>();
  p.head_dim = j.at("head_dim").get<std::int64_t>();
  p.value_dim = j.at("value_dim").get<std::int64_t>();
  p.scale = j.at("scale").get<double>();
  p.softcap = j.at("softcap").get<double>();
  append_mask(j.at("mask"), tensors, locate, native.nodes);
  p.mask = native.nodes.data();
  p.mask_count = static_cast<std::int64_t>(native.nodes.size());
  p.query_lens = tensor_of(tensors, "query_lens", locate);
  p.key_lens = tensor_of(tensors, "key_lens", locate);
  p.cu_query_lens = tensor_of(tensors, "cu_query_lens", locate);
  p.cu_key_lens = tensor_of(tensors, "cu_key_lens", locate);
  p.page_size = j.at("page_size").get<std::int64_t>();
  p.page_table = tensor_of(tensors, "page_table", locate);
  p.has_bias = j.at("bias").get<bool>();
  p.has_alibi = j.at("alibi").get<bool>();
  p.has_sink = j.at("sink").get<bool>();
  p.has_dlse = j.at("dlse").get<bool>();
  const json& dropout = j.at("dropout");
  p.dropout = dropout_mode(dropout.at("mode").get<std::string>());
  p.dropout_probability = dropout.at("probability").get<double>();
  p.dropout_seed = std::stoull(dropout.at("seed").get<std::string>());
  p.dropout_offset = std::stoull(dropout.at("offset").get<std::string>());
  const auto stored_in = [&](const char* key) {
    return j.contains(key) ? wire_dtype(j[key].get<std::string>()) : p.dtype;
  };
  p.q_dtype = stored_in("q_dtype");
  p.k_dtype = stored_in("k_dtype");
  p.v_dtype = stored_in("v_dtype");
}

// The blocks that a call reports, from whatever threads.
class Trace {
 public:
  static void add(void* self, const attest_block* block) {
    auto& trace = *static_cast<Trace*>(self);
    const std::lock_guard lock(trace.mutex_);
    if (!block || !ATTEST_HAS(block, backward)) return;
    if (trace.blocks_.size() == kMostBlocks) {
      ++trace.left_out_;
    } else {
      trace.blocks_.push_back({block->worker, block->batch, block->head, block->query_begin,
                               block->query_end, block->key_begin, block->key_end, block->masked,
                               block->backward});
    }
  }

  void report(json& reply) {
    const std::lock_guard lock(mutex_);
    reply["blocks"] = std::move(blocks_);
    reply["blocks_left_out"] = left_out_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::array<std::int64_t, kBlockNumbers>> blocks_;
  std::int64_t left_out_ = 0;
};

// What a call reads and writes.
struct NativeTensors {
  attest_inputs in{};
  attest_outputs out{};
};

NativeTensors tensors_of(const attest_problem& problem, const json& t, bool backward,
                         const Locate& locate) {
  NativeTensors all;
  attest_inputs& in = all.in;
  in.struct_size = sizeof(in);
  const auto tensor = [&](TensorName name) { return tensor_of(t, wire_name(name), locate); };
  in.q = tensor(TensorName::q);
  in.k = tensor(TensorName::k);
  in.v = tensor(TensorName::v);
  in.q_scale = tensor(TensorName::q_scale);
  in.k_scale = tensor(TensorName::k_scale);
  in.v_scale = tensor(TensorName::v_scale);
  in.bias = tensor(TensorName::bias);
  in.alibi_slopes = tensor(TensorName::slopes);
  in.sink = tensor(TensorName::sink);
  attest_outputs& out = all.out;
  out.struct_size = sizeof(out);
  const bool draws = problem.dropout == ATTEST_DROPOUT_GENERATED && !backward;
  (draws ? out.keep : in.keep) = tensor(TensorName::keep);
  if (backward) {
    in.o = tensor(TensorName::o);
    in.lse = tensor(TensorName::lse);
    in.d_o = tensor(TensorName::d_o);
    in.d_lse = tensor(TensorName::d_lse);
    in.maximum = tensor(TensorName::maximum);
    in.sum = tensor(TensorName::sum);
    out.dq = tensor(TensorName::dq);
    out.dk = tensor(TensorName::dk);
    out.dv = tensor(TensorName::dv);
    out.dbias = tensor(TensorName::dbias);
    out.dsink = tensor(TensorName::dsink);
  } else {
    out.o = tensor(TensorName::o);
    out.lse = tensor(TensorName::lse);
    out.maximum = tensor(TensorName::maximum);
    out.sum = tensor(TensorName::sum);
  }
  return all;
}

// The workspaces of calls that are timed: to make one and to give it back takes time that is not
// the kernel's. One stays until the next call, and is made before a call as large as the kernel
// wanted it for the same problem; what it wants it says in the call.
class TimedWorkspace {
 public:
  void give_back() { made_.reset(); }
  void make_ready(std::string call) {
    call_ = std::move(call);
    const auto wanted = wanted_.find(call_);
    if (wanted != wanted_.end()) of(wanted->second);
  }
  Workspace& of(std::uint64_t bytes) {
    if (!made_ || made_->bytes() != bytes) {
      made_.reset();
      made_.emplace(bytes, Workspace::From::kept);
    }
    wanted_[call_] = bytes;
    return *made_;
  }

 private:
  std::string call_ = {};  // which kernel's, of which problem
  std::map<std::string, std::uint64_t> wanted_ = {};
  std::optional<Workspace> made_ = {};
};

json call(const attest_kernel& kernel, const json& request, bool backward,
          const Locate& locate_only, const std::function<void()>& ready) {
  const bool armed = request.value("armed", false);
  static thread_local TimedWorkspace timed;
  timed.give_back();
  Regions regions;
  const Locate locate = [&](const std::string& name, const json& tensor) {
    void* const data = locate_only(name, tensor);
    regions.note(name, tensor, data);
    return data;
  };
  NativeProblem native;
  fill(native, request, locate);
  regions.note("a union of nothing", table_that_allows_nothing(), 1);
  const NativeTensors tensors = tensors_of(native.problem, request.at("tensors"), backward, locate);
  const auto threads = request.at("threads").get<std::int32_t>();
  if (armed) {
    json problem = request.at("problem");
    problem.erase("dropout");  // whose seed is another in each call
    timed.make_ready(json{request.at("kernel"), request.at("op"), std::move(problem)}.dump());
  }
  if (ready) ready();  // what follows is the kernel's own, and it says what it works in
  const std::uint64_t bytes = kernel.workspace(&kernel, &native.problem, backward, threads);
  const auto from =
      request.value("measured", false) ? Workspace::From::fresh : Workspace::From::kept;
  std::optional<Workspace> own;
  Workspace* const workspace = armed ? &timed.of(bytes) : &own.emplace(bytes, from);
  std::array<char, kMessageBytes> message{};
  attest_context context{};
  context.struct_size = sizeof(context);
  context.threads = threads;
  context.workspace = workspace->data();
  context.workspace_bytes = workspace->bytes();
  context.message = message.data();
  context.message_bytes = message.size();
  context.mode = mode_of(request);
  regions.tell(context);
  double device_seconds = std::numeric_limits<double>::quiet_NaN();
  if (armed) context.device_seconds = &device_seconds;
  Trace trace;
  const bool traced = request.value("trace", false);
  if (traced) {
    context.trace = Trace::add;
    context.trace_context = &trace;
  }
  const auto run = backward ? kernel.backward : kernel.forward;
  if (!run) return {{"status", "error"}, {"message", "the kernel has no backward pass"}};
  const attest_status status = run(&kernel, &native.problem, &tensors.in, &tensors.out, &context);
  message.back() = '\0';
  if (const std::string damage = workspace->damage(); !damage.empty()) {
    return {{"status", "fault"}, {"reason", "guard"}, {"message", damage}};
  }
  if (status == ATTEST_OK) {
    json reply = {{"status", "ok"}, {"workspace_bytes", bytes}};
    if (!std::isnan(device_seconds)) reply["device_seconds"] = device_seconds;
    if (traced) trace.report(reply);
    return reply;
  }
  return reply_to(status, message.data());
}

json supports(const attest_kernel& kernel, const json& request, const Locate& locate) {
  NativeProblem native;
  fill(native, request, locate);
  std::array<char, kMessageBytes> reason{};
  const bool yes = kernel.supports(&kernel, &native.problem, reason.data(), reason.size()) != 0;
  reason.back() = '\0';
  if (yes) return {{"status", "ok"}};
  return {{"status", "refused"}, {"message", reason.data()}};
}

}  // namespace

void check_plugin(const attest_plugin* plugin) {
  if (!plugin) throw InputError("", "attest_plugin_get returned NULL");
  if (!ATTEST_HAS(plugin, abi_version)) throw InputError("", "the plug-in's table is too small");
  if (plugin->abi_version != ATTEST_ABI_VERSION) {
    throw InputError("",
                     fmt::format("the plug-in has ABI version {}, this Attest speaks {}: build it "
                                 "with this Attest's attest_plugin.h",
                                 plugin->abi_version, ATTEST_ABI_VERSION));
  }
  if (!ATTEST_HAS(plugin, kernels) || plugin->kernel_count == 0 || !plugin->kernels) {
    throw InputError("", "the plug-in has no kernels");
  }
  std::set<std::string> names;
  for (std::uint32_t i = 0; i < plugin->kernel_count; ++i) {
    const attest_kernel* kernel = plugin->kernels[i];
    if (!kernel || !ATTEST_HAS(kernel, forward) || !kernel->name || !kernel->describe ||
        !kernel->supports || !kernel->workspace || !kernel->forward) {
      throw InputError("", fmt::format("kernel {} of the plug-in lacks a name, describe, supports, "
                                       "workspace or forward",
                                       i));
    }
    if (!names.insert(kernel->name).second) {
      throw InputError("", fmt::format("the plug-in has two kernels called {}", kernel->name));
    }
  }
}

const attest_plugin* load_plugin(const std::string& path) {
  if (!std::filesystem::exists(path)) {
    throw InputError("", fmt::format("there is no library {}", path));
  }
  // A name without a slash would be searched for in system folders instead.
  const std::string absolute = std::filesystem::absolute(path).string();
  void* library = dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw InputError("", fmt::format("cannot load the library: {}", dlerror()));
  const auto get =
      reinterpret_cast<attest_plugin_get_function>(dlsym(library, ATTEST_PLUGIN_SYMBOL));
  if (!get) {
    throw InputError(
        "", fmt::format("{} is no Attest plug-in: it exports no {}", path, ATTEST_PLUGIN_SYMBOL));
  }
  const attest_plugin* plugin = get();
  check_plugin(plugin);
  return plugin;
}

json answer(const attest_plugin& plugin, const json& request, const Locate& locate,
            const std::function<void()>& ready) {
  const auto op = request.at("op").get<std::string>();
  if (op == "describe") {  // at first, and behind each case
    Workspace::give_back_most();
    if (request.value("brief", false)) return {{"status", "ok"}};
    json kernels = json::array();
    for (std::uint32_t i = 0; i < plugin.kernel_count; ++i) {
      const attest_kernel* kernel = plugin.kernels[i];
      const char* text = kernel->describe(kernel);
      const json description = parse_json_if_any(text ? text : "");
      if (description.is_discarded()) {
        return {{"status", "error"},
                {"message", fmt::format("the description of {} is no JSON", kernel->name)}};
      }
      if (const auto looseness = looseness_of(text)) {
        return {{"status", "error"},
                {"message", fmt::format("the description of {} {}", kernel->name, *looseness)}};
      }
      kernels.push_back({{"name", kernel->name}, {"description", description}});
    }
    json absent = json::array();
    const bool lists = ATTEST_HAS(&plugin, absent_kernel_count);
    for (std::uint32_t i = 0; lists && i < plugin.absent_kernel_count; ++i) {
      const attest_absent_kernel& kernel = *plugin.absent_kernels[i];
      absent.push_back({{"name", kernel.name}, {"why", kernel.why}});
    }
    return {{"status", "ok"}, {"kernels", kernels}, {"absent_kernels", absent}};
  }
  const auto wanted = request.at("kernel").get<std::string>();
  for (std::uint32_t i = 0; i < plugin.kernel_count; ++i) {
    const attest_kernel& kernel = *plugin.kernels[i];
    if (wanted != kernel.name) continue;
    if (op == "supports") return supports(kernel, request, locate);
    if (op == "forward") return call(kernel, request, false, locate, ready);
    if (op == "backward") {
      if (!ATTEST_HAS(&kernel, backward)) {
        return {{"status", "error"}, {"message", "the kernel has no backward pass"}};
      }
      return call(kernel, request, true, locate, ready);
    }
    throw InputError("", fmt::format("no request is called {}", op));
  }
  throw InputError("", fmt::format("the plug-in has no kernel {}", wanted));
}

}  // namespace attest
