// TextModel: a trained model with what turns text into its tokens and back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/cli/arguments.h"
#include "launcher/input/trained_model.h"
#include "runtime/config/keys/table/model_registry.h"
#include "runtime/data/tokenizer/tokenizer.h"

namespace dstrain {

struct TextModel {
  TrainedModel trained;
  std::unique_ptr<const Tokenizer> tokenizer;  // null: there is none
  std::vector<int32_t> stops;                  // ids that end a text

  // Returns whether its texts are token ids.
  bool of_ids() const {
    return tokenizer == nullptr && trained.vocabulary.format == DataFormat::tokens;
  }
  // Returns the ids of a text as transformers' tokenizers make them: with what the post-processor puts around it. `place`
  // names the text in messages. Throws UserError for a text that is not UTF-8 or has characters outside the vocabulary.
  std::vector<int32_t> encode(const std::string& place, const std::string& text) const;
};

// Opens the model that the arguments name. A tokenizer that cannot be read is a warning if `ids_suffice`. Throws UserError.
TextModel open_text_model(const TrainedName& name, bool ids_suffice, const ModelRegistry& models);

}  // namespace dstrain
