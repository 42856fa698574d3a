#include "harness/script/python.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace attest::scripts {
namespace {

using Lines = std::vector<std::string>;

std::string python_number(double x) {
  return std::isfinite(x) ? fmt::format("{}", x) : fmt::format("float(\"{}\")", x);
}

class Writer {
 public:
  Writer(ScriptLanguage language, const Failure& failure)
      : language_(language), failure_(failure), p_(failure.problem()) {}

  std::string text() {
    for (const std::string& each : failure_.comment()) add("# {}", each);
    imports();
    tensors();
    mask();
    switch (language_) {
      case ScriptLanguage::torch:
        call_torch();
        break;
      case ScriptLanguage::jax:
        call_jax();
        break;
      default:
        call_numpy();
    }
    const std::string what = fmt::format("{}[{}]", name(failure_.tensor), failure_.element());
    add("exact, bound = {}, {:.3g}  # of the arithmetic declared",
        python_number(failure_.worst.exact), failure_.worst.bound);
    add("print(f\"{} = {{actual}}, exact {{exact}}, at most {{bound}} away\")", what);
    add("assert actual == exact or abs(actual - exact) <= bound");
    return text_of(lines_);
  }

 private:
  template <class... T>
  void add(fmt::format_string<T...> format, T&&... arguments) {
    lines_.push_back(fmt::format(format, std::forward<T>(arguments)...));
  }

  bool is_torch() const { return language_ == ScriptLanguage::torch; }
  const char* module() const {
    return is_torch() ? "torch" : language_ == ScriptLanguage::jax ? "jnp" : "np";
  }
  const char* make() const {
    return is_torch() ? "torch.tensor" : is_jax() ? "jnp.array" : "np.array";
  }
  bool is_jax() const { return language_ == ScriptLanguage::jax; }

  // "float16"; NumPy knows no bf16, of which the formula's numbers are all the same.
  std::string format() const {
    switch (p_.dtype) {
      case DType::f64:
        return "float64";
      case DType::f16:
        return "float16";
      case DType::bf16:
        return is_torch() || is_jax() ? "bfloat16" : "float32";
      default:
        return "float32";
    }
  }
  bool has(const char* part) const {
    return failure_.testee.kernel.find(part) != std::string::npos;
  }
  // The constant by which torch knows a back end.
  std::string back_end() const {
    return has("math")        ? "MATH"
           : has("flash")     ? "FLASH_ATTENTION"
           : has("efficient") ? "EFFICIENT_ATTENTION"
           : has("cudnn")     ? "CUDNN_ATTENTION"
                              : "";
  }

  void imports() {
    add("import math");
    if (is_torch()) {
      add("import torch");
      add("import torch.nn.functional as F");
      if (!back_end().empty()) add("from torch.nn.attention import SDPBackend, sdpa_kernel");
      const char* device = has("cpu")    ? "\"cpu\""
                           : has("cuda") ? "\"cuda\""
                                         : "\"cuda\" if torch.cuda.is_available() else \"cpu\"";
      add("torch.set_default_device({})", device);
    } else if (is_jax()) {
      add("import jax");
      add("import jax.numpy as jnp");
      if (p_.dtype == DType::f64) add("jax.config.update(\"jax_enable_x64\", True)");
    } else {
      add("import numpy as np");
    }
    const std::string cast = is_torch() ? fmt::format(".to(torch.{})", format())
                             : is_jax() ? fmt::format(".astype(jnp.{})", format())
                                        : fmt::format(".astype(np.{})", format());
    add("def numbers(t, *shape):  # [batch, head, position, channel]; exact in all formats");
    add("    n = {}.arange(math.prod(shape)) % 61", module());
    add("    return (((n * n + 11 * n + 29 * t) % 61 - 30) / 16).reshape(shape){}", cast);
  }

  void tensors() {
    const auto tensor = [&](TensorName which, Index t, const Shape& shape) {
      add("{} = numbers({}, {})", wire_name(which), t, fmt::join(shape, ", "));
      if (is_torch()) lie(wire_name(which), p_.layouts[which], shape);
    };
    tensor(TensorName::q, 0, p_.q_shape());
    tensor(TensorName::k, 1, p_.k_shape());
    tensor(TensorName::v, 2, p_.v_shape());
    if (failure_.is_gradient()) tensor(TensorName::d_o, 3, p_.o_shape());
    if (!p_.bias_shape) return;
    Lines all;
    for (const double x : bias_of(failure_.test_case)) all.push_back(python_number(x));
    const std::string kind = is_torch() ? "torch." : is_jax() ? "jnp." : "np.";
    add("bias = {}([{}], dtype={}{}).reshape({})", make(), fmt::join(all, ", "), kind, format(),
        fmt::join(*p_.bias_shape, ", "));
  }

  // Has torch put a tensor as it lies, which holds the same numbers.
  void lie(const std::string& name, const Layout& layout, const Shape& shape) {
    const std::string order = layout.order(), axes = "bhsd";
    std::array<std::size_t, 4> to = {}, back = {};
    for (std::size_t n = 0; n < axes.size(); ++n) {
      to[n] = axes.find(order[n]);
      back[to[n]] = n;
    }
    if (layout.gap() > 0) {
      add("{0} = F.pad({0}.permute({1}), (0, {2}))[..., :{3}].permute({4})  # {5}", name,
          fmt::join(to, ", "), layout.gap(), shape[to[3]], fmt::join(back, ", "),
          layout.to_string());
    } else if (order != axes) {
      add("{0} = {0}.permute({1}).contiguous().permute({2})  # {3}", name, fmt::join(to, ", "),
          fmt::join(back, ", "), layout.to_string());
    }
    if (!layout.expands()) return;
    std::vector<std::string> first;
    for (const Axis axis : {kBatch, kHead, kPosition, kChannel}) {
      first.emplace_back(layout.expands(axis) ? ":1" : ":");
    }
    add("{0} = {0}[{1}].expand({2})  # {3}", name, fmt::join(first, ", "), fmt::join(shape, ", "),
        layout.to_string());
  }

  bool uses_flag() const { return is_torch() && has_causal_flag(p_) && !p_.bias_shape; }
  // JAX's function has arguments of its own for bands at the top left and for lengths, where it
  // does otherwise than with a mask.
  bool has_arguments() const {
    const bool band = p_.mask.kind == Mask::Kind::band && p_.mask.anchor == Anchor::top_left &&
                      p_.mask.offset == 0;
    return is_jax() && (band || p_.mask.kind == Mask::Kind::full);
  }
  bool has_mask() const { return !sees_all(p_) && !uses_flag() && !has_arguments(); }
  void mask() {
    if (!has_mask()) return;
    if (const auto band = diagonals_of(p_)) {
      add("i, j = {0}.arange({1})[:, None], {0}.arange({2})[None, :]", module(), p_.query_len,
          p_.key_len);
      Lines seen;
      if (band->least) seen.push_back(fmt::format("({} <= j - i)", *band->least));
      if (band->most) seen.push_back(fmt::format("(j - i <= {})", *band->most));
      if (seen.empty()) seen.emplace_back("(j - i == j - i)");
      const std::string all = fmt::format("{}", fmt::join(seen, " & "));
      add("mask = {}[None, None]  # True: is seen", seen.size() > 1 ? "(" + all + ")" : all);
      return;
    }
    const auto [shape, bits] = table_of(p_);
    add("mask = {}([int(x) for x in \"{}\"]).reshape({}) == 1  # True: is seen", make(), bits,
        fmt::join(shape, ", "));
  }

  void call_torch() {
    std::vector<std::string> arguments = {"q", "k", "v"};
    if (p_.bias_shape && has_mask()) {
      add("bias = torch.where(mask, bias, -torch.inf)");
    }
    if (p_.bias_shape || has_mask()) {
      arguments.push_back(p_.bias_shape ? "attn_mask=bias" : "attn_mask=mask");
    }
    if (uses_flag()) arguments.emplace_back("is_causal=True");
    arguments.push_back(fmt::format("scale={}", p_.scale));
    if (p_.query_heads != p_.key_heads) arguments.emplace_back("enable_gqa=True");
    const bool gradient = failure_.is_gradient();
    if (gradient) {
      add("for each in (q, k, v{}):", p_.bias_shape ? ", bias" : "");
      add("    each.requires_grad_()");
    }
    const std::string indent = back_end().empty() ? "" : "    ";
    if (!indent.empty()) add("with sdpa_kernel(SDPBackend.{}):", back_end());
    add("{}o = F.scaled_dot_product_attention({})", indent, fmt::join(arguments, ", "));
    if (gradient) add("{}o.backward(d_o)", indent);
    add("actual = {}[{}].item()", of_torch(), failure_.element());
  }
  std::string of_torch() const {
    switch (failure_.tensor) {
      case TensorName::dq:
        return "q.grad";
      case TensorName::dk:
        return "k.grad";
      case TensorName::dv:
        return "v.grad";
      case TensorName::dbias:
        return "bias.grad";
      default:
        return "o";
    }
  }

  // Those of JAX's function for a band and for lengths.
  void tell_jax(std::vector<std::string>& arguments) const {
    if (p_.mask.kind == Mask::Kind::band) {
      const auto end = [&](Index n) {
        return n == kUnbounded ? std::max(p_.query_len, p_.key_len) : n;
      };
      arguments.push_back(
          p_.mask.left == kUnbounded && p_.mask.right == 0
              ? "is_causal=True"
              : fmt::format("local_window_size=({}, {})", end(p_.mask.left), end(p_.mask.right)));
    }
    for (const auto& [argument, lengths] : {std::pair{"query_seq_lengths", &p_.query_lens},
                                            {"key_value_seq_lengths", &p_.key_lens}}) {
      if (lengths->empty()) continue;
      arguments.push_back(fmt::format("{}=jnp.array([{}])", argument, fmt::join(*lengths, ", ")));
    }
  }
  void call_jax() {
    std::vector<std::string> arguments = {"*(x.swapaxes(1, 2) for x in (q, k, v))"};
    if (p_.bias_shape) arguments.emplace_back("bias");
    if (has_arguments()) tell_jax(arguments);
    if (has_mask()) arguments.emplace_back("mask=mask");
    arguments.push_back(fmt::format("scale={}", p_.scale));
    arguments.push_back(fmt::format("implementation=\"{}\"", has("cudnn") ? "cudnn" : "xla"));
    const std::string given = p_.bias_shape ? "q, k, v, bias" : "q, k, v";
    add("def attention({}):", given);
    add("    return jax.nn.dot_product_attention({}).swapaxes(1, 2)", fmt::join(arguments, ", "));
    if (failure_.is_gradient()) {
      add("_, pull_back = jax.vjp(attention, {})", given);
      add("dq, dk, dv{} = pull_back(d_o)", p_.bias_shape ? ", dbias" : "");
    } else {
      add("o = attention({})", given);
    }
    add("actual = float({}[{}])", wire_name(failure_.tensor), failure_.element());
  }

  void call_numpy() {
    std::vector<std::string> given = {"q", "k", "v"};
    if (failure_.is_gradient()) given.emplace_back("d_o");
    if (!sees_all(p_)) given.emplace_back("mask");
    if (p_.bias_shape) given.emplace_back("bias");
    given.push_back(fmt::format("scale={}", p_.scale));
    if (p_.softcap != 0) given.push_back(fmt::format("softcap={}", p_.softcap));
    add("def kernel(q, k, v, *others, **more):  # your kernel: {} in {}", name(failure_.tensor),
        name(p_.dtype));
    add("    raise NotImplementedError(\"put the kernel in\")");
    add("actual = float(kernel({})[{}])", fmt::join(given, ", "), failure_.element());
  }

  ScriptLanguage language_;
  const Failure& failure_;
  const Problem& p_;
  Lines lines_;
};

}  // namespace

std::string python(ScriptLanguage language, const Failure& failure) {
  return Writer(language, failure).text();
}

}  // namespace attest::scripts
