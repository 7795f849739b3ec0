// Rules: how the state of a key follows from its value and from the facts of the configuration. This
// header holds the type and the rules that several sections share; a rule of one section stands in that
// section's file.
#pragma once

#include <string>
#include <string_view>

#include "runtime/config/json/tree.h"
#include "runtime/config/keys/table/facts.h"
#include "runtime/config/verdict.h"

namespace dstrain {

struct KeySpec;

// What a rule decides about one value.
struct Judgement {
  State state = State::honoured;
  std::string message;
  bool follows = false;  // another key is the reason, and its verdict has the message for the user
  bool warns = false;    // the run goes on and prints the message once as a warning
};

// The rule that decides the state of a key. It depends on the configuration alone, never on the machine.
struct Rule {
  Judgement (*judge)(const Facts&, const KeySpec&,
                     const Node& value);  // value: never null or "auto"
  std::string_view published;             // the possible states, for docs/config-keys.md
};

namespace rules {
extern const Rule kFlag;              // true: not_yet
extern const Rule kAboveOne;          // up to 1: no_effect; more: honoured
extern const Rule kWarns;             // true: no_effect with a warning
extern const Rule kWarnsIfEnabled;    // the same if the section's `enabled` is true
extern const Rule kIfEnabled;         // honoured if the section's `enabled` is true
extern const Rule kRefusedIfEnabled;  // refused if the section's `enabled` is true
extern const Rule kRecompute;         // an interval of layers, "none" or "selective"
// Of whole sections, whose members are not in the table:
extern const Rule kRefusedIfOn;       // refused if its `enabled` is true
extern const Rule kRefusedUnlessOff;  // refused unless it is empty or its `enabled` is false
extern const Rule kNotYetIfOn;        // not_yet if its `enabled` is true

// Returns whether `section`, which offloads to nvme, does not say in nvme_path where on disk.
bool lacks_drive(const Facts& facts, std::string_view section);

// Judges an nvme_path that is used: a directory, or a list of some.
Judgement judge_drives(const Node& value);
}  // namespace rules

}  // namespace dstrain
