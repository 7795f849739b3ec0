// The instruction sets that kernels on the CPU choose from: those of the processor, and those that a run would use.
#pragma once

#include <filesystem>
#include <string>

#include "launcher/doctor/machine_line.h"
#include "runtime/core/isa/isa.h"

namespace dstrain {

// Levels of instruction sets.
struct InstructionFacts {
  Isa offered = Isa::baseline;  // by the processor, as the kernel lists its features
  Isa used = Isa::baseline;     // by kernels
  Isa built = Isa::amx;         // the most that kernels compiled by Highway have in this program
  std::string limit;            // the value of DSTRAIN_MAX_ISA; empty: it is not set
};

// Returns the level of the features in proc/cpuinfo below `root`, which tests replace.
Isa offered_isa(const std::filesystem::path& root);

// Throws UserError if DSTRAIN_MAX_ISA is no level.
InstructionFacts instruction_facts(const std::filesystem::path& root);

MachineLines instruction_lines(const InstructionFacts& facts);

}  // namespace dstrain
