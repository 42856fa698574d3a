#include "harness/process/wire.h"

#include <unistd.h>

#include <array>
#include <cerrno>

#include "spec/assert.h"
#include "spec/json_reader.h"
#include "spec/mask_kind.h"

namespace attest {
namespace {

using nlohmann::json;

json bound_to_json(Index bound) { return bound == kUnbounded ? json(nullptr) : json(bound); }

json mask_to_json(const Mask& mask, const WindowEnds& windows, std::size_t& tables) {
  const MaskKind& kind = about(mask.kind);
  json node = {{"kind", kind.word}};
  if (kind.is_anchored) {
    node["anchor"] = mask.anchor == Anchor::bottom_right ? "bottom_right" : "top_left";
    node["offset"] = mask.offset;
  }
  if (mask.kind == Mask::Kind::band) {
    const auto numbers = numbers_of(mask, windows);
    ATTEST_ASSERT(numbers);
    node["left"] = bound_to_json(numbers->left);
    node["right"] = bound_to_json(numbers->right);
  }
  for (const auto& number : kind.numbers) node[std::string(number.key)] = mask.*number.in_mask;
  for (const auto& table : kind.tables) node[std::string(table.key)] = mask_table_name(tables++);
  if (kind.combines) node["parts"] = json::array();
  for (const Mask& part : mask.parts) node["parts"].push_back(mask_to_json(part, windows, tables));
  return node;
}

const char* mode_name(Dropout::Mode mode) {
  switch (mode) {
    case Dropout::Mode::none:
      return "none";
    case Dropout::Mode::given:
      return "given";
    case Dropout::Mode::generated:
      return "generated";
  }
  return "?";
}

// Reads `size` bytes; how many came before the end of the stream.
std::size_t read_fully(int fd, char* out, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = read(fd, out + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

}  // namespace

std::string mask_table_name(std::size_t n) { return "mask" + std::to_string(n); }

std::string frame(const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  std::string bytes;
  bytes.reserve(4 + text.size());
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(size >> shift);
  return bytes + text;
}

bool write_frame(int fd, const std::string& text) {
  const std::string bytes = frame(text);
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

std::optional<std::string> read_frame(int fd) {
  std::array<char, 4> head{};
  const std::size_t got = read_fully(fd, head.data(), head.size());
  if (got == 0) return std::nullopt;
  std::size_t size = 0;
  for (int i = 3; i >= 0; --i)
    size = size << 8 | static_cast<unsigned char>(head[static_cast<std::size_t>(i)]);
  if (got < head.size() || size > kMaxFrameBytes) throw InputError("", "a malformed frame");
  std::string text(size, '\0');
  if (read_fully(fd, text.data(), size) != size) throw InputError("", "a frame was cut off");
  return text;
}

// Named one by one: a list of lists is copied several times over, and this is done for each call.
json problem_to_json(const Problem& p, const WindowEnds& windows) {
  std::size_t tables = 0;
  json j, dropout;
  dropout["mode"] = mode_name(p.dropout.mode);
  dropout["probability"] = p.dropout.probability;
  // 64 bits are more than many a JSON reader keeps of a number.
  dropout["seed"] = std::to_string(p.dropout.seed);
  dropout["offset"] = std::to_string(p.dropout.offset);
  j["dtype"] = name(p.dtype);
  j["backward"] = p.backward;
  j["batch"] = p.batch;
  j["query_heads"] = p.query_heads;
  j["key_heads"] = p.key_heads;
  j["query_len"] = p.query_len;
  j["key_len"] = p.key_len;
  j["head_dim"] = p.head_dim;
  j["value_dim"] = p.value_dim;
  j["scale"] = p.scale;
  j["softcap"] = p.softcap;
  j["mask"] = mask_to_json(p.mask, windows, tables);
  j["packed"] = p.packed;
  j["page_size"] = p.paging.page_size;
  j["bias"] = p.bias_shape.has_value();
  j["alibi"] = p.slopes_shape.has_value();
  j["sink"] = p.sink;
  j["dlse"] = p.d_lse;
  for (const auto& [key, stored] :
       {std::pair{"q_dtype", &p.stored.q}, {"k_dtype", &p.stored.k}, {"v_dtype", &p.stored.v}}) {
    if (*stored) j[key] = name((*stored)->dtype);
  }
  j["dropout"] = std::move(dropout);
  return j;
}

}  // namespace attest
