// What the keys and options of other programs are called here: Hugging Face's TrainingArguments and examples, TRL, PEFT,
// PyTorch Lightning, NeMo and Megatron.
#pragma once

#include <string_view>

namespace dstrain {

class ModelRegistry;

// What a name of another program means. At least one member is set where the name is known.
struct OtherName {
  std::string_view names;       // "a|b", in lower case with underscores
  std::string_view key{};       // the key that decides what the name asks for
  std::string_view option{};    // the option of the command line that takes the value
  std::string_view advice{};    // what to do where neither takes the value as it is
  std::string_view sections{};  // "a|b": where the name means that; empty: anywhere
  bool idle = false;  // no number of a run depends on it, whatever `key` says: it can be ignored
};

// Returns what `name` means as a key of the section at `path` (empty: the top level, or an option); null: nothing known.
// "Random-Seed" and "--random_seed" are the same name. Names of models' keys are not among them: see key_called().
const OtherName* find_other_name(std::string_view name, std::string_view path = {});

// Returns whether the value of `name` is the precision of a run: "mixed_precision", "torch_dtype".
bool names_precision(std::string_view name);

// Returns the key that turns on such a value asks for, "bf16.enabled" for "bfloat16"; empty: fp32, or
// another text.
std::string_view precision_key(std::string_view value);

}  // namespace dstrain
