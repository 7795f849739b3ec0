#include "runtime/engine/verify/small_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/family/family.h"
#include "runtime/core/error.h"
#include "runtime/ir/builder/builder.h"
#include "runtime/plan/build_model.h"

namespace dstrain {
namespace {

constexpr int64_t kHeads = 2, kChannelsOfHead = 16, kWidth = 24, kContext = 16, kVocabulary = 97,
                  kExperts = 4, kExpertsPerToken = 2;

bool is_legal(const ModelConfig& model) {
  const ModelFamily& family = model.family();
  return family.problem == nullptr || !family.problem(model);
}

// Returns whether data of arrays have the size of a key, which stays as they have it.
bool is_of_arrays(const ModelFamily& family, std::string_view key) {
  return std::ranges::any_of(family.inputs, [key](const ModelInput& input) {
    return input.role == InputRole::array &&
           (input.classes == key || std::ranges::find(input.shape, key) != input.shape.end());
  });
}

// Returns whether a key is a size that the runtime gives no meaning, and that the model has.
bool is_other_size(const ModelConfig& model, const ModelKey& key) {
  const ModelFamily& family = model.family();
  const std::string_view name = key.name();
  return key.spec.type == Type::integer && key.spec.min >= 1 && model.integer(name) > 0 &&
         name != family.layers_key && name != family.width_key && name != family.heads_key &&
         name != family.context_key() && name != family.vocabulary_key() &&
         name != family.experts_key && name != family.experts_per_token_key &&
         !is_of_arrays(family, name);
}

// Returns a size that stands to the small width or heads as it stood to the large ones.
int64_t in_proportion(int64_t size, const ModelConfig& large, const ModelConfig& small) {
  const ModelFamily& family = large.family();
  if (size >= large.width()) return std::max<int64_t>(size * small.width() / large.width(), 1);
  if (!family.heads_key.empty() && size <= large.integer(family.heads_key))
    return std::max<int64_t>(
        size * small.integer(family.heads_key) / large.integer(family.heads_key), 1);
  return std::min(size, small.width());
}

// Returns `size` rounded up to a multiple of `to`.
int64_t multiple_of(int64_t to, int64_t size) {
  return (size + to - 1) / to * to;
}

// Returns how many heads the small model has: two of each rank, else one.
int64_t small_heads(int64_t heads, const DividingRanks& ranks) {
  const int64_t parts = ranks.sequence * ranks.tensor;
  return parts > 1 && heads < kHeads * parts ? parts : std::min(heads, kHeads * parts);
}

// Returns the small model's context, which divides among the ranks.
int64_t small_context(int64_t context, int64_t parts) {
  const int64_t small = std::min(context, kContext);
  return small < parts ? small : small / parts * parts;
}

// Returns the tokens of a sample of a model with a small context: those of the model in proportion, at least half of the
// context where the model has as many; 0, all of the context, if the model has all of its own.
int64_t small_seq_len(const ModelConfig& model, int64_t context) {
  const int64_t tokens = model.seq_len(), whole = model.context();
  if (tokens == whole) return 0;
  const int64_t half = std::max<int64_t>(context / 2, 1);
  return std::max(std::min(tokens, half), tokens * context / whole);
}

// Returns the elements of the parameters of a model with one numbered layer, by name, and of its units.
struct Sizes {
  std::map<std::string, double> parameters;
  double largest_unit = 1;
  explicit Sizes(ModelConfig model) {
    model = model.with_any_vocabulary();
    model.set_layers(std::min<int64_t>(model.layers(), 2));
    Program program;
    Builder builder(program,
                    {.batch = model.family().any_batch(), .training = false, .checked = false});
    build_model(builder, model);
    std::vector<double> units(program.units.size());
    for (const Parameter& p : program.parameters) {
      double elements = 1;
      for (int i = 0; i < p.shape.rank; ++i) elements *= static_cast<double>(p.shape[i]);
      parameters[p.name] = elements;
      units[static_cast<size_t>(p.unit)] += elements;
    }
    for (const double unit : units) largest_unit = std::max(largest_unit, unit);
  }
};

int64_t scaled(int64_t limit, double factor) {
  if (limit == INT64_MAX) return limit;
  return static_cast<int64_t>(std::ceil(static_cast<double>(limit) * factor));
}

}  // namespace

ModelConfig small_model(const ModelConfig& model, int64_t layers, const DividingRanks& ranks) {
  const ModelFamily& family = model.family();
  if (family.is_fixed) return model;
  const int64_t parts = ranks.sequence * ranks.tensor;
  ModelConfig small = model;
  small.set_layers(std::min(model.layers(), layers));
  if (family.reads_tokens()) {
    small.set(family.context_key(), small_context(model.context(), parts));
    const int64_t tokens = multiple_of(parts, small_seq_len(model, small.context()));
    small.set_seq_len(std::min(tokens, small.context()));
    const int64_t known = model.vocabulary();
    small.set_vocabulary(known > 0 ? std::min(known, kVocabulary) : kVocabulary);
  }
  if (!family.experts_key.empty()) {
    const int64_t experts = std::min(model.integer(family.experts_key), kExperts);
    small.set(family.experts_key, multiple_of(ranks.expert, experts));
    small.set(family.experts_per_token_key,
              std::min({model.integer(family.experts_per_token_key), kExpertsPerToken, experts}));
  }
  // With the other sizes in proportion, else as they are; a width that fits them, else the model's own.
  for (const bool in_proportion_too : {true, false})
    for (int64_t times = 1; times <= 8; ++times) {
      ModelConfig tried = small;
      int64_t width = kWidth * times;
      if (!family.heads_key.empty()) {
        const int64_t heads = small_heads(model.integer(family.heads_key), ranks);
        tried.set(family.heads_key, heads);
        width = heads * kChannelsOfHead * times;
      }
      tried.set(family.width_key, std::min(model.width(), width));
      if (in_proportion_too)
        for (const ModelKey& key : family.keys)
          if (is_other_size(model, key))
            tried.set(key.name(),
                      multiple_of(key.name() == family.kv_heads_key ? ranks.tensor : 1,
                                  in_proportion(model.integer(key.name()), model, tried)));
      if (family.shrink != nullptr) family.shrink(tried);
      if (is_legal(tried)) return tried;
    }
  return small;
}

Shrinking::Shrinking(ModelConfig large_model, ModelConfig small_model)
    : large(std::move(large_model)), small(std::move(small_model)) {
  layer = Sizes(small).largest_unit / Sizes(large).largest_unit;
  model = small.measures().parameters / large.measures().parameters;
}

int64_t Shrinking::units(int64_t limit) const {
  return scaled(limit, layer);
}

int64_t Shrinking::share(int64_t limit) const {
  return scaled(limit, model);
}

int64_t Shrinking::parameters(int64_t limit) const {
  const Sizes before(large), after(small);
  double result = 0;
  for (const auto& [name, elements] : before.parameters) {
    const auto counterpart = after.parameters.find(name);
    if (elements <= static_cast<double>(limit) && counterpart != after.parameters.end())
      result = std::max(result, counterpart->second);
  }
  return static_cast<int64_t>(result);
}

}  // namespace dstrain
