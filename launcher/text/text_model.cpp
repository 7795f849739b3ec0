#include "launcher/text/text_model.h"

#include "launcher/text/named_model.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"

namespace dstrain {
namespace {

std::unique_ptr<const Tokenizer> tokenizer_in(const std::string& directory, bool ids_suffice) {
  if (directory.empty()) return nullptr;
  try {
    std::unique_ptr<const Tokenizer> tokenizer = open_tokenizer(directory);
    for (const std::string& warning : tokenizer->warnings()) log::warn("{}", warning);
    return tokenizer;
  } catch (const UserError& e) {
    if (!ids_suffice) throw;
    log::warn("{}; what follows are token ids", e.what());
    return nullptr;
  }
}

// Returns the ids that end a text, with or without a tokenizer. A run that has left adapters alone has them in its model's
// folder.
std::vector<int32_t> stops_of(const TrainedModel& model) {
  std::vector<int32_t> stops;
  for (const std::string& directory :
       {model.tokenizer, model.place.run_dir, model.job.model_directory})
    if (stops.empty() && !directory.empty())
      for (const uint32_t id : stop_ids(directory)) stops.push_back(static_cast<int32_t>(id));
  return stops;
}

}  // namespace

std::vector<int32_t> TextModel::encode(const std::string& place, const std::string& text) const {
  if (!tokenizer) return trained.vocabulary.encode(text);
  if (const size_t at = first_invalid_utf8(text); at != std::string::npos)
    fail_user("{}: the text is not UTF-8 at byte {}", place, at);
  std::vector<int32_t> ids(tokenizer->prefix().begin(), tokenizer->prefix().end());
  for (const uint32_t id : tokenizer->encode(text)) ids.push_back(static_cast<int32_t>(id));
  ids.insert(ids.end(), tokenizer->suffix().begin(), tokenizer->suffix().end());
  return ids;
}

TextModel open_text_model(const TrainedName& name, bool ids_suffice, const ModelRegistry& models) {
  TextModel model;
  model.trained = read_named_model(name, {}, models);
  model.tokenizer = tokenizer_in(model.trained.tokenizer, ids_suffice);
  model.stops = stops_of(model.trained);
  return model;
}

}  // namespace dstrain
