// KeySpec: one key of a configuration, as the key table and the families of models state it.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "runtime/config/verdict.h"

namespace dstrain {

struct Rule;

// What values a key takes.
enum class Type : uint8_t {
  boolean,
  integer,  // 5e8 and 2.0 are integers too, as in DeepSpeed
  real,
  rate,   // a real, or a list of one (DeepSpeed's list per parameter group)
  betas,  // two reals
  string,
  choice,         // one of `choices`; if all of them are lower case, any case is accepted
  strings,        // list of strings
  integers,       // list of integers
  real_or_reals,  // a real, or a list of at least one
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

// The largest number of ranks, or of stages, along one axis.
inline constexpr double kMostRanksOfAxis = 4096;

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

}  // namespace dstrain
