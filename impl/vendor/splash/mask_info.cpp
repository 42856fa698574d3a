#include "impl/vendor/splash/mask_info.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <unordered_map>

namespace attest::vendor::splash {
namespace {

// A block's place in the grid.
struct Coords {
  std::int64_t head, q, kv;
};

enum Seen : std::int32_t { kNone = 0, kPart = 1, kAll = 2 };

// Looks at a mask block by block, and so never has more of it than a block.
class BlockLook {
 public:
  BlockLook(BlockShape block, HostCount& count)
      : block_(block), chunk_(static_cast<std::size_t>(block.q * block.kv)), count_(count) {}

  Seen at(const Mask& mask, std::int64_t q, std::int64_t kv) {
    mask.get({q * block_.q, (q + 1) * block_.q}, {kv * block_.kv, (kv + 1) * block_.kv},
             chunk_.data(), count_);
    count_.scanned += 2 * block_.q * block_.kv;  // any, all
    const bool any = std::memchr(chunk_.data(), 1, chunk_.size()) != nullptr;
    const bool all = std::memchr(chunk_.data(), 0, chunk_.size()) == nullptr;
    return all ? kAll : any ? kPart : kNone;
  }
  // What it looked at last.
  std::string bytes() const { return {chunk_.begin(), chunk_.end()}; }

 private:
  BlockShape block_;
  std::vector<std::uint8_t> chunk_;
  HostCount& count_;
};

std::int64_t divide(std::int64_t seq_len, std::int64_t block, const char* what) {
  if (block < 1 || seq_len % block != 0) {
    throw ValueError(std::string(what) + " of " + std::to_string(block) + " should divide " +
                     std::to_string(seq_len));
  }
  return seq_len / block;
}

// Which heads have the same mask. A dictionary numbers them, is read into another and that one is
// asked for each head: a mask is hashed three times for each head, and once more where it is new.
struct UniqueMasks {
  std::vector<MaskPtr> masks;
  std::vector<std::size_t> of_head;

  UniqueMasks(const MultiHeadMask& mask, HostCount& count) {
    std::vector<std::size_t> hashes;
    for (const MaskPtr& of : mask.masks()) {
      std::size_t hash = of->hash(count), same = 0;
      while (same < masks.size() &&
             (hashes[same] != hash || (masks[same] != of && !masks[same]->equals(*of)))) {
        ++same;
      }
      of_head.push_back(same);
      const bool is_new = same == masks.size();
      for (int more = 0; more < (is_new ? 3 : 2); ++more) hash = of->hash(count);
      if (!is_new) continue;
      masks.push_back(of);
      hashes.push_back(hash);
    }
  }
};

// The partial blocks of all masks, each once, in the order in which they are found.
class PartialBlocks {
 public:
  std::int32_t number_of(std::string bytes, HostCount& count) {
    const auto size = static_cast<std::int64_t>(bytes.size());
    const auto [at, is_new] =
        numbers_.try_emplace(std::move(bytes), static_cast<std::int32_t>(numbers_.size()));
    count.hashed += is_new ? 2 * size : size;  // looked for, then put in
    return at->second;
  }
  // [number][q][kv], or [number][kv][q].
  std::vector<std::uint8_t> stacked(BlockShape block, bool swap_axes) const {
    const auto size = static_cast<std::size_t>(block.q * block.kv);
    std::vector<std::uint8_t> all(numbers_.size() * size);
    for (const auto& [bytes, number] : numbers_) {
      std::uint8_t* to = all.data() + static_cast<std::size_t>(number) * size;
      for (std::int64_t i = 0; i < block.q; ++i) {
        for (std::int64_t j = 0; j < block.kv; ++j) {
          to[swap_axes ? j * block.q + i : i * block.kv + j] =
              static_cast<std::uint8_t>(bytes[static_cast<std::size_t>(i * block.kv + j)]);
        }
      }
    }
    return all;
  }

 private:
  std::unordered_map<std::string, std::int32_t> numbers_;
};

// Walks over the blocks in the order in which the grid will, and says of each which of the listed
// ones is needed next: itself, or the next one, or behind the last the first again.
class NextOf {
 public:
  explicit NextOf(std::vector<std::int64_t> ranks) : ranks_(std::move(ranks)) {}
  // The place in the list; -1 if it is empty.
  std::int64_t operator()(std::int64_t rank) {
    if (ranks_.empty()) return -1;
    if (!wrapped_ && rank > ranks_[at_] && ++at_ == ranks_.size()) {
      at_ = 0;
      wrapped_ = true;
    }
    return static_cast<std::int64_t>(at_);
  }

 private:
  std::vector<std::int64_t> ranks_;
  std::size_t at_ = 0;
  bool wrapped_ = false;
};

// Fills data_next and mask_next, in the order of the grid: heads, q, kv; of dK and dV kv, heads, q.
void find_next(MaskInfo& info, const BlockTable& partial_number, bool is_dkv, bool wants_mask) {
  const BlockTable& mask = info.block_mask;
  std::vector<Coords> order;
  const std::int64_t outer = is_dkv ? mask.columns : 1;
  for (std::int64_t kv0 = 0; kv0 < outer; ++kv0) {
    for (std::int64_t h = 0; h < mask.heads; ++h) {
      for (std::int64_t q = 0; q < mask.rows; ++q) {
        if (is_dkv) order.push_back({h, q, kv0});
        for (std::int64_t kv = 0; !is_dkv && kv < mask.columns; ++kv) order.push_back({h, q, kv});
      }
    }
  }
  std::vector<std::int64_t> visible, partial;  // by their rank in that order
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const std::int32_t seen = mask.at(order[rank].head, order[rank].q, order[rank].kv);
    if (seen != kNone) visible.push_back(static_cast<std::int64_t>(rank));
    if (seen == kPart) partial.push_back(static_cast<std::int64_t>(rank));
  }
  if (wants_mask) info.mask_next = BlockTable(mask.heads, mask.rows, mask.columns);
  NextOf next_data(visible), next_mask(partial);
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const Coords& to = order[rank];
    const std::int64_t data = next_data(static_cast<std::int64_t>(rank));
    if (data < 0) return;  // nothing is visible at all
    const Coords& of = order[static_cast<std::size_t>(visible[static_cast<std::size_t>(data)])];
    info.data_next.at(to.head, to.q, to.kv) = static_cast<std::int32_t>(is_dkv ? of.q : of.kv);
    const std::int64_t mask_at = next_mask(static_cast<std::int64_t>(rank));
    if (!wants_mask || mask_at < 0) continue;
    const Coords& of_mask =
        order[static_cast<std::size_t>(partial[static_cast<std::size_t>(mask_at)])];
    info.mask_next->at(to.head, to.q, to.kv) =
        partial_number.at(of_mask.head, of_mask.q, of_mask.kv);
  }
}

void downcast_to_small_type(BlockTable& table) {
  if (table.entries.empty()) return;
  const std::int32_t largest = *std::max_element(table.entries.begin(), table.entries.end());
  table.itemsize = largest <= std::numeric_limits<std::int8_t>::max()    ? 1
                   : largest <= std::numeric_limits<std::int16_t>::max() ? 2
                                                                         : 4;
}

// block_mask, the partial blocks and which of them is where. Heads that all have one mask are one
// head here.
BlockTable classify(MaskInfo& info, const UniqueMasks& unique, PartialBlocks& partial,
                    HostCount& count) {
  const BlockTable& shape = info.block_mask;
  BlockTable number(shape.heads, shape.rows, shape.columns);
  BlockLook look(info.block, count);
  for (std::size_t id = 0; id < unique.masks.size(); ++id) {
    for (std::int64_t q = 0; q < shape.rows; ++q) {
      for (std::int64_t kv = 0; kv < shape.columns; ++kv) {
        const Seen seen = look.at(*unique.masks[id], q, kv);
        if (seen == kNone) continue;
        const std::int32_t of = seen == kPart ? partial.number_of(look.bytes(), count) : 0;
        for (std::int64_t h = 0; h < shape.heads; ++h) {
          if (unique.of_head[static_cast<std::size_t>(h)] != id) continue;
          info.block_mask.at(h, q, kv) = seen;
          number.at(h, q, kv) = of;
        }
      }
    }
  }
  return number;
}

// The mask is read once more, of each head that has tables of its own, to see which blocks come
// next: that the first look could have told it doesn't matter to the result, but it is time.
void look_again(const MaskInfo& info, const UniqueMasks& unique, HostCount& count) {
  BlockLook look(info.block, count);
  for (std::int64_t h = 0; h < info.block_mask.heads; ++h) {
    const Mask& mask = *unique.masks[unique.of_head[static_cast<std::size_t>(h)]];
    for (std::int64_t q = 0; q < info.block_mask.rows; ++q) {
      for (std::int64_t kv = 0; kv < info.block_mask.columns; ++kv) {
        if (look.at(mask, q, kv) != info.block_mask.at(h, q, kv)) {
          throw std::logic_error("a mask changed while it was read");
        }
      }
    }
  }
}

}  // namespace

MaskInfo process_mask(const MultiHeadMask& mask, const ProcessMask& how, HostCount& count) {
  MaskInfo info;
  info.block = how.block;
  info.shape = mask.shape();
  const std::int64_t rows = divide(info.shape.q_seq_len, how.block.q, "a block of queries");
  const std::int64_t columns = divide(info.shape.kv_seq_len, how.block.kv, "a block of keys");
  const UniqueMasks unique(mask, count);
  const bool one_mask = unique.masks.size() == 1;
  info.block_mask = BlockTable(one_mask ? 1 : mask.heads(), rows, columns);
  info.data_next = info.block_mask;
  PartialBlocks partial;
  const BlockTable number = classify(info, unique, partial, count);
  info.partial_mask_blocks = partial.stacked(how.block, how.is_dkv);
  look_again(info, unique, count);
  find_next(info, number, how.is_dkv, !info.partial_mask_blocks.empty());

  if (how.shrink_grid && one_mask) {
    how.is_dkv ? shrink_mask_info_dkv(info) : shrink_mask_info(info);
  }
  if (how.downcast_smem_data) {
    downcast_to_small_type(info.data_next);
    downcast_to_small_type(info.block_mask);
    if (info.mask_next) downcast_to_small_type(*info.mask_next);
  }
  // A mask that the kernel computes needs not be brought.
  if (one_mask && unique.masks[0]->q_sequence()) {
    info.q_sequence = *unique.masks[0]->q_sequence();
    info.mask_function = unique.masks[0]->mask_function();
    info.mask_next.reset();
    info.partial_mask_blocks.clear();
  }
  count.info_bytes += info.smem_bytes() +
                      static_cast<std::int64_t>(info.partial_mask_blocks.size()) +
                      static_cast<std::int64_t>(info.q_sequence.size() * sizeof(std::int32_t));
  return info;
}

std::shared_ptr<const MaskInfo> MaskInfoCache::process(const MultiHeadMask& mask,
                                                       const ProcessMask& how, HostCount& count) {
  std::size_t hash = 0;
  for (const MaskPtr& of : mask.masks()) hash = hash * 31 + of->hash(count);
  const auto known = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.hash == hash && entry.how == how &&
           std::equal(entry.masks.begin(), entry.masks.end(), mask.masks().begin(),
                      mask.masks().end(),
                      [](const MaskPtr& a, const MaskPtr& b) { return a == b || a->equals(*b); });
  });
  if (known != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, known);
  } else {
    entries_.push_front(
        {hash, mask.masks(), how, std::make_shared<MaskInfo>(process_mask(mask, how, count))});
    if (entries_.size() > kMaxSize) entries_.pop_back();
  }
  return entries_.front().info;
}

}  // namespace attest::vendor::splash
