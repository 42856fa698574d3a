#include "harness/command/progress.h"

#include <fmt/format.h>

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Progress::Progress(std::FILE* out, bool terminal, std::size_t total)
    : out_(out), terminal_(terminal), total_(total), start_(Clock::now()), drawn_(start_) {}

void Progress::add(const Verdict& verdict) {
  ++done_;
  unsupported_ += verdict.outcome == Outcome::unsupported;
  bad_ += !conforms(verdict.outcome) && verdict.outcome != Outcome::unsupported;
  const auto now = Clock::now();
  const double pause = terminal_ ? 0.1 : 10.0;
  if ((done_ < total_ || total_ == 0) && seconds(now - drawn_) < pause) return;
  drawn_ = now;
  draw();
}

void Progress::draw() {
  const double spent = seconds(Clock::now() - start_);
  if (total_ == 0) {
    const double rate = static_cast<double>(done_) / spent;
    const std::string text = fmt::format("{} problems, {:.0f} a second", done_, rate);
    write(fmt::format("{}{}{}", terminal_ ? "\r" : "", text, terminal_ ? "\x1b[K" : "\n"));
    return;
  }
  const double left = spent / static_cast<double>(done_) * static_cast<double>(total_ - done_);
  const std::string counts =
      fmt::format("{}/{} verdicts, {} not passed, {} unsupported, {:.0f} s left", done_, total_,
                  bad_, unsupported_, left);
  if (terminal_) {
    constexpr std::size_t kWidth = 30;
    const std::size_t filled = total_ == 0 ? kWidth : kWidth * done_ / total_;
    write(fmt::format("\r[{:#<{}}{:.<{}}] {}\x1b[K", "", filled, "", kWidth - filled, counts));
  } else {
    write(counts + "\n");
  }
}

// Whether anybody still reads it is no matter of the run.
void Progress::write(const std::string& text) {
  std::fputs(text.c_str(), out_);
  std::fflush(out_);
}

void Progress::finish() {
  if (terminal_) write("\r\x1b[K");
}

}  // namespace attest
