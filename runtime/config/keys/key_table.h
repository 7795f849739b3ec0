// The key table: every key of a DeepSpeed configuration, and of dstrain's own section, with its type, default, range
// and state. Those of models come from their families (model/registry.h). Invariant: a key that is not in the table is
// unknown, and defaults are written in the table alone.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/keys/facts.h"
#include "runtime/config/keys/rules.h"
#include "runtime/config/read/tree.h"
#include "runtime/config/verdict.h"

namespace dstrain {

// How origins and messages call a default of Hugging Face's TrainingArguments.
inline constexpr std::string_view kHuggingFace = "Hugging Face's default";

// What values a key takes.
enum class Type : uint8_t {
  boolean,
  integer,  // 5e8 and 2.0 are integers too, as in DeepSpeed
  real,
  rate,   // a real, or a list of one (DeepSpeed's list per parameter group)
  betas,  // two reals
  string,
  choice,    // one of `choices`; if all of them are lower case, any case is accepted
  strings,   // list of strings
  integers,  // list of integers
  string_or_integers,
  string_or_strings,
  count_or_choice,  // an integer, or one of `choices`
  bytes,            // an integer, or text with a unit: "2GB"
  section,          // object whose keys are in the table
  opaque,           // object whose members are not checked
  any,              // any value, which is not checked
};

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();
inline constexpr double kMaxCount = 9007199254740992.0;  // 2^53: doubles hold every count exactly

// One key of the table.
struct KeySpec {
  std::string_view key;  // dotted path
  Type type = Type::boolean;
  std::string_view fallback = {};  // default as JSON text; empty: unset, and null is legal
  // What "auto" is, as JSON text, where Hugging Face's TrainingArguments say it; empty: the default, or what the
  // solving function derives.
  std::string_view automatic = {};
  State state = State::honoured;  // of a key without a rule
  std::string_view note = {};     // honoured: what it does; otherwise the reason, shown to the user
  const Rule* rule = nullptr;
  double min = -kNoLimit, max = kNoLimit;
  bool open =
      false;  // the limit itself is not allowed: max if it is finite, else min; not for integers
  std::string_view choices = {};  // "a|b"; of a string whose rule decides: the names to suggest
  std::string_view only = {};     // "a|b": types of optimizer, scheduler or model that have the key
  std::string_view alias = {};    // this key is an old name of `alias`
  bool nullable = false;          // null is legal although there is a default
  std::string_view called =
      {};  // "a|b": what other programs call it, in lower case with underscores
};

// Returns all keys but those of models, section by section.
const std::vector<KeySpec>& common_keys();

// Returns the entry of `key` for the selected types of optimizer, scheduler and model, or null. If the
// key exists for other types only, `other` receives their names.
const KeySpec* find_key(const Facts& facts, std::string_view key, std::string* other = nullptr);

// Returns the entry that holds the type and state of `spec`: itself, or the target of an alias.
const KeySpec& target_of(const Facts& facts, const KeySpec& spec);

// Returns whether a key of this name is a comment at any place: "_comment", "//", "$schema" and the like.
bool is_comment(std::string_view name);

// Returns " (did you mean ...?)" for an unknown `key` with this value, or an empty string where no known key is near. A
// key that would refuse the value is no help.
std::string suggestion(const Facts& facts, std::string_view key, const Node& value);

// Returns the key that means what other programs call `name`: "dstrain.seed" for "seed", "--seed" and "random-seed";
// empty: none.
std::string_view key_called(const ModelRegistry& models, std::string_view name);

// Returns the ZeRO stage of one of FSDP's sharding strategies; nothing for another text.
std::optional<int64_t> stage_of_sharding(std::string_view strategy);

}  // namespace dstrain
