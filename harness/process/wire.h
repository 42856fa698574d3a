// The worker protocol: what crosses between the harness and a worker (SPEC.md, chapter "Worker").
//
// Frames of JSON, each preceded by its length in bytes as a 32-bit little-endian number. A request
// carries a fresh nonce, which its reply echoes; case ids and expected values never cross. Tensors
// lie in two shared memories, and a request says where.
//
//   {"nonce": "9f..", "op": "describe"}
//     -> {"nonce": "9f..", "status": "ok", "kernels": [{...}, ...]}
//   {"nonce": "a1..", "op": "supports", "kernel": "fa2", "problem": {...}, "tensors": {...}}
//     -> {"nonce": "a1..", "status": "ok"} or {..., "status": "refused", "message": "no softcap"}
//   {"nonce": "07..", "op": "forward", "kernel": "fa2", "threads": 1, "problem": {...},
//    "tensors": {"q": {...}, ..., "o": {...}}}
//     -> {"nonce": "07..", "status": "ok", "workspace_bytes": 0}, or "error" with a message, or
//        "fault" with the tensor beside which memory was touched; with "ends": true if the worker
//        is of no further use
//
// A worker whose reply to a brief "describe" has "arms": true can be told of a call beforehand, by
// "armed": true. All that it maps is in place when it says so; only after the word that follows do
// the tensors hold their numbers, and may the kernel see any of it:
//
//   {"nonce": "5e..", "op": "forward", "armed": true, ...}
//     -> {"nonce": "5e..", "status": "ok", "armed": true}
//   {"nonce": "d2..", "op": "go", ...}
//     -> {"nonce": "d2..", "status": "ok", "workspace_bytes": 0}
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "spec/dialect.h"
#include "spec/problem.h"

namespace attest {

// The file descriptors that a worker finds open; also in its environment, as ATTEST_REQUEST_FD,
// ATTEST_REPLY_FD, ATTEST_INPUT_FD and ATTEST_OUTPUT_FD.
inline constexpr int kRequestFd = 3;
inline constexpr int kReplyFd = 4;
inline constexpr int kInputFd = 5;   // the memory of inputs: may be mapped for reading only
inline constexpr int kOutputFd = 6;  // the memory of outputs

inline constexpr std::size_t kMaxFrameBytes = std::size_t(16) << 20;

// How deep the JSON of a frame nests at most. In a request each combination of masks is an object
// and a list, within the problem within the request, and the innermost mask an object.
inline constexpr int kMaxFrameLevels = 160;
static_assert(2 + 2 * kDeepestMask + 1 <= kMaxFrameLevels);

// Of the blocks that a reply holds: as many as a frame has room for, each of that many numbers.
inline constexpr std::size_t kMostBlocks = std::size_t(1) << 16;
inline constexpr std::size_t kBlockNumbers = 9;

// A text with its length before it.
std::string frame(const std::string& text);

// Writes one frame; false if the other side is gone.
bool write_frame(int fd, const std::string& text);

// Reads one frame, waiting as long as it takes; nothing at the end of the stream. Throws InputError
// for a frame that is too long or cut off.
std::optional<std::string> read_frame(int fd);

// What the n-th of tables_of(mask) is called: "mask0", "mask1", ...
std::string mask_table_name(std::size_t n);

// A problem as it crosses: its numbers by name; "mask" as a tree whose tables are named tensors, in
// the order of the tree (tensors.h adds them). Its windows are in the
// testee's own dialect, which must be able to say them (unsayable, in spec/dialect.h).
nlohmann::json problem_to_json(const Problem& problem, const WindowEnds& windows = {});

}  // namespace attest
