#include "runtime/config/family/family.h"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/core/error.h"
#include "runtime/core/tensor.h"

namespace dstrain {

namespace {

bool is_integer_key(const ModelFamily& family, std::string_view name) {
  const auto key = std::ranges::find(family.keys, name, &ModelKey::name);
  return key != family.keys.end() && key->spec.type == Type::integer;
}

// Checks an input for itself.
void check_input(const ModelFamily& family, const ModelInput& input) {
  const std::string what = fmt::format("input {} of the {}", input.name, family.title);
  const auto same = [&input](auto member) {
    return [&input, member](const ModelInput& other) { return other.*member == input.*member; };
  };
  check(!input.name.empty() && std::ranges::count_if(family.inputs, same(&ModelInput::name)) == 1,
        "{} has the name of another one, or none", what);
  check(
      may_repeat(input.role) || std::ranges::count_if(family.inputs, same(&ModelInput::role)) == 1,
      "{} is not the only one of {}", what, name_of(input.role));
  check(has_dtype(input.role, input.dtype), "{} is {}: {} are {}", what, name_of(input.dtype),
        name_of(input.role), dtypes_of(input.role));
  check(input.shape.empty() || input.sizes.empty(),
        "{} has its dimensions both by keys and as numbers", what);
  const size_t rank = std::max(input.shape.size(), input.sizes.size());
  check(rank < Shape::kMaxRank,
        "{} has {} dimensions: a tensor has {}, and the first is the samples", what, rank,
        Shape::kMaxRank);
  for (const std::vector<int64_t>& sizes : {input.sizes, input.whole})
    for (const int64_t size : sizes) check(size > 0, "{} has a dimension of {}", what, size);
  check(input.whole.empty() || input.role == InputRole::array, "{}: only arrays can be whole",
        what);
  check(std::ssize(input.whole) < Shape::kMaxRank, "{} as a whole has {} dimensions", what,
        input.whole.size());
  for (const std::string_view key : input.shape)
    check(is_integer_key(family, key), "{}: dimension {} is no integer key", what, key);
  if (input.role == InputRole::array && input.classes.empty()) return;
  if (input.role != InputRole::token_ids && input.role != InputRole::labels &&
      (input.role != InputRole::array || input.dtype != DType::i32))
    check(input.classes.empty(), "{}: {} have no classes", what, name_of(input.role));
  else
    check(is_integer_key(family, input.classes), "{}: its classes '{}' are no integer key", what,
          input.classes);
}

}  // namespace

const ModelInput* ModelFamily::input(InputRole role) const {
  const auto found = std::ranges::find(inputs, role, &ModelInput::role);
  return found == inputs.end() ? nullptr : &*found;
}

bool ModelFamily::predicts_tokens() const {
  const ModelInput *ids = input(InputRole::token_ids), *labels = input(InputRole::labels);
  return ids && labels && ids->shape == labels->shape && ids->classes == labels->classes;
}

std::string ModelFamily::why_no_text() const {
  if (!predicts_tokens()) return "has no text to generate";
  if (const ModelInput* features = input(InputRole::features))
    return fmt::format("reads {} beside the tokens, which a text does not have", features->name);
  return "";
}

std::string_view ModelFamily::context_key() const {
  const ModelInput* ids = input(InputRole::token_ids);
  return ids ? ids->shape.front() : std::string_view{};
}

std::string_view ModelFamily::vocabulary_key() const {
  const ModelInput* ids = input(InputRole::token_ids);
  return ids ? ids->classes : std::string_view{};
}

void check_inputs(const ModelFamily& family) {
  if (family.open) return;  // a file says which there are
  for (const ModelInput& input : family.inputs) check_input(family, input);
  if (family.reads_arrays()) {
    for (const ModelInput& input : family.inputs)
      check(input.role == InputRole::array, "the {} reads {} beside arrays", family.title,
            name_of(input.role));
    return;
  }
  const ModelInput *ids = family.input(InputRole::token_ids),
                   *labels = family.input(InputRole::labels);
  check(labels, "the {} has no labels", family.title);
  for (const ModelInput* of_tokens :
       {family.input(InputRole::documents), family.input(InputRole::positions),
        family.input(InputRole::mask)})
    if (of_tokens)
      check(ids && of_tokens->shape == ids->shape,
            "the {} of the {} have not the shape of its token ids", name_of(of_tokens->role),
            family.title);
  if (ids) {
    check(ids->shape.size() == 1, "the token ids of the {} are no sequence", family.title);
    check(family.predicts_tokens(),
          "the labels of the {} are the tokens that follow: their shape and classes are those of "
          "the token ids",
          family.title);
  } else {
    check(family.input(InputRole::features), "the {} has neither token ids nor features",
          family.title);
    check(labels->shape.empty(), "the {} has more than one label for the features of a sample",
          family.title);
  }
}

bool ties_head(const ModelConfig& model) {
  const std::optional<HuggingFace>& hub = model.family().hugging_face;
  if (!hub || !hub->ignored) return false;
  const std::vector<std::string> ignored = hub->ignored(model);
  return std::ranges::find(ignored, kHeadTensor) != ignored.end();
}

ForeignNames foreign_names_of(const ModelConfig& model) {
  if (model.family().names_of_weights) return model.family().names_of_weights();
  const std::optional<HuggingFace>& hub = model.family().hugging_face;
  if (!hub) return {};
  ForeignNames names{.prefix = std::string(hub->prefix)};
  if (hub->ignored) names.ignored = hub->ignored(model);
  if (ties_head(model))
    names.stored_names.push_back({std::string(hub->table), std::string(kHeadTensor)});
  if (model.gives_score()) {
    names.ignored.emplace_back(hub->head);
    names.fresh.emplace_back(kScoreTensor);
  }
  if (model.stored_vocabulary() > 0)
    names.grown = {{std::string(hub->table), std::string(hub->head)}, model.stored_vocabulary()};
  return names;
}

std::string model_path(std::string_view name) {
  return fmt::format("{}{}", kModelSection, name);
}

}  // namespace dstrain
