// What a testee computes, told from its results alone: nothing that it declares is believed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/probe/answer.h"
#include "harness/process/executor.h"
#include "harness/process/testee.h"

namespace attest {

struct ProbeOptions {
  int threads = 1;                  // of a call
  std::vector<DType> formats = {};  // empty: all that it takes
  std::function<bool()> interrupted = {};
};

struct Probed {
  std::vector<DType> formats;
  Answers answers;  // first of all, of calls that broke down, if any did
};

// Throws InputError, with its reasons, if the testee takes no problem that is known.
Probed probe(const Testee& testee, Executor& executor, const ProbeOptions& options);

// How many keys of the chapter "Description" were told. What has several answers (features, limits,
// the six products of a format) is told if all of them were.
struct KeysTold {
  int told = 0, of = 0;
};
KeysTold keys_told(const Answers& answers);

}  // namespace attest
