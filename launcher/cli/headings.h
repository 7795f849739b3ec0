// The headings under which the help shows options that several commands have.
#pragma once

namespace dstrain::heading {

inline constexpr const char* kTrained = "What is trained";
inline constexpr const char* kMemory = "Memory and parallelism";
inline constexpr const char* kOutput = "Output and checkpoints";
inline constexpr const char* kHosts = "Hosts";
inline constexpr const char* kProcesses = "Processes";
inline constexpr const char* kPrinting = "Printing";
inline constexpr const char* kRead = "What is read";
inline constexpr const char* kWritten = "What is written";
inline constexpr const char* kMeasured = "What is measured";

}  // namespace dstrain::heading
