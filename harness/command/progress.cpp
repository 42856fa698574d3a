#include "harness/command/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/text.h"

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kClearLine = "\r\x1b[K";

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// The longest of these that fits, the last one cut if none does; with a bar before it if there is
// room for one.
std::string fitted(const std::vector<std::string>& texts, std::size_t room, double share) {
  constexpr std::size_t kLongestBar = 30, kShortestBar = 10, kAround = 3;
  auto text = std::find_if(texts.begin(), texts.end(),
                           [&](const std::string& each) { return each.size() <= room; });
  if (text == texts.end()) return texts.back().substr(0, room);
  const std::size_t free = room - text->size();
  if (share < 0 || text != texts.begin() || free < kShortestBar + kAround) return *text;
  const std::size_t bar = std::min(kLongestBar, free - kAround);
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(bar));
  return fmt::format("[{:#<{}}{:.<{}}] {}", "", filled, "", bar - filled, *text);
}

}  // namespace

Progress::Progress(const Terminal& terminal, Loudness loudness, std::size_t total, const char* of)
    : terminal_(terminal),
      loudness_(loudness),
      of_(of),
      total_(total),
      start_(Clock::now()),
      drawn_(start_) {}

void Progress::add(const VerdictRecord& record) {
  const Verdict& verdict = record.verdict;
  unsupported_ += verdict.outcome == Outcome::unsupported;
  bad_ += !conforms(verdict.outcome) && verdict.outcome != Outcome::unsupported;
  if (loudness_ == Loudness::verbose) {
    finish();
    terminal_.write_coloured(fmt::format("{} {} {} {}\n", outcome_text(verdict),
                                         duration_text(verdict.wall_s), clean(record.testee),
                                         clean(record.case_id)));
  }
  add_one();
}

void Progress::add_one() {
  ++done_;
  const auto now = Clock::now();
  const double pause = terminal_.is_interactive() ? 0.1 : 10.0;
  if ((done_ < total_ || total_ == 0) && seconds(now - drawn_) < pause) return;
  drawn_ = now;
  draw();
}

std::vector<std::string> Progress::counts() const {
  const double spent = seconds(Clock::now() - start_), done = static_cast<double>(done_);
  if (total_ == 0) {
    return {fmt::format("{} problems, {:.0f} a second", done_, done / spent),
            fmt::format("{} problems", done_)};
  }
  const double left = spent / done * static_cast<double>(total_ - done_);
  if (of_ != "verdicts") {
    return {fmt::format("{}/{} {}, {:.0f} s left", done_, total_, of_, left),
            fmt::format("{}/{}", done_, total_)};
  }
  return {fmt::format("{}/{} verdicts, {} not passed, {} unsupported, {:.0f} s left", done_, total_,
                      bad_, unsupported_, left),
          fmt::format("{}/{}, {} not passed, {:.0f} s left", done_, total_, bad_, left),
          fmt::format("{}/{}, {} not passed", done_, total_, bad_),
          fmt::format("{}/{}", done_, total_)};
}

void Progress::draw() {
  if (loudness_ == Loudness::quiet) return;
  if (!terminal_.is_interactive()) {
    terminal_.write(counts().front() + "\n");
    return;
  }
  // Whatever is written into the last column may begin another line.
  const std::size_t room = terminal_.columns() - 1;
  const double share = total_ == 0 ? -1 : static_cast<double>(done_) / static_cast<double>(total_);
  terminal_.write("\r" + fitted(counts(), room, share) + "\x1b[K");
}

void Progress::finish() {
  if (terminal_.is_interactive() && loudness_ != Loudness::quiet) terminal_.write(kClearLine);
}

}  // namespace attest
