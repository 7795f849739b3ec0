// What to write in place of an option of DeepSpeed's or of another program, such as Hugging Face's TrainingArguments.
#pragma once

#include <string>
#include <vector>

namespace dstrain {

class ModelRegistry;

// An option that a command does not have.
struct ForeignOption {
  std::string word;                 // as it was given: "--lr", "--lr=3"
  std::vector<std::string> values;  // the words behind it that are no options
};

// Returns what to do in place of `option`: "did you mean --epochs?", "say it with --set optimizer.params.lr=3"; empty:
// nothing is known. `names`: the command's own options.
std::string advice_on(const ForeignOption& option, const std::vector<std::string>& names,
                      const ModelRegistry& models);

}  // namespace dstrain
