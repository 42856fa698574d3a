// Where the time of a run goes (`attest run --profile-stages`). A thread is in one stage at a time;
// what an inner one takes, the outer one does not.
//
//   const InStage stage(RunStage::reference);   // until the end of the block
#pragma once

#include <map>
#include <string>

namespace attest {

enum class RunStage {
  generate,   // the inputs of a case
  reference,  // the exact values and their bounds
  encode,     // inputs and poison into the memory that is shared
  call,       // the testee's, and waiting for its worker
  decode,     // out of that memory, and whether anything beside was touched
  judge,      // what came back, by every check
  law,        // by laws, without the calls that they make
  write,      // the record's lines
  rest,
};

class InStage {
 public:
  explicit InStage(RunStage stage);
  ~InStage();
  InStage(const InStage&) = delete;
  InStage& operator=(const InStage&) = delete;

 private:
  int outer_;
};

// Seconds in each stage by name, of all threads since the program began; stages that were left
// alone.
std::map<std::string, double> stage_seconds();

}  // namespace attest
