// The chat templates of Hugging Face directories.
#pragma once

#include <memory>
#include <string>

#include "runtime/data/chat/chat_template.h"
#include "runtime/data/tokenizer/tokenizer.h"

namespace dstrain {

// Returns the template that `given` names: dstrain's own (chatml, llama3, qwen), or a file. If `given` is empty it is
// that of `directory`: chat_template.jinja, else "chat_template" of tokenizer_config.json; null if it has none. The
// template knows the directory's special tokens: those of its files of settings and, where they do not name bos_token or
// eos_token, what generation_config.json or config.json have as its id; writing one that no file has is an error. Throws UserError for a file that is missing or damaged, and for a
// template that has what is not available.
std::unique_ptr<const ChatTemplate> open_chat_template(const std::string& directory,
                                                       const std::string& given,
                                                       const Tokenizer& tokenizer);

// Returns the checksum, as text, of the directory's chat_template.jinja; empty if it has none. A template elsewhere is part
// of tokenizer_checksum() with settings. Throws UserError if it cannot be read.
std::string chat_template_checksum(const std::string& directory);

}  // namespace dstrain
