// The key table: every key of a DeepSpeed configuration, and of our section `dstrain`, with its type,
// default, range and published state. Stands on the tree. One file per section below keys/.
// Invariant: whatever is not in this table is an unknown key; defaults are written here and nowhere
// else, and a rule depends on the configuration alone (Facts), never on the machine.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/load.h"
#include "runtime/config/tree.h"

namespace dstrain {

enum class Type : uint8_t {
  boolean,
  integer,  // 5e8 and 2.0 are integers too, as in DeepSpeed
  real,
  rate,   // a real, or a list of one (DeepSpeed's list per parameter group)
  betas,  // two reals
  string,
  choice,           // one of `choices`, which stand in lower case where case does not matter
  strings,          // list of strings
  integers,         // list of integers
  count_or_choice,  // an integer, or one of `choices`
  section,          // object whose keys are in the table
  opaque,           // object whose inside is not looked at
};

// What the states of other keys depend on; computed first, from whatever of the file makes sense.
struct Facts {
  const Node* root = nullptr;
  int64_t stage = 0;
  bool fp16 = false, bf16 = false, dynamic_scale = false;
  bool nvme = false;      // either offload section swaps to files
  std::string optimizer;  // lower case; "adamw" where there is none
  std::string scheduler;  // as written; "" where there is none
  std::string model;      // "gptlite" or "benchmark"

  bool on(std::string_view key) const;           // a boolean key, its default where absent
  std::string text(std::string_view key) const;  // a string key, its default where absent
  int64_t integer(std::string_view key) const;   // an integer key, its default where absent
};
Facts find_facts(const Node& root);

struct Judgement {
  State state = State::honoured;
  std::string message;
  bool follows = false;  // another key is the reason and says so itself
  bool warns = false;    // the run goes on, and says the message once
};

struct KeySpec;
struct Rule {
  Judgement (*judge)(const Facts&, const KeySpec&, const Node& value);  // value: never null or auto
  std::string_view published;  // the states in words, for docs/config-keys.md
};

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();
inline constexpr double kMaxCount = 9007199254740992.0;  // 2^53: counts are exact as doubles too

struct KeySpec {
  std::string_view key;
  Type type = Type::boolean;
  std::string_view fallback = {};  // default as JSON text; empty: unset, and null is legal
  State state = State::honoured;   // where there is no rule
  std::string_view note = {};  // honoured: what it does; otherwise the reason, shown to the user
  const Rule* rule = nullptr;
  double min = -kNoLimit, max = kNoLimit;
  bool open = false;              // min (integer: does not apply) or max itself is not allowed
  std::string_view choices = {};  // "a|b"
  std::string_view only = {};     // "a|b": types of optimizer, scheduler or model that have it
  std::string_view alias = {};    // an old name of this key
  bool nullable = false;          // null is legal although there is a default
};

// All keys, section by section.
const std::vector<KeySpec>& key_table();

// The entry of `key` for what the file selects (optimizer, scheduler, model), or null. `other` is set
// where the key exists, but for other types only.
const KeySpec* find_key(const Facts& facts, std::string_view key, std::string* other = nullptr);

// The entry that `spec` stands for: itself, or the target of an alias.
const KeySpec& target_of(const Facts& facts, const KeySpec& spec);

// Whether a key of this name, wherever it stands, is a comment: "_comment", "//", "$schema" and the like.
bool is_comment(std::string_view name);

// What an unknown `key` may have meant: " (did you mean ...?)", or empty.
std::string suggestion(const Facts& facts, std::string_view key);

// The ZeRO stage that one of FSDP's sharding strategies is; none for a hybrid one.
std::optional<int64_t> stage_of_sharding(std::string_view strategy);

// Whether `word` is one of the words of `list` ("a|b|c").
bool one_of(std::string_view list, std::string_view word);
std::vector<std::string> split_words(std::string_view list);

// Rules that several sections share.
namespace rules {
extern const Rule kFlag;              // true: not yet
extern const Rule kAboveOne;          // more than 1: not yet
extern const Rule kWatch;             // true: not there yet, and the run goes on without it
extern const Rule kWatchIfEnabled;    // the same where the section's `enabled` is true
extern const Rule kRefusedIfEnabled;  // refused where it is
extern const Rule kRecompute;         // what an activation_checkpoint_interval or the like asks for
}  // namespace rules

namespace keys {
std::vector<KeySpec> training();
std::vector<KeySpec> optimizer();
std::vector<KeySpec> scheduler();
std::vector<KeySpec> precision();
std::vector<KeySpec> zero();
std::vector<KeySpec> offload();
std::vector<KeySpec> activation_checkpointing();
std::vector<KeySpec> pipeline();
std::vector<KeySpec> monitoring();
std::vector<KeySpec> others();
std::vector<KeySpec> dstrain();
}  // namespace keys

}  // namespace dstrain
