#include "runtime/engine/profile/profile_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

namespace dstrain {
namespace {

double two_decimals(double value) {
  return std::round(value * 100) / 100;
}

// Returns the number with its unit, behind a blank where it has none.
std::string scaled_text(double value) {
  constexpr std::array<std::pair<double, const char*>, 7> units{
      {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "K"}, {1, ""}, {1e-3, "m"}, {1e-6, "u"}}};
  const auto* unit = std::ranges::find_if(units, [&](const auto& u) { return value >= u.first; });
  if (unit == units.end()) unit = value == 0 ? &units[4] : &units.back();
  return fmt::format("{:g} {}", two_decimals(value / unit->first), unit->second);
}

// Returns a line of the summary.
std::string summary_line(const std::string& label, const std::string& value) {
  return fmt::format("{:<70}  {:<8}\n", label + ": ", value);
}

// Returns a measured time with the plan's estimate beside it.
std::string with_estimate(double measured, double estimated) {
  return fmt::format("{:<8}  (estimated: {})", seconds_text(measured), seconds_text(estimated));
}

double ratio(double value, double by) {
  return by > 0 ? value / by : 0;
}

// Returns "2 * 3" for the factor of FLOPs of a step of several micro-batches, "3" for one.
std::string factor_text(int64_t micro_batches, double factor) {
  return micro_batches > 1 ? fmt::format("{} * {:g}", micro_batches, factor)
                           : fmt::format("{:g}", factor);
}

std::string sizes_summary(const StepProfile& p) {
  const bool pipeline = p.stages > 1;
  std::string text = summary_line("world size", fmt::to_string(p.ranks)) +
                     summary_line("data parallel size", fmt::to_string(p.data_ranks)) +
                     summary_line("model parallel size", fmt::to_string(p.tensor_ranks));
  if (p.sequence_ranks > 1)
    text += summary_line("sequence parallel size", fmt::to_string(p.sequence_ranks));
  if (pipeline) text += summary_line("pipeline parallel size", fmt::to_string(p.stages));
  text += summary_line("batch size per GPU", fmt::to_string(p.micro_batch));
  if (p.micro_batches > 1)
    text += summary_line("micro-batches per step", fmt::to_string(p.micro_batches));
  text += summary_line("params per GPU", parameters_text(static_cast<double>(p.model.parameters)));
  if (p.held_parameters)
    text += summary_line("params held per GPU by ZeRO stage 3",
                         parameters_text(static_cast<double>(*p.held_parameters)));
  // A rank's own part of a model times a number of ranks is not the model: parts differ, and all tensor ranks have some
  // parameters alike.
  const bool divided = pipeline || p.tensor_ranks > 1 || p.sequence_ranks > 1;
  const auto of_model = [divided](const std::string& what) {
    return divided ? what + " of model" : fmt::format("{0} of model = {0} per GPU * mp_size", what);
  };
  return text +
         summary_line(of_model("params"),
                      parameters_text(static_cast<double>(p.model_parameters))) +
         summary_line("fwd MACs per GPU", macs_text(p.model.macs)) +
         summary_line("fwd flops per GPU", flops_text(p.model.flops)) +
         summary_line(of_model("fwd flops"), flops_text(p.model_flops));
}

std::string times_summary(const StepProfile& p, double recompute_factor) {
  const StepSeconds &t = p.measured, &e = p.estimated;
  const double flops = p.model.flops, backward = 2 + recompute_factor;
  const auto micro_batches = static_cast<double>(p.micro_batches);
  const auto samples = static_cast<double>(p.micro_batch * p.micro_batches * p.data_ranks);
  return summary_line("fwd latency", with_estimate(t.forward, e.forward)) +
         summary_line("fwd FLOPS per GPU = fwd flops per GPU / fwd latency",
                      flops_rate_text(ratio(flops, t.forward))) +
         summary_line("bwd latency", with_estimate(t.backward, e.backward)) +
         summary_line(
             fmt::format("bwd FLOPS per GPU = {:g} * fwd flops per GPU / bwd latency", backward),
             flops_rate_text(ratio(backward * flops, t.backward))) +
         summary_line(
             fmt::format("fwd+bwd FLOPS per GPU = {:g} * fwd flops per GPU / (fwd+bwd latency)",
                         backward + 1),
             flops_rate_text(ratio((backward + 1) * flops, t.forward + t.backward))) +
         summary_line("step latency", with_estimate(t.update, e.update)) +
         summary_line("iter latency", with_estimate(t.step, e.step)) +
         summary_line(fmt::format("FLOPS per GPU = {} * fwd flops per GPU / iter latency",
                                  factor_text(p.micro_batches, backward + 1)),
                      flops_rate_text(ratio(micro_batches * (backward + 1) * flops, t.step))) +
         summary_line("samples/second", fmt::to_string(two_decimals(ratio(samples, t.step))));
}

// What the modules of one name have at one depth.
struct NamedSum {
  std::string name;
  double parameters = 0, macs = 0, seconds = 0;
};

// Adds a module to those of its name at its depth, and what is in it to the depths below. `around`: the name of the
// module around it.
void add_by_depth(const ModuleNode& node, const std::string& around, size_t depth,
                  std::vector<std::vector<NamedSum>>& depths) {
  depths.resize(std::max(depths.size(), depth + 1));
  const bool number = node.name.find_first_not_of("0123456789") == std::string::npos;
  const std::string name = number && !around.empty() ? around + ".*" : node.name;
  std::vector<NamedSum>& sums = depths[depth];
  auto sum = std::ranges::find(sums, name, &NamedSum::name);
  if (sum == sums.end()) sum = sums.insert(sum, NamedSum{.name = name});
  sum->parameters += static_cast<double>(node.parameters + node.tied);
  sum->macs += node.macs;
  sum->seconds += node.seconds;
  for (const ModuleNode& child : node.children) add_by_depth(child, node.name, depth + 1, depths);
}

// Returns the largest sums: "{'attn': '2.1 M', 'mlp': '1.4 M'}".
template <class Text>
std::string largest_text(std::vector<NamedSum> sums, double NamedSum::*value, int64_t most,
                         const Text& text) {
  std::ranges::stable_sort(sums, std::ranges::greater(), value);
  std::string items;
  for (size_t i = 0; i < sums.size() && i < static_cast<size_t>(most); ++i)
    items += fmt::format("{}'{}': '{}'", i > 0 ? ", " : "", sums[i].name, text(sums[i].*value));
  return "{" + items + "}";
}

std::string aggregated_text(const StepProfile& p, const FlopsProfilerConfig& options) {
  std::vector<std::vector<NamedSum>> depths;
  add_by_depth(p.model, "", 0, depths);
  const size_t shown = options.module_depth < 0
                           ? depths.size()
                           : std::min(depths.size(), static_cast<size_t>(options.module_depth));
  const int64_t most = options.top_modules;
  std::string text = fmt::format(
      "Top {} modules in terms of params, MACs or fwd latency at different model depths:\n", most);
  for (size_t d = 0; d < shown; ++d)
    text +=
        fmt::format("depth {}:\n    params      - {}\n    MACs        - {}\n    fwd latency - {}\n",
                    d, largest_text(depths[d], &NamedSum::parameters, most, parameters_text),
                    largest_text(depths[d], &NamedSum::macs, most, macs_text),
                    largest_text(depths[d], &NamedSum::seconds, most, seconds_text));
  return text;
}

double share_percent(double part, double all) {
  return two_decimals(100 * ratio(part, all));
}

// Returns the lines of a module and of those in it, without their indentation.
std::vector<std::string> tree_lines(const ModuleNode& node, const ModuleNode& all) {
  const auto parameters = static_cast<double>(node.parameters + node.tied);
  const std::string numbers = fmt::format(
      "{} = {:g}% Params, {} = {:g}% MACs, {} = {:g}% latency, {}", parameters_text(parameters),
      share_percent(parameters, static_cast<double>(all.parameters)), macs_text(node.macs),
      share_percent(node.macs, all.macs), seconds_text(node.seconds),
      share_percent(node.seconds, all.seconds),
      flops_rate_text(two_decimals(ratio(node.flops, node.seconds))));
  if (node.children.empty()) return {fmt::format("{}({})", node.kind, numbers)};
  std::vector<std::string> lines{node.kind + "(", "  " + numbers};
  for (const ModuleNode& child : node.children) {
    std::vector<std::string> inner = tree_lines(child, all);
    inner.front() = fmt::format("({}): {}", child.name, inner.front());
    for (const std::string& line : inner) lines.push_back("  " + line);
  }
  lines.emplace_back(")");
  return lines;
}

std::string detailed_text(const StepProfile& p) {
  std::string text =
      "A module has: params and their share, MACs and their share, fwd latency and its share, fwd "
      "FLOPS.\n"
      "Modules are the names of the model's parameters. Attention, activations and residuals "
      "belong "
      "to the module around them. The loss, reading the batch and waiting for other ranks belong "
      "to "
      "the model itself, so that it has more than its modules. A weight of two modules (a tied "
      "head) stands with both and counts once.\n\n";
  for (const std::string& line : tree_lines(p.model, p.model)) text += line + "\n";
  return text;
}

}  // namespace

std::string parameters_text(double parameters) {
  std::string text = scaled_text(parameters);
  std::ranges::replace(text, 'G', 'B');
  if (text.ends_with(' ')) text.pop_back();
  return text;
}

std::string macs_text(double macs) {
  return scaled_text(macs) + "MACs";
}

std::string flops_text(double flops) {
  return scaled_text(flops);
}

std::string flops_rate_text(double flops_per_second) {
  return scaled_text(flops_per_second) + "FLOPS";
}

std::string seconds_text(double seconds) {
  return scaled_text(seconds) + "s";
}

std::string profile_text(const StepProfile& profile, const FlopsProfilerConfig& options) {
  std::string text = fmt::format(
      "\n{0} DeepSpeed Flops Profiler {0}\n"
      "Profile Summary at step {1}:\n"
      "params: elements of parameters; MACs: multiplications with an addition; flops: "
      "floating-point "
      "operations; FLOPS: flops per second\n"
      "fwd, bwd: one micro-batch's forward and backward pass; step: the update; iter: the whole "
      "step; dp_size, mp_size: ranks of the data parallel and of the model parallel group\n"
      "estimated: by the plan, from rates of a usual machine\n"
      "MACs and flops of attention are those of all pairs of queries and keys: those that the "
      "causal mask leaves out count too\n\n",
      std::string(26, '-'), profile.steps_before);
  text += sizes_summary(profile) + times_summary(profile, options.recompute_fwd_factor);
  text += fmt::format("\n{0} Aggregated Profile per GPU {0}\n", std::string(29, '-')) +
          aggregated_text(profile, options);
  if (options.detailed)
    text += fmt::format("\n{0} Detailed Profile per GPU {0}\n", std::string(30, '-')) +
            detailed_text(profile);
  return text + std::string(78, '-') + "\n";
}

}  // namespace dstrain
