// The key table: every key of a DeepSpeed configuration, and of dstrain's own section, with its type, default, range
// and state. Those of models come from their families (model_registry.h). Invariant: a key that is not in the table is
// unknown, and defaults are written in the table alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/json/tree.h"
#include "runtime/config/keys/key_spec.h"
#include "runtime/config/keys/table/facts.h"
#include "runtime/config/keys/table/rules.h"
#include "runtime/config/verdict.h"

namespace dstrain {

// How origins and messages call a default of Hugging Face's TrainingArguments.
inline constexpr std::string_view kHuggingFace = "Hugging Face's default";

// Returns all keys but those of models, section by section.
const std::vector<KeySpec>& common_keys();

// Returns the entry of `key` for the selected types of optimizer, scheduler and model, or null. If the
// key exists for other types only, `other` receives their names.
const KeySpec* find_key(const Facts& facts, std::string_view key, std::string* other = nullptr);

// Returns the entry that holds the type and state of `spec`: itself, or the target of an alias.
const KeySpec& target_of(const Facts& facts, const KeySpec& spec);

// Returns whether a key of this name is a comment at any place: "_comment", "//", "$schema" and the like.
bool is_comment(std::string_view name);

// What a key that does not exist may have meant.
struct Hint {
  std::string text{};   // for the message: " (did you mean dstrain.seed?)"; empty: nothing is near
  std::string key{};    // the key that decides what is asked for; empty: none is known
  std::string value{};  // what `key` says the same with, for --set; empty: no value does
  bool idle = true;     // no number of a run depends on what is asked for
};

// Returns what an unknown `key` with this value may have meant. A key that would refuse the value is no help.
Hint hint_on(const Facts& facts, std::string_view key, const Node& value);

// Returns the key that means what other programs call `name`: "dstrain.seed" for "seed", "--seed" and "random-seed";
// empty: none.
std::string_view key_called(const ModelRegistry& models, std::string_view name);

// Returns the ZeRO stage of one of FSDP's sharding strategies; nothing for another text.
std::optional<int64_t> stage_of_sharding(std::string_view strategy);

}  // namespace dstrain
