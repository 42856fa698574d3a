#include "reports/ranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "reports/html_parts.h"
#include "reports/interval.h"
#include "reports/markup.h"
#include "reports/table.h"
#include "reports/text.h"

namespace attest {
namespace {

using nlohmann::json;

std::string text_of(const json& text) { return one_line(text.get<std::string>()); }

Interval interval_in(const json& interval) {
  return {.median = interval["median"],
          .least = interval["least"],
          .most = interval["most"],
          .level = interval["level"]};
}

std::string interval_text(const json& interval) {
  return attest::interval_text(interval_in(interval));
}

// Beyond the tensors, of an object that may say it.
std::string memory_text(const json& of) {
  constexpr double kMib = 1024 * 1024;
  if (!of.contains("memory")) return "-";
  return fmt::format("{:.3g} MiB", of["memory"]["most"].get<double>() / kMib);
}

std::string verdict_of(const json& kernel) {
  return kernel.contains("gate") ? text_of(kernel["gate"]["verdict"]) : "not loaded";
}

const char* tone_of(const json& kernel) {
  const std::string verdict = verdict_of(kernel);
  if (verdict == "conformant") return "good";
  return verdict == "incomplete" ? "warn" : "bad";
}

std::string place_of(const json& kernel) {
  return kernel.contains("place") ? std::to_string(kernel["place"].get<int>()) : "-";
}

// The speed of a kernel in what is compared; null if it was not timed there.
const json* speed_in(const json& kernel, const json& compared) {
  if (!kernel.contains("gate")) return nullptr;
  const auto& speeds = kernel["gate"]["speeds"];
  const auto found = std::find_if(speeds.begin(), speeds.end(), [&](const json& speed) {
    return speed["problem"] == compared["problem"] && speed["pass"] == compared["pass"] &&
           speed["shape"] == compared["shape"];
  });
  return found == speeds.end() ? nullptr : &*found;
}

// From 0 to the most that any of them has.
Markup picture(const json& interval, double most) {
  const double least = interval["least"], end = interval["most"];
  const auto style = fmt::format("margin-left: {:.2f}%; width: {:.2f}%", 100 * least / most,
                                 100 * (end - least) / most);
  return element("div", {{"class", "interval"}}, element("span", {{"style", style}}, ""));
}

Markup places(const json& ranking) {
  const std::string baseline = text_of(ranking["baseline"]);
  double most = 0;
  for (const json& kernel : ranking["kernels"]) {
    if (kernel.contains("speed")) {
      most = std::max(most, kernel["speed"]["most"].get<double>());
    }
  }
  Markup rows;
  std::size_t n = 0;
  for (const json& kernel : ranking["kernels"]) {
    const bool timed = kernel.contains("speed");
    const Markup link = element("a", {{"href", fmt::format("#kernel-{}", ++n)}},
                                html::code(text_of(kernel["kernel"])));
    rows +=
        element("tr", {}, html::number(place_of(kernel)), element("td", {{"class", "id"}}, link),
                element("td", {{"class", tone_of(kernel)}}, verdict_of(kernel)),
                html::number(timed ? interval_text(kernel["speed"]) : "-"),
                element("td", {}, timed ? picture(kernel["speed"], most) : Markup()),
                html::number(memory_text(kernel)), element("td", {}, why_not(kernel)));
  }
  return html::table("Places",
                     html::number_title("Place") + html::title("Kernel") + html::title("Verdict") +
                         html::number_title("Times as fast as " + baseline) + html::title("") +
                         html::number_title("Memory at most") + html::title("Why not"),
                     rows);
}

// Each problem that is compared, and what the kernels made of it.
Markup side_by_side(const json& ranking) {
  Markup all;
  for (const json& compared : ranking["compared"]) {
    Markup rows;
    for (const json& kernel : ranking["kernels"]) {
      const json* const speed = speed_in(kernel, compared);
      if (!speed || !speed->contains("ratio")) continue;
      rows += element("tr", {}, html::id_cell(text_of(kernel["kernel"])),
                      html::number(time_text(interval_in((*speed)["seconds"]))),
                      html::number(interval_text((*speed)["ratio"])),
                      html::number(std::to_string((*speed)["calls"].get<std::size_t>())),
                      html::number(memory_text(*speed)));
    }
    all += element("h3", {},
                   fmt::format("{}, {}", text_of(compared["problem"]), text_of(compared["pass"]))) +
           html::quiet(text_of(compared["shape"])) +
           html::table(text_of(compared["problem"]),
                       html::title("Kernel") + html::number_title("Time of a call") +
                           html::number_title("Times as fast") + html::number_title("Calls") +
                           html::number_title("Memory at most"),
                       rows);
  }
  return all.empty() ? html::quiet("No problem was timed with all kernels that conform.") : all;
}

Markup lines(const json& texts) {
  Markup all;
  for (const json& text : texts) all += element("p", {}, text_of(text));
  return all;
}

Markup about(const json& kernel) {
  if (!kernel.contains("gate"))
    return element("pre", {}, clean(kernel["error"].get<std::string>()));
  const json& gate = kernel["gate"];
  const json& judged = gate["judged"];
  const auto count = [&](const char* what, const char* noun) {
    return count_text(judged[what].get<Index>(), noun);
  };
  Markup all = element(
      "p", {},
      fmt::format("Judged {}, {}, {}; {} wrong. Isolation: {}.", count("cases", "case"),
                  count("random_problems", "random problem"), count("timed_calls", "timed call"),
                  gate["faults"].get<Index>(), text_of(gate["isolation"])));
  for (const json& example : gate["counterexamples"]) {
    const std::string meant = text_of(example["did_you_mean"]);
    all += element("h3", {}, text_of(example["problem"])) +
           element("p", {}, text_of(example["message"])) +
           (meant.empty() ? Markup() : element("p", {}, "Did you mean: " + meant)) +
           element("pre", {{"class", "repro"}}, clean(example["repro"].get<std::string>()));
  }
  return all + lines(gate["not_believed"]) + lines(gate["declared_too_loose"]) +
         lines(gate["undecided"]) + lines(gate["notes"]) +
         element("pre", {{"class", "repro"}}, clean(gate["again"].get<std::string>()));
}

Markup facts(const json& ranking) {
  return element(
      "dl", {{"class", "facts"}},
      html::fact("Suite", fmt::format("Attest {}, commit {}", text_of(ranking["suite_version"]),
                                      text_of(ranking["suite_commit"]))),
      html::fact("Baseline", html::code(text_of(ranking["baseline"]))),
      html::fact("Seed", fmt::format("{}", ranking["seed"].get<std::uint64_t>())),
      html::fact("Processor", text_of(ranking["processor"])));
}

}  // namespace

std::string why_not(const json& kernel) {
  constexpr std::size_t kKept = 200;
  if (!kernel.contains("gate")) {
    return one_line(excerpt(kernel["error"].get<std::string>(), kKept, "rank.json"));
  }
  const json& gate = kernel["gate"];
  if (!gate["counterexamples"].empty()) {
    const json& first = gate["counterexamples"][0];
    const std::string meant = text_of(first["did_you_mean"]), blamed = text_of(first["blamed"]);
    return fmt::format(
        "{}{}", blamed.empty() ? "" : blamed + ": ",
        meant.empty() ? one_line(excerpt(first["message"].get<std::string>(), kKept, "rank.json"))
                      : meant);
  }
  for (const char* const key : {"not_believed", "declared_too_loose"}) {
    if (!gate[key].empty()) return text_of(gate[key][0]);
  }
  return {};
}

std::string to_ranking_html(const json& ranking) {
  const bool good = ranking["conform"] == ranking["kernels"].size();
  Markup kernels;
  std::size_t n = 0;
  for (const json& kernel : ranking["kernels"]) {
    kernels +=
        html::section(fmt::format("kernel-{}", ++n), text_of(kernel["kernel"]), about(kernel));
  }
  return html::page(
      "Attest: kernels of one task",
      element("body", {}, element("h1", {}, "Kernels of one task"),
              element("p", {{"class", good ? "conclusion good" : "conclusion warn"}},
                      text_of(ranking["sentence"])),
              facts(ranking), html::section("places", "Places", places(ranking)),
              html::quiet("A place is shared where the intervals do not tell kernels apart. Memory "
                          "is what a call takes on the host beyond its tensors."),
              html::section("problems", "Problem by problem", side_by_side(ranking)), kernels));
}

std::string to_ranking_text(const json& ranking) {
  Table table({"place", "kernel", "verdict", "times as fast", "memory"}, 3);
  for (const json& kernel : ranking["kernels"]) {
    table.add({place_of(kernel), text_of(kernel["kernel"]), verdict_of(kernel),
               kernel.contains("speed") ? interval_text(kernel["speed"]) : "-",
               memory_text(kernel)});
  }
  std::string reasons;
  for (const json& kernel : ranking["kernels"]) {
    const std::string why = why_not(kernel);
    if (!why.empty()) reasons += fmt::format("{}: {}\n", text_of(kernel["kernel"]), why);
  }
  return table.str() + "\n" + reasons + text_of(ranking["sentence"]) + "\n";
}

}  // namespace attest
