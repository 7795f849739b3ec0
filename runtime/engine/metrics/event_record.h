// The records of TensorBoard's event files: TFRecord frames with masked CRC-32C around messages Event of protobuf.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine/metrics/monitor.h"

namespace dstrain {

// Returns the CRC-32C (Castagnoli) of bytes.
uint32_t crc32c(std::string_view bytes);

// Return one frame each. `time`: seconds since 1970.
std::string version_record(double time);  // the first of a file
// Readers drop the values at `step` and after it that earlier files of the directory have.
std::string restart_record(double time, int64_t step);
std::string values_record(double time, int64_t step, const std::vector<TaggedValue>& values);

}  // namespace dstrain
