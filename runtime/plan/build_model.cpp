#include "runtime/plan/build_model.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/family/family.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

Shape sample_of(const ModelInput& input, const ModelConfig& model, const ForwardOptions& options) {
  Shape shape;
  for (const int64_t size : model.is_whole(input.name) ? input.whole : input.sizes)
    shape.append(size);
  for (const std::string_view key : input.shape)
    shape.append(options.seq_len > 0 && key == model.family().context_key() ? options.seq_len
                                                                            : model.integer(key));
  if (is_of_tokens(input.role)) shape.dims[0] *= options.objective.rows_per_sample();
  return shape;
}

// Returns how many tokens a sample has in all of its rows.
int64_t tokens_of(const ModelConfig& model, const ForwardOptions& options) {
  return sample_of(*model.family().input(InputRole::labels), model, options)[0];
}

std::string text_of(std::string_view name, InputRole role, DType dtype, const Shape& sample) {
  return fmt::format("{}: {} {} {}", name, name_of(role), name_of(dtype), to_string(sample));
}

// Returns the inputs that the family says there are, a text each, and those that the objective adds.
std::vector<std::string> expected_inputs(const ModelConfig& model, const ForwardOptions& options) {
  std::vector<std::string> list;
  for (const ModelInput& input : model.family().inputs)
    if (options.has(input.role))
      list.push_back(
          text_of(input.name, input.role, input.dtype, sample_of(input, model, options)));
  if (options.objective.needs_reference())
    list.push_back(text_of(
        "reference", InputRole::reference, DType::f32,
        {options.documents ? tokens_of(model, options) : options.objective.rows_per_sample()}));
  if (options.learns_from_teacher()) {
    const int64_t tokens = tokens_of(model, options), k = options.objective.teacher_top_k;
    list.push_back(text_of("teacher_ids", InputRole::teacher_ids, DType::i32, {tokens, k + 1}));
    list.push_back(
        text_of("teacher_log_probs", InputRole::teacher_log_probs, DType::f32, {tokens, k}));
  }
  if (options.objective.rates_answers())
    list.push_back(text_of("desirable", InputRole::desirable, DType::f32, {1}));
  return list;
}

std::vector<std::string> declared_inputs(const Program& program) {
  std::vector<std::string> list;
  for (const ProgramInput& input : program.inputs)
    list.push_back(text_of(input.name, input.role, program.at(input.buffer).dtype, input.sample));
  return list;
}

}  // namespace

void build_model(Builder& builder, const ModelConfig& model) {
  const ModelFamily& family = model.family();
  check(!builder.options().documents || family.tells_documents(),
        "a sample of the {} holds no documents", family.title);
  builder.fine_tune(model.fine_tuning());
  family.build(builder, model);
  check(!family.reads_arrays() || builder.program().losses.empty() ||
            builder.program().loss_weight == LossWeight::samples || family.weigh,
        "the {} reads arrays, whose targets nobody counts: its losses are means over samples",
        family.title);
  const std::vector<std::string> expected = expected_inputs(model, builder.options()),
                                 declared = declared_inputs(builder.program());
  check(declared == expected,
        "the program of the {} declares the inputs [{}], and the family has [{}]", family.title,
        fmt::join(declared, "; "), fmt::join(expected, "; "));
}

}  // namespace dstrain
