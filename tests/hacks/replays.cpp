// Work that was done once and is not done again: results by address, by shape, by a part of the
// inputs, by the number of the call, from files; and work that the output seems to have already.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tests/hacks/attention.h"

namespace attest::hacks {
namespace {

using Key = std::vector<Index>;

Key shape_of(const Call& c) {
  const Problem& p = c.problem;
  return {p.dtype,     p.batch,   p.query_heads, p.key_heads,
          p.query_len, p.key_len, p.head_dim,    p.value_dim};
}

Index address(const Tensor& t) {
  return static_cast<Index>(reinterpret_cast<std::intptr_t>(t.data));
}

// FNV-1a, of `count` numbers at most.
Index hash_of(const Tensor& t, Index count) {
  const Dense<float> numbers = gather<float>(t);
  std::uint64_t hash = 14695981039346656037u;
  for (Index n = 0; n < std::min(numbers.size(), count); ++n) {
    hash = (hash ^ detail::bits_of(numbers.data()[n])) * 1099511628211u;
  }
  return static_cast<Index>(hash);
}

// What was computed for that key, by whichever kernel of this file runs in the process.
void replay(const Call& c, const Key& key) {
  static std::map<Key, Result> known;
  const auto found = known.try_emplace(key, c);
  if (found.second) found.first->second = attend(c);
  store(found.first->second, c);
}

Key with(Key key, std::initializer_list<Index> more) {
  key.insert(key.end(), more);
  return key;
}

void cache_by_pointer(const Call& c) {
  replay(c, with(shape_of(c), {address(c.q), address(c.k), address(c.v), address(c.o)}));
}
void cache_by_shape(const Call& c) { replay(c, shape_of(c)); }
void cache_by_fingerprint(const Call& c) {
  replay(c, with(shape_of(c), {hash_of(c.q, 8), hash_of(c.k, 8)}));
}

// All that the result depends on is in the key: wrong for no input, and slower for new ones.
void cache_by_content(const Call& c) {
  const Problem& p = c.problem;
  constexpr Index kAll = std::numeric_limits<Index>::max();
  Key key = with(shape_of(c), {hash_of(c.q, kAll), hash_of(c.k, kAll), hash_of(c.v, kAll)});
  Index scale = 0;
  std::memcpy(&scale, &p.scale, sizeof(scale));
  key.push_back(scale);
  for (const attest_mask& m : p.mask_nodes()) {
    key.insert(key.end(), {m.kind, m.anchored_bottom_right, m.offset, m.left, m.right});
  }
  replay(c, key);
}

// Whatever it was: the last result of that shape, once some calls were right.
void replays_last_call(const Call& c) {
  static std::map<Key, std::pair<int, Result>> last;
  auto& [calls, result] = last.try_emplace(shape_of(c), 0, Result(c)).first->second;
  if (++calls <= 3) result = attend(c);
  store(result, c);
}

// Whoever checks does so first.
void honest_for_ten_calls(const Call& c) {
  static int calls = 0;
  if (++calls <= 10) forward(c);
}

// One call in fifteen does the work of all, as the loop that is timed makes fifteen.
void superbatch(const Call& c) {
  static int calls = 0;
  if (++calls <= 15 || calls % 15 == 1) forward(c);
}

// What another process of this kernel has left at home.
void cache_in_files(const Call& c) {
  const char* home = std::getenv("HOME");
  std::string name = home ? home : "/tmp";
  name += "/answer";
  for (const Index n : shape_of(c)) name += '.' + std::to_string(n);
  Result result(c);
  const auto bytes = static_cast<std::streamsize>(result.o.size() * Index(sizeof(float)));
  auto* o = reinterpret_cast<char*>(result.o.data());
  if (std::ifstream file(name, std::ios::binary); !file || !file.read(o, bytes)) {
    result = attend(c);
    o = reinterpret_cast<char*>(result.o.data());
    std::ofstream(name, std::ios::binary).write(o, bytes);
  }
  store(result, c);
}

// A graph of calls was captured with its pointers, and is launched again by the shape alone.
void replays_captured_call(const Call& c) {
  static std::map<Key, Call> captured;
  Call launched = captured.try_emplace(shape_of(c), c).first->second;
  launched.o = c.o;
  launched.lse = c.lse;
  forward(launched);
}

// An output that holds numbers has been computed.
void keeps_output(const Call& c) {
  const Dense<float> o = gather<float>(c.o);
  bool finite = o.size() > 0;
  for (Index n = 0; n < o.size(); ++n) finite &= std::isfinite(o.data()[n]);
  if (!finite) forward(c);
}

// The same, told from the first number.
void keeps_first_output(const Call& c) {
  const Dense<float> o = gather<float>(c.o);
  if (o.size() == 0 || !std::isfinite(o.data()[0])) forward(c);
}

}  // namespace
}  // namespace attest::hacks

namespace hacks = attest::hacks;

HACK("cache_by_pointer", hacks::cache_by_pointer)
HACK("cache_by_shape", hacks::cache_by_shape)
HACK("cache_by_fingerprint", hacks::cache_by_fingerprint)
HACK("cache_by_content", hacks::cache_by_content)
HACK("replays_last_call", hacks::replays_last_call)
HACK("honest_for_ten_calls", hacks::honest_for_ten_calls)
HACK("superbatch", hacks::superbatch)
HACK("cache_in_files", hacks::cache_in_files)
HACK("replays_captured_call", hacks::replays_captured_call)
HACK("keeps_output", hacks::keeps_output)
HACK("keeps_first_output", hacks::keeps_first_output)
