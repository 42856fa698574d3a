#include "harness/gate/two_workers.h"

#include <fmt/format.h>

#include <utility>

#include "harness/fuzz/dice.h"

namespace attest {

void TwoWorkers::draw(std::string_view bits, bool timed) {
  Dice dice(fmt::format("{}/workers", bits));
  forward_ = dice.chance(50) ? first_ : second_;
  const bool is_apart = timed || dice.chance(50);
  backward_ = is_apart == (forward_ == first_) ? second_ : first_;
}

void TwoWorkers::renew() {
  first_->renew();
  second_->renew();
}

Reply TwoWorkers::settle() {
  Reply reply = first_->settle();
  Reply other = second_->settle();
  return reply.kind == Reply::Kind::answered ? other : reply;
}

}  // namespace attest
