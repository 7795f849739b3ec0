#include "runtime/config/solve/solve_pipeline.h"

#include <fmt/core.h>

#include <array>
#include <regex>
#include <string_view>

#include "runtime/config/family/family.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/pipeline_schedule.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

// Returns "embedding, notes and head".
std::string layer_names(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 < names.size() ? ", " : " and ", names[i]);
  return text;
}

constexpr std::string_view kStages = "pipeline.stages", kSchedule = "pipeline.schedule",
                           kVirtual = "pipeline.virtual_stages", kPartition = "pipeline.partition";

// The compiler of regular expressions calls itself for each bracket: longer text could exhaust the stack.
constexpr size_t kLongestExpression = 200;

// Returns the schedule of a legal name. Torch's names are those of its schedule classes.
PipelineSchedule schedule_of(const std::string& name) {
  if (name == "gpipe" || name == "loopedbfs") return PipelineSchedule::gpipe;
  if (name == "interleaved" || name == "interleaved1f1b") return PipelineSchedule::interleaved;
  if (name == "zb-h1" || name == "interleavedzerobubble") return PipelineSchedule::zb_h1;
  if (name == "zb-v" || name == "zbvzerobubble") return PipelineSchedule::zb_v;
  return PipelineSchedule::one_f_one_b;
}

// Reports text that is not a regular expression of the grammar in which layers are searched for.
void check_expression(const std::string& expression, Diagnostics& diagnostics) {
  if (expression.size() > kLongestExpression) {
    diagnostics.error(kPartition,
                      fmt::format("expected a regular expression of at most {} characters, found "
                                  "{}",
                                  kLongestExpression, expression.size()));
    return;
  }
  try {
    const std::regex regex(expression, std::regex::ECMAScript | std::regex::icase);
  } catch (const std::regex_error& e) {
    diagnostics.error(kPartition, fmt::format("\"{}{}\": expected a regular expression ({})",
                                              kByLayerName, printable(expression), e.what()));
  }
}

void solve_partition(PipelineConfig& p, Values& values, Diagnostics& diagnostics) {
  const Member* given = values.given(kPartition);
  if (!given || given->value.is(Node::Kind::string)) {
    const std::string text = values.text(kPartition);
    const std::string method = lower_case(text);
    if (method.starts_with(kByLayerName) && method.size() > kByLayerName.size()) {
      // Case matters in an expression: \D is not \d.
      const std::string expression = text.substr(kByLayerName.size());
      check_expression(expression, diagnostics);
      p.partition = fmt::format("{}{}", kByLayerName, expression);
      return;
    }
    constexpr std::array<std::string_view, 5> methods{"best", "parameters", "uniform", "time",
                                                      "memory"};
    bool known = false;
    for (const std::string_view m : methods) known = known || method == m;
    if (!known)
      diagnostics.error(kPartition,
                        fmt::format("\"{}\": expected best, parameters, uniform, time, memory, "
                                    "type:REGEX, or the list of the parts' first layers",
                                    printable(method)));
    p.partition = method == "best" ? "parameters" : method;
    return;
  }
  p.partition = "list";
  for (const Node& item : given->value.items) p.first_layers.push_back(item.integer);
  values.record(kPartition, json_text(given->value), values.origin_of(kPartition));
  const int chunks = chunks_of(p);
  const auto parts = static_cast<size_t>(p.stages) * static_cast<size_t>(chunks);
  bool ascending = p.first_layers.size() == parts && p.first_layers[0] == 0;
  for (size_t i = 1; i < p.first_layers.size(); ++i)
    ascending = ascending && p.first_layers[i] > p.first_layers[i - 1];
  if (!ascending && p.stages > 1)
    diagnostics.error(
        kPartition,
        fmt::format("{}: expected the first layers of {} stages{}, which begin with 0 and ascend",
                    json_text(given->value), p.stages,
                    chunks > 1 ? fmt::format(" x {} parts", chunks) : ""),
        {kStages, kSchedule, kVirtual});
}

// Schedules with several parts on a stage have two unless the configuration says otherwise.
int64_t solve_virtual_stages(PipelineSchedule schedule, Values& values) {
  if (schedule == PipelineSchedule::interleaved || schedule == PipelineSchedule::zb_v)
    return values.integer(kVirtual, 2, "the schedule");
  return values.integer(kVirtual);
}

}  // namespace

PipelineConfig solve_pipeline(Values& values, Diagnostics& diagnostics) {
  PipelineConfig p;
  p.stages = static_cast<int>(values.integer(kStages));
  p.schedule = schedule_of(lower_case(values.text(kSchedule)));
  p.virtual_stages = static_cast<int>(solve_virtual_stages(p.schedule, values));
  solve_partition(p, values, diagnostics);
  return p.stages == 1 ? PipelineConfig{} : p;
}

void check_pipeline(const Job& job, Diagnostics& diagnostics) {
  const PipelineConfig& p = job.pipeline;
  if (p.stages == 1) return;
  const auto error_with = [&p](int64_t micro_batches) {
    return schedule_error(p.schedule, p.stages, p.virtual_stages, static_cast<int>(micro_batches));
  };
  const int64_t micro_batches = job.batch.accumulation;  // 0: not known yet
  if (const auto error = error_with(p.stages))
    diagnostics.error(kVirtual, *error, {kSchedule});
  else if (const auto wrong = error_with(micro_batches); wrong && micro_batches > 0)
    diagnostics.error(kSchedule, *wrong + "; gradient_accumulation_steps is their number",
                      {kVirtual});
  const ModelMeasures model = job.model.measures();
  const int64_t layers = model.layers;
  const std::string included = model.named_layers.empty()
                                   ? ""
                                   : fmt::format(", {} included", layer_names(model.named_layers));
  const std::string layers_key = model_path(job.model.family().layers_key);
  const int chunks = chunks_of(p);
  if (int64_t{p.stages} * chunks > layers)
    diagnostics.error(kStages,
                      fmt::format("{} stages{} are more than the {} of the model{}", p.stages,
                                  chunks > 1 ? fmt::format(" x {} parts", chunks) : "",
                                  counted(layers, "layer"), included),
                      {layers_key, kSchedule, kVirtual});
  else if (!p.first_layers.empty() && p.first_layers.back() >= layers)
    diagnostics.error(kPartition,
                      fmt::format("{} is not a layer: the model has {}{}, from 0",
                                  p.first_layers.back(), layers, included),
                      {layers_key});
}

}  // namespace dstrain
