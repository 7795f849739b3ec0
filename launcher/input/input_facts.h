// InputFacts: all that ranks of one run must have in common, each by name: the program, what its numbers
// depend on (run_facts.h), the files that it begins with. Where files lie is no part of it: that may differ
// from host to host. Stands on config, data, storage and engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/data/dataset.h"

namespace dstrain {

struct InputFact {
  std::string name;    // "program", "initial weights", "checkpoint", or as run_facts() has it
  std::string value;   // as text
  std::string file{};  // that it is about, for messages only
};
using InputFacts = std::vector<InputFact>;

// The facts of a run of this program; reads its files. `job` is final: device chosen, vocabulary size known.
// Throws UserError where a file cannot be read, or there is no checkpoint.
InputFacts input_facts(const Job& job, const Dataset& dataset);

// Of names and values.
uint64_t digest_of(const InputFacts& facts);

// The facts as text, and back. parse_facts throws RunError where the text is not one of ours.
std::string facts_text(const InputFacts& facts);
InputFacts parse_facts(const std::string& text);

// What differs, a part for each: "dstrain.seed: 7 there, 1337 here". `here` names the files.
std::vector<std::string> differences(const InputFacts& here, const InputFacts& there);

}  // namespace dstrain
