// Shapes of FlashInfer Trace: definitions, whose axes are constant or variable, and workloads,
// which give the variable ones values (the schema: docs.flashinfer.ai, "fi_trace", and the
// documents of flashinfer-bench). Taken are op_type gqa_paged, gqa_ragged, mla_paged and
// mla_ragged.
//
// What states the shape is taken: heads, widths, page size, batch, totals of queries, keys and
// pages, the format, sm_scale. How long each sequence is lies in tensors of their own (qo_indptr,
// kv_indptr, kv_last_page_len), which are not read: sequences are alike, as far as totals divide.
// Of a definition without a workload the variable axes have values of ours. Notes say so.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cases/shape_entry.h"

namespace attest {

// A definition, a workload or a trace, as it stands in a file.
struct TraceItem {
  nlohmann::json json;
  int line;
};

// Whether it is one of these.
bool is_trace(const nlohmann::json& json);

// The shapes of a file. A definition that a workload names is looked for in the file, beside it as
// NAME.json, and in a folder definitions/ beside or above it. Throws InputError, whose text begins
// with the line. What is no attention is left out, and noted.
std::vector<ShapeEntry> shapes_of_traces(const std::vector<TraceItem>& items,
                                         const std::filesystem::path& file,
                                         std::vector<std::string>& notes);

}  // namespace attest
