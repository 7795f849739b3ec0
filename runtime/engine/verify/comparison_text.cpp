#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/config/text.h"
#include "runtime/engine/verify/compare.h"

namespace dstrain {
namespace {

constexpr size_t kMostProblems = 5;

std::string place_text(const FirstDifference& first) {
  if (first.instruction.empty())
    return fmt::format("step {}, rank {}: {} differs, and no instruction has written it",
                       first.step, first.rank, first.buffer);
  return fmt::format("{} ({}; step {}, rank {}, micro-batch {})", first.instruction, first.buffer,
                     first.step, first.rank, first.micro_batch);
}

// Returns the first sentences, a line each, and how many more there are.
std::string list_text(const std::vector<std::string>& sentences) {
  std::string text;
  for (size_t i = 0; i < std::min(sentences.size(), kMostProblems); ++i)
    text += sentences[i] + "\n";
  if (sentences.size() > kMostProblems)
    text += fmt::format("and {} more\n", sentences.size() - kMostProblems);
  return text;
}

}  // namespace

std::string comparison_text(const Comparison& c) {
  size_t width = std::string_view("tensor").size();
  for (const ComparedTensor& t : c.tensors) width = std::max(width, t.name.size());
  std::string text = fmt::format("{:<{}}  {:>14}  {:>13}  {}\n", "tensor", width, "gradient error",
                                 "weights equal", "first instruction that differs");
  for (const ComparedTensor& t : c.tensors) {
    const bool differs = !t.bitwise || !(t.gradient_error <= c.tolerance.gradient);
    text += fmt::format("{:<{}}  {:>14.2g}  {:>13}  {}\n", t.name, width, t.gradient_error,
                        t.bitwise ? "yes" : "no", differs && c.first ? c.first->instruction : "");
    while (text.size() > 1 && text[text.size() - 2] == ' ') text.erase(text.size() - 2, 1);
  }
  text += fmt::format("\n{:>4}  {:>14}  {:>14}  {:>14}  {:>12}  {:>12}\n", "step", "loss, naive",
                      "plain", "configured", "norm, naive", "configured");
  for (const ComparedStep& s : c.steps)
    text += fmt::format("{:>4}  {:>14.9g}  {:>14.9g}  {:>14.9g}  {:>12.6g}  {:>12.6g}\n", s.step,
                        s.naive_loss, s.plain_loss, s.loss, s.naive_norm, s.norm);
  text += fmt::format("\ntolerance of gradients: {:.1g} of the terms of a {} ({})\n",
                      c.tolerance.gradient, c.tolerance.of_unit ? "layer" : "tensor",
                      c.tolerance.reason);
  if (!c.steps.empty() && c.steps.back().step > c.tolerance.steps)
    text += fmt::format(
        "from step {} on gradients are approximated: what follows is compared with {} that "
        "approximates them too\n",
        c.tolerance.steps + 1, c.plain);
  if (c.diverged)
    text += fmt::format(
        "step {}: no finite loss or gradient norm, in {} too: both diverge, and what follows "
        "shows nothing. --steps {} ends before it\n",
        *c.diverged, c.plain, *c.diverged - 1);
  for (const std::string& fault : c.faults) text += fmt::format("seeded fault: {}\n", fault);
  if (c.equal)
    return text + fmt::format(
                      "equal: {}the configuration computes what plain training would, and has the "
                      "bits of {}\n",
                      c.diverged ? fmt::format("before step {} ", *c.diverged) : "", c.plain);
  const bool differs = !c.problems.empty();
  text += list_text(differs ? c.problems : c.not_compared);
  if (!differs)
    return text + "not compared: nothing differs, and nothing shows that all is equal\n";
  text += c.first ? fmt::format("different, first at: {}\n", place_text(*c.first))
                  : "different; no single instruction stands out\n";
  return text;
}

std::string comparison_json(const Comparison& c) {
  nlohmann::ordered_json json;
  json["equal"] = c.equal;
  json["verdict"] = verdict_of(c);
  json["not_compared"] = c.not_compared;
  json["tolerance"] = c.tolerance.gradient;
  json["steps"] = c.steps.size();
  json["diverged"] = nullptr;
  if (c.diverged) json["diverged"] = *c.diverged;
  json["tensors"] = nlohmann::ordered_json::array();
  for (const ComparedTensor& t : c.tensors) {
    nlohmann::ordered_json tensor;
    tensor["name"] = t.name;
    tensor["gradient_error"] = t.gradient_error;
    tensor["bitwise"] = t.bitwise;
    json["tensors"].push_back(std::move(tensor));
  }
  json["first"] = nullptr;
  if (c.first) {
    nlohmann::ordered_json first;
    first["rank"] = c.first->rank;
    first["micro_batch"] = c.first->micro_batch;
    first["instruction"] = c.first->instruction;
    json["first"] = std::move(first);
  }
  return json.dump(2) + "\n";
}

}  // namespace dstrain
