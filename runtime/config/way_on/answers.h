// Answers: the options of the command line with which a run goes on although a verdict stops it.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/keys/table/facts.h"
#include "runtime/config/read/merge.h"
#include "runtime/config/verdict.h"

namespace dstrain {

// The options that answer a verdict: keys that are ignored, and settings.
struct Answer {
  std::vector<std::string> ignores, sets;  // KEY; KEY=VALUE
  bool operator==(const Answer&) const = default;
};

// A configuration whose verdicts are answered.
struct Asked {
  const Merged& merged;  // with the answers that have been found
  const Facts& facts;
  const Node& own;  // the configuration without answers
};

// Returns the answer to `v` that is tried first; empty: none. No answer loses a value that numbers of a run depend on: a
// key with such a value is set to one that computes the same, or has no answer. Keys that DeepSpeed ignores, and that mean
// nothing here, are ignored.
Answer first_answer(const Verdict& v, const Asked& asked);

// Returns the answer to `v` after `tried` has not helped; empty: none.
Answer next_answer(const Verdict& v, const Answer& tried);

// Returns whether DeepSpeed refuses the unknown key of `v` instead of ignoring it. `optimizer`: the type, in lower case.
bool deepspeed_refuses(const Verdict& v, std::string_view optimizer);

// Returns the member at the dotted path, of several of a name the last one; null: none.
const Member* find_last(const Node& root, std::string_view path);

}  // namespace dstrain
