// Huge pages: whether the kernel gives them to memory that asks for them, as all memory of a rank does
// (runtime/core/memory.h).
#pragma once

#include <filesystem>
#include <string>

#include "launcher/doctor/machine_line.h"

namespace dstrain {

// What the kernel's settings choose for a rank's own memory and for memory that ranks share: "always", "madvise",
// "advise", "never" and others. Empty: the kernel has no such pages.
struct HugePageFacts {
  std::string own, shared;
};

// Reads files below `root`, which tests replace.
HugePageFacts huge_page_facts(const std::filesystem::path& root);

MachineLines huge_page_lines(const HugePageFacts& facts);

}  // namespace dstrain
