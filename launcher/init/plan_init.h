// The configuration of `dstrain init`: what somebody has chosen becomes values, and what is left open follows from what fits.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/arguments.h"

namespace dstrain {

// What this machine has, on which choices depend that nobody makes.
struct InitMachine {
  int64_t gpus = 0, gpu_memory = 0;  // the memory of each, in bytes
  int64_t memory = 0;                // of the host, that is available
  bool multiplies_bf16 = false;      // its processor has instructions for bf16
};

// Returns what this machine has. Throws RunError if a GPU cannot be asked.
InitMachine look_at_init_machine();

// The configuration to write.
struct NewConfig {
  std::string text;                // of the file
  std::string summary;             // of the model and of how it fits, in a line
  std::string assumption;          // about the vocabulary; empty: none
  std::vector<std::string> train;  // the command that trains it, as words
};

// Returns a command as a user types it.
std::string command_text(const std::vector<std::string>& words);

// Returns the configuration. Nothing is written. Throws UserError if nothing fits or a choice is wrong.
NewConfig plan_init(const InitArguments& arguments, const InitMachine& machine);

}  // namespace dstrain
