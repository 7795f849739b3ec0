// The command lines of what is done with a trained model and its tokenizer.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/arguments.h"

namespace dstrain {

// Parse the words after `eval`, `teach`, `export`, `import` and `tokenize`. Throw UserError.
Arguments parse_eval(const std::vector<std::string>& words);
Arguments parse_teach(const std::vector<std::string>& words);
Arguments parse_export(const std::vector<std::string>& words);
Arguments parse_import(const std::vector<std::string>& words);
Arguments parse_tokenize(const std::vector<std::string>& words);

}  // namespace dstrain
