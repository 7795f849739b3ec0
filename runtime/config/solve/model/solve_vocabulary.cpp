#include "runtime/config/solve/model/solve_vocabulary.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>

#include "runtime/config/family/family.h"
#include "runtime/config/family/hugging_face.h"
#include "runtime/config/keys/table/coerce.h"

namespace dstrain {
namespace {

// Returns the number of ids that the folder's file says, or the family's default; 0: its value is no number.
int64_t ids_of_directory(const Merged& merged, const ModelFamily& family) {
  const Member* const given = merged.directory_model.member(family.vocabulary_key());
  if (!given || given->value.is(Node::Kind::null)) return ModelConfig(family).vocabulary();
  return to_integer(given->value).value_or(0);
}

// Returns the last part of the name of a tensor's module.
std::string_view module_of(std::string_view tensor) {
  const std::string_view module = tensor.substr(0, tensor.rfind('.'));
  return module.substr(module.rfind('.') + 1);
}

// Returns whether the run trains the tables whose rows are of tokens: with adapters, those that it names. A head that is the
// embedding is trained with it.
bool trains_tables(const ModelConfig& model) {
  const std::optional<LoraConfig>& lora = model.fine_tuning().lora;
  if (!lora) return true;
  const HuggingFace& hub = *model.family().hugging_face;
  return lora->saves(hub.table) &&
         (lora->saves(hub.head) || ties_head(model) || model.gives_score());
}

}  // namespace

void solve_vocabulary(Job& job, Values& values, const Merged& merged, Diagnostics& diagnostics) {
  const ModelFamily& family = job.model.family();
  if (values.given(kAddedTokens)) {
    job.data.added_tokens = values.texts(kAddedTokens);
    if (job.model_directory.empty())
      diagnostics.error(kAddedTokens,
                        "there is no tokenizer that has tokens added: name the folder "
                        "of a model (--model DIR)");
    else if (std::ranges::find(job.data.added_tokens, "") != job.data.added_tokens.end())
      diagnostics.error(kAddedTokens, "a token is empty: expected texts");
  }
  const bool from_directory =
      !job.model_directory.empty() && job.init_weights == job.model_directory;
  if (!from_directory || !merged.directory_model.is(Node::Kind::object)) return;
  const int64_t stored = ids_of_directory(merged, family), ids = job.model.vocabulary();
  const std::string key = model_path(family.vocabulary_key());
  if (stored < 1 || ids == stored || diagnostics.stopped(key)) return;
  if (ids < stored)
    diagnostics.error(key,
                      fmt::format("{} is less than the {} of the model, whose weights keep all "
                                  "of their rows: leave it out",
                                  ids, stored));
  else if (!trains_tables(job.model))
    diagnostics.error(
        key,
        fmt::format("{} is more than the {} of the model, and dstrain.lora would leave the new "
                    "rows as they begin: name their modules in dstrain.lora.modules_to_save "
                    "([\"{}\", \"{}\"])",
                    ids, stored, module_of(family.hugging_face->table),
                    module_of(family.hugging_face->head)));
  else
    job.model.set_stored_vocabulary(stored);
}

}  // namespace dstrain
