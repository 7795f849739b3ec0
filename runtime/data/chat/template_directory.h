// The chat templates of Hugging Face directories.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/data/chat/chat_template.h"
#include "runtime/data/tokenizer/tokenizer.h"

namespace dstrain {

// The file of a template, beside a model's or a run's weights.
inline constexpr const char* kTemplateFile = "chat_template.jinja";

// Where a template is named: the option of a command, and the key of a run.
inline constexpr std::string_view kTemplateOption = "--chat_template",
                                  kTemplateKey = "dstrain.data.chat_template";

// Returns the template that `given` names: dstrain's own (chatml, llama3, qwen), or a file. `named_by` is the option or
// key that has the name, for messages. If `given` is empty the template is that of `directory`: chat_template.jinja,
// else "chat_template" of tokenizer_config.json; null if it has none. The template knows the directory's special
// tokens: those of its files of settings and, where they do not name bos_token or eos_token, what
// generation_config.json or config.json have as its id; writing one that no file has is an error. Throws UserError for
// a file that is missing or damaged, and for a template that has what is not available.
std::unique_ptr<const ChatTemplate> open_chat_template(const std::string& directory,
                                                       const std::string& given,
                                                       const Tokenizer& tokenizer,
                                                       std::string_view named_by = kTemplateOption);

// Returns the text of the directory's own template; nothing if it has none. Throws UserError for a file that is damaged.
std::optional<std::string> chat_template_text(const std::string& directory);

// Returns the text of the template that `given`, which is not empty, names. Throws UserError if there is none of that name,
// and if the file cannot be read.
std::string named_template(const std::string& given, std::string_view named_by);

// Returns the checksum, as text, of the template that `given` names, as the key does; if `given` is empty that of the
// directory's chat_template.jinja; empty if it has none. A template elsewhere is part of tokenizer_checksum() with settings.
// Throws UserError if it cannot be read.
std::string chat_template_checksum(const std::string& directory, const std::string& given);

}  // namespace dstrain
