// How the lines of JSON files become tokens: by what the user asks for, and what a model's directory says.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/data/chat/chat_template.h"
#include "runtime/data/chat/template_directory.h"
#include "runtime/data/documents/documents.h"
#include "runtime/data/tokenizer/tokenizer.h"

namespace dstrain {

struct LineSettings {
  std::string chat_template;  // dstrain's own by name, or a file; empty: the directory's
  LossOn loss_on = LossOn::usual;
  bool skip_invalid = false;  // leave out invalid lines
  AnswerLines answers = AnswerLines::none;
  bool no_eos = false;                          // no token behind texts and completions
  std::string_view named_by = kTemplateOption;  // what names the template, for messages
};

// Options, with the template that they point to.
struct LineRules {
  std::unique_ptr<const ChatTemplate> chat_template;
  LineOptions options;
};

// Returns how `files` are encoded with the tokenizer and the chat template of a directory. Reads neither the template nor
// the token that ends texts where none of the files has JSON lines. A template of the directory that cannot be read is an
// error where a line needs it. Adds what the user should know to `warnings`. Throws UserError if no file says which token
// ends a text, and for the template that the settings name.
LineRules line_rules(const std::string& directory, const Tokenizer& tokenizer,
                     const std::vector<std::string>& files, const LineSettings& settings,
                     std::vector<std::string>& warnings);

}  // namespace dstrain
